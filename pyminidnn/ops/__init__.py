# SPDX-License-Identifier: Apache-2.0
"""The public functions, a module per family. Each function converts its arrays to tensors and calls one of _C."""
