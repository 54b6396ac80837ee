// SPDX-License-Identifier: Apache-2.0
// The parameters and the index arithmetic of simt/kernel.cu; plan.cpp makes the parameters from GemmViews (view.h). The
// host sorts and joins the dimensions (digits) of an index for memory access, so the kernel does not know their
// meaning. Strides are in bytes. Only operand a can have a window. This file does not use the standard library, because
// kernels include it.
#pragma once
#include "cpp/core/host_device/fast_divmod.h"
#include "cuda/gemm/view/gemm_params.h"

namespace minidnn {

// values of k in a slice, and slices in shared memory
constexpr int kSimtTileK = 8, kSimtStages = 5;
// The offsets and masks of k are computed for two slices (a pair) at a time.
constexpr int kSimtEntriesK = 16;
// The ring buffer holds the offsets and masks of four pairs: one is written while the other three may be read.
constexpr int kSimtBufferedK = 4 * kSimtEntriesK;
static_assert(kSimtStages - 1 == kSimtEntriesK / kSimtTileK * 2);

// The tile of a block. A thread has 8 x 8 or, in the largest tile, 8 x 16 sums, which needs a quarter less shared
// memory traffic. The sums are in groups of four rows and four columns, kGroupM and kGroupN apart, so that lanes read
// adjacent 16-byte vectors.
template <int kTileM, int kTileN> struct SimtTile {
  static constexpr int kM = kTileM, kN = kTileN;
  static constexpr int kGroupsM = 2, kGroupsN = kTileM * kTileN == 128 * 128 ? 4 : 2;
  static constexpr int kSumsM = 4 * kGroupsM, kSumsN = 4 * kGroupsN;
  static constexpr int kThreads = kTileM * kTileN / (kSumsM * kSumsN);
  // the arrangement of a warp's lanes along m and n
  static constexpr int kLanesN = kTileN >= 32 ? 4 : 2, kLanesM = 32 / kLanesN;
  static constexpr int kGroupM = 4 * kLanesM, kGroupN = 4 * kLanesN;
  static constexpr int kWarpsM = kTileM / (kGroupsM * kGroupM);
  // Padding of each line of a slice (all rows at one k), in floats, against bank conflicts.
  static constexpr int kPad = 4;
  // leaves 255 registers per thread for 8 x 16 sums, and 168 for 8 x 8 sums
  static constexpr int kBlocksPerSm = (kGroupsN == 4 ? 256 : 384) / kThreads;
};

constexpr int kSimtTapBits = 30;
// The masks of all rows that exist have kSimtRow, and those of all k that exist have kSimtK. kSimtNothing is the mask
// of a row or a k that does not exist; it has bits in common with every mask.
constexpr uint32_t kSimtRow = 1u << 30, kSimtK = 1u << 31, kSimtNothing = ~0u;

// The offset and the mask of a row or of a k. The address of an element is the sum of both offsets. The element exists
// if both masks have no bit in common: a tap of the window sets its own bit, and a position sets the bits of all taps
// that are outside of the tensor.
struct alignas(16) SimtEntry {
  int64_t offset;
  uint32_t mask;
  uint32_t unused;
};

// What a block computes: phase of backward_data, tile, and byte offsets of its matrix. It is in shared memory, because
// registers are scarce.
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
  SimtEntry a_k[kSimtBufferedK], b_k[kSimtBufferedK];  // ring buffers, one entry for each k
};

// The shared memory after the main loop: `block` (at its old address), the sums of kColumns columns in the order of y,
// and the byte offsets of rows and columns.
template <int kTileM, int kTileN> struct SimtSharedOut {
  // A tile is stored in kPasses iterations of kColumns columns.
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

// The window of operand a. taps_in_k: k counts taps and rows count positions, else the reverse. taps[j] = 0: no tap is
// outside of the tensor in dimension j. tap_of[j] and position_of[j] are weights: the tap (or position) in dimension j
// is the weighted sum of its index's coordinates.
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
  SimtWindow window;  // operand a's window
  FastDivmod fast;    // divides by the number of tiles along the dimension that blocks traverse first
  uint32_t tiles = 0;
};

// The bits of SimtParams::flags.
enum SimtFlag : uint32_t {
  kSimtAAlongK = 1,  // threads read a along k, else along rows
  kSimtBAlongK = 2,
  // Blocks traverse tiles along m first, else along n.
  kSimtFastM = 4,
  kSimtAlongM = 8,    // y is stored along m, else along n
  kSimtVectors = 16,  // y is stored in aligned 16-byte vectors
  kSimtRelu = 32,
  kSimtOneDigitK = 64,  // k has one dimension and no window; its offset is k times a stride
  kSimtCluster = 128    // a cluster splits k, and its blocks add up their sums
};

constexpr int kSimtPhases = 4;
struct SimtParams {
  SimtPhase phase[kSimtPhases];  // one for each phase of backward_data
  GemmIndex32 batch;
  GemmStrides a_batch, b_batch, y_batch, c_m, c_n, c_batch, bias_m, bias_n, bias_batch;
  int64_t y_split = 0;  // the stride of splits in the workspace, in bytes
  FastDivmod phases, tiles, splits;
  uint32_t k_per_split = 0;  // values of k per split, a multiple of kSimtTileK
  uint32_t flags = 0;
  GemmArgs args;
};

}  // namespace minidnn
