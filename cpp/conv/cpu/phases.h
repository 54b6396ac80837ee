// SPDX-License-Identifier: Apache-2.0
// A common form of forward and backward_data convolutions: each pixel of the result is a sum over taps (elements of the
// window), each of which reads one input pixel. The pixels of a strided backward_data are divided into phases: all
// pixels of a phase use the same taps. A forward convolution has one phase.
#pragma once
#include <vector>

#include "cpp/conv/conv_math.h"

namespace minidnn {

inline int64_t volume(const int64_t (&size)[kMaxSpatial]) { return size[0] * size[1] * size[2]; }

struct ConvTap {
  int64_t w;                   // offset of the tap's weight
  int64_t shift[kMaxSpatial];  // pixel t of a phase reads the input at index t * step + shift
};
// The pixels first + t * step of the result, for t < count, and the taps that all of these pixels use. In
// backward_data, step is the stride in the result and 1 in the input; forward, it is 1 in the result and the stride in
// the input.
struct ConvPhase {
  int64_t first[kMaxSpatial], count[kMaxSpatial];
  std::vector<ConvTap> taps;
};
std::vector<ConvPhase> conv_phases(const ConvGeometry&);

// Computes how many zeros x needs on each side, in each dimension, so that every tap of every window falls on an
// element.
void reach(const ConvGeometry&, int64_t (&border)[kMaxSpatial]);

// Whether each window is one element inside x. False for backward_data, which writes dx.
inline bool is_pointwise(const ConvGeometry& g) {
  for (int j = 0; j < kMaxSpatial; ++j)
    if (g.window[j] != 1 || g.pad[j] != 0 || (g.y.size[j] - 1) * g.stride[j] >= g.x.size[j]) return false;
  return !g.backward_data;
}
// A pointwise convolution as one of stride 1, whose x has only the pixels that are read. Others are returned unchanged.
inline ConvGeometry without_gaps(ConvGeometry g) {
  for (int j = 0; is_pointwise(g) && j < kMaxSpatial; ++j) {
    g.x.size[j] = g.y.size[j];
    g.x.space[j] *= g.stride[j];
    g.stride[j] = 1;
  }
  return g;
}

}  // namespace minidnn
