// SPDX-License-Identifier: Apache-2.0
// The gradients of attention on tensor cores with mma.sync (sm_80 and later), for 16-bit types, and for float32
// with TF32 products. Nothing is added in global memory, so results are deterministic.
// - attention_mma_delta: delta = rowsum(d_o o), and lse in the unit of the exponential, to workspace.
// - attention_mma_dkv: a block owns rows of k and v, and loops over the rows of q that see them, for all heads of q that
//   use them. It computes s^T = k q^T and g^T = v d_o^T. dk and dv stay in registers.
// - attention_mma_dq: a block owns rows of q, and loops over the columns that they see. dq stays in registers.
// - attention_mma_dsink: a block for each head. attention_mma_unused: zeros for packed rows that belong to no sequence.
// Each warp owns 16 or 32 rows of its block, so probabilities and their gradients go from one product to the next in
// registers. They are rounded to T there, and float32 to TF32.
// Shared memory: the block's own rows of two tensors, and one or two stages of rows of the two others (tiles.cuh).
// Bytes: a block reads all rows that its own rows see, mostly from the L2. Each result is written once.
// With kExtras, a call may have a bias, ALiBi, a softcap, dropout and dbias. attention_math.h defines the results.
#include "cuda/attention/mma_backward_params.h"
#include "cuda/attention/scores.cuh"
#include "cuda/attention/tiles.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vec.cuh"

namespace minidnn {

// The tiles of a block: kOwn rows, and kLoop rows at a time. A warp owns 16 kRowBlocks rows. kD is the padded size of
// the heads. A block that owns rows of k and v computes kColumns columns of dk and dv, one of kColumnParts parts.
template <int kHead, int kBlocksOfWarp, int kLoopRows, int kWarpsOfBlock> struct BackwardTile {
  static constexpr int kD = kHead, kRowBlocks = kBlocksOfWarp, kLoop = kLoopRows;
  static constexpr int kWarps = kWarpsOfBlock, kThreads = 32 * kWarps, kOwn = 16 * kRowBlocks * kWarps;
  static constexpr int kColumns = kD < 128 ? kD : 128, kColumnParts = kD / kColumns, kFragments = kLoop / 8;
};

template <class T, class Tile> struct BackwardMemory {
  using Own = SharedTile<T, Tile::kOwn, Tile::kD>;
  using Loop = SharedTile<T, Tile::kLoop, Tile::kD>;
  static constexpr int kStageBytes = 2 * Loop::kBytes;
  uint32_t own[2], stages, sums;  // `sums` are AttentionRowSums of the rows of each stage

  __device__ __forceinline__ BackwardMemory(int stage_count) {
    own[0] = cvta_to_shared(dynamic_shared());
    own[1] = own[0] + Own::kBytes;
    stages = own[1] + Own::kBytes;
    sums = stages + stage_count * kStageBytes;
  }
  // Rounds float32 elements that this thread has copied for stage number t, and, if it is the first, the block's own.
  __device__ __forceinline__ void round(int t, int stage) const {
    if constexpr (kIsFloat32<T>) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (t == 0) Own::template round<Tile::kThreads>(own[i]);
        Loop::template round<Tile::kThreads>(stages + stage * kStageBytes + i * Loop::kBytes);
      }
    }
  }
};

// Runs compute(stage) for `count` stages. fetch(stage) begins the copies of the next one. With two stages, the copies
// of one run while the other is used. finish(t, stage) is called for stage number t when this thread's copies are there.
template <class Fetch, class Finish, class Compute>
__device__ __forceinline__ void for_each_stage(int stages, int count, Fetch fetch, Finish finish, Compute compute) {
  if (count > 0) fetch(0);
  cp_async_commit_group();
#pragma unroll 1
  for (int t = 0; t < count; ++t) {
    const int stage = stages == 2 ? t % 2 : 0;
    cp_async_wait_group<0>();
    finish(t, stage);
    __syncthreads();  // all threads see this stage, and have finished the previous one
    if (stages == 2) {
      if (t + 1 < count) fetch(1 - stage);
      cp_async_commit_group();
    }
    compute(stage);
    if (stages == 1 && t + 1 < count) {
      __syncthreads();
      fetch(0);
      cp_async_commit_group();
    }
  }
  cp_async_wait_group<0>();
  __syncthreads();
}

