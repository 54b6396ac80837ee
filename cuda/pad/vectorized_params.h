// SPDX-License-Identifier: Apache-2.0
// The block size of cuda.pad.vectorized and the vectors of a thread.
#pragma once
#include "cpp/pad/pad_math.h"

namespace minidnn {

constexpr int kPadThreads = 256;
// The number of 16-byte vectors of a thread. A vector of fewer words has fewer loads in flight, so a thread takes more
// vectors.
MINIDNN_HD constexpr int pad_vectors(int words) { return words == 1 ? 4 : words <= 4 ? 2 : 1; }

}  // namespace minidnn
