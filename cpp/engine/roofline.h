// SPDX-License-Identifier: Apache-2.0
// The common scale on which all engines estimate their time: the larger of arithmetic time and memory time, plus the
// time of a launch.
#pragma once
#include <algorithm>

#include "cpp/core/device/device.h"
#include "cpp/core/device/nominal_rates.h"
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Returns the estimated time in microseconds. `efficiency` is the fraction of the device's rates (flop/s and bandwidth)
// that the engine reaches. It is measured, or a stated guess.
inline double roofline_us(double flop, double bytes, const Device& d, double efficiency) {
  const double launch_us = d.place.is_cuda ? NominalRates::kCudaLaunchUs : NominalRates::kCpuCallUs;
  return launch_us + std::max(flop / (d.fp32_gflop_s * 1e3), bytes / (d.copy_gb_s * 1e3)) / efficiency;
}

// The factor by which work grows if its size `used` is rounded up to a multiple of `unit`, such as the size of a tile.
inline double wasted(int64_t used, int64_t unit) { return double(ceil_div(used, unit) * unit) / double(used); }

}  // namespace minidnn
