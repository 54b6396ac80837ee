// SPDX-License-Identifier: Apache-2.0
// The parameters and index arithmetic of cuda/gemm/simt/kernel.cu: views (view.h), prepared by plan.cpp. plan.cpp
// merges digits and sorts them for memory access, so a digit has no fixed meaning here; there are strides and window
// steps for each. Strides are in bytes. If an operand is windowed, it is a. Std-free: plan.cpp uses the same
// definitions on the host.
#pragma once
#include "cpp/core/fast_divmod.h"
#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

constexpr int kSimtTileK = 8, kSimtStages = 5;  // k of a slice; number of slices in shared memory
constexpr int kSimtEntriesK = 16;               // entries of k are computed for two slices at a time
// Entries of k are kept for eight slices, four pairs: three pairs may be read while one is written.
constexpr int kSimtBufferedK = 4 * kSimtEntriesK;
static_assert(kSimtStages - 1 == kSimtEntriesK / kSimtTileK * 2);

// The tile of a block: 8 x 8 sums a thread, or 8 x 16 in the largest tile, which read a quarter less shared memory. In
// each dimension, a thread has groups of four sums, kGroupM or kGroupN apart; the lanes of a warp then read
// neighbouring vectors of 16 bytes.
template <int kTileM, int kTileN> struct SimtTile {
  static constexpr int kM = kTileM, kN = kTileN;
  static constexpr int kGroupsM = 2, kGroupsN = kTileM * kTileN == 128 * 128 ? 4 : 2;
  static constexpr int kSumsM = 4 * kGroupsM, kSumsN = 4 * kGroupsN;
  static constexpr int kThreads = kTileM * kTileN / (kSumsM * kSumsN);
  static constexpr int kLanesN = kTileN >= 32 ? 4 : 2, kLanesM = 32 / kLanesN;  // lanes of a warp
  static constexpr int kGroupM = 4 * kLanesM, kGroupN = 4 * kLanesN;
  static constexpr int kWarpsM = kTileM / (kGroupsM * kGroupM);
  static constexpr int kPad = 4;  // floats of padding: four lines of each of eight k are then in 32 different banks
  static constexpr int kBlocksPerSm = (kGroupsN == 4 ? 256 : 384) / kThreads;  // a thread may use 168 registers, or 255
};

constexpr int kSimtTapBits = 30;
constexpr uint32_t kSimtRow = 1u << 30, kSimtK = 1u << 31,
                   kSimtNothing = ~0u;  // masks; kSimtNothing overlaps each other mask

// The row or the k side of an element. The offsets of a row entry and of a k entry add up to the element's address. The
// element exists if the two masks have no bit in common. In each dimension of a window, a tap sets its own bit, and a
// position sets the bits of the taps that are outside.
struct alignas(16) SimtEntry {
  int64_t offset;
  uint32_t mask;
  uint32_t unused;
};

// The tile of a block, and the offsets of y, c and bias for its batch, in bytes. It is in shared memory during the main
// loop, which has no registers to spare.
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
  SimtEntry a_k[kSimtBufferedK], b_k[kSimtBufferedK];  // ring buffers of entries
};

// After the main loop, the same memory holds (behind `block`) the sums that are to be stored, contiguous in the order
// of y, and the offsets of rows and columns in y, c and bias.
template <int kTileM, int kTileN> struct SimtSharedOut {
  static constexpr int kColumns = kTileN < 64 ? kTileN : 64, kPasses = kTileN / kColumns;  // as many columns as fit
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

// The dimensions of a window in which an element may be outside; a dimension where none can be has taps = 0. The number
// of a tap and the coordinate of a position are sums over the digits of k and of the row, or of the row and of k.
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
#pragma unroll 1  // not unrolled: this function is inlined in many places
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
  SimtWindow window;  // the window of a
  FastDivmod fast;    // tiles along the dimension of y that blocks traverse first
  uint32_t tiles = 0;
};

// Bits of SimtParams::flags.
enum SimtFlag : uint32_t {
  kSimtAAlongK = 1,  // neighbouring threads read a along k, else along rows
  kSimtBAlongK = 2,
  kSimtFastM = 4,     // blocks traverse the rows of y first
  kSimtAlongM = 8,    // neighbouring rows of y are closer in memory than neighbouring columns
  kSimtVectors = 16,  // four neighbours in that direction are 16 aligned bytes
  kSimtRelu = 32,
  kSimtOneDigitK = 64,  // k has one digit and no window: the offset of an entry is a product
  kSimtCluster = 128    // the splits of k are a cluster, whose blocks add up their sums
};

constexpr int kSimtPhases = 4;
struct SimtParams {
  SimtPhase phase[kSimtPhases];  // the number of phases of backward_data; 1 for other problems
  GemmIndex32 batch;
  GemmStrides a_batch, b_batch, y_batch, c_m, c_n, c_batch, bias_m, bias_n, bias_batch;
  int64_t y_split = 0;  // bytes from the sums of one split of k to those of the next
  FastDivmod phases, tiles, splits;
  uint32_t k_per_split = 0;  // a multiple of kSimtTileK
  uint32_t flags = 0;
  GemmArgs args;
};

}  // namespace minidnn
