// SPDX-License-Identifier: Apache-2.0
// Index arithmetic for operands of any strides and windows, which a kernel gathers by elements or by vectors of up to
// 16 bytes. Indices of rows and k have 32 bits. Offsets are in bytes and have 64 bits. The address of an element is the
// sum of an offset of its row and an offset of its k. The row and the k of an element also have a bit mask each. The
// element exists if these two masks have no bit in common. In each dimension of a window, a tap (element of the window)
// sets its own bit, and a position of the window sets the bits of all taps that are outside the tensor at this
// position.
// This file does not use the standard library, because kernels include it. gather_index.cpp checks and prepares the
// parameters, and mma/kernel.cu uses them.
#pragma once
#include "cuda/gemm/epilogue/output_params.h"

namespace minidnn {

// An index of up to four digits (dimensions), like GemmIndex32. It computes coordinates by quotient() instead of
// divmod(), which gives the kernel different machine code.
struct GatherIndex {
  uint32_t size = 0;
  FastDivmod by[kDigits - 1];  // for divisions by the sizes of digits (dimensions) 1, 2 and 3 of the index

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

// The window through which an operand is read. taps[j] is 0 if no element can be outside the tensor in dimension j. In
// all other dimensions, tap (element) t of the window at position p has the coordinate start + p * position_step + t *
// tap_step. If the step of the taps is negative, the coordinates of the dimension are mirrored, so that tap_step is
// positive.
struct GatherWindow {
  uint32_t on = 0;  // 1 if elements of the window can be outside the tensor, else 0
  // taps_in_k is 1 if index k counts taps (elements of the window) and the row index counts positions of the window. It
  // is 0 if the row index counts taps and index k counts positions. In the index that counts taps, digits (dimensions)
  // 0 to 2 are the coordinates of the tap. In the index that counts positions, digits 1 to 3 are the coordinates of the
  // position.
  uint32_t taps_in_k = 0;
  uint32_t taps[3]{}, first_bit[3]{};
  int32_t size[3]{}, start[3]{}, position_step[3]{};
  FastDivmod tap_step[3];
};

struct GatherOperand {
  int64_t offset = 0;  // the offset and the strides of the operand are in elements
  GemmStrides row, k, batch;
  GatherWindow window;
  uint32_t along_k = 0;  // 1 if vectors are contiguous along k, 0 if they are contiguous along rows
  uint32_t width = 0;    // the number of bytes of a vector (16, 8, 4 or 2), at least the size of one element
  // Whether the kernel computes an offset and a mask (GatherEntry) for each k of this operand. If not, consecutive k of
  // a slice (64 bytes) are k_step bytes apart, and all k of a slice have the same mask. The next slice then begins
  // advance[j] bytes later, where j is the digit (dimension) of index k that SliceIterator::advance() increases.
  uint32_t table = 0;
  int64_t k_step = 0, advance[kDigits]{};
};

constexpr uint32_t kMaxTapBits = 30;
// Each existing row has the bit kRowExists in its mask, and each existing k has the bit kKExists. kNothing is the mask
// of a row or a k that does not exist. It has bits in common with every other mask, so no element exists there.
constexpr uint32_t kRowExists = 1u << 30, kKExists = 1u << 31, kNothing = ~0u;

// The functions below have no branches, because a few warps call them in the main loop while all other warps wait.
MINIDNN_HD uint32_t tap_bits(const GatherWindow& w, const GemmCoordinates32& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) bits |= uint32_t(w.taps[j] != 0) << ((w.first_bit[j] + d.at[j]) & 31);
  return bits;
}
MINIDNN_HD uint32_t bits_below(int32_t n) { return (1u << n) - 1; }
MINIDNN_HD uint32_t outside_bits(const GatherWindow& w, const GemmCoordinates32& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) {
    // If the window is at position d, its taps (elements) `first` to `end` - 1 are inside the tensor in dimension j.
    const int32_t at = w.start[j] + int32_t(d.at[1 + j]) * w.position_step[j], step = int32_t(w.tap_step[j].divisor);
    const int32_t taps = int32_t(w.taps[j]);
    const int32_t first = int32_t(w.tap_step[j].quotient(uint32_t(max_of(step - 1 - at, 0))));
    const int32_t end = int32_t(w.tap_step[j].quotient(uint32_t(max_of(w.size[j] - 1 - at + step, 0))));
    const uint32_t inside = bits_below(min_of(end, taps)) & ~bits_below(min_of(first, taps));
    bits |= (bits_below(taps) & ~inside) << w.first_bit[j];
  }
  return bits;
}

// What a row or a k contributes to an element: an offset in bytes, and a mask. The element exists if the mask of its
// row and the mask of its k have no bit in common.
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

// the number of bytes along k that a slice has for each row of an operand
constexpr int kSliceBytes = 64;

// The parameters of the kernel mma_gather: a GemmView that is prepared for the kernel, and the order of blocks. The
// index of a block counts tiles (fastest), matrices of the batch, and splits of k (slowest).
struct MmaParams {
  GatherIndex m, n, k, batch;
  GatherOperand a, b;
  GemmOutput y;
  int64_t split_stride = 0;  // the number of elements between the sums of neighbouring splits of k
  Activation activation{};
  // For divisions by the number of tiles in a matrix of y, and by the number of matrices in the batch.
  FastDivmod tiles, batches;
  // For divisions by the number of tiles in a group. A group has kTilesOfGroup tiles along m and all tiles along n.
  FastDivmod per_group;
  FastDivmod last_rows;  // for divisions by the number of tiles along m in the last group of tiles
  uint32_t groups = 0;   // the number of groups of tiles before the last group
  uint32_t y_is_float32 = 0;
  // The number of slices of k (64 bytes each) in each split of k. It is the largest uint32_t if k is not split.
  uint32_t slices_per_split = 0;
  // The number of slices of k (64 bytes each) until digit (dimension) 2 of index k changes. It is kNoCarry if that
  // digit never changes, or if the kernel computes an offset and a mask for each k (GatherOperand::table).
  uint32_t inner_slices = 0;
  // For an operand with GatherOperand::table, the kernel computes an offset and a mask (GatherEntry) for each k or, if
  // all vectors have 16 bytes and are contiguous along k, for each vector. It computes those of group_slices slices (64
  // bytes along k each) at a time; group_slices is a power of two. Each thread computes one GatherEntry: the threads
  // from 0 on for operand a, the threads from first_b on for operand b.
  uint32_t group_slices = 0, first_b = 0;
};
constexpr uint32_t kNoCarry = 1u << 31;  // the value of inner_slices if digit (dimension) 2 of index k never changes
// The number of tiles along m in a group of tiles. The blocks that compute a group share operands in the L2.
constexpr uint32_t kTilesOfGroup = 16;

}  // namespace minidnn
