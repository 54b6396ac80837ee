# SPDX-License-Identifier: Apache-2.0
"""With this folder in PYTHONPATH, Python searches PYTHONPATH for pyminidnn first.

An editable install adds an import hook, which finds the extension of the checkout before PYTHONPATH is searched. Python
imports this module after it has added the hook.
"""

import sys

sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "ScikitBuildRedirectingFinder"]
