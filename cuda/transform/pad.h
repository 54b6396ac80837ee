// SPDX-License-Identifier: Apache-2.0
// What pad.cu and its engine agree on. Std-free.
#pragma once
#include "cpp/transform/pad_math.h"

namespace minidnn {

constexpr int kPadThreads = 256;
// Vectors of 16 bytes of a thread. The fewer words there are in one, the fewer loads are under way for it.
MINIDNN_HD constexpr int pad_vectors(int words) { return words == 1 ? 4 : words <= 4 ? 2 : 1; }

}  // namespace minidnn
