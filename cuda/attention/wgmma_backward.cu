// SPDX-License-Identifier: Apache-2.0
// The gradients of attention on Hopper (sm_90a), with TMA and wgmma, for 16-bit types and scores without options.
// - attention_wgmma_begin: delta = rowsum(d_o o), and lse in the unit of the exponential, to workspace; zeros for the
//   sums of dq.
// - attention_wgmma_backward: dk, dv, and the sums of dq.
// - attention_wgmma_end: dq from its sums.
// - attention_wgmma_dsink: a block for each head.
//
// attention_wgmma_backward has a persistent block on each SM, which takes items. An item is a tile of rows of k and v
// of a head, and a loop over the tiles of rows of q that see them, for all heads of q that use them:
//   s^T = k q^T, g^T = v d_o^T, p = 2^(factor s - lse), ds = p (g - delta), dv += p^T d_o, dk += ds^T q, dq = ds k,
// with p^T and ds^T rounded to T as operands. Four threads of a producer warpgroup work: one takes items, one loads k
// and v, and q, d_o, lse and delta into a ring of stages, and two add tiles of dq to the sums, or order the additions.
// Tiles of dq are added in any order or, if kOrdered, from the last rows of k to the first.
// - Narrow tiles (D and Dv up to 128): an item has 128 rows of k and v, and each of two consumer warpgroups owns 64 of
//   them. p^T and ds^T are in registers. Both consumers store ds to shared memory, and compute one half of dq: half of
//   the columns for tiles of 64 rows, half of the rows for tiles of 128 rows.
// - Wide tiles: the sums of 128 rows would not fit into registers, so an item has 64 rows of k and v. One warpgroup
//   computes s, p and dv, one computes g, ds and dk, and one computes dq, and adds it to the sums from registers. They
//   exchange p and ds through shared memory. The speed of the additions in the L2 limits the kernel: a score at D 256
//   adds 16 bytes, and the L2 of an H100 adds 2.7 TB/s, by red.v4 or by TMA (2026-11-27).
// Shared memory: AttentionBackwardTile. Tiles are in 128-byte swizzle, as boxes of 64 columns.
// Bytes: an item reads all rows of q and d_o that see its rows of k, mostly from the L2, and adds to their sums.
#include "cuda/attention/wgmma_backward_wide.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/setmaxnreg.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vec.cuh"

