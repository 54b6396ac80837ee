// SPDX-License-Identifier: Apache-2.0
// Compares every micro-kernel that this machine can run with plain loops. Engines use only the micro-kernels of the
// best instruction set.
#include <iostream>
#include <vector>

#include "cpp/simd/gemm_microkernel.h"

using namespace minidnn;

template <class T>
static int failures(const GemmKernel<T>& kernel, const char* isa) {
  int wrong = 0;
  for (int64_t k : {0, 1, 7, 300}) {
    const int64_t rows = kernel.rows, columns = kernel.columns, pitch = columns + 3;
    std::vector<T> a(size_t(rows * k + 1)), b(size_t(columns * k + 1)), sums(size_t(rows * pitch), T(2));
    // Sums of small integers are exact in floating point, so every order of summation gives the same result.
    for (size_t i = 0; i < a.size(); ++i) a[i] = T(int(i * 7 % 11) - 5);
    for (size_t i = 0; i < b.size(); ++i) b[i] = T(int(i * 5 % 13) - 6);
    GemmSegment packed{};
    for (int64_t i = 0; i < rows; ++i) packed.a[i] = i * int64_t(sizeof(T));
    kernel.multiply({&packed, 1, k, a.data(), rows, b.data(), columns, sums.data(), pitch, true});
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < pitch; ++j) {
        T want = 2;
        for (int64_t n = 0; n < k && j < columns; ++n) want += a[size_t(n * rows + i)] * b[size_t(n * columns + j)];
        wrong += sums[size_t(i * pitch + j)] != want;
      }
  }
  std::cout << isa << ", " << sizeof(T) << " bytes, " << kernel.rows << " x " << kernel.columns << ": " << wrong
            << " wrong\n";
  return wrong;
}

// few_rows: exact sums, and for any numbers the same bits from all numbers of rows.
static int few_rows_failures(const GemmKernels& kernels, const char* isa) {
  const int64_t columns = kernels.f32.columns, pitch = columns + 3, steps = 9, segments = 7, k = steps * segments;
  const int64_t most = kernels.f32.rows < kGemmFewRows ? kernels.f32.rows : kGemmFewRows;
  int wrong = 0;
  for (const bool whole : {true, false}) {
    std::vector<float> a(size_t(kGemmRows * k)), b(size_t(k * columns)), of_one(size_t(kGemmRows * columns));
    for (size_t i = 0; i < a.size(); ++i) a[i] = float(int(i * 7 % 11) - 5) * (whole ? 1 : 0.1f);
    for (size_t i = 0; i < b.size(); ++i) b[i] = float(int(i * 5 % 13) - 6) * (whole ? 1 : 0.3f);
    for (int64_t rows = 1; rows <= most; ++rows)
      for (int64_t first = 0; first < (rows == 1 ? most : 1); ++first) {
        std::vector<float> sums(size_t(rows * pitch), 2);
        GemmSegment parts[segments]{};
        for (int64_t s = 0; s < segments; ++s) {
          for (int64_t i = 0; i < rows; ++i) parts[s].a[i] = ((first + i) * k + s * steps) * int64_t(sizeof(float));
          parts[s].b = s * steps * columns * int64_t(sizeof(float));
        }
        GemmTile<float> tile{parts, segments, steps, a.data(), 1, b.data(), columns, sums.data(), pitch, true};
        if (rows == 1) {
          kernels.few_rows[0](tile);
        } else {
          for (tile.count = 1; tile.segments < parts + segments; ++tile.segments) kernels.few_rows[rows - 1](tile);
        }
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < pitch; ++j) {
            const float sum = sums[size_t(i * pitch + j)];
            float want = 2;
            for (int64_t n = 0; n < k && j < columns; ++n)
              want += a[size_t((first + i) * k + n)] * b[size_t(n * columns + j)];
            if (whole || j >= columns) wrong += sum != want;
            else if (rows == 1) of_one[size_t(first * columns + j)] = sum;
            else wrong += sum != of_one[size_t(i * columns + j)];
          }
      }
  }
  std::cout << isa << ", few rows: " << wrong << " wrong\n";
  return wrong;
}

int main() {
  int wrong = 0, count = 0;
  for (cpu::Isa isa : cpu::kAllIsas) {
    if (!cpu::has(isa)) continue;
    ++count;
    wrong += failures(gemm_kernels(isa).f32, name(isa)) + failures(gemm_kernels(isa).f64, name(isa));
    wrong += few_rows_failures(gemm_kernels(isa), name(isa));
  }
  std::cout << (wrong || !count ? "failed" : "all checks passed") << std::endl;
  return wrong || !count;
}
