// SPDX-License-Identifier: Apache-2.0
// Forward and backward_data as one thing: each pixel of the result sums the input under some taps. A strided
// backward_data falls into phases, pixels that meet the same taps; all of a forward result is one.
#pragma once
#include <vector>

#include "cpp/conv/conv_math.h"

namespace minidnn {

inline int64_t volume(const int64_t (&size)[kMaxSpatial]) { return size[0] * size[1] * size[2]; }

struct ConvTap {
  int64_t w, shift[kMaxSpatial];  // its element of the weights, and of the input: pixel t reads t * step + shift
};
// The pixels first + t * step of the result, t < count, and the taps they all meet. The result's step is the stride in
// backward_data and one forward, the input's the other way round.
struct ConvPhase {
  int64_t first[kMaxSpatial], count[kMaxSpatial];
  std::vector<ConvTap> taps;
};
std::vector<ConvPhase> conv_phases(const ConvGeometry&);

// How many zeros around x let every tap of every window meet an element.
void reach(const ConvGeometry&, int64_t (&border)[kMaxSpatial]);

// Where windows are one element and meet data everywhere, of an x that is read: the pixels between strides do not
// exist.
inline bool is_pointwise(const ConvGeometry& g) {
  for (int j = 0; j < kMaxSpatial; ++j)
    if (g.window[j] != 1 || g.pad[j] != 0 || (g.y.size[j] - 1) * g.stride[j] >= g.x.size[j]) return false;
  return !g.backward_data;
}
inline ConvGeometry without_gaps(ConvGeometry g) {
  for (int j = 0; is_pointwise(g) && j < kMaxSpatial; ++j) {
    g.x.size[j] = g.y.size[j], g.x.space[j] *= g.stride[j];
    g.stride[j] = 1;
  }
  return g;
}

}  // namespace minidnn
