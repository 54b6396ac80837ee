// SPDX-License-Identifier: Apache-2.0
// Compares the arithmetic of cuda.softmax.persistent_rows for 16-bit dtypes (cuda/rows/exponentials_math.h) with
// double. The test runs on the CPU: for rows of all magnitudes, for scales of both signs, and for rows that several
// threads compute. Results are compared before they are rounded to 16 bits.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <type_traits>
#include <vector>

#include "cpp/core/text.h"
#include "cuda/rows/exponentials_math.h"

using namespace minidnn;
using rows::Exponentials;
using rows::HalfScale;

static int failures = 0;

// Divides the row among threads as the kernel softmax_rows_forward does: thread i computes elements i, i + threads, i +
// 2 threads, ...
template <class T> static void check_row(const std::vector<T>& row, double scale, int threads,
                                         const std::string& what) {
  const size_t n = row.size();
  std::vector<float> x(n);
  std::vector<double> z(n);
  for (size_t i = 0; i < n; ++i) {
    x[i] = scale < 0 ? -float(row[i]) : float(row[i]);
    z[i] = scale * float(row[i]);
  }

  const HalfScale half{float(scale)};
  Exponentials all{-INFINITY, 0};
  for (int t = 0; t < threads; ++t) {
    Exponentials own{-INFINITY, 0};
    for (size_t i = size_t(t); i < n; i += size_t(threads)) own.largest = std::max(own.largest, 0.5f * x[i]);
    for (size_t i = size_t(t); i < n; i += size_t(threads)) own.sum += half.term(x[i], own.largest);
    all = rows::joined<T>(all, own, half.of_half());
  }
  const float log_of_sum = std::log(all.sum), log2_of_sum = std::log2(all.sum);

  const double largest = *std::ranges::max_element(z);
  double sum = 0;
  for (double v : z) sum += std::exp(v - largest);
  for (size_t i = 0; i < n; ++i) {
    const double log_want = z[i] - largest - std::log(sum), want = std::exp(log_want);
    const float got = half.share<T>(x[i], all.largest, log2_of_sum);
    const float log_got = half.log_share(x[i], all.largest, log_of_sum);
    // In float16, results below 2^-126 round to 0, so an absolute error of 2^-126 is allowed.
    const double smallest = std::is_same_v<T, float16> ? 0x1p-126 : 0x1p-149;
    const bool good = std::abs(got - want) <= want * 0x1p-14 + smallest &&
                      (log_got == float(log_want) || std::abs(log_got - log_want) <= (1 - log_want) * 0x1p-21);
    if (!good && ++failures < 20)
      std::cout << what << ": element " << i << " of " << n << ", " << float(row[i]) << ", scale " << scale << ", "
                << threads << " threads: " << got << " and " << log_got << ", should be " << want << " and " << log_want
                << "\n";
  }
}

template <class T> static void check_type(const char* name, std::vector<float> magnitudes) {
  std::mt19937 random(20261201);
  std::normal_distribution<float> normal;
  for (float magnitude : magnitudes)
    for (float spread : {0.f, 1.f, 30.f, magnitude / 128, magnitude})
      for (double scale : {1.0, -1.0, 0.0, 0.125, -0.37, 3.0, 1e-37})
        for (int threads : {1, 7, 100}) {
          std::vector<T> row(64);
          for (T& v : row) v = T(std::clamp(magnitude + spread * normal(random), -magnitudes[0], magnitudes[0]));
          check_row(row, scale, threads, cat(name, ", around ", magnitude, " by ", spread));
        }
}

int main() {
  // The first number of each list is the largest finite number of the dtype.
  check_type<float16>("float16", {65504, 60000, -60000, 88, -88, 3, 0});
  check_type<bfloat16>("bfloat16", {3.3895e38f, -3.3895e38f, 1e9f, -1e9f, 60000, 88, -88, 3, 0});
  std::cout << (failures ? cat(failures, " elements are wrong") : "all checks passed") << std::endl;
  return failures != 0;
}
