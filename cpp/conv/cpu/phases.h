// SPDX-License-Identifier: Apache-2.0
// Describes forward and backward_data convolutions in one form. Each pixel of the result is a sum over taps (window
// elements), and each tap reads one input pixel. A phase is the set of result pixels that use the same taps. With
// stride 2, for example, backward_data has two phases per dimension: pixels with even and with odd indices. A forward
// convolution has one phase.
#pragma once
#include <vector>

#include "cpp/conv/conv_math.h"
#include "cpp/simd/bf16_products.h"

namespace minidnn {

inline int64_t volume(const int64_t (&size)[kMaxSpatial]) { return size[0] * size[1] * size[2]; }

struct ConvTap {
  // The offset in w.
  int64_t w;
  // Result pixel number t of a phase reads input pixel t * in_step + shift. `in_step` is 1 in backward_data, else the
  // stride.
  int64_t shift[kMaxSpatial];
};
// The result pixels first + t * step for t < count, all of which use the same taps. `step` is the stride in
// backward_data, else 1.
struct ConvPhase {
  int64_t first[kMaxSpatial], count[kMaxSpatial];
  std::vector<ConvTap> taps;
};
std::vector<ConvPhase> conv_phases(const ConvGeometry&);

// Computes how many zeros each side of x needs so that every window element falls on x or on a zero.
void reach(const ConvGeometry&, int64_t (&border)[kMaxSpatial]);

// Returns true for a forward convolution or backward_filter whose windows have one element, which is never on padding.
inline bool is_pointwise(const ConvGeometry& g) {
  for (int j = 0; j < kMaxSpatial; ++j)
    if (g.window[j] != 1 || g.pad[j] != 0 || (g.y.size[j] - 1) * g.stride[j] >= g.x.size[j]) return false;
  return !g.backward_data;
}
// Removes the stride of a pointwise convolution, by keeping only the pixels of x that it reads. Returns all other
// convolutions unchanged.
inline ConvGeometry without_gaps(ConvGeometry g) {
  for (int j = 0; is_pointwise(g) && j < kMaxSpatial; ++j) {
    g.x.size[j] = g.y.size[j];
    g.x.space[j] *= g.stride[j];
    g.stride[j] = 1;
  }
  return g;
}

// Returns the time of a convolution by AMX over its time in float32. A pointwise convolution is faster as a single
// matrix product (im2col_gemm), whose blocks are larger.
inline double amx_cost(bool pointwise) { return pointwise ? 0.165 : kAmxCost; }

}  // namespace minidnn
