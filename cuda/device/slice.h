// SPDX-License-Identifier: Apache-2.0
// What a block of elementwise.cuh takes, for kernels and for the engines that launch them.
#pragma once

namespace minidnn {

constexpr int kSliceThreads = 256;
constexpr int kSliceVectors = 2;  // of 16 bytes a thread and tensor, where a kernel does not choose

}  // namespace minidnn
