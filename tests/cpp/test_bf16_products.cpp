// SPDX-License-Identifier: Apache-2.0
// Tests the kernels of bf16_products.h with small integers, whose products and sums are exact. Machines without AMX have
// nothing to test.
#include <cstdint>
#include <iostream>
#include <vector>

#include "cpp/simd/bf16_products.h"

using namespace minidnn;

namespace {

int64_t failures = 0;
void check(bool right, const char* what) {
  if (!right) std::cout << what << " is wrong\n";
  failures += !right;
}

// Small integers that differ from element to element.
template <class T> std::vector<T> integers(int64_t count, int64_t seed) {
  std::vector<T> v(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) v[size_t(i)] = T(float((i * 37 + i / 11 * 5 + seed) % 15 - 7));
  return v;
}

bool equal(const auto& x, const auto& y) {
  bool all = x.size() == y.size();
  for (size_t i = 0; all && i < x.size(); ++i) all = float(x[i]) == float(y[i]);
  return all;
}

// Columns and steps that are no multiples of a tile: zeros follow them.
void test_edges(const Bf16Kernels& kernels, const std::vector<const bfloat16*>& rows, int64_t columns) {
  const int64_t steps = int64_t(rows.size()), count = columns - 5, panel = kBf16Lines * steps;
  std::vector<bfloat16> packed(size_t(columns / kBf16Lines * panel), bfloat16(9.0f)), want = packed;
  kernels.pack_rows(rows.data(), steps, count, packed.data(), panel);
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t k = 0; k < steps; ++k)
      want[size_t(j / kBf16Lines * panel + k / 2 * 2 * kBf16Lines + j % kBf16Lines * 2 + k % 2)] =
          j < count ? rows[size_t(k)][j] : bfloat16(0.0f);
  check(equal(packed, want), "pack_rows of some columns");
  const int64_t pitch = rows[1] - rows[0], padded = bf16_pitch(count);
  std::vector<bfloat16> copied(size_t(steps * padded), bfloat16(9.0f)), same(copied.size());
  kernels.pad_rows(rows[0], pitch, steps, count, copied.data(), padded, padded);
  for (int64_t k = 0; k < steps; ++k)
    for (int64_t j = 0; j < count; ++j) same[size_t(k * padded + j)] = rows[size_t(k)][j];
  check(equal(copied, same), "pad_rows");
}

// a [rows, steps] as bfloat16 or rounded, b [steps, columns] packed in each way.
void test(const Bf16Kernels& kernels, int64_t rows, int64_t columns, int64_t steps) {
  const int64_t pitch = steps + 8, b_pitch = columns + 8, c_pitch = columns + 3, panel = kBf16Lines * steps + 64;
  const auto a = integers<float>(rows * pitch, 1), b = integers<float>(steps * b_pitch, 2);
  std::vector<bfloat16> rounded(size_t(rows * steps)), packed(size_t(columns / kBf16Lines * panel)),
      same = packed, transposed = packed, b16(b.begin(), b.end()), b_columns(size_t(columns * steps)),
      back(size_t(columns * steps));
  kernels.round(a.data(), pitch, rows, steps, rounded.data(), steps);
  kernels.round_packed(b.data(), b_pitch, steps, columns, packed.data(), panel);
  kernels.pack(b16.data(), b_pitch, steps, columns, same.data(), panel);
  kernels.transpose(b16.data(), b_pitch, steps, columns, back.data(), steps);
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t k = 0; k < steps; ++k) b_columns[size_t(j * steps + k)] = b16[size_t(k * b_pitch + j)];
  kernels.pack_transposed(b_columns.data(), steps, columns, steps, transposed.data(), panel);
  std::vector<const bfloat16*> at(static_cast<size_t>(steps));
  for (int64_t k = 0; k < steps; ++k) at[size_t(k)] = b16.data() + k * b_pitch;
  std::vector<bfloat16> from_rows(packed.size());
  kernels.pack_rows(at.data(), steps, columns, from_rows.data(), panel);
  check(equal(packed, same), "pack");
  check(equal(packed, from_rows), "pack_rows");
  check(equal(packed, transposed), "pack_transposed");
  check(equal(b_columns, back), "transpose");
  test_edges(kernels, at, columns);
  // Panels whose pairs alternate: pair k of all panels, then pair k + 2.
  std::vector<bfloat16> alternating(size_t(columns * steps));
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t k = 0; k < steps; ++k)
      alternating[size_t((k / 2 * columns + j) * 2 + k % 2)] = b16[size_t(k * b_pitch + j)];
  for (const bool add : {false, true}) {
    auto c = integers<float>(rows * c_pitch, 3);
    const auto before = c;
    kernels.begin();
    kernels.multiply({rounded.data(), steps, packed.data(), panel, c.data(), c_pitch, rows, columns, steps, add});
    kernels.end();
    bool right = true;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < c_pitch; ++j) {
        float want = add || j >= columns ? before[size_t(i * c_pitch + j)] : 0;
        for (int64_t k = 0; k < steps && j < columns; ++k)
          want += a[size_t(i * pitch + k)] * b[size_t(k * b_pitch + j)];
        right = right && want == c[size_t(i * c_pitch + j)];
      }
    check(right, add ? "multiply with add" : "multiply");
    auto other = before;
    kernels.begin();
    kernels.multiply({rounded.data(), steps, alternating.data(), 2 * kBf16Lines, other.data(), c_pitch, rows, columns,
                      steps, add, 2 * columns});
    kernels.end();
    check(equal(c, other), "multiply with alternating panels");
  }
}

}  // namespace

int main() {
  const bool has = cpu::has(cpu::Isa::v4_amx);
  for (int64_t rows = 16; has && rows <= 64; rows += 16)
    for (int64_t columns = 16; columns <= 80; columns += 16)
      for (int64_t steps = 32; steps <= 96; steps += 32) test(bf16_kernels(cpu::Isa::v4_amx), rows, columns, steps);
  std::cout << (failures ? "failed" : has ? "all checks passed" : "no AMX, nothing checked") << std::endl;
  return failures > 0;
}
