// SPDX-License-Identifier: Apache-2.0
// The number of threads and vectors of a BlockTile (block_tile.cuh). The kernels and the host code that launches them
// use these constants.
#pragma once

namespace minidnn {

constexpr int kTileThreads = 256;
// The default number of 16-byte vectors that a thread holds from each tensor. A kernel may use another number.
constexpr int kTileVectors = 2;

}  // namespace minidnn
