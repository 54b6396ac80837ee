// SPDX-License-Identifier: Apache-2.0
// Compares every micro-kernel that this machine can run with plain loops. Engines use only the micro-kernels of the
// best instruction set.
#include <iostream>
#include <type_traits>
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
  const int64_t most = kernels.f32.rows;
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

template <class T> static float value(T v) { return float(v); }
static uint16_t bits(bfloat16 v) { return v.bits; }

// The functions of GemmPacking: each order of the operand, whole and partial tiles, and lengths around vectors. With
// `pairs`, an element of the packed operand has two steps of k.
template <class From>
static int packing_failures(const GemmPacking<From>& packing, int64_t rows, int64_t columns, bool pairs) {
  int wrong = 0;
  for (const bool of_rows : {true, false})
    for (const int64_t length : {1, 2, 15, 16, 17, 31, 33, 64, 67})
      for (const bool k_is_contiguous : {true, false})
        for (const int64_t gap : {0, 1}) {
          const int64_t units = of_rows ? rows : columns, steps = pairs ? (length + 1) / 2 : length;
          const int64_t unit = k_is_contiguous ? length + gap : 1, step = k_is_contiguous ? 1 : units + gap;
          std::vector<From> from(size_t((units - 1) * unit + (length - 1) * step + 1), From(0.0f));
          for (size_t i = 0; i < from.size(); ++i) from[i] = From(float(int(i * 7 % 101) - 50));
          for (const int64_t count : {units, units - 1}) {
            std::vector<float> to(size_t(units * steps), -1);
            (of_rows ? packing.pack_rows : packing.pack)(from.data(), unit, step, count, length, to.data());
            const auto at = [&](int64_t i, int64_t k) {
              return i < count && k < length ? from[size_t(i * unit + k * step)] : From(0.0f);
            };
            for (int64_t k = 0; k < steps; ++k)
              for (int64_t i = 0; i < units; ++i) {
                const float got = to[size_t(k * units + i)];
                if constexpr (std::is_same_v<From, bfloat16>)
                  if (pairs) {
                    const uint32_t want = bits(at(i, 2 * k)) | uint32_t(bits(at(i, 2 * k + 1))) << 16;
                    wrong += detail::bits_of(got) != want;
                    continue;
                  }
                wrong += got != value(at(i, k));
              }
          }
        }
  return wrong;
}

// narrow: the same bits as the whole tile, in half of its columns.
static int narrow_failures(const GemmKernels& kernels) {
  const int64_t rows = kernels.f32.rows, columns = kernels.f32.columns, steps = 37;
  std::vector<float> a(size_t(rows * steps)), b(size_t(columns * steps)), all(size_t(rows * columns), 2), half = all;
  for (size_t i = 0; i < a.size(); ++i) a[i] = float(int(i * 7 % 11) - 5) * 0.1f;
  for (size_t i = 0; i < b.size(); ++i) b[i] = float(int(i * 5 % 13) - 6) * 0.3f;
  GemmSegment packed{};
  for (int64_t i = 0; i < rows; ++i) packed.a[i] = i * int64_t(sizeof(float));
  kernels.f32.multiply({&packed, 1, steps, a.data(), rows, b.data(), columns, all.data(), columns, true});
  kernels.narrow({&packed, 1, steps, a.data(), rows, b.data(), columns, half.data(), columns, true});
  int wrong = 0;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      wrong += half[size_t(i * columns + j)] != (j < columns / 2 ? all[size_t(i * columns + j)] : 2);
  return wrong;
}

// multiply_pairs: exact sums of small integers, from operands that pairs.pack() and pairs.pack_rows() have packed.
static int pair_failures(const GemmKernels& kernels) {
  int wrong = 0;
  const int64_t columns = kernels.f32.columns, pitch = columns + 3;
  for (int64_t rows = 1; rows <= kernels.f32.rows; ++rows)
    for (const int64_t length : {1, 2, 40, 101}) {
      const int64_t steps = (length + 1) / 2;
      std::vector<bfloat16> a(size_t(rows * length)), b(size_t(columns * length));
      for (size_t i = 0; i < a.size(); ++i) a[i] = bfloat16(float(int(i * 7 % 11) - 5));
      for (size_t i = 0; i < b.size(); ++i) b[i] = bfloat16(float(int(i * 5 % 13) - 6));
      std::vector<float> packed_a(size_t(kernels.f32.rows * steps)), packed_b(size_t(columns * steps)),
          sums(size_t(rows * pitch), 2);
      kernels.pairs.pack_rows(a.data(), length, 1, rows, length, packed_a.data());
      kernels.pairs.pack(b.data(), length, 1, columns, length, packed_b.data());
      GemmSegment packed{};
      for (int64_t i = 0; i < rows; ++i) packed.a[i] = i * int64_t(sizeof(float));
      const GemmTile<float> tile{&packed,         1,       steps,       packed_a.data(), kernels.f32.rows,
                                 packed_b.data(), columns, sums.data(), pitch,           true};
      std::vector<float> half(sums);
      kernels.multiply_pairs[rows - 1](tile);
      if (rows == kernels.f32.rows) {
        kernels.narrow_pairs({tile.segments, 1, steps, tile.a, tile.a_step, tile.b, columns, half.data(), pitch, true});
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < pitch; ++j)
            wrong += half[size_t(i * pitch + j)] != (j < columns / 2 ? sums[size_t(i * pitch + j)] : 2);
      }
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < pitch; ++j) {
          float want = 2;
          for (int64_t k = 0; k < length && j < columns; ++k)
            want += float(a[size_t(i * length + k)]) * float(b[size_t(j * length + k)]);
          wrong += sums[size_t(i * pitch + j)] != want;
        }
    }
  return wrong;
}

int main() {
  int wrong = 0, count = 0;
  for (cpu::Isa isa : cpu::kAllIsas) {
    if (!cpu::has(isa)) continue;
    ++count;
    wrong += failures(gemm_kernels(isa).f32, name(isa)) + failures(gemm_kernels(isa).f64, name(isa));
    const GemmKernels& kernels = gemm_kernels(isa);
    wrong += few_rows_failures(kernels, name(isa)) + narrow_failures(kernels);
    const int64_t rows = kernels.f32.rows, columns = kernels.f32.columns;
    int packed = packing_failures(kernels.from_f16, rows, columns, false) +
                 packing_failures(kernels.from_bf16, rows, columns, false);
    if (isa == cpu::Isa::v4_bf16 || isa == cpu::Isa::v4_amx)
      packed += packing_failures(kernels.pairs, rows, columns, true) + pair_failures(kernels);
    std::cout << name(isa) << ", 16-bit operands: " << packed << " wrong\n";
    wrong += packed;
  }
  std::cout << (wrong || !count ? "failed" : "all checks passed") << std::endl;
  return wrong || !count;
}
