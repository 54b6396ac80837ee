// SPDX-License-Identifier: Apache-2.0
// The size of a slice in elementwise.cuh, for kernels and for the engines that launch them.
#pragma once

namespace minidnn {

constexpr int kSliceThreads = 256;
// vectors of 16 bytes for each thread and tensor, unless a kernel chooses another number
constexpr int kSliceVectors = 2;

}  // namespace minidnn
