// SPDX-License-Identifier: Apache-2.0
// The size of a tile in block_tile.cuh, for kernels and for the engines that launch them.
#pragma once

namespace minidnn {

constexpr int kTileThreads = 256;
// Vectors of 16 bytes for each thread and tensor, unless a kernel chooses another number.
constexpr int kTileVectors = 2;

}  // namespace minidnn
