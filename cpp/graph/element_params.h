// SPDX-License-Identifier: Apache-2.0
// How many tensors and numbers a region of single elements may have (element_region.h). Kernels include this file.
#pragma once

namespace minidnn {

constexpr int kMostElementLoads = 8, kMostElementStores = 4;
constexpr int kMostElementNumbers = 32;  // doubles, such as alpha
constexpr int kMostElementWords = 16;    // other 64-bit numbers, such as seeds

}  // namespace minidnn
