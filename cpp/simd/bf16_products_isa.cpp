// SPDX-License-Identifier: Apache-2.0
// Implements the kernels of bf16_products.h. This file is compiled once per instruction set; only AVX-512 has kernels.
// AMX instructions are written in assembly, so that the compiler never chooses them itself.
#include "cpp/simd/bf16_products.h"

#include "cpp/simd/transpose.h"

namespace minidnn::MINIDNN_ISA {
namespace {

#ifdef __AVX512F__

// The operand of ldtilecfg. Register r has 16 lines of 64 bytes.
struct TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t lines[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
constexpr TileConfig kConfig;

void begin() { asm volatile("ldtilecfg %0" ::"m"(kConfig)); }
void end() { asm volatile("tilerelease" ::); }

template <int tile> inline __attribute__((always_inline)) void zero() { asm volatile("tilezero %%tmm%c0" ::"i"(tile)); }
template <int tile> inline __attribute__((always_inline)) void load_tile(const void* from, int64_t pitch) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(pitch), "i"(tile) : "memory");
}
template <int tile> inline __attribute__((always_inline)) void store_tile(void* to, int64_t pitch) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(pitch), "i"(tile) : "memory");
}
// sums += a b
template <int sums, int a, int b> inline __attribute__((always_inline)) void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
}

// Multiplies kRows x kColumns tiles (1 or 2 each). The sums are in the registers 0 to 3, a in 4 and 5, b in 6 and 7.
template <int kRows, int kColumns> void multiply_block(const Bf16Product& p, int64_t i, int64_t j) {
  const int64_t a_bytes = p.a_pitch * 2, c_bytes = p.c_pitch * 4;
  const bfloat16* const a = p.a + i * p.a_pitch;
  const bfloat16* const b = p.b + j / kBf16Lines * p.panel;
  float* const c = p.c + i * p.c_pitch + j;
  const auto each = [&](auto of) __attribute__((always_inline)) {
    of(Count<1>{}, c);
    if constexpr (kColumns == 2) of(Count<2>{}, c + kBf16Lines);
    if constexpr (kRows == 2) of(Count<3>{}, c + kBf16Lines * p.c_pitch);
    if constexpr (kRows == 2 && kColumns == 2) of(Count<4>{}, c + kBf16Lines * p.c_pitch + kBf16Lines);
  };
  each([&](auto n, float* at) __attribute__((always_inline)) {
    if (p.add) load_tile<decltype(n)::value - 1>(at, c_bytes);
    else zero<decltype(n)::value - 1>();
  });
  for (int64_t k = 0; k < p.steps; k += kBf16Steps) {
    load_tile<6>(b + k * kBf16Lines, 64);
    load_tile<4>(a + k, a_bytes);
    multiply_tiles<0, 4, 6>();
    if constexpr (kColumns == 2) {
      load_tile<7>(b + p.panel + k * kBf16Lines, 64);
      multiply_tiles<1, 4, 7>();
    }
    if constexpr (kRows == 2) {
      load_tile<5>(a + kBf16Lines * p.a_pitch + k, a_bytes);
      multiply_tiles<2, 5, 6>();
      if constexpr (kColumns == 2) multiply_tiles<3, 5, 7>();
    }
  }
  each([&](auto n, float* at) __attribute__((always_inline)) { store_tile<decltype(n)::value - 1>(at, c_bytes); });
}
void multiply(const Bf16Product& p) {
  constexpr int64_t kTwo = 2 * kBf16Lines;
  for (int64_t j = 0; j < p.columns; j += kTwo) {
    const bool one_column = p.columns - j < kTwo;
    int64_t i = 0;
    for (; i + kTwo <= p.rows; i += kTwo)
      if (one_column) multiply_block<2, 1>(p, i, j);
      else multiply_block<2, 2>(p, i, j);
    if (i < p.rows) {
      if (one_column) multiply_block<1, 1>(p, i, j);
      else multiply_block<1, 2>(p, i, j);
    }
  }
}

// Rounds two vectors to bfloat16: those of `low` come first.
inline __attribute__((always_inline)) Words rounded(Floats low, Floats high) {
  Words v;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(v) : "v"(high), "v"(low));
  return v;
}
// Interleaves the halves of words: word i of the result has element i of both vectors of 16 elements.
inline __attribute__((always_inline)) Words interleaved(Words both) {
  typedef uint16_t Elements __attribute__((vector_size(64)));
  Elements order;
  for (int i = 0; i < 32; ++i) order[i] = uint16_t(i / 2 + i % 2 * 16);
  return (Words)__builtin_shuffle((Elements)both, order);
}

void round(const float* from, int64_t pitch, int64_t rows, int64_t steps, bfloat16* to, int64_t to_pitch) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < steps; k += kBf16Steps) {
      const float* const at = from + i * pitch + k;
      store(reinterpret_cast<uint32_t*>(to + i * to_pitch + k), rounded(load(at), load(at + kFloats)));
    }
}
void round_packed(const float* from, int64_t pitch, int64_t steps, int64_t columns, bfloat16* to, int64_t panel) {
  for (int64_t j = 0; j < columns; j += kBf16Lines)
    for (int64_t k = 0; k < steps; k += 2) {
      const float* const at = from + k * pitch + j;
      store(reinterpret_cast<uint32_t*>(to + j / kBf16Lines * panel + k * kBf16Lines),
            interleaved(rounded(load(at), load(at + pitch))));
    }
}
void pack(const bfloat16* from, int64_t pitch, int64_t steps, int64_t columns, bfloat16* to, int64_t panel) {
  for (int64_t j = 0; j < columns; j += kBf16Lines)
    for (int64_t k = 0; k < steps; k += 2) {
      Words both;
      __builtin_memcpy(&both, from + k * pitch + j, 32);
      __builtin_memcpy(reinterpret_cast<char*>(&both) + 32, from + (k + 1) * pitch + j, 32);
      store(reinterpret_cast<uint32_t*>(to + j / kBf16Lines * panel + k * kBf16Lines), interleaved(both));
    }
}
// A pair of elements is a word, so blocks of 16 x 16 words are transposed.
void pack_transposed(const bfloat16* from, int64_t pitch, int64_t columns, int64_t steps, bfloat16* to, int64_t panel) {
  for (int64_t j = 0; j < columns; j += kBf16Lines)
    for (int64_t k = 0; k < steps; k += kBf16Steps) {
      Words block[kFloats];
#pragma GCC unroll 16
      for (int i = 0; i < kFloats; ++i) block[i] = load(reinterpret_cast<const uint32_t*>(from + (j + i) * pitch + k));
      transpose_block<uint32_t>(block);
#pragma GCC unroll 16
      for (int i = 0; i < kFloats; ++i)
        store(reinterpret_cast<uint32_t*>(to + j / kBf16Lines * panel + (k + 2 * i) * kBf16Lines), block[i]);
    }
}

void transpose(const bfloat16* from, int64_t pitch, int64_t rows, int64_t columns, bfloat16* to, int64_t to_pitch) {
  transpose_tile(reinterpret_cast<const uint16_t*>(from), pitch, reinterpret_cast<uint16_t*>(to), to_pitch, rows,
                 columns);
}

constexpr Bf16Kernels kKernels = {begin, end, multiply, round, round_packed, pack, pack_transposed, transpose};
#else
constexpr Bf16Kernels kKernels = {};
#endif

}  // namespace

extern const Bf16Kernels bf16_kernels;
const Bf16Kernels bf16_kernels = kKernels;

}  // namespace minidnn::MINIDNN_ISA
