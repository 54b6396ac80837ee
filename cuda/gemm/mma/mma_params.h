// SPDX-License-Identifier: Apache-2.0
// Index arithmetic for gathering operands by elements or by vectors of up to 16 bytes, from any strides and windows.
// Rows and k have 32 bits, offsets are bytes in 64 bits. The address of an element is the sum of an offset of its row
// and an offset of its k. Both sides also have a mask; the element exists if the two masks have no bit in common. In
// each dimension of a window, a tap sets its own bit, and a position sets the bits of the taps that fall outside.
// Std-free: gather_index.cpp checks and prepares the parameters, mma/kernel.cu uses them.
#pragma once
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// GemmIndex32 whose coordinates are computed by quotient() instead of divmod(): the machine code differs.
struct GatherIndex {
  uint32_t size = 0;
  FastDivmod by[kDigits - 1];  // the sizes of digits 1, 2 and 3

  MINIDNN_HD GemmCoordinates32 coordinates(uint32_t i) const {
    GemmCoordinates32 d;
    for (int j = kDigits - 1; j > 0; --j) {
      uint32_t rest = by[j - 1].quotient(i);
      d.at[j] = i - rest * by[j - 1].divisor;
      i = rest;
    }
    d.at[0] = i;
    return d;
  }
};

// The dimensions of a window. A dimension where no element is ever outside has taps = 0. The coordinate of tap t at
// position p is start + p position_step + t tap_step. Coordinates are mirrored if taps would have a negative step.
struct GatherWindow {
  uint32_t on = 0;  // 0: no element is ever outside
  // 1: digits 0-2 of k are taps and digits 1-3 of a row are positions. 0: digits 0-2 of a row are taps and digits 1-3
  // of k are positions.
  uint32_t taps_in_k = 0;
  uint32_t taps[3]{}, first_bit[3]{};
  int32_t size[3]{}, start[3]{}, position_step[3]{};
  FastDivmod tap_step[3];
};

struct GatherOperand {
  int64_t offset = 0;  // offset and strides are in elements
  GemmStrides row, k, batch;
  GatherWindow window;
  uint32_t along_k = 0;  // 1: vectors are contiguous along k, 0: along rows
  uint32_t width = 0;    // bytes of a vector: 16, 8, 4 or 2, at least one element
  // table == 0: within a slice, consecutive k are k_step bytes apart and have the same mask. The next slice is
  // advance[j] bytes further, where j is the first digit in which its k differs. table == 1: this does not hold, and
  // each k has an entry.
  uint32_t table = 0;
  int64_t k_step = 0, advance[kDigits]{};
};

constexpr uint32_t kMaxTapBits = 30;
constexpr uint32_t kRowExists = 1u << 30, kKExists = 1u << 31, kNothing = ~0u;  // kNothing overlaps both

// The functions below have no branches: a few warps call them in the main loop while the other warps wait.
MINIDNN_HD uint32_t tap_bits(const GatherWindow& w, const GemmCoordinates32& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) bits |= uint32_t(w.taps[j] != 0) << ((w.first_bit[j] + d.at[j]) & 31);
  return bits;
}
MINIDNN_HD uint32_t bits_below(int32_t n) { return (1u << n) - 1; }
MINIDNN_HD uint32_t outside_bits(const GatherWindow& w, const GemmCoordinates32& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) {
    // Taps before `first` are below the tensor, those from `end` on are past it.
    const int32_t at = w.start[j] + int32_t(d.at[1 + j]) * w.position_step[j], step = int32_t(w.tap_step[j].divisor);
    const int32_t taps = int32_t(w.taps[j]);
    const int32_t first = int32_t(w.tap_step[j].quotient(uint32_t(max_of(step - 1 - at, 0))));
    const int32_t end = int32_t(w.tap_step[j].quotient(uint32_t(max_of(w.size[j] - 1 - at + step, 0))));
    const uint32_t inside = bits_below(min_of(end, taps)) & ~bits_below(min_of(first, taps));
    bits |= (bits_below(taps) & ~inside) << w.first_bit[j];
  }
  return bits;
}

// The row or the k side of an element: its offset in bytes, and its mask.
struct alignas(16) GatherEntry {
  int64_t offset;
  uint32_t mask;
};
MINIDNN_HD GatherEntry gather_entry(const GatherIndex& index, const GemmStrides& strides, const GatherWindow& w,
                                    bool taps, uint32_t exists, uint32_t element, uint32_t i) {
  if (i >= index.size) return {0, kNothing};
  GemmCoordinates32 d = index.coordinates(i);
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

// The parameters of mma_gather: a prepared view and the order of blocks. A block index counts tiles (fastest), batches
// and splits.
struct MmaParams {
  GatherIndex m, n, k, batch;
  GatherOperand a, b;
  GemmOutput y;
  int64_t split_stride = 0;  // elements from the y of one split to that of the next
  Activation activation{};
  FastDivmod tiles, batches;  // tiles of m x n; batches
  FastDivmod per_group;       // tiles in a group: kTilesOfGroup tiles of m (fewer in the last group) by all tiles of n
  FastDivmod last_rows;       // tiles of m in the last group
  uint32_t groups = 0;        // the number of groups before the last one
  uint32_t y_is_float32 = 0;
  uint32_t slices_per_split = 0;  // slices of k
  uint32_t inner_slices = 0;  // slices until digit 2 of k changes; kNoCarry if it never does, or if there are tables
  // Tables: the entries of k are looked up for a group of slices at a time, one entry a thread. group_slices is a power
  // of two. Thread first_b looks up the first entry of b. A slice has one entry for each k. If all vectors have 16
  // bytes and those of the operand are along k, it has one for each 16 bytes of k.
  uint32_t group_slices = 0, first_b = 0;
};
constexpr uint32_t kNoCarry = 1u << 31;  // value of inner_slices: digit 2 never changes
// tiles of m that are traversed together over all tiles of n: they share operands in the L2
constexpr uint32_t kTilesOfGroup = 16;

}  // namespace minidnn