// Numbers of a call that every score needs.
struct ScoreNumbers {
  float scale, cap, inverse_cap, keep;
  __device__ __forceinline__ explicit ScoreNumbers(const AttentionArgs& a)
      : scale(float(a.scale)), cap(float(a.softcap)), inverse_cap(1.0f / float(a.softcap)), keep(float(a.keep)) {}
};
// The gradients of a pair of a row and a column, with all options, as attention::pair_gradient() computes them. s and g
// are the products q k and d_o v, and `bias` is the sum of what is added to the score.
__device__ __forceinline__ attention::PairGradient<float> score_gradient(const AttentionScoreParams& p,
                                                                         const ScoreNumbers& n, float s, float g,
                                                                         float bias, bool kept,
                                                                         const AttentionRowSums& row) {
  float z = s * n.scale, slope = 1;
  if (p.has_softcap) {
    z = softcapped(z, n.cap, n.inverse_cap);
    const float t = z * n.inverse_cap;
    slope = 1 - t * t;
  }
  z += bias;
  // A boolean bias hides NaN, too.
  const bool hidden = z == -INFINITY || (p.bias_bytes == 1 && bias == -INFINITY);
  const float probability = hidden ? 0.0f : fast::exp2_ftz((z - row.lse) * fast::kLog2E);
  const float dz = hidden ? 0.0f : probability * ((kept ? n.keep * g : 0.0f) - row.delta);
  return {kept ? probability : 0.0f, dz, dz * slope};
}

// Scores of a block of k and v. Element e of fragment f of row block m in this lane is column
//   column + 16 m + 8 (e / 2)
// and row i + 8 f + e % 2 of the sequence, where i counts the lane, too.
template <class T, class Tile> struct TransposedScores {
  using Sums = float[Tile::kRowBlocks][Tile::kFragments][4];
  const AttentionScoreParams& p;
  const AttentionArgs& a;
  const SequenceRows& s;
  ScoreNumbers n;
  int32_t column;

  // Replaces s^T by the probabilities and g^T by the gradients of s^T / scale, for scores without options.
  __device__ __forceinline__ void plain(Sums& z, Sums& g, uint32_t sums) const {
    const float factor = n.scale * fast::kLog2E;
#pragma unroll
    for (int f = 0; f < Tile::kFragments; ++f) {
      const float4 of = ld_shared_v4_f32(sums + 64 * f + threadIdx.x % 4 * 16);
#pragma unroll
      for (int m = 0; m < Tile::kRowBlocks; ++m)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          z[m][f][e] = fast::exp2_ftz(z[m][f][e] * factor - (e % 2 ? of.z : of.x));
          g[m][f][e] = z[m][f][e] * (g[m][f][e] - (e % 2 ? of.w : of.y));
        }
    }
  }
  // The same with all options.
  __device__ __forceinline__ void with_options(Sums& z, Sums& g, uint32_t sums, int32_t h, int32_t i) const {
    const ScoreRow head = score_row(p, a, s, h, 0);
    const DropoutRandom random(a);
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int f = 0; f < Tile::kFragments; ++f) {
      const float4 of = ld_shared_v4_f32(sums + 64 * f + lane % 4 * 16);
#pragma unroll
      for (int m = 0; m < Tile::kRowBlocks; ++m) {
        // Lanes 4 apart hold neighbouring columns. Each of four lanes computes the random bits of four columns for
        // one element, and gives them to the others.
        uint32_t kept = ~0u;
        if (p.has_dropout) {
          const int32_t mine = lane / 4 % 4, row = i + 8 * f + mine % 2;
          const uint32_t bits = random.kept(head.random + row * p.random_row + (column + 16 * m + mine / 2 * 8) / 4);
          kept = 0;
#pragma unroll
          for (int e = 0; e < 4; ++e) kept |= (__shfl_sync(0xffffffff, bits, (lane & ~12u) | e << 2) >> mine & 1) << e;
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int32_t row = min(i + 8 * f + e % 2, s.q_length - 1);
          const int32_t at = min(column + 16 * m + e / 2 * 8, s.kv_length - 1);
          float bias = 0;
          if (p.bias_bytes) bias = bias_at<T>(p, a, head.bias + row * p.bias[2] + at * p.bias[3]);
          if (p.alibi) bias -= head.slope * fabsf(float(row + s.shift - at));
          const AttentionRowSums row_sums = e % 2 ? AttentionRowSums{of.z, of.w} : AttentionRowSums{of.x, of.y};
          const auto pair = score_gradient(p, n, z[m][f][e], g[m][f][e], bias, kept >> e & 1, row_sums);
          z[m][f][e] = pair.probability;
          g[m][f][e] = pair.product;
        }
      }
    }
  }
  // Zeros for the rows that do not see a column.
  __device__ __forceinline__ void hide(Sums& z, Sums& g, int32_t i) const {
#pragma unroll
    for (int m = 0; m < Tile::kRowBlocks; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const IndexRange seen = rows_seeing(p, s, column + 16 * m + 8 * half);
#pragma unroll
        for (int f = 0; f < Tile::kFragments; ++f)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const int32_t row = i + 8 * f + e % 2;
            const bool visible = seen.begin <= row && row < seen.end;
            z[m][f][e] = visible ? z[m][f][e] : 0;
            g[m][f][e] = visible ? g[m][f][e] : 0;
          }
      }
  }
};

