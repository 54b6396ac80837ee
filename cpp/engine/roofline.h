// SPDX-License-Identifier: Apache-2.0
// The one scale of estimates: the longer of the time for the arithmetic and the time for the bytes, plus a launch.
#pragma once
#include <algorithm>

#include "cpp/core/device.h"
#include "cpp/core/hd.h"

namespace minidnn {

// `efficiency` is the share of the device's rates that the engine reaches, by measurement or by a stated guess.
inline double roofline_us(double flop, double bytes, const Device& d, double efficiency) {
  double launch_us = d.place.is_cuda ? 3 : 0.5;
  return launch_us + std::max(flop / (d.fp32_gflop_s * 1e3), bytes / (d.copy_gb_s * 1e3)) / efficiency;
}

// By what work grows that is done in whole units, of which the last is used in part.
inline double wasted(int64_t used, int64_t unit) { return double(ceil_div(used, unit) * unit) / double(used); }

}  // namespace minidnn
