# SPDX-License-Identifier: Apache-2.0
"""The public functions, a module per family. Each names its arguments, converts arrays and calls its namesake in _C."""
