# SPDX-License-Identifier: Apache-2.0
"""Everything is declared in pyproject.toml; CMakeLists.txt builds pyminidnn._C.

The wrapper's setup() drives CMake. Importing it here makes a build without scikit-build-core fail at once, instead of
making a wheel that lacks the extension.
"""

from scikit_build_core.setuptools.wrapper import setup

setup(cmake_source_dir=".")
