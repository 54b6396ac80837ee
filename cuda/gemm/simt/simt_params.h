// SPDX-License-Identifier: Apache-2.0
// The parameters and the index arithmetic of simt/kernel.cu. plan.cpp makes the parameters from GemmViews (view.h).
// An index consists of digits (dimensions). The host joins the digits of an index and sorts them for memory access, so
// the kernel does not know which digit is, for example, the image. Strides are in bytes. If an operand is read through
// a window, this operand is always a.
// This file does not use the standard library, because kernels include it. plan.cpp uses the same definitions on the
// host.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

// kSimtTileK is the number of values of k in a slice of the operands. kSimtStages is the number of slices in shared
// memory.
constexpr int kSimtTileK = 8, kSimtStages = 5;
// The number of values of k (two slices) whose offsets and masks are computed at a time.
constexpr int kSimtEntriesK = 16;
// The number of values of k whose offsets and masks are in shared memory. These are eight slices of kSimtTileK values,
// or four pairs of slices. While the offsets and masks of one pair are written, those of the other three pairs may be
// read.
constexpr int kSimtBufferedK = 4 * kSimtEntriesK;
static_assert(kSimtStages - 1 == kSimtEntriesK / kSimtTileK * 2);

// The tile of a block. A thread has 8 x 8 sums or, in the largest tile, 8 x 16 sums. With 8 x 16 sums, it reads a
// quarter less from shared memory for each multiply-add. In each dimension, the sums of a thread are groups of four
// neighbours. The groups are kGroupM rows or kGroupN columns apart, so that the lanes of a warp read neighbouring
// vectors of 16 bytes.
template <int kTileM, int kTileN> struct SimtTile {
  static constexpr int kM = kTileM, kN = kTileN;
  static constexpr int kGroupsM = 2, kGroupsN = kTileM * kTileN == 128 * 128 ? 4 : 2;
  static constexpr int kSumsM = 4 * kGroupsM, kSumsN = 4 * kGroupsN;
  static constexpr int kThreads = kTileM * kTileN / (kSumsM * kSumsN);
  // The lanes of a warp are arranged as kLanesM x kLanesN lanes along m and n.
  static constexpr int kLanesN = kTileN >= 32 ? 4 : 2, kLanesM = 32 / kLanesN;
  static constexpr int kGroupM = 4 * kLanesM, kGroupN = 4 * kLanesN;
  static constexpr int kWarpsM = kTileM / (kGroupsM * kGroupM);
  // The number of floats by which each line of a slice (all rows at one k) is padded in shared memory. With the
  // padding, reads of four neighbouring rows at each of eight k go to 32 different banks.
  static constexpr int kPad = 4;
  // The number of blocks per SM. It allows a thread to use 255 registers (8 x 16 sums) or 168 registers (8 x 8 sums).
  static constexpr int kBlocksPerSm = (kGroupsN == 4 ? 256 : 384) / kThreads;
};

constexpr int kSimtTapBits = 30;
// Each existing row has the bit kSimtRow in its mask, and each existing k has the bit kSimtK. kSimtNothing is the mask
// of a row or a k that does not exist. It has bits in common with every other mask.
constexpr uint32_t kSimtRow = 1u << 30, kSimtK = 1u << 31, kSimtNothing = ~0u;

// What a row or a k contributes to an element. The address of an element is the sum of the offset of its row and the
// offset of its k. The element exists if the mask of its row and the mask of its k have no bit in common. In each
// dimension of a window, a tap (element of the window) sets its own bit, and a position sets the bits of all taps that
// are outside the tensor at this position.
struct alignas(16) SimtEntry {
  int64_t offset;
  uint32_t mask;
  uint32_t unused;
};

// What a block computes: the phase of backward_data, the first row and the first column of its tile, and the byte
// offsets of its matrix in y, c and bias. A SimtBlock is in shared memory during the main loop, because registers are
// scarce.
struct SimtBlock {
  uint32_t phase, first_m, first_n;
  int64_t y, c, bias;
};

template <int kTileM, int kTileN> struct SimtShared {
  static constexpr int kPad = SimtTile<kTileM, kTileN>::kPad;
  SimtBlock block;
  struct alignas(16) Slice {
    float a[kSimtTileK][kTileM + kPad], b[kSimtTileK][kTileN + kPad];
  };
  Slice slice[kSimtStages];
  SimtEntry a_row[kTileM], b_row[kTileN];
  SimtEntry a_k[kSimtBufferedK], b_k[kSimtBufferedK];  // ring buffers of an offset and a mask for each k
};

