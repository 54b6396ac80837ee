// SPDX-License-Identifier: Apache-2.0
// Describes forward and backward_data convolutions in one form. Each pixel of the result is a sum over taps (window
// elements), and each tap reads one input pixel. The result pixels of a strided backward_data are divided into phases.
// All pixels of a phase use the same taps. A forward convolution has one phase.
#pragma once
#include <vector>

#include "cpp/conv/conv_math.h"

namespace minidnn {

inline int64_t volume(const int64_t (&size)[kMaxSpatial]) { return size[0] * size[1] * size[2]; }

struct ConvTap {
  // The offset in w of the weight of this tap (window element).
  int64_t w;
  // A tap (window element) reads the input pixel t * in_step + shift, where t is the index of the result pixel in its
  // phase, and in_step is the distance of the input pixels that two neighbouring result pixels read.
  int64_t shift[kMaxSpatial];
};
// A phase is a set of result pixels that use the same taps (window elements): the pixels first + t * step for t <
// count. `step` is the stride in backward_data, and 1 in a forward convolution. Two neighbouring pixels of a phase read
// input pixels that are `in_step` pixels apart. `in_step` is 1 in backward_data, and the stride in a forward
// convolution.
struct ConvPhase {
  int64_t first[kMaxSpatial], count[kMaxSpatial];
  std::vector<ConvTap> taps;
};
std::vector<ConvPhase> conv_phases(const ConvGeometry&);

// For each dimension, computes how many zeros must surround x on each side so that every window element falls on an
// element of x or on such a zero.
void reach(const ConvGeometry&, int64_t (&border)[kMaxSpatial]);

// Returns true for a forward convolution or backward_filter in which every window has one element, which is never on
// padding.
inline bool is_pointwise(const ConvGeometry& g) {
  for (int j = 0; j < kMaxSpatial; ++j)
    if (g.window[j] != 1 || g.pad[j] != 0 || (g.y.size[j] - 1) * g.stride[j] >= g.x.size[j]) return false;
  return !g.backward_data;
}
// Converts a pointwise convolution with a stride to a pointwise convolution of stride 1. The result skips the pixels of
// x that no window reads. Returns all other convolutions unchanged.
inline ConvGeometry without_gaps(ConvGeometry g) {
  for (int j = 0; is_pointwise(g) && j < kMaxSpatial; ++j) {
    g.x.size[j] = g.y.size[j];
    g.x.space[j] *= g.stride[j];
    g.stride[j] = 1;
  }
  return g;
}

}  // namespace minidnn
