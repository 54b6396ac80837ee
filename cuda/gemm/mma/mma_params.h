// SPDX-License-Identifier: Apache-2.0
// Index arithmetic for gathering operands of any strides and windows, by elements or by vectors of up to 16 bytes.
// Indices of rows and k have 32 bits. Offsets are in bytes and have 64 bits. The address of an element is the sum of an
// offset of its row and an offset of its k. The row and the k also have a mask each; the element exists if the two
// masks have no bit in common. In each dimension of a window, a tap sets its own bit, and a position sets the bits of
// the taps that are outside the tensor there.
// Std-free: gather_index.cpp checks and prepares the parameters, mma/kernel.cu uses them.
#pragma once
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// Like GemmIndex32, but computes coordinates by quotient() instead of divmod(), which gives the kernel different
// machine code.
struct GatherIndex {
  uint32_t size = 0;
  FastDivmod by[kDigits - 1];  // divisors: the sizes of digits (dimensions) 1, 2 and 3 of the index

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

// The window of an operand, for the dimensions in which an element can be outside the tensor; other dimensions have
// taps = 0. In each dimension, the coordinate of tap t at position p is start + p position_step + t tap_step. If taps
// have a negative step, start and both steps are mirrored, so that tap_step is positive.
struct GatherWindow {
  uint32_t on = 0;  // 0 if no element can be outside the tensor, else 1
  // 1 if digits 0 to 2 of index k are taps, and digits 1 to 3 of a row index are positions. 0 if digits 0 to 2 of a row
  // index are taps, and digits 1 to 3 of index k are positions.
  uint32_t taps_in_k = 0;
  uint32_t taps[3]{}, first_bit[3]{};
  int32_t size[3]{}, start[3]{}, position_step[3]{};
  FastDivmod tap_step[3];
};

struct GatherOperand {
  int64_t offset = 0;  // offset and strides of the operand are in elements
  GemmStrides row, k, batch;
  GatherWindow window;
  uint32_t along_k = 0;  // 1 if vectors are contiguous along k, 0 if they are contiguous along rows
  uint32_t width = 0;    // bytes of a vector (16, 8, 4 or 2), at least the size of one element
  // 0 if the kernel needs no table of the entries of k. Consecutive k of a slice are then k_step bytes apart and have
  // the same mask. The next slice is advance[j] bytes further, where j is the outermost digit (dimension) of index k
  // that changes.
  // 1 if the kernel computes an entry for each k.
  uint32_t table = 0;
  int64_t k_step = 0, advance[kDigits]{};
};

constexpr uint32_t kMaxTapBits = 30;
constexpr uint32_t kRowExists = 1u << 30, kKExists = 1u << 31, kNothing = ~0u;  // kNothing has bits in common with both

// The functions below have no branches, because a few warps call them in the main loop while the other warps wait.
MINIDNN_HD uint32_t tap_bits(const GatherWindow& w, const GemmCoordinates32& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) bits |= uint32_t(w.taps[j] != 0) << ((w.first_bit[j] + d.at[j]) & 31);
  return bits;
}
MINIDNN_HD uint32_t bits_below(int32_t n) { return (1u << n) - 1; }
MINIDNN_HD uint32_t outside_bits(const GatherWindow& w, const GemmCoordinates32& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) {
    // Taps before `first` are below the tensor; tap `end` and the taps after it are above the tensor.
    const int32_t at = w.start[j] + int32_t(d.at[1 + j]) * w.position_step[j], step = int32_t(w.tap_step[j].divisor);
    const int32_t taps = int32_t(w.taps[j]);
    const int32_t first = int32_t(w.tap_step[j].quotient(uint32_t(max_of(step - 1 - at, 0))));
    const int32_t end = int32_t(w.tap_step[j].quotient(uint32_t(max_of(w.size[j] - 1 - at + step, 0))));
    const uint32_t inside = bits_below(min_of(end, taps)) & ~bits_below(min_of(first, taps));
    bits |= (bits_below(taps) & ~inside) << w.first_bit[j];
  }
  return bits;
}

// What the row or the k contributes to an element: an offset in bytes, and a mask. The element exists if the masks of
// its row and of its k have no bit in common.
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

// bytes along k in a slice, for each row of an operand
constexpr int kSliceBytes = 64;

// The parameters of the kernel mma_gather: a prepared view and the order of blocks. A block index counts tiles
// (fastest), batches and splits (slowest).
struct MmaParams {
  GatherIndex m, n, k, batch;
  GatherOperand a, b;
  GemmOutput y;
  int64_t split_stride = 0;  // number of elements between the outputs of neighbouring splits
  Activation activation{};
  FastDivmod tiles, batches;  // divisors: number of tiles in a matrix, number of matrices in the batch
  // divisor: number of tiles in a group, which is kTilesOfGroup tiles along m by all tiles along n
  FastDivmod per_group;
  FastDivmod last_rows;  // divisor: number of tiles along m in the last group
  uint32_t groups = 0;   // number of groups of tiles before the last group
  uint32_t y_is_float32 = 0;
  uint32_t slices_per_split = 0;  // number of slices of k in each split; the largest uint32_t if k is not split
  // number of slices until digit 2 of index k changes; kNoCarry if that digit never changes, or if there are tables
  uint32_t inner_slices = 0;
  // Used if an operand has a table of the entries of k. The entries are computed for group_slices slices at a time (a
  // power of two), one entry a thread. Thread 0 computes the first entry of a, thread first_b the first entry of b. A
  // slice has one entry for each k. If all vectors have 16 bytes, an operand with vectors along k has one entry for
  // each vector instead.
  uint32_t group_slices = 0, first_b = 0;
};
constexpr uint32_t kNoCarry = 1u << 31;  // the value of inner_slices if digit 2 of index k never changes
// Number of tiles along m in a group. Blocks of a group share operands in the L2.
constexpr uint32_t kTilesOfGroup = 16;

}  // namespace minidnn
