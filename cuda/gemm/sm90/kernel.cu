// SPDX-License-Identifier: Apache-2.0
// Instantiated by cuda/gemm/plan.cpp.
#include "cuda/gemm/sm90/kernel.cuh"
