# SPDX-License-Identifier: Apache-2.0
"""Everything is declared in pyproject.toml; CMakeLists.txt builds pyminidnn._C.

The setup() of scikit-build-core's wrapper runs CMake. Importing the wrapper here makes a build without
scikit-build-core fail immediately; otherwise the wheel would lack the extension.
"""

from scikit_build_core.setuptools.wrapper import setup

setup(cmake_source_dir=".")