namespace minidnn {

// The part of a consumer warpgroup of narrow tiles in the gradients of the rows of k and v.
template <class T, AttentionBackwardTile kTile> struct BackwardConsumer {
  using Products = BackwardProducts<T, kTile>;
  static constexpr int kScores = Products::kScores, kParts = kTile.rows / kPartRows;
  static constexpr int kSums = kTile.head / 2;
  const BackwardShared<kTile>& shared;
  int warpgroup;
  PipelineState<kTile.stages> at{};
  uint32_t t = 0;      // the number of tiles that the block has computed
  uint32_t items = 0;  // the number of items with tiles that the block has begun

  static __device__ __forceinline__ ScoresPart& part(float (&x)[kScores], int i) {
    return reinterpret_cast<ScoresPart&>(x[i * kPartRows / 2]);
  }
  // Waits until the memory of dq is free for tile number t of the block.
  __device__ __forceinline__ void wait_for_sums(uint32_t t) const {
    mbarrier_wait_parity(shared.sums_empty(), (t + 1) % 2);
  }
  // Stores this warpgroup's half of dq of tile number t.
  __device__ __forceinline__ void store_dq(const float (&dq)[32], uint32_t t) const {
    wait_for_sums(t);
    float4* const to =
        reinterpret_cast<float4*>(dynamic_shared() + kTile.floats_begin() + warpgroup * kTile.sums() * 2);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      to[128 * i + threadIdx.x % 128] = {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
    fence_proxy_async();
    mbarrier_arrive(shared.sums_full(t));
  }

  // Adds the tiles of an item to dk / scale and dv.
  __device__ __forceinline__ void multiply(const AttentionWgmmaBackwardParams& p, const AttentionArgs& a,
                                           const BackwardItem& item, float (&dk)[kSums], float (&dv)[kSums]) {
    const float factor = float(a.scale) * fast::kLog2E;
    const int32_t used_columns = item.s.kv_length - item.first;
    const IndexRange complete = rows_without_mask<kTile>(p.scores, item);
    const int32_t column = item.first + warpgroup * 64 + int32_t(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4);
    const uint32_t own = warpgroup * 64 * kBoxLine;
    const uint32_t dq_rows = kTile.rows == 128 ? warpgroup * kTile.columns() * kBoxLine : 0;
    const uint32_t dq_columns = kTile.rows == 128 ? 0 : warpgroup * kTile.columns() * kBoxLine;

    float s[kScores], g[kScores], dq[32];
    uint32_t weights[kParts][4][4], ds[kParts][4][4];
    if (used_columns < kTile.columns()) {
      clear_rows<kTile.columns(), kTile.head, 128, kConsumerThreads>(shared.k(), used_columns);
      fence_proxy_async();
      named_barrier_sync(kConsumersBarrier, kConsumerThreads);
    }
    mbarrier_wait_parity(shared.v_full(), items++ % 2);
    int32_t row = item.row_begin;
#pragma unroll 1
    for (int32_t left = item.count; left > 0; --left, ++t) {
      mbarrier_wait_parity(shared.q_full(at.stage), at.parity);
      Products::template scores<kTile.head>(s, shared.k() + own, shared.q(at.stage));
      mbarrier_wait_parity(shared.do_full(at.stage), at.parity);
      const int32_t used = item.s.q_length - row;
      if (used < kTile.rows) {
        clear_rows<kTile.rows, kTile.head, 128, kConsumerThreads>(shared.q(at.stage), used);
        clear_rows<kTile.rows, kTile.head, 128, kConsumerThreads>(shared.d_o(at.stage), used);
        fence_proxy_async();
        named_barrier_sync(kConsumersBarrier, kConsumerThreads);
      }
      Products::template scores<kTile.head>(g, shared.v() + own, shared.d_o(at.stage));
      wgmma_wait_group<1>();
      warpgroup_fence_operand(s);
      const bool masked = row < complete.begin || row + kTile.rows > complete.end;
      const int32_t lane_row = row + int32_t(threadIdx.x % 4) * 2;
#pragma unroll
      for (int n = 0; n < kParts; ++n) probabilities(part(s, n), factor, shared.lse(at.stage) + n * kPartRows * 4);
      if (masked) hide(s, p.scores, item.s, column, lane_row);
#pragma unroll
      for (int n = 0; n < kParts; ++n) {
        // The products of a part run while the gradients of its scores are computed.
        round_scores<T>(weights[n], part(s, n));
        Products::add_weighted(dv, weights[n], shared.d_o(at.stage), n * kPartRows);
        if (n == 0) {
          wgmma_wait_group<1>();
          warpgroup_fence_operand(g);
        }
        gradients(part(g, n), shared.delta(at.stage) + n * kPartRows * 4, [&](int f) {
          const ScoresPart& of = part(s, n);
          return float4{of[4 * f], of[4 * f + 1], of[4 * f + 2], of[4 * f + 3]};
        });
        if (masked) hide(part(g, n), p.scores, item.s, column, lane_row + n * kPartRows);
        round_scores<T>(ds[n], part(g, n));
        store_lines(ds[n], gradients_of_warp(shared.gradients(t) + (n * kTile.columns() + warpgroup * 64) * kBoxLine));
      }
      fence_proxy_async();
      named_barrier_sync(kConsumersBarrier, kConsumerThreads);
      Products::dq(dq, shared.gradients(t) + dq_rows, shared.k() + dq_columns);
#pragma unroll
      for (int n = 0; n < kParts; ++n) Products::add_weighted(dk, ds[n], shared.q(at.stage), n * kPartRows);
      wgmma_wait_group<kParts>();
      warpgroup_fence_operand(dq);
      mbarrier_arrive(shared.do_empty(at.stage));
      store_dq(dq, t);
      wgmma_wait_group<0>();
      mbarrier_arrive(shared.q_empty(at.stage));
      at.advance();
      row += kTile.rows;
      if (row >= item.row_end) row = item.row_begin;
    }
    warpgroup_fence_operand(dk);
    warpgroup_fence_operand(dv);
  }

  // Stores dk and dv of an item through the memory of dq.
  __device__ __forceinline__ void store(const AttentionWgmmaBackwardParams& p, const AttentionArgs& a,
                                        const BackwardItem& item, const float (&dk)[kSums],
                                        const float (&dv)[kSums]) const {
    using Memory = SharedTile<T, 64, kTile.head>;
    using Fragments = const float(&)[1][kTile.head / 8][4];
    const int warp_row = int(threadIdx.x) / 32 % 4 * 16;
    const uint32_t memory = shared.floats() + warpgroup * kTile.sums() * 2;
    const int32_t mine = item.first + warpgroup * 64 + warp_row, b = item.s.b;
    const int32_t existing = p.scores.packed ? item.s.kv_length : p.scores.kv_rows;
    const int64_t row = item.s.kv_first + mine;
    StoredRows<T> out{row_of_head<T>(a.dk, p.dk, b, item.kv_head, row), p.dk.row, existing - mine,
                      item.s.kv_length - mine, p.head_size};
    wait_for_sums(t);
    named_barrier_sync(kConsumersBarrier, kConsumerThreads);
    store_rows<T, Memory>(reinterpret_cast<Fragments>(dk), float(a.scale), memory, warp_row, 0, out);
    __syncwarp();
    out.to = row_of_head<T>(a.dv, p.dv, b, item.kv_head, row);
    out.pitch = p.dv.row;
    out.columns = p.value_size;
    store_rows<T, Memory>(reinterpret_cast<Fragments>(dv), 1.0f, memory, warp_row, 0, out);
    __syncwarp();
  }

  __device__ __forceinline__ void run(const AttentionWgmmaBackwardParams& p, const AttentionArgs& a) {
    for_each_item<kTile>(shared, [&](const BackwardItem& item) {
      float dk[kSums] = {}, dv[kSums] = {};
      if (item.count > 0) multiply(p, a, item, dk, dv);
      mbarrier_arrive(shared.own_empty());
      store(p, a, item, dk, dv);
    });
  }
};

// dk and dv, and the sums of dq. Blocks are persistent, and take items until there are no more.
template <class T, AttentionBackwardTile kTile, bool kOrdered>
__global__ void __launch_bounds__(kTile.threads(), 1)
    attention_wgmma_backward(const __grid_constant__ AttentionWgmmaBackwardParams p,
                             const __grid_constant__ AttentionArgs a,
                             const __grid_constant__ AttentionWgmmaBackwardMaps maps,
                             const __grid_constant__ AttentionWgmmaBackwardSums sums) {
  const BackwardShared<kTile> shared;
  const int group = __shfl_sync(0xffffffff, int(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) shared.template init_barriers<kOrdered>();
  __syncthreads();
  griddep_wait();
  if (group == 0) {
    setmaxnreg_dec<kTile.producer_registers()>();
    const int warp = int(threadIdx.x) / 32;
    if (threadIdx.x % 32 != 0) return;
    if (warp == 0) load_items<kTile>(p, maps, sums, shared);
    else if (warp == 1) take_items<kTile, kOrdered>(p, a, sums, shared);
    else if (!kTile.is_wide()) add_tiles<kTile, kOrdered>(p, sums, shared, warp - 2);
    else if (kOrdered) order_tiles<kTile>(p, sums, shared, warp == 2);
  } else if constexpr (!kTile.is_wide()) {
    setmaxnreg_inc<kTile.own_registers()>();
    BackwardConsumer<T, kTile> consumer{shared, group - 1};
    consumer.run(p, a);
  } else if (group == 1) {
    setmaxnreg_inc<kTile.own_registers()>();
    WideValues<T, kTile>{p, a, shared}.run();
  } else if (group == 2) {
    setmaxnreg_inc<kTile.own_registers()>();
    WideKeys<T, kTile>{p, a, shared}.run();
  } else {
    setmaxnreg_dec<kTile.dq_registers()>();
    WideQueries<T, kTile>{p, a, shared}.template run<kOrdered>(sums);
  }
}

// The values of the rows of a tile of q, and zeros for its sums. A group of lanes adds up a row, with a vector of 16
// bytes for each lane.
template <class T, AttentionBackwardTile kTile>
__global__ void __launch_bounds__(256) attention_wgmma_begin(const __grid_constant__ AttentionWgmmaBackwardParams p,
                                                             const __grid_constant__ AttentionArgs a,
                                                             const __grid_constant__ AttentionWgmmaBackwardSums sums) {
  griddep_launch_dependents();
  uint32_t index = blockIdx.x;
  const int32_t tile = p.row_tiles.divmod(index), h = p.q_heads.divmod(index), first = tile * kTile.rows;
  if (blockIdx.x == 0 && threadIdx.x == 0) *sums.next_item = 0;
  const SequenceRows s = sequence_rows(p.scores, a, int32_t(index));
  if (first >= s.q_length) return;
  const int64_t to = first_tile<kTile>(p, s, h) + tile;
  const int32_t column = int32_t(threadIdx.x) % p.delta_lanes * 8, rows_at_once = 256 / p.delta_lanes;
  const int64_t lse_row = lse_row_of(p.scores, s, h);
  for (int32_t r = int32_t(threadIdx.x) / p.delta_lanes; r < kTile.rows; r += rows_at_once) {
    const int32_t i = first + r;
    float sum = 0;
    if (i < s.q_length && column < p.value_size) {
      const Vec<T> x = Vec<T>::load(row_of_head<T>(a.o, p.o, s.b, h, s.q_first + i) + column);
      const Vec<T> y = Vec<T>::load(row_of_head<T>(a.d_o, p.d_o, s.b, h, s.q_first + i) + column);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum += x[e] * y[e];
    }
    sum = warp_reduce<SumOp>(sum, p.delta_lanes);
    if (column != 0) continue;
    const float lse = i < s.q_length ? static_cast<const float*>(a.lse)[lse_row + i] : -INFINITY;
    // With +inf, the probabilities of a row are 0.
    sums.lse[to * kTile.rows + r] = lse == -INFINITY ? INFINITY : lse * fast::kLog2E;
    sums.delta[to * kTile.rows + r] = sum;
  }
  uint4* const dq = reinterpret_cast<uint4*>(sums.dq + to * kTile.sums());
  for (int i = int(threadIdx.x); i < kTile.sums() / 4; i += 256) dq[i] = uint4{0, 0, 0, 0};
  if (sums.added && threadIdx.x == 0) sums.added[to] = 0;
}

// A tile of dq, of which each half of the block has 64 rows and 64 columns at a time.
template <class T, AttentionBackwardTile kTile>
__global__ void __launch_bounds__(256)
    attention_wgmma_end(const __grid_constant__ AttentionWgmmaBackwardParams p, const __grid_constant__ AttentionArgs a,
                        const __grid_constant__ AttentionWgmmaBackwardSums sums) {
  griddep_wait();
  uint32_t index = blockIdx.x;
  const int32_t tile = p.row_tiles.divmod(index), h = p.q_heads.divmod(index), first = tile * kTile.rows;
  const SequenceRows s = sequence_rows(p.scores, a, int32_t(index));
  const int32_t existing = p.scores.packed ? s.q_length : p.scores.q_rows;
  if (first >= existing) return;
  const int half = int(threadIdx.x) / 128, warp_row = int(threadIdx.x) / 32 % 4 * 16;
  constexpr int kParts = kTile.sums() / (64 * 64);
#pragma unroll
  for (int even = 0; even < kParts; even += 2) {
    const int part = even + half;
    if (even + 1 == kParts && half) return;
    float dq[1][8][4] = {};
    if (first < s.q_length) {
      const int64_t of_part = (first_tile<kTile>(p, s, h) + tile) * kParts + part;
      const float4* const from =
          reinterpret_cast<const float4*>(sums.dq + of_part * (kTile.sums() / kParts)) + threadIdx.x % 128;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float4 v = from[128 * i];
        dq[0][i][0] = v.x;
        dq[0][i][1] = v.y;
        dq[0][i][2] = v.z;
        dq[0][i][3] = v.w;
      }
    }
    const int32_t column = kTile.rows == 128 ? 0 : 64 * part;
    const int32_t mine = first + warp_row + (kTile.rows == 128 ? 64 * part : 0);
    const StoredRows<T> out{row_of_head<T>(a.dq, p.dq, s.b, h, int64_t(s.q_first) + mine) + column, p.dq.row,
                            existing - mine, s.q_length - mine, p.head_size - column};
    store_rows<T, SharedTile<T, 128, 64>>(dq, float(a.scale), cvta_to_shared(dynamic_shared()), 64 * half + warp_row, 0,
                                          out);
    __syncwarp();
  }
}

// The gradient of the sink of a head. Acc is the type of lse.
template <class Acc, AttentionBackwardTile kTile>
__global__ void __launch_bounds__(512) attention_wgmma_dsink(const __grid_constant__ AttentionWgmmaBackwardParams p,
                                                             const __grid_constant__ AttentionArgs a,
                                                             const __grid_constant__ AttentionWgmmaBackwardSums sums) {
  BlockReduce team;
  const int32_t h = int32_t(blockIdx.x);
  const Acc sink = static_cast<const Acc*>(a.sink)[h] * fast::kLog2E;
  CompensatedSum<Acc> sum;
  for (int32_t b = 0; b < p.scores.batch; ++b) {
    const SequenceRows s = sequence_rows(p.scores, a, b);
    const int64_t first = first_tile<kTile>(p, s, h) * kTile.rows;
    for (int32_t i = int32_t(threadIdx.x); i < s.q_length; i += int32_t(blockDim.x))
      sum.add(-fast::exp2_ftz(sink - sums.lse[first + i]) * sums.delta[first + i]);
  }
  const Acc all = team.sum(sum.value());
  if (threadIdx.x == 0) static_cast<Acc*>(a.dsink)[h] = all;
}

}  // namespace minidnn