// The shared memory of a block after the main loop. `block` stays at its address. `sums` are kColumns columns of the
// tile, in the order of y. The other members are the byte offsets of rows and columns in y, c and bias.
template <int kTileM, int kTileN> struct SimtSharedOut {
  // The sums of a tile are stored in kPasses iterations of kColumns columns each.
  static constexpr int kColumns = kTileN < 64 ? kTileN : 64, kPasses = kTileN / kColumns;
  static constexpr int kPad = SimtTile<kTileM, kTileN>::kPad;
  static constexpr int kAlongM = kColumns * (kTileM + kPad), kAlongN = kTileM * (kColumns + kPad);
  SimtBlock block;
  alignas(16) float sums[kAlongM > kAlongN ? kAlongM : kAlongN];
  int64_t y_m[kTileM], c_m[kTileM], bias_m[kTileM];
  int64_t y_n[kTileN], c_n[kTileN], bias_n[kTileN];
};

template <int kTileM, int kTileN>
constexpr int kSimtSharedBytes = int(sizeof(SimtShared<kTileM, kTileN>) > sizeof(SimtSharedOut<kTileM, kTileN>)
                                         ? sizeof(SimtShared<kTileM, kTileN>)
                                         : sizeof(SimtSharedOut<kTileM, kTileN>));

// The window through which operand a is read. taps[j] is 0 if no element can be outside the tensor in dimension j. If
// taps_in_k, index k counts taps (elements of the window) and the row index counts positions of the window. If not, the
// row index counts taps and index k counts positions.
// The index of the tap in dimension j is the dot product of tap_of[j] and the digits of the index that counts taps. The
// coordinate of the position in dimension j is `start` plus the dot product of position_of[j] and the digits of the
// index that counts positions.
struct SimtWindow {
  uint32_t taps_in_k = 0;
  uint32_t taps[3]{}, first_bit[3]{}, size[3]{};
  int32_t start[3]{}, tap_step[3]{};
  int32_t tap_of[3][kDigits]{}, position_of[3][kDigits]{};
};

MINIDNN_HD int32_t sum_of(const int32_t (&of)[kDigits], const GemmCoordinates32& d) {
  int32_t sum = 0;
  for (int j = 0; j < kDigits; ++j) sum += int32_t(d.at[j]) * of[j];
  return sum;
}
MINIDNN_HD uint32_t tap_bits(const SimtWindow& w, const GemmCoordinates32& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j)
    if (w.taps[j]) bits |= 1u << (w.first_bit[j] + uint32_t(sum_of(w.tap_of[j], d)));
  return bits;
}
MINIDNN_HD uint32_t outside_bits(const SimtWindow& w, const GemmCoordinates32& d) {
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) {
    if (!w.taps[j]) continue;
    int32_t at = w.start[j] + sum_of(w.position_of[j], d);
#ifdef __CUDACC__
#pragma unroll 1  // not unrolled, because this function is inlined in many places
#endif
    for (uint32_t t = 0; t < w.taps[j]; ++t, at += w.tap_step[j])
      bits |= uint32_t(uint32_t(at) >= w.size[j]) << (w.first_bit[j] + t);
  }
  return bits;
}

struct SimtPhase {
  GemmIndex32 m, n, k;
  GemmStrides a_row, a_k, b_row, b_k, y_m, y_n;
  int64_t a_offset = 0, b_offset = 0, y_offset = 0;
  SimtWindow window;  // the window through which operand a is read
  FastDivmod fast;    // for divisions by the number of tiles along the dimension of y that blocks traverse first
  uint32_t tiles = 0;
};

// The bits of SimtParams::flags.
enum SimtFlag : uint32_t {
  kSimtAAlongK = 1,  // neighbouring threads read operand a along k; without this flag, along rows
  kSimtBAlongK = 2,
  // Blocks traverse tiles along the rows of y (m) first; without this flag, along the columns (n) first.
  kSimtFastM = 4,
  kSimtAlongM = 8,    // y is stored along m, because its neighbouring rows are closer in memory than its columns
  kSimtVectors = 16,  // y is stored by vectors of four elements (16 aligned bytes)
  kSimtRelu = 32,
  kSimtOneDigitK = 64,  // index k has one digit (dimension) and no window, so the offset of a k is k times a stride
  kSimtCluster = 128    // a cluster splits k, and its blocks add up their sums
};

constexpr int kSimtPhases = 4;
struct SimtParams {
  SimtPhase phase[kSimtPhases];  // one element for each phase of backward_data; all other products have one phase
  GemmIndex32 batch;
  GemmStrides a_batch, b_batch, y_batch, c_m, c_n, c_batch, bias_m, bias_n, bias_batch;
  int64_t y_split = 0;  // the distance between the sums of neighbouring splits of k, in bytes
  FastDivmod phases, tiles, splits;
  uint32_t k_per_split = 0;  // the number of values of k that each split adds up, a multiple of kSimtTileK
  uint32_t flags = 0;
  GemmArgs args;
};

}  // namespace minidnn
