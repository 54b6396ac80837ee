// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/phases.h"

#include <algorithm>

namespace minidnn {

std::vector<ConvPhase> conv_phases(const ConvGeometry& g) {
  const bool backward = g.backward_data;
  const ConvTensorView& out = conv_out(g);
  int64_t number[kMaxSpatial], step[kMaxSpatial];
  for (int j = 0; j < kMaxSpatial; ++j) {
    step[j] = backward ? g.stride[j] : 1;
    number[j] = std::min(step[j], out.size[j]);
  }
  std::vector<ConvPhase> phases;
  NdIterator<3> at(number, 0);
  for (int64_t i = 0; i < volume(number); ++i, at.advance()) {
    ConvPhase phase;
    for (int j = 0; j < kMaxSpatial; ++j) {
      phase.first[j] = at.at[j];
      phase.count[j] = ceil_div(out.size[j] - at.at[j], step[j]);
    }
    NdIterator<3> r(g.window, 0);
    for (int64_t n = 0; n < volume(g.window); ++n, r.advance()) {
      ConvTap tap{g.w_origin, {}};
      bool reads_input = true;
      for (int j = 0; j < kMaxSpatial; ++j) {
        const int64_t reach = r.at[j] * g.dilation[j] - g.pad[j];
        reads_input = reads_input && (!backward || (at.at[j] - reach) % g.stride[j] == 0);
        tap.shift[j] = backward ? (at.at[j] - reach) / g.stride[j] : reach;
        tap.w += r.at[j] * g.w_space[j];
      }
      if (reads_input) phase.taps.push_back(tap);
    }
    phases.push_back(std::move(phase));
  }
  return phases;
}

void reach(const ConvGeometry& g, int64_t (&border)[kMaxSpatial]) {
  for (int j = 0; j < kMaxSpatial; ++j) {
    const int64_t end = (g.y.size[j] - 1) * g.stride[j] + (g.window[j] - 1) * g.dilation[j] + 1;
    border[j] = std::max({int64_t(0), g.pad[j], end - g.pad[j] - g.x.size[j]});
  }
}

}  // namespace minidnn
