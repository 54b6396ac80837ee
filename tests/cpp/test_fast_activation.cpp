// SPDX-License-Identifier: Apache-2.0
// Compares the short formulas of activations (cuda/device/fast_activation.cuh) with activation_math.h in double. The
// test runs on the CPU. On a GPU, ex2.approx, lg2.approx and rcp.approx add errors of at most 2^-22 each.
#include <bit>
#include <cmath>
#include <limits>

#include "check.h"
#include "cuda/device/fast_activation.cuh"

using namespace minidnn;

// The documented bound of the relative error.
static constexpr double kRelative = 0x1p-15;

template <Activation mode, Formula formula> static void check_formula(float x, float alpha) {
  // half of the smallest bfloat16, or the largest result that may become 0
  const double absolute = formula == Formula::fast ? 0x1p-134 : 0x1p-119;
  const float got = activate<mode, formula>(x, alpha);
  const double want = activate<mode>(double(x), double(alpha));
  const bool same = std::isnan(want) ? std::isnan(got) : std::isinf(want) && got == want;
  const double relative = kRelative + (mode == Activation::gelu ? 0x1p-19 * x * x : 0);
  CHECK(same || std::abs(got - want) <= relative * std::abs(want) + absolute, "mode ", int(mode), ", formula ",
        int(formula), ": x ", x, ", alpha ", alpha, ": ", got, " instead of ", want);
  if (x == 0) CHECK(std::signbit(got) == std::signbit(want), "mode ", int(mode), ": the sign at x ", x);
}

template <Activation mode> static void check(float x, float alpha) {
  check_formula<mode, Formula::fast>(x, alpha);
  check_formula<mode, Formula::fast_ftz>(x, alpha);
}

template <Activation mode> static void check_all() {
  const float infinity = std::numeric_limits<float>::infinity();
  for (float alpha : {1.0f, 0.25f, 3.0f}) {
    for (float x : {0.0f, -0.0f, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) check<mode>(x, alpha);
    // All values of bfloat16, and more values where results are neither constant nor linear in x.
    for (uint32_t i = 0; i < 1 << 16; ++i) check<mode>(std::bit_cast<float>(i << 16), alpha);
    for (float x = -110; x < 110; x += 0.0013f) check<mode>(x, alpha);
    for (float x = -1; x < 1; x += 0.000017f) check<mode>(x, alpha);
  }
}

// gelu for float32 results, with its documented bound.
static void check_gelu_in_float32(float x) {
  const float got = activate<Activation::gelu, Formula::accurate>(x, 0.0f);
  const double want = activate<Activation::gelu>(double(x), 0.0);
  const bool same = std::isnan(want) ? std::isnan(got) : std::isinf(want) && got == want;
  // A factor of x may be subnormal.
  const double error = (11 + double(x) * x) * 0x1p-24 * std::abs(want) + 2 * 0x1p-149 * std::abs(x);
  CHECK(same || std::abs(got - want) <= error, "gelu in float32 of ", x, ": ", got, " instead of ", want);
  if (x == 0) CHECK(std::signbit(got) == std::signbit(want), "gelu in float32: the sign at x ", x);
}

int main() {
  for (uint32_t i = 0; i < 1 << 16; ++i) check_gelu_in_float32(std::bit_cast<float>(i << 16));
  for (float x = -15; x < 15; x += 0.000013f) check_gelu_in_float32(x);
  check_all<Activation::tanh>();
  check_all<Activation::sigmoid>();
  check_all<Activation::elu>();
  check_all<Activation::gelu>();
  check_all<Activation::gelu_tanh>();
  check_all<Activation::softplus>();
  check_all<Activation::silu>();
  check_all<Activation::hardswish>();
  check_all<Activation::mish>();
  return failures ? 1 : 0;
}
