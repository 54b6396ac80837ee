// SPDX-License-Identifier: Apache-2.0
// Instantiated by cuda/gemm/sm90.cpp.
#include "cuda/gemm/sm90.cuh"
