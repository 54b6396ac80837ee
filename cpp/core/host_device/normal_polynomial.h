// SPDX-License-Identifier: Apache-2.0
// The polynomial for the cdf of the normal distribution, for vectors of the CPU (elementary.h) and for GPUs
// (fast_math.cuh).
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// Returns exp(a^2 / 2) * cdf(-a) for 0 <= a <= 15, where cdf is that of the normal distribution. The argument is u = 1
// / (a + 3) - 3 / 16. V is float or a vector of floats.
template <class V> MINIDNN_HD V normal_polynomial(V u) {
  V p = -0x1.0c195ep+9f * u + 0x1.71cc54p+6f;
  p = p * u + 0x1.dae172p+6f;
  p = p * u - 0x1.e15e22p+4f;
  p = p * u - 0x1.b5e488p+4f;
  p = p * u + 0x1.54fd86p+2f;
  p = p * u + 0x1.513ca2p+3f;
  p = p * u + 0x1.45065ap+2f;
  p = p * u + 0x1.6fbf82p+0f;
  return p * u + 0x1.31d4a0p-3f;
}

}  // namespace minidnn
