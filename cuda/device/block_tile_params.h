// SPDX-License-Identifier: Apache-2.0
// The size of a tile of block_tile.cuh. The kernels and the engines that launch them use it.
#pragma once

namespace minidnn {

constexpr int kTileThreads = 256;
// The number of 16-byte vectors of each tensor that a thread holds. A kernel may choose another number.
constexpr int kTileVectors = 2;

}  // namespace minidnn
