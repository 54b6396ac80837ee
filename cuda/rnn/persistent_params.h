// SPDX-License-Identifier: Apache-2.0
// Parameters of persistent.cu. This file does not use the standard library, because kernels include it.
#pragma once
#include "cpp/core/host_device/hd.h"

namespace minidnn {

// How the work of a layer is divided among the blocks of a launch. A group of blocks computes some rows of the batch in
// one direction. Each of its blocks (slices) has some of the hidden units, and the rows of the weights that belong to
// them. The product of a step has m rows: the gates of the units forward, and the units backward. It adds k products:
// over the hidden units forward, and over their gates backward.
struct RnnPersistentShape {
  int32_t slices = 1, groups = 1, directions = 1;
  int32_t clustered = 0;  // 1: a group is a cluster
  int32_t units = 8;      // of a slice: 8, 16 or 32
  int32_t rows = 8;       // of the batch in a group
  int32_t chunk = 8;      // rows that are in shared memory at a time
  int32_t m = 0, k = 0;
  int32_t size = 2;  // bytes of an element
  // A warp multiplies m_tiles tiles of 16 rows of m by one of `parts` parts of k. A part is `pairs` pairs of steps, and a
  // step is 32 bytes along k.
  int32_t m_tiles = 1, pairs = 4, parts = 1;

  // The steps that the exchanged words are kept for.
  static constexpr int32_t kSlots = 8;

  MINIDNN_HD constexpr int32_t warps() const { return (m + 16 * m_tiles - 1) / (16 * m_tiles); }  // of a part
  MINIDNN_HD constexpr int32_t tiles() const { return warps() * m_tiles; }
  MINIDNN_HD constexpr int32_t blocks() const { return slices * groups * directions; }
  // Bytes of a row in shared memory. The lines of eight rows that ldmatrix reads lie in different banks. Elements from k
  // on are 0.
  MINIDNN_HD constexpr int32_t operand_pitch() const { return 64 * pairs * parts + 16; }
  MINIDNN_HD constexpr int32_t sum_pitch() const { return rows + 1; }
  MINIDNN_HD constexpr int32_t operand_bytes() const { return (1 + clustered) * chunk * operand_pitch(); }
  MINIDNN_HD constexpr int32_t sums_bytes() const { return 4 * parts * tiles() * 16 * sum_pitch(); }
  // While the weights are loaded, the memory holds some pairs of steps of all parts: lines of m with their k, or lines of
  // k with their m.
  static constexpr int32_t kStagedPairs = 4, kStagedPitch = 64 * kStagedPairs + 16;
  MINIDNN_HD constexpr int32_t staged_pitch_along_m() const { return (16 * tiles() + 8) * size; }
  MINIDNN_HD constexpr int32_t smem_bytes() const {
    const int32_t used = operand_bytes() + sums_bytes(), m_staged = parts * tiles() * 16 * kStagedPitch;
    const int32_t k_staged = parts * 64 * kStagedPairs / size * staged_pitch_along_m();
    const int32_t staged = m_staged > k_staged ? m_staged : k_staged;
    return used > staged ? used : staged;
  }
};

struct RnnPersistentParams {
  RnnPersistentShape shape;
  int32_t steps = 0, batch = 0, hidden = 0, mode = 0;
  int32_t gates = 1;     // rows of the weights for a hidden unit
  int32_t reserved = 1;  // parts of the reserve for a hidden unit
  int32_t dgates = 1;    // parts of the gradients of the gates for a hidden unit
  int32_t has_clip = 0;
  float clip = 0;
  int32_t ahead = 0;  // what a step reads from global memory is fetched into the L2 so many steps before
};

// What a launch reads and writes. Pointers to what a call does not have are null. d is the direction. The row of (t, n) is
// offsets[t] + n if there are offsets, else t N + n.
struct RnnPersistentArgs {
  const void* weights[2] = {};            // w_hh [gates H, H] of each direction
  const void* biases[2][2] = {};          // b_ih and b_hh [gates H] of each direction
  const int64_t* lengths = nullptr;       // [N], from 0 to T
  const int64_t* offsets = nullptr;       // [T] of packed rows
  const float* input = nullptr;           // forward: W x [rows, directions, gates H]
  int32_t input_step = 0, input_row = 1;  // the row of (t, n) in `input`, if there are no offsets
  void* y = nullptr;
  const void* dy = nullptr;  // of x's dtype, or float32
  int32_t dy_is_float = 0;
  int32_t y_step = 0, y_row = 0;  // strides of y in elements; with offsets y_row alone
  int32_t dy_step = 0, dy_row = 0;
  int32_t rows = 0;          // T N, or the packed rows
  const void* h0 = nullptr;  // [directions, N, H], as all states
  const void* c0 = nullptr;
  void* hn = nullptr;
  void* cn = nullptr;
  const void* dhn = nullptr;
  const void* dcn = nullptr;
  void* dh0 = nullptr;
  void* dc0 = nullptr;
  void* gates = nullptr;   // of the reserve [directions, rows, reserved H]
  float* cells = nullptr;  // of the reserve [directions, rows, H]
  void* dgates = nullptr;  // [directions, rows, dgates H]
  // Workspace: what the blocks exchange, in kSlots slots [directions, N, k] of x's dtype. All bits are 1 at first.
  void* exchanged = nullptr;
};

}  // namespace minidnn
