// SPDX-License-Identifier: Apache-2.0
// Forward and backward_data convolutions in one form: each pixel of the result is a sum over taps (window elements),
// each of which reads one input pixel. The pixels of a strided backward_data are divided into phases. All pixels of a
// phase use the same taps. A forward convolution has one phase.
#pragma once
#include <vector>

#include "cpp/conv/conv_math.h"

namespace minidnn {

inline int64_t volume(const int64_t (&size)[kMaxSpatial]) { return size[0] * size[1] * size[2]; }

struct ConvTap {
  int64_t w;                   // offset in w of the weight of this tap (window element)
  int64_t shift[kMaxSpatial];  // pixel number t of a phase reads the input at index t * in_step + shift
};
// A phase: the result pixels first + t * step for t < count, and the taps (window elements) that all of these pixels
// use. `step` is the stride in backward_data and 1 forward. `in_step`, the distance of the input pixels, is 1 in
// backward_data and the stride forward.
struct ConvPhase {
  int64_t first[kMaxSpatial], count[kMaxSpatial];
  std::vector<ConvTap> taps;
};
std::vector<ConvPhase> conv_phases(const ConvGeometry&);

// For each dimension, computes how many zeros x needs on each side so that every window element falls on an element.
void reach(const ConvGeometry&, int64_t (&border)[kMaxSpatial]);

// Whether every window has one element, which is inside x (no padding). Returns false for backward_data.
inline bool is_pointwise(const ConvGeometry& g) {
  for (int j = 0; j < kMaxSpatial; ++j)
    if (g.window[j] != 1 || g.pad[j] != 0 || (g.y.size[j] - 1) * g.stride[j] >= g.x.size[j]) return false;
  return !g.backward_data;
}
// Returns a pointwise convolution as one of stride 1: pixels of x that no window reads are left out. Returns all other
// convolutions unchanged.
inline ConvGeometry without_gaps(ConvGeometry g) {
  for (int j = 0; is_pointwise(g) && j < kMaxSpatial; ++j) {
    g.x.size[j] = g.y.size[j];
    g.x.space[j] *= g.stride[j];
    g.stride[j] = 1;
  }
  return g;
}

}  // namespace minidnn
