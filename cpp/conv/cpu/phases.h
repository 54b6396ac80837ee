// SPDX-License-Identifier: Apache-2.0
// A common form of forward and backward_data: each pixel of the result sums input pixels under some taps. A strided
// backward_data is split into phases; all pixels of a phase use the same taps. A forward convolution has one phase.
#pragma once
#include <vector>

#include "cpp/conv/conv_math.h"

namespace minidnn {

inline int64_t volume(const int64_t (&size)[kMaxSpatial]) { return size[0] * size[1] * size[2]; }

struct ConvTap {
  int64_t w, shift[kMaxSpatial];  // w: offset of its weight. Pixel t of a phase reads input index t * step + shift
};
// The pixels first + t * step of the result, t < count, and the taps that all of them use. In backward_data the
// result's step is the stride and the input's step is 1; forward it is the other way round.
struct ConvPhase {
  int64_t first[kMaxSpatial], count[kMaxSpatial];
  std::vector<ConvTap> taps;
};
std::vector<ConvPhase> conv_phases(const ConvGeometry&);

// Computes how wide a border of zeros around x must be so that every tap of every window falls on an element.
void reach(const ConvGeometry&, int64_t (&border)[kMaxSpatial]);

// is_pointwise(): x is read (not dx written), and each window is one element inside x. without_gaps(): the same
// convolution at stride 1, over the pixels of x that are read.
inline bool is_pointwise(const ConvGeometry& g) {
  for (int j = 0; j < kMaxSpatial; ++j)
    if (g.window[j] != 1 || g.pad[j] != 0 || (g.y.size[j] - 1) * g.stride[j] >= g.x.size[j]) return false;
  return !g.backward_data;
}
inline ConvGeometry without_gaps(ConvGeometry g) {
  for (int j = 0; is_pointwise(g) && j < kMaxSpatial; ++j) {
    g.x.size[j] = g.y.size[j];
    g.x.space[j] *= g.stride[j];
    g.stride[j] = 1;
  }
  return g;
}

}  // namespace minidnn
