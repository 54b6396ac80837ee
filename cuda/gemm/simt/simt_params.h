// SPDX-License-Identifier: Apache-2.0
// The parameters and the index arithmetic of simt/kernel.cu. plan.cpp makes them from GemmViews (view.h).
// An index consists of digits (dimensions), which plan.cpp joins and sorts for memory access. A digit therefore has no
// fixed meaning here; each digit has strides, in bytes, and steps of the window. An operand that is read through a
// window is always a.
// Std-free: plan.cpp uses the same definitions on the host.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

constexpr int kSimtTileK = 8, kSimtStages = 5;  // number of k in a slice; number of slices in shared memory
constexpr int kSimtEntriesK = 16;               // number of k (two slices) whose entries are computed at a time
// Number of k whose entries are in shared memory: eight slices, which are four pairs. While the entries of one pair are
// written, those of the other three may be read.
constexpr int kSimtBufferedK = 4 * kSimtEntriesK;
static_assert(kSimtStages - 1 == kSimtEntriesK / kSimtTileK * 2);

// The tile of a block. A thread has 8 x 8 sums, or 8 x 16 in the largest tile, which reads a quarter less from shared
// memory. In each dimension, the sums of a thread are groups of four neighbours. The groups are kGroupM rows or kGroupN
// columns apart; the lanes of a warp then read neighbouring vectors of 16 bytes.
template <int kTileM, int kTileN> struct SimtTile {
  static constexpr int kM = kTileM, kN = kTileN;
  static constexpr int kGroupsM = 2, kGroupsN = kTileM * kTileN == 128 * 128 ? 4 : 2;
  static constexpr int kSumsM = 4 * kGroupsM, kSumsN = 4 * kGroupsN;
  static constexpr int kThreads = kTileM * kTileN / (kSumsM * kSumsN);
  // the lanes of a warp are kLanesM x kLanesN
  static constexpr int kLanesN = kTileN >= 32 ? 4 : 2, kLanesM = 32 / kLanesN;
  static constexpr int kGroupM = 4 * kLanesM, kGroupN = 4 * kLanesN;
  static constexpr int kWarpsM = kTileM / (kGroupsM * kGroupM);
  // padding in floats: four neighbouring rows of each of eight k are then in 32 different banks
  static constexpr int kPad = 4;
  // a thread may then use 255 registers (8 x 16 sums) or 168 (8 x 8 sums)
  static constexpr int kBlocksPerSm = (kGroupsN == 4 ? 256 : 384) / kThreads;
};

constexpr int kSimtTapBits = 30;
constexpr uint32_t kSimtRow = 1u << 30, kSimtK = 1u << 31,
                   kSimtNothing = ~0u;  // masks of entries; kSimtNothing has bits in common with every other mask

// What the row or the k contributes to an element: the address of the element is the sum of the offsets of its row
// entry and its k entry. The element exists if the two masks have no bit in common. In each dimension of a window, a
// tap sets its own bit, and a position sets the bits of the taps that are outside the tensor there.
struct alignas(16) SimtEntry {
  int64_t offset;
  uint32_t mask;
  uint32_t unused;
};

// The tile that a block computes, and the offsets of its matrix in y, c and bias, in bytes. They are in shared memory
// during the main loop, because registers are scarce.
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
  SimtEntry a_k[kSimtBufferedK], b_k[kSimtBufferedK];  // ring buffers of the entries of k
};

// The shared memory of a block after the main loop. `block` keeps its place. The rest holds the sums that are stored
// next, in the order of y, and the offsets of rows and columns in y, c and bias.
template <int kTileM, int kTileN> struct SimtSharedOut {
  // kColumns: number of columns that are stored in one pass
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

// The window of a, for the dimensions in which an element can be outside the tensor; other dimensions have taps = 0.
// If taps_in_k, k counts taps and rows count positions, else rows count taps and k counts positions. The number of a
// tap is the sum over its digits of digit * tap_of; the coordinate of a position is the sum of digit * position_of.
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
  SimtWindow window;  // the window through which a is read
  FastDivmod fast;    // divisor: number of tiles along the dimension of y that blocks traverse first
  uint32_t tiles = 0;
};

// Bits of SimtParams::flags.
enum SimtFlag : uint32_t {
  kSimtAAlongK = 1,  // neighbouring threads read a along k; without this flag, along rows
  kSimtBAlongK = 2,
  kSimtFastM = 4,     // blocks traverse tiles along the rows of y first; without this flag, along its columns
  kSimtAlongM = 8,    // y is stored along its rows (m), whose neighbours are closer in memory than those of its columns
  kSimtVectors = 16,  // y is stored by vectors of four elements (16 aligned bytes)
  kSimtRelu = 32,
  kSimtOneDigitK = 64,  // index k has one digit (dimension) and no window; the offset of a k is then k times a stride
  kSimtCluster = 128    // a cluster splits k, and its blocks add up their sums
};

constexpr int kSimtPhases = 4;
struct SimtParams {
  SimtPhase phase[kSimtPhases];  // one for each phase of backward_data; other problems have one phase
  GemmIndex32 batch;
  GemmStrides a_batch, b_batch, y_batch, c_m, c_n, c_batch, bias_m, bias_n, bias_batch;
  int64_t y_split = 0;  // distance between the sums of neighbouring splits of k, in bytes
  FastDivmod phases, tiles, splits;
  uint32_t k_per_split = 0;  // number of k that each split adds up, a multiple of kSimtTileK
  uint32_t flags = 0;
  GemmArgs args;
};

}  // namespace minidnn
