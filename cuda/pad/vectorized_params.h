// SPDX-License-Identifier: Apache-2.0
// The size of a block of cuda.pad.vectorized, and the number of vectors per thread.
#pragma once
#include "cpp/pad/pad_math.h"

namespace minidnn {

constexpr int kPadThreads = 256;
// Returns the number of 16-byte vectors that a thread writes. It is larger for vectors of few words, so that a thread
// has enough loads in flight.
MINIDNN_HD constexpr int pad_vectors(int words) { return words == 1 ? 4 : words <= 4 ? 2 : 1; }

}  // namespace minidnn
