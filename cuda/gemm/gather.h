// SPDX-License-Identifier: Apache-2.0
// The index arithmetic of gathering operands by the element or by vectors of up to 16 bytes, from any strides and
// windows. Rows and k are counted in 32 bits, offsets are bytes in 64. An element's address is the sum of what its row
// and its k say, and so is whether it exists: each side has a mask, and an element is there where the two have no bit
// in common. A tap has its own bit in each dimension, a position the bits of the taps that fall outside. Std-free;
// gather.cpp checks and prepares, mma_gather.cu runs.
#pragma once
#include "cuda/gemm/view.h"

namespace minidnn {

struct Digits {
  uint32_t at[kDigits];
};

struct GatherIndex {
  uint32_t size = 0;
  FastDivmod by[kDigits - 1];  // digits 1, 2 and 3

  MINIDNN_HD Digits digits(uint32_t i) const {
    Digits d;
    for (int j = kDigits - 1; j > 0; --j) {
      uint32_t rest = by[j - 1].quotient(i);
      d.at[j] = i - rest * by[j - 1].divisor;
      i = rest;
    }
    d.at[0] = i;
    return d;
  }
};

MINIDNN_HD int64_t offset_of(const GemmStrides& s, const Digits& d) {
  int64_t offset = 0;
  for (int j = 0; j < kDigits; ++j) offset += int64_t(d.at[j]) * s.of[j];
  return offset;
}

// A window's dimensions; one where no element is ever outside has no taps here. Tap t of a position p is at
// start + p position_step + t tap_step. Coordinates are mirrored where taps would run backwards.
struct GatherWindow {
  uint32_t on = 0;         // 0: no element is ever outside
  uint32_t taps_in_k = 0;  // 1: k's digits 0-2 are taps and a row's 1-3 positions; 0: the other way round
  uint32_t taps[3]{}, first_bit[3]{};
  int32_t size[3]{}, start[3]{}, position_step[3]{};
  FastDivmod tap_step[3];
};

struct GatherOperand {
  int64_t offset = 0;  // this and the strides in elements
  GemmStrides row, k, batch;
  GatherWindow window;
  uint32_t along_k = 0;  // vectors lie along k; else along rows
  uint32_t width = 0;    // bytes of a vector: 16, 8, 4 or 2, never less than an element
  // Within a slice one k after another is k_step bytes further, and as much outside. The next slice is advance[j] bytes
  // further where digit j of its k is the first that differs. Where `table`, this is not so: each k has an entry.
  uint32_t table = 0;
  int64_t k_step = 0, advance[kDigits]{};
};

constexpr uint32_t kMaxTapBits = 30;
constexpr uint32_t kRowExists = 1u << 30, kKExists = 1u << 31, kNothing = ~0u;  // kNothing meets each of the two

// What follows has no branches: it runs in the main loop, by a few warps that others wait for.
MINIDNN_HD uint32_t tap_bits(const GatherWindow& w, const Digits& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) bits |= uint32_t(w.taps[j] != 0) << ((w.first_bit[j] + d.at[j]) & 31);
  return bits;
}
MINIDNN_HD uint32_t bits_below(int32_t n) { return (1u << n) - 1; }
MINIDNN_HD uint32_t outside_bits(const GatherWindow& w, const Digits& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) {
    // Taps before `first` have not yet reached the tensor, those from `end` on are past it.
    const int32_t at = w.start[j] + int32_t(d.at[1 + j]) * w.position_step[j], step = int32_t(w.tap_step[j].divisor);
    const int32_t taps = int32_t(w.taps[j]);
    const int32_t first = int32_t(w.tap_step[j].quotient(uint32_t(max_of(step - 1 - at, 0))));
    const int32_t end = int32_t(w.tap_step[j].quotient(uint32_t(max_of(w.size[j] - 1 - at + step, 0))));
    const uint32_t inside = bits_below(min_of(end, taps)) & ~bits_below(min_of(first, taps));
    bits |= (bits_below(taps) & ~inside) << w.first_bit[j];
  }
  return bits;
}

// One side's part of an element: how many bytes further it starts, and its mask.
struct alignas(16) GatherEntry {
  int64_t offset;
  uint32_t mask;
};
MINIDNN_HD GatherEntry gather_entry(const GatherIndex& index, const GemmStrides& strides, const GatherWindow& w,
                                    bool taps, uint32_t exists, uint32_t element, uint32_t i) {
  if (i >= index.size) return {0, kNothing};
  Digits d = index.digits(i);
  uint32_t bits = 0;
  if (w.on) bits = taps ? tap_bits(w, d) : outside_bits(w, d);
  return {offset_of(strides, d) * element, exists | bits};
}
MINIDNN_HD GatherEntry row_entry(const GatherIndex& rows, const GatherOperand& o, uint32_t element, uint32_t i) {
  return gather_entry(rows, o.row, o.window, !o.window.taps_in_k, kRowExists, element, i);
}
MINIDNN_HD GatherEntry k_entry(const GatherIndex& k, const GatherOperand& o, uint32_t element, uint32_t i) {
  return gather_entry(k, o.k, o.window, o.window.taps_in_k, kKExists, element, i);
}

// A slice of an operand in shared memory: 64 bytes along k of each row.
constexpr int kSliceBytes = 64;

// What mma_gather takes: a view made ready, and the blocks that work on it. Blocks count tiles, then batches, then
// splits.
struct MmaParams {
  GatherIndex m, n, k, batch;
  GatherOperand a, b;
  GemmOutput y;
  int64_t part_stride = 0;  // each split has its own y, so many elements after the one before
  Activation activation{};
  FastDivmod tiles, batches;  // of m x n, of the batch
  FastDivmod per_group;       // tiles in a group: kTilesOfGroup of m (the last group: fewer) by all of n
  FastDivmod last_rows;       // tiles of m in the last group
  uint32_t groups = 0;        // but for the last
  uint32_t y_is_float32 = 0;
  uint32_t slices_per_split = 0;  // of k
  uint32_t inner_slices = 0;      // until digit 2 of k changes; where there are tables, never
  // Tables: entries of k are looked up for a group of slices at once, a power of two of them, an entry a thread, b's
  // from thread first_b on. A slice has one for each of its k, or, where all vectors lie along k, for each of these 16
  // bytes.
  uint32_t group_slices = 0, first_b = 0;
};
constexpr uint32_t kNoCarry = 1u << 31;  // inner_slices, for ever
constexpr uint32_t kTilesOfGroup = 16;   // of m, walked together over all of n: they share operands in the L2

}  // namespace minidnn