// dk and dv of a block of rows of k and v.
template <class T, class Tile, bool kExtras>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    attention_mma_dkv(const __grid_constant__ AttentionBackwardParams p, const __grid_constant__ AttentionArgs a,
                      const AttentionRowSums* row_sums) {
  using Memory = BackwardMemory<T, Tile>;
  using Own = typename Memory::Own;
  using Loop = typename Memory::Loop;
  using Scores = TransposedScores<T, Tile>;
  uint32_t block = blockIdx.x;
  const int32_t head_part = p.kv_heads.divmod(block), b = p.batch.divmod(block);
  const int32_t kv_head = head_part / Tile::kColumnParts, part = head_part % Tile::kColumnParts;
  const SequenceRows s = sequence_rows(p.scores, a, b);
  const int32_t first = int32_t(block) * Tile::kOwn, existing = (p.scores.packed ? s.kv_length : p.scores.kv_rows);
  if (first >= existing) return;

  const IndexRange columns{first, first + Tile::kOwn};
  const IndexRange rows = rows_of_any(p.scores, s, columns), complete = rows_of_all(p.scores, s, columns);
  const int32_t group = int32_t(p.scores.group.divisor), heads_begin = kv_head * group;
  const int count = rows.begin < rows.end ? group * ceil_div(rows.end - rows.begin, Tile::kLoop) : 0;
  const Memory memory(p.stages);
  const int warp_row = threadIdx.x / 32 * 16 * Tile::kRowBlocks, lane = threadIdx.x % 32;
  if (count > 0) {
    const int32_t used = s.kv_length - first;
    Own::template copy<Tile::kThreads>(memory.own[0], row_of_head<T>(a.k, p.k, b, kv_head, s.kv_first + first), p.k.row,
                                       used, p.head_size);
    Own::template copy<Tile::kThreads>(memory.own[1], row_of_head<T>(a.v, p.v, b, kv_head, s.kv_first + first), p.v.row,
                                       used, p.value_size);
  }
  float dk[Tile::kRowBlocks][Tile::kColumns / 8][4] = {}, dv[Tile::kRowBlocks][Tile::kColumns / 8][4] = {};
  const Scores scores{p.scores, a, s, ScoreNumbers(a), first + warp_row + lane / 4};
  const uint32_t k_lane = Own::lane_address(memory.own[0], warp_row);
  const uint32_t v_lane = Own::lane_address(memory.own[1], warp_row);

  int32_t next_head = heads_begin, next_row = rows.begin, head = heads_begin, row = rows.begin;
  const auto step = [&](int32_t& h, int32_t& i) {
    i += Tile::kLoop;
    if (i < rows.end) return;
    i = rows.begin;
    ++h;
  };
  const auto fetch = [&](int stage) {
    const uint32_t q = memory.stages + stage * Memory::kStageBytes;
    const int32_t used = rows.end - next_row;
    Loop::template copy<Tile::kThreads>(q, row_of_head<T>(a.q, p.q, b, next_head, s.q_first + next_row), p.q.row, used,
                                        p.head_size);
    Loop::template copy<Tile::kThreads>(q + Loop::kBytes,
                                        row_of_head<T>(a.d_o, p.d_o, b, next_head, s.q_first + next_row), p.d_o.row,
                                        used, p.value_size);
    const int32_t t = threadIdx.x;
    if (t < Tile::kLoop)
      cp_async<8>(memory.sums + (stage * Tile::kLoop + t) * 8,
                  row_sums + lse_row_of(p.scores, s, next_head) + next_row + t, t < used);
    step(next_head, next_row);
  };
  const auto round = [&](int t, int stage) { memory.round(t, stage); };
  for_each_stage(p.stages, count, fetch, round, [&](int stage) {
    const uint32_t q = memory.stages + stage * Memory::kStageBytes;
    const uint32_t q_lane = Loop::lane_address(q, 0), do_lane = q_lane + Loop::kBytes;
    typename Scores::Sums z = {}, g = {};
    multiply_rows<T, Own, Loop>(z, k_lane, q_lane);
    multiply_rows<T, Own, Loop>(g, v_lane, do_lane);
    const int32_t i = row + lane % 4 * 2;
    const uint32_t sums = memory.sums + stage * Tile::kLoop * 8;
    if constexpr (kExtras) scores.with_options(z, g, sums, head, i);
    else scores.plain(z, g, sums);
    if (row < complete.begin || row + Tile::kLoop > complete.end) scores.hide(z, g, i);
    const uint32_t q_column = Loop::column_address(q) ^ (part * 128 * int(sizeof(T)));
    multiply_weights<T, Loop>(dv, z, q_column + Loop::kBytes);
    multiply_weights<T, Loop>(dk, g, q_column);
    step(head, row);
  });

  const int32_t mine = first + warp_row, at = part * 128;
  StoredRows<T> out{row_of_head<T>(a.dk, p.dk, b, kv_head, s.kv_first + mine) + at, p.dk.row, existing - mine,
                    s.kv_length - mine, p.head_size - at};
  store_rows<T, Own>(dk, scores.n.scale, memory.own[0], warp_row, at / Own::kOfChunk, out);
  out.to = row_of_head<T>(a.dv, p.dv, b, kv_head, s.kv_first + mine) + at;
  out.pitch = p.dv.row;
  out.columns = p.value_size - at;
  store_rows<T, Own>(dv, scores.n.keep, memory.own[1], warp_row, at / Own::kOfChunk, out);
}

