// SPDX-License-Identifier: Apache-2.0
// The former place of BlockReduce.
#pragma once
#include "cuda/device/reduce.cuh"
