// SPDX-License-Identifier: Apache-2.0
// Index arithmetic of mma/kernel.cu, for operands of any strides and windows. The address of an element is the sum of
// an offset of its row and an offset of its k. The row and the k also have a bit mask each. The element exists if both
// masks have no bit in common: a tap of the window sets its own bit, and a position of the window sets the bits of all
// taps that are outside of the tensor. Rows and k have 32 bits, offsets have 64 bits and are in bytes. This file does
// not use the standard library, because kernels include it. gather_index.cpp prepares the parameters.
#pragma once
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// Like GemmIndex32, but by quotient() instead of divmod(), which compiles to different code.
struct GatherIndex {
  uint32_t size = 0;
  FastDivmod by[kDigits - 1];  // divide by the sizes of dimensions 1 to 3

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

// The window through which an operand is read. Tap t at position p has coordinate start + p * position_step + t *
// tap_step in a dimension. Dimensions with negative tap_step are mirrored. taps[j] = 0: no element is outside of the
// tensor in dimension j.
struct GatherWindow {
  uint32_t on = 0;  // 1 if some taps can be outside of the tensor
  // 1 if k counts taps and rows count positions, 0 if rows count taps and k counts positions. The coordinates are
  // dimensions 0 to 2 of the index that counts taps, and dimensions 1 to 3 of the index that counts positions.
  uint32_t taps_in_k = 0;
  uint32_t taps[3]{}, first_bit[3]{};
  int32_t size[3]{}, start[3]{}, position_step[3]{};
  FastDivmod tap_step[3];
};

struct GatherOperand {
  int64_t offset = 0;  // the offset and the strides are in elements
  GemmStrides row, k, batch;
  GatherWindow window;
  uint32_t along_k = 0;  // 1 if vectors are along k, 0 if along rows
  uint32_t width = 0;    // bytes of a vector: 16, 8, 4 or 2
  // 1 if the kernel needs a table with an offset and a mask for each k. If not, k_step is the distance of adjacent k in
  // bytes, and advance[j] the distance to the next slice after a carry into dimension j of k.
  uint32_t table = 0;
  int64_t k_step = 0, advance[kDigits]{};
};

constexpr uint32_t kMaxTapBits = 30;
// The masks of all rows that exist have kRowExists, and those of all k that exist have kKExists. kNothing is the mask
// of a row or a k that does not exist; it has bits in common with every mask.
constexpr uint32_t kRowExists = 1u << 30, kKExists = 1u << 31, kNothing = ~0u;

// The functions below have no branches: all other warps wait while a few warps call them.
MINIDNN_HD uint32_t tap_bits(const GatherWindow& w, const GemmCoordinates32& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) bits |= uint32_t(w.taps[j] != 0) << ((w.first_bit[j] + d.at[j]) & 31);
  return bits;
}
MINIDNN_HD uint32_t bits_below(int32_t n) { return (1u << n) - 1; }
MINIDNN_HD uint32_t outside_bits(const GatherWindow& w, const GemmCoordinates32& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) {
    // At position d, taps `first` to `end` - 1 are inside of the tensor in dimension j.
    const int32_t at = w.start[j] + int32_t(d.at[1 + j]) * w.position_step[j], step = int32_t(w.tap_step[j].divisor);
    const int32_t taps = int32_t(w.taps[j]);
    const int32_t first = int32_t(w.tap_step[j].quotient(uint32_t(max_of(step - 1 - at, 0))));
    const int32_t end = int32_t(w.tap_step[j].quotient(uint32_t(max_of(w.size[j] - 1 - at + step, 0))));
    const uint32_t inside = bits_below(min_of(end, taps)) & ~bits_below(min_of(first, taps));
    bits |= (bits_below(taps) & ~inside) << w.first_bit[j];
  }
  return bits;
}

// The offset (in bytes) and the mask of a row or of a k. An element exists if both masks have no bit in common.
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

// bytes along k of a slice, per row
constexpr int kSliceBytes = 64;

// The parameters of mma_gather. The index of a block counts tiles (fastest), matrices of the batch, and splits of k.
struct MmaParams {
  GatherIndex m, n, k, batch;
  GatherOperand a, b;
  GemmOutput y;
  int64_t split_stride = 0;  // the stride of splits in the workspace, in elements
  uint32_t relu = 0;
  // divide by the number of tiles in a matrix, and of matrices in the batch
  FastDivmod tiles, batches;
  // For divisions by the number of tiles in a group. A group has kTilesOfGroup tiles along m and all tiles along n.
  FastDivmod per_group;
  FastDivmod last_rows;  // divides by the number of tiles along m in the last group
  uint32_t groups = 0;   // the number of groups before the last group
  uint32_t y_is_float32 = 0;
  // The number of slices in each split of k, or the largest uint32_t if k is not split.
  uint32_t slices_per_split = 0;
  // The number of slices between carries into dimension 2 of k, or kNoCarry.
  uint32_t inner_slices = 0;
  // The tables of offsets and masks of k are computed for group_slices slices at a time, a power of two. Each thread
  // computes one entry: threads from 0 on for operand a, threads from first_b on for operand b.
  uint32_t group_slices = 0, first_b = 0;
};
constexpr uint32_t kNoCarry = 1u << 31;
// the number of tiles along m in a group (MmaParams::per_group)
constexpr uint32_t kTilesOfGroup = 16;

}  // namespace minidnn