// Scores of a block of q. Element e of fragment f of row block m in this lane is row row + 16 m + 8 (e / 2), and column
// j + 8 f + e % 2, where j counts the lane, too.
template <class T, class Tile> struct RowScores {
  using Sums = float[Tile::kRowBlocks][Tile::kFragments][4];
  const AttentionBackwardParams& p;
  const AttentionArgs& a;
  const SequenceRows& s;
  ScoreNumbers n;
  int32_t head, row;
  AttentionRowSums of[Tile::kRowBlocks][2];

  __device__ __forceinline__ void load_sums(const AttentionRowSums* row_sums) {
#pragma unroll
    for (int m = 0; m < Tile::kRowBlocks; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t i = row + 16 * m + 8 * half;
        of[m][half] = {};
        if (i < s.q_length) of[m][half] = row_sums[lse_row_of(p.scores, s, head) + i];
      }
  }
  __device__ __forceinline__ void plain(Sums& z, Sums& g) const {
    const float factor = n.scale * fast::kLog2E;
#pragma unroll
    for (int m = 0; m < Tile::kRowBlocks; ++m)
#pragma unroll
      for (int f = 0; f < Tile::kFragments; ++f)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          g[m][f][e] = fast::exp2_ftz(z[m][f][e] * factor - of[m][e / 2].lse) * (g[m][f][e] - of[m][e / 2].delta);
  }
  __device__ __forceinline__ void with_options(Sums& z, Sums& g, int32_t j) const {
    const DropoutRandom random(a);
#pragma unroll
    for (int m = 0; m < Tile::kRowBlocks; ++m) {
      const ScoreRow rows[2] = {score_row(p.scores, a, s, head, row + 16 * m),
                                score_row(p.scores, a, s, head, row + 16 * m + 8)};
      const IndexRange seen[2] = {columns_seen(p.scores, s, row + 16 * m), columns_seen(p.scores, s, row + 16 * m + 8)};
#pragma unroll
      for (int f = 0; f < Tile::kFragments; ++f) {
        const uint32_t kept = p.scores.has_dropout ? random.kept_in_fragment(rows, j + 8 * f) : ~0u;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int32_t column = j + 8 * f + e % 2, at = clamped(column, 0, s.kv_length - 1);
          float bias = 0;
          if (p.scores.bias_bytes) bias = bias_at<T>(p.scores, a, rows[e / 2].bias + at * p.scores.bias[3]);
          if (p.scores.alibi) bias += alibi_at(rows[e / 2], column);
          const auto pair = score_gradient(p.scores, n, z[m][f][e], g[m][f][e], bias, kept >> e & 1, of[m][e / 2]);
          g[m][f][e] = pair.product;
          if (p.dbias_bytes) {
            const bool visible = seen[e / 2].begin <= column && column < seen[e / 2].end;
            store_dbias(row + 16 * m + e / 2 * 8, column, visible ? pair.z : 0.0f);
          }
        }
      }
    }
  }
  __device__ __forceinline__ void store_dbias(int32_t i, int32_t j, float dz) const {
    if (i >= p.scores.q_size || j >= p.scores.kv_size) return;
    const int64_t at = s.b * p.dbias[0] + head * p.dbias[1] + i * p.dbias[2] + j * p.dbias[3];
    if (p.dbias_bytes == 4) static_cast<float*>(a.dbias)[at] = dz;
    else static_cast<T*>(a.dbias)[at] = T(dz);
  }
  // Zeros for the columns that a row does not see.
  __device__ __forceinline__ void hide(Sums& g, int32_t j) const {
#pragma unroll
    for (int m = 0; m < Tile::kRowBlocks; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const IndexRange seen = columns_seen(p.scores, s, row + 16 * m + 8 * half);
#pragma unroll
        for (int f = 0; f < Tile::kFragments; ++f)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const int32_t column = j + 8 * f + e % 2;
            g[m][f][e] = seen.begin <= column && column < seen.end ? g[m][f][e] : 0;
          }
      }
  }
};

