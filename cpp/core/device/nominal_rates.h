// SPDX-License-Identifier: Apache-2.0
// The rates that estimates of time assume of every CPU, and the fixed times of a call. They only affect the order of
// estimates. They are defaults: `pyminidnn calibrate` measures by which factors the estimates of each engine are wrong
// on a machine (engine/costs.h).
#pragma once

namespace minidnn {

struct NominalRates {
  // The rates of each thread of a CPU. Plain loops reach 8 GFLOP/s; the peak is higher.
  static constexpr double kCpuCopyGbS = 10;
  static constexpr double kCpuFp32GflopS = 8;
  // The time of a call beside its arithmetic and its memory accesses, in microseconds.
  static constexpr double kCpuCallUs = 0.5;
  static constexpr double kCudaLaunchUs = 3;
};

}  // namespace minidnn
