// SPDX-License-Identifier: Apache-2.0
// How many tensors and numbers a region of single elements (element_region.h) or of single rows (row_region.h) may
// have. Kernels include this file.
#pragma once

namespace minidnn {

constexpr int kMostElementLoads = 8, kMostElementStores = 4;
constexpr int kMostElementNumbers = 32;  // doubles, such as alpha
constexpr int kMostElementWords = 16;    // other 64-bit numbers, such as offsets of random numbers
constexpr int kMostElementSeeds = 4;     // of dropouts

constexpr int kMostStatistics = 3;
constexpr int kMostRowThreads = 640;  // of a block
// The most tensors that have one element for each row, and the most numbers that are known for each row.
constexpr int kMostRowLoads = 4, kMostRowStores = 6, kMostRowNumbers = 24;

}  // namespace minidnn