// dq of a block of rows of q, and dbias where no dimension of the bias is broadcast.
template <class T, class Tile, bool kExtras>
__global__ void __launch_bounds__(Tile::kThreads, 2)
    attention_mma_dq(const __grid_constant__ AttentionBackwardParams p, const __grid_constant__ AttentionArgs a,
                     const AttentionRowSums* row_sums) {
  using Memory = BackwardMemory<T, Tile>;
  using Own = typename Memory::Own;
  using Loop = typename Memory::Loop;
  using Scores = RowScores<T, Tile>;
  uint32_t block = gridDim.x - 1 - blockIdx.x;  // with a causal window, the last rows take the most time
  const int32_t head = p.q_heads.divmod(block), b = p.batch.divmod(block);
  const int32_t kv_head = int32_t(p.scores.group.quotient(uint32_t(head)));
  const SequenceRows s = sequence_rows(p.scores, a, b);
  const bool with_dbias = kExtras && p.dbias_bytes;
  const int32_t first = int32_t(block) * Tile::kOwn, existing = p.scores.packed ? s.q_length : p.scores.q_rows;
  if (first >= existing && !with_dbias) return;

  const IndexRange rows{first, first + Tile::kOwn};
  IndexRange columns = columns_of_any(p.scores, s, rows);
  const IndexRange complete = columns_of_all(p.scores, s, rows);
  if (with_dbias) columns = {0, p.scores.kv_size};
  columns.begin &= ~7;  // the bits of dropout are for groups of four columns
  const int count = columns.begin < columns.end ? ceil_div(columns.end - columns.begin, Tile::kLoop) : 0;
  const Memory memory(p.stages);
  const int warp_row = threadIdx.x / 32 * 16 * Tile::kRowBlocks, lane = threadIdx.x % 32;
  if (count > 0) {
    const int32_t used = s.q_length - first;
    Own::template copy<Tile::kThreads>(memory.own[0], row_of_head<T>(a.q, p.q, b, head, s.q_first + first), p.q.row,
                                       used, p.head_size);
    Own::template copy<Tile::kThreads>(memory.own[1], row_of_head<T>(a.d_o, p.d_o, b, head, s.q_first + first),
                                       p.d_o.row, used, p.value_size);
  }
  float dq[Tile::kRowBlocks][Tile::kD / 8][4] = {};
  Scores scores{p, a, s, ScoreNumbers(a), head, first + warp_row + lane / 4, {}};
  scores.load_sums(row_sums);
  const uint32_t q_lane = Own::lane_address(memory.own[0], warp_row);
  const uint32_t do_lane = Own::lane_address(memory.own[1], warp_row);

  int32_t next_column = columns.begin, column = columns.begin;
  const auto fetch = [&](int stage) {
    const uint32_t k = memory.stages + stage * Memory::kStageBytes;
    const int32_t used = s.kv_length - next_column;
    Loop::template copy<Tile::kThreads>(k, row_of_head<T>(a.k, p.k, b, kv_head, s.kv_first + next_column), p.k.row,
                                        used, p.head_size);
    Loop::template copy<Tile::kThreads>(
        k + Loop::kBytes, row_of_head<T>(a.v, p.v, b, kv_head, s.kv_first + next_column), p.v.row, used, p.value_size);
    next_column += Tile::kLoop;
  };
  const auto round = [&](int t, int stage) { memory.round(t, stage); };
  for_each_stage(p.stages, count, fetch, round, [&](int stage) {
    const uint32_t k = memory.stages + stage * Memory::kStageBytes, k_lane = Loop::lane_address(k, 0);
    typename Scores::Sums z = {}, g = {};
    multiply_rows<T, Own, Loop>(z, q_lane, k_lane);
    multiply_rows<T, Own, Loop>(g, do_lane, k_lane + Loop::kBytes);
    const int32_t j = column + lane % 4 * 2;
    if constexpr (kExtras) scores.with_options(z, g, j);
    else scores.plain(z, g);
    if (column < complete.begin || column + Tile::kLoop > complete.end) scores.hide(g, j);
    multiply_weights<T, Loop>(dq, g, Loop::column_address(k));
    column += Tile::kLoop;
  });

  const int32_t mine = first + warp_row;
  const StoredRows<T> out{row_of_head<T>(a.dq, p.dq, b, head, s.q_first + mine), p.dq.row, existing - mine,
                          s.q_length - mine, p.head_size};
  store_rows<T, Own>(dq, scores.n.scale, memory.own[0], warp_row, 0, out);
}

