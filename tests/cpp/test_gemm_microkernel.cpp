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

int main() {
  int wrong = 0, count = 0;
  for (cpu::Isa isa : cpu::kAllIsas) {
    if (!cpu::has(isa)) continue;
    ++count;
    wrong += failures(gemm_kernels(isa).f32, name(isa)) + failures(gemm_kernels(isa).f64, name(isa));
  }
  std::cout << (wrong || !count ? "failed" : "all checks passed") << std::endl;
  return wrong || !count;
}
