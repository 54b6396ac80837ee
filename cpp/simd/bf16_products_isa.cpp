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
// rows_of(i, s) returns the rows of a from i on, in segment s.
template <int kRows, int kColumns, class F>
void multiply_block(const Bf16Product& p, int64_t i, int64_t j, int64_t segments, F rows_of) {
  const int64_t b_bytes = p.b_pitch * 2, c_bytes = p.c_pitch * 4;
  const bfloat16* b = p.b + j / kBf16Lines * p.panel;
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
  for (int64_t s = 0; s < segments; ++s) {
    const Bf16Rows first = rows_of(i, s), second = rows_of(kRows == 2 ? i + kBf16Lines : i, s);
    for (int64_t k = 0; k < p.steps; k += kBf16Steps, b += kBf16Steps / 2 * p.b_pitch) {
      load_tile<6>(b, b_bytes);
      load_tile<4>(first.at + k, first.pitch * 2);
      multiply_tiles<0, 4, 6>();
      if constexpr (kColumns == 2) {
        load_tile<7>(b + p.panel, b_bytes);
        multiply_tiles<1, 4, 7>();
      }
      if constexpr (kRows == 2) {
        load_tile<5>(second.at + k, second.pitch * 2);
        multiply_tiles<2, 5, 6>();
        if constexpr (kColumns == 2) multiply_tiles<3, 5, 7>();
      }
    }
  }
  each([&](auto n, float* at) __attribute__((always_inline)) { store_tile<decltype(n)::value - 1>(at, c_bytes); });
}
template <class F> void multiply_blocks(const Bf16Product& p, int64_t segments, F rows_of) {
  constexpr int64_t kTwo = 2 * kBf16Lines;
  for (int64_t j = 0; j < p.columns; j += kTwo) {
    const bool one_column = p.columns - j < kTwo;
    int64_t i = 0;
    for (; i + kTwo <= p.rows; i += kTwo)
      if (one_column) multiply_block<2, 1>(p, i, j, segments, rows_of);
      else multiply_block<2, 2>(p, i, j, segments, rows_of);
    if (i < p.rows) {
      if (one_column) multiply_block<1, 1>(p, i, j, segments, rows_of);
      else multiply_block<1, 2>(p, i, j, segments, rows_of);
    }
  }
}
void multiply(const Bf16Product& p) {
  if (p.a_pitch)
    return multiply_blocks(p, 1, [&](int64_t i, int64_t) { return Bf16Rows{p.a + i * p.a_pitch, p.a_pitch}; });
  Bf16Product of_tile = p;
  of_tile.steps = kBf16Steps;
  multiply_blocks(of_tile, p.steps / kBf16Steps, [&](int64_t i, int64_t s) {
    return Bf16Rows{p.a + i * p.steps + s * kBf16Lines * kBf16Steps, kBf16Steps};
  });
}
void multiply_segments(const Bf16Product& p, const Bf16Rows* rows, int64_t segments) {
  multiply_blocks(p, segments, [&](int64_t i, int64_t s) { return rows[i / kBf16Lines * segments + s]; });
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
// The pairs of 16 elements each at `even` and at `odd`.
inline __attribute__((always_inline)) Words pairs_of(const bfloat16* even, const bfloat16* odd) {
  Words both;
  __builtin_memcpy(&both, even, 32);
  __builtin_memcpy(reinterpret_cast<char*>(&both) + 32, odd, 32);
  return interleaved(both);
}
// Packs the steps k and k + 1 of one panel.
inline __attribute__((always_inline)) void pack_pair(const bfloat16* even, const bfloat16* odd, bfloat16* to) {
  store(reinterpret_cast<uint32_t*>(to), pairs_of(even, odd));
}
void pack(const bfloat16* from, int64_t pitch, int64_t steps, int64_t columns, bfloat16* to, int64_t panel) {
  for (int64_t j = 0; j < columns; j += kBf16Lines)
    for (int64_t k = 0; k < steps; k += 2)
      pack_pair(from + k * pitch + j, from + (k + 1) * pitch + j, to + j / kBf16Lines * panel + k * kBf16Lines);
}
void pack_rows(const bfloat16* const* rows, int64_t steps, int64_t columns, bfloat16* to, int64_t panel) {
  const int64_t whole = columns / kBf16Lines * kBf16Lines;
  for (int64_t k = 0; k < steps; k += 2, to += 2 * kBf16Lines) {
    for (int64_t j = 0; j < whole; j += kBf16Lines)
      pack_pair(rows[k] + j, rows[k + 1] + j, to + j / kBf16Lines * panel);
    for (int64_t j = whole; j < columns; j += kBf16Lines) {
      bfloat16 last[2][kBf16Lines] = {};
      for (int64_t i = j; i < columns; ++i) {
        last[0][i - j] = rows[k][i];
        last[1][i - j] = rows[k + 1][i];
      }
      pack_pair(last[0], last[1], to + j / kBf16Lines * panel);
    }
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

void pad_rows(const bfloat16* from, int64_t pitch, int64_t rows, int64_t count, bfloat16* to, int64_t to_pitch,
              int64_t padded) {
  const int64_t whole = count / kBf16Steps * kBf16Steps;
  for (int64_t i = 0; i < rows; ++i, from += pitch, to += to_pitch) {
    for (int64_t k = 0; k < whole; k += kBf16Steps)
      store(reinterpret_cast<uint32_t*>(to + k), load(reinterpret_cast<const uint32_t*>(from + k)));
    for (int64_t k = whole; k < padded; ++k) to[k] = k < count ? from[k] : bfloat16{};
  }
}

void transpose(const bfloat16* from, int64_t pitch, int64_t rows, int64_t columns, bfloat16* to, int64_t to_pitch) {
  const int64_t whole_rows = rows / kBf16Steps * kBf16Steps, whole_columns = columns / kBf16Lines * kBf16Lines;
  const auto rest = [&](int64_t i, int64_t j, int64_t count) {
    transpose_tile(reinterpret_cast<const uint16_t*>(from + i * pitch + j), pitch,
                   reinterpret_cast<uint16_t*>(to + j * to_pitch + i), to_pitch, rows - i, count);
  };
  // transpose_tile() also overwrites the start of the next row of `to`, so it comes first.
  rest(whole_rows, 0, whole_columns);
  rest(0, whole_columns, columns - whole_columns);
  // Pairs of rows are words, of which blocks of 16 x 16 are transposed.
  for (int64_t i = 0; i < whole_rows; i += kBf16Steps)
    for (int64_t j = 0; j < whole_columns; j += kBf16Lines) {
      Words block[kFloats];
#pragma GCC unroll 16
      for (int n = 0; n < kFloats; ++n) {
        const bfloat16* const at = from + (i + 2 * n) * pitch + j;
        block[n] = pairs_of(at, at + pitch);
      }
      transpose_block<uint32_t>(block);
#pragma GCC unroll 16
      for (int n = 0; n < kFloats; ++n) store(reinterpret_cast<uint32_t*>(to + (j + n) * to_pitch + i), block[n]);
    }
}

constexpr Bf16Kernels kKernels = {begin,           end,       multiply, multiply_segments, round, round_packed, pack,
                                  pack_transposed, pack_rows, pad_rows, transpose};
#else
constexpr Bf16Kernels kKernels = {};
#endif

}  // namespace

extern const Bf16Kernels bf16_kernels;
const Bf16Kernels bf16_kernels = kKernels;

}  // namespace minidnn::MINIDNN_ISA