// AttentionRowSums of all rows of q. A group of lanes adds up a row, with eight elements for each lane.
template <class T>
__global__ void __launch_bounds__(256)
    attention_mma_delta(const __grid_constant__ AttentionBackwardParams p, const __grid_constant__ AttentionArgs a,
                        AttentionRowSums* row_sums) {
  const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / p.delta_lanes;
  const int32_t column = int32_t(threadIdx.x % p.delta_lanes) * 8;
  float sum = 0;
  if (row < p.all_q_rows && column < p.value_size) {
    uint32_t b = uint32_t(row);
    const int32_t i = p.q_rows.divmod(b), h = p.q_heads.divmod(b);
    const T* const o = row_of_head<T>(a.o, p.o, int32_t(b), h, i);
    const T* const d_o = row_of_head<T>(a.d_o, p.d_o, int32_t(b), h, i);
#pragma unroll
    for (int c = 0; c < 8; c += kVecWidth<T>) {
      if (c > 0 && column + c >= p.value_size) break;
      const Vec<T> x = Vec<T>::load(o + column + c), y = Vec<T>::load(d_o + column + c);
#pragma unroll
      for (int e = 0; e < kVecWidth<T>; ++e) sum += x[e] * y[e];
    }
  }
  sum = warp_reduce<SumOp>(sum, p.delta_lanes);
  if (row >= p.all_q_rows || column != 0) return;
  const float lse = static_cast<const float*>(a.lse)[row];
  // A row that sees nothing has lse -inf. With +inf, its probabilities are 0.
  row_sums[row] = {lse == -INFINITY ? INFINITY : lse * p.lse_factor, sum};
}

// The gradient of the sink of a head. Acc is the type of lse.
template <class Acc>
__global__ void __launch_bounds__(512)
    attention_mma_dsink(const __grid_constant__ AttentionBackwardParams p, const __grid_constant__ AttentionArgs a,
                        const AttentionRowSums* row_sums) {
  BlockReduce team;
  const int32_t h = int32_t(blockIdx.x);
  const Acc sink = static_cast<const Acc*>(a.sink)[h];
  CompensatedSum<Acc> sum;
  for (int32_t b = 0; b < p.scores.batch; ++b) {
    const SequenceRows s = sequence_rows(p.scores, a, b);
    const int64_t first = lse_row_of(p.scores, s, h);
    for (int32_t i = int32_t(threadIdx.x); i < s.q_length; i += int32_t(blockDim.x))
      sum.add(-maths::exp(sink - static_cast<const Acc*>(a.lse)[first + i]) * row_sums[first + i].delta);
  }
  const Acc all = team.sum(sum.value());
  if (threadIdx.x == 0) static_cast<Acc*>(a.dsink)[h] = all;
}

struct LanesOfWarp {
  __device__ __forceinline__ static int64_t rank() { return threadIdx.x % 32; }
  __device__ __forceinline__ static int64_t size() { return 32; }
};
// Zeros for the rows of packed tensors that belong to no sequence. A warp looks after the rows of one index.
template <class T>
__global__ void __launch_bounds__(128)
    attention_mma_unused(const __grid_constant__ AttentionProblem p, const __grid_constant__ AttentionArgs a) {
  LanesOfWarp team;
  const int64_t t = int64_t(blockIdx.x) * 4 + threadIdx.x / 32;
  if (t < p.q.shape[2] && attention::locate(p, a, 0, t, true).of.b < 0)
    for (int64_t h = 0; h < p.heads(); ++h) attention_empty_q_row<T>(p, a, h, t, team);
  if (t < p.k.shape[2] && attention::locate(p, a, 0, t, false).of.b < 0)
    for (int64_t h = 0; h < p.kv_heads(); ++h) attention_empty_kv_row<T>(p, a, h, t, team);
}

}  // namespace minidnn
