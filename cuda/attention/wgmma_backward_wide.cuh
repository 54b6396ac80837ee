// SPDX-License-Identifier: Apache-2.0
// The consumer warpgroups of wide tiles of wgmma_backward.cu.
#pragma once
#include "cuda/attention/wgmma_backward.cuh"

namespace minidnn {

// The sums of dk or dv of a warpgroup: 64 rows of kSize columns. One wgmma adds to at most 192 columns, because it
// must not use more registers than the kernel's bound, which is 128 for 512 threads.
template <int kSize> struct WideSums {
  static constexpr int kParts = kSize > 192 ? 2 : 1, kColumns = kSize / kParts;
  static constexpr uint32_t kPartBytes = kColumns / 64 * 64 * kBoxLine;  // of a tile of q or d_o
  float of[kParts][kColumns / 2] = {};

  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int part = 0; part < kParts; ++part) warpgroup_fence_operand(of[part]);
  }
};

// A consumer warpgroup of wide tiles. The three derived classes compute different products. `t` counts the tiles that
// the warpgroup has computed.
template <class T, AttentionBackwardTile kTile> struct WideConsumer {
  using Products = BackwardProducts<T, kTile>;
  const AttentionWgmmaBackwardParams& p;
  const AttentionArgs& a;
  const BackwardShared<kTile>& shared;
  PipelineState<kTile.stages> q_at{}, do_at{};
  uint32_t t = 0;

  // The row of k or v of the first accumulator of this thread, in the tile.
  static __device__ __forceinline__ int32_t own_row() {
    return int32_t(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4);
  }
  // The row of q or d_o of the first accumulator of this thread, in the tile.
  static __device__ __forceinline__ int32_t lane_row() { return int32_t(threadIdx.x % 4) * 2; }
  static __device__ __forceinline__ int32_t next_row(const BackwardItem& item, int32_t row) {
    row += kTile.rows;
    return row < item.row_end ? row : item.row_begin;
  }
  static __device__ __forceinline__ bool has_mask(const IndexRange& without, int32_t row) {
    return row < without.begin || row + kTile.rows > without.end;
  }
  // Sets rows `used` on of a tile of this warpgroup, which is number kWarpgroup of the block, to zero.
  template <int kWarpgroup, int kRows, int kSize>
  static __device__ __forceinline__ void clear(uint32_t tile, int used) {
    if (used >= kRows) return;
    clear_rows<kRows, kSize, 128 * kWarpgroup, 128>(tile, used);
    fence_proxy_async();
    named_barrier_sync(kConsumersBarrier + kWarpgroup, 128);
  }
  // The exponentials of a tile in shared memory: one float4 of each thread after the other, for each warp.
  __device__ __forceinline__ uint32_t exponentials() const {
    return shared.floats() + threadIdx.x / 32 % 4 * (kTile.float_bytes() / 4) + threadIdx.x % 32 * 16;
  }
  // Stores a warp's rows of dk or dv through 16 lines of shared memory that no other warp uses, 64 columns at a time.
  // `out` is for row 0 of the sequence.
  template <class Sums>
  static __device__ __forceinline__ void store_sums(const BackwardItem& item, Sums& sums, float factor, uint32_t lines,
                                                    const StoredRows<T>& out) {
    const int32_t lane = int32_t(threadIdx.x % 32), chunk = lane % 8;
    const int32_t first = item.first + int32_t(threadIdx.x / 32 % 4 * 16) + lane / 8;
    const uint32_t from = lines + lane / 8 * kBoxLine + (chunk ^ (lane / 8)) * 16;
#pragma unroll
    for (int column = 0; column < Sums::kParts * Sums::kColumns; column += 64) {
      float* const values = &sums.of[column / Sums::kColumns][column % Sums::kColumns / 2];
#pragma unroll
      for (int i = 0; i < 32; ++i) values[i] *= factor;
      uint32_t words[4][4];
      round_scores<T>(words, reinterpret_cast<const ScoresPart&>(*values));
      store_lines(words, lines);
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t row = first + 4 * i;
        uint4 v = ld_shared_v4_b32((from ^ (i % 2 * 64)) + i * 4 * kBoxLine);
        if (row >= out.used) v = {0, 0, 0, 0};
        if (row < out.rows && column + chunk * 8 < out.columns)
          st_global_v4(out.to + row * out.pitch + column + chunk * 8, v);
      }
      __syncwarp();
    }
  }
  // The rows of dk or dv of an item.
  __device__ __forceinline__ StoredRows<T> rows_of(const BackwardItem& item, void* data,
                                                   const AttentionStrides& strides, int32_t columns) const {
    return {row_of_head<T>(data, strides, item.s.b, item.kv_head, item.s.kv_first), strides.row,
            p.scores.packed ? item.s.kv_length : p.scores.kv_rows, item.s.kv_length, columns};
  }
};

// Computes s^T = k q^T, the exponentials p^T, and dv += p^T d_o. While d_o is multiplied by the exponentials of a tile,
// those of the next tile are computed.
template <class T, AttentionBackwardTile kTile> struct WideValues : WideConsumer<T, kTile> {
  using Base = WideConsumer<T, kTile>;
  using Products = typename Base::Products;
  using Base::a, Base::do_at, Base::p, Base::q_at, Base::shared, Base::t;
  using Sums = WideSums<kTile.value>;

  // Replaces s by the exponentials of a tile, and stores them for the warpgroup of dk.
  __device__ __forceinline__ void finish(ScoresPart& s, const BackwardItem& item, const IndexRange& without,
                                         int32_t row) {
    probabilities(s, float(a.scale) * fast::kLog2E, shared.lse(q_at.stage));
    mbarrier_arrive(shared.q_empty(q_at.stage));
    q_at.advance();
    if (Base::has_mask(without, row)) hide(s, p.scores, item.s, item.first + Base::own_row(), row + Base::lane_row());
    mbarrier_wait_parity(shared.exponentials_empty(), (t + 1) % 2);
    const uint32_t to = Base::exponentials();
#pragma unroll
    for (int i = 0; i < 8; ++i) st_shared_v4_f32(to + 512 * i, {s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]});
    mbarrier_arrive(shared.exponentials_full());
    ++t;
  }
  __device__ __forceinline__ void start_scores(ScoresPart& s) const {
    mbarrier_wait_parity(shared.q_full(q_at.stage), q_at.parity);
    Products::template scores<kTile.head>(s, shared.k(), shared.q(q_at.stage));
  }
  // Starts dv += weights d_o, for a tile of which `used` rows exist.
  __device__ __forceinline__ void start_dv(Sums& dv, const uint32_t (&weights)[4][4], int32_t used) const {
    mbarrier_wait_parity(shared.do_full(do_at.stage), do_at.parity);
    Base::template clear<1, kTile.rows, kTile.value>(shared.d_o(do_at.stage), used);
#pragma unroll
    for (int i = 0; i < Sums::kParts; ++i)
      Products::add_weighted(dv.of[i], weights, shared.d_o(do_at.stage) + i * Sums::kPartBytes, 0);
  }
  __device__ __forceinline__ void finish_dv() {
    wgmma_wait_group<0>();
    mbarrier_arrive(shared.do_empty(do_at.stage));
    do_at.advance();
  }
  __device__ __forceinline__ void multiply(const BackwardItem& item, Sums& dv) {
    const IndexRange without = rows_without_mask<kTile>(p.scores, item);
    float s[kPartRows / 2];
    uint32_t weights[4][4];
    int32_t row = item.row_begin;
    start_scores(s);
    wgmma_wait_group<0>();
    warpgroup_fence_operand(s);
    finish(s, item, without, row);
    round_scores<T>(weights, s);
#pragma unroll 1
    for (int32_t left = item.count; left > 1; --left) {
      start_scores(s);
      start_dv(dv, weights, item.s.q_length - row);
      row = Base::next_row(item, row);
      wgmma_wait_group<Sums::kParts>();
      warpgroup_fence_operand(s);
      finish(s, item, without, row);
      finish_dv();
      round_scores<T>(weights, s);
    }
    start_dv(dv, weights, item.s.q_length - row);
    finish_dv();
    dv.pin();
  }
  __device__ __forceinline__ void run() {
    for_each_item<kTile>(shared, [&](const BackwardItem& item) {
      Sums dv;
      if (item.count > 0) multiply(item, dv);
      mbarrier_arrive(shared.own_empty());
      mbarrier_wait_parity(shared.exponentials_empty(), (t + 1) % 2);
      const uint32_t lines = shared.floats() + threadIdx.x / 32 % 4 * (kTile.float_bytes() / 4);
      Base::store_sums(item, dv, 1.0f, lines, Base::rows_of(item, a.dv, p.dv, p.value_size));
    });
  }
};

// Computes g^T = v d_o^T, ds^T = p^T (g^T - delta), and dk += ds^T q. While q is multiplied by the gradients of a tile,
// those of the next tile are computed.
template <class T, AttentionBackwardTile kTile> struct WideKeys : WideConsumer<T, kTile> {
  using Base = WideConsumer<T, kTile>;
  using Products = typename Base::Products;
  using Base::a, Base::do_at, Base::p, Base::q_at, Base::shared, Base::t;
  using Sums = WideSums<kTile.head>;
  uint32_t items = 0;  // the number of items with tiles that the warpgroup has begun

  // Waits until the memory of the gradients of tile number t is free.
  __device__ __forceinline__ void wait_for_gradients() const {
    mbarrier_wait_parity(shared.gradients_empty(t), (t / 2 + 1) % 2);
  }
  // Computes the gradients of a tile, and stores them for the warpgroup of dq.
  __device__ __forceinline__ void finish(ScoresPart& g, const BackwardItem& item, const IndexRange& without,
                                         int32_t row) {
    mbarrier_wait_parity(shared.exponentials_full(), t % 2);
    const uint32_t from = Base::exponentials();
    gradients(g, shared.delta(do_at.stage), [&](int f) {
      if (f % 2 == 0) __syncwarp();  // Without it, the compiler loads all exponentials at once, and spills registers.
      return ld_shared_v4_f32(from + 512 * f);
    });
    mbarrier_arrive(shared.exponentials_empty());
    mbarrier_arrive(shared.do_empty(do_at.stage));
    do_at.advance();
    if (Base::has_mask(without, row)) hide(g, p.scores, item.s, item.first + Base::own_row(), row + Base::lane_row());
    wait_for_gradients();
    uint32_t ds[4][4];
    round_scores<T>(ds, g);
    store_lines(ds, gradients_of_warp(shared.gradients(t)));
    fence_proxy_async();
    mbarrier_arrive(shared.gradients_full(t));
    ++t;
  }
  __device__ __forceinline__ void start_gradients(ScoresPart& g) const {
    mbarrier_wait_parity(shared.do_full(do_at.stage), do_at.parity);
    Products::template scores<kTile.value>(g, shared.v(), shared.d_o(do_at.stage));
  }
  // Starts dk += ds q, for the tile of the last gradients, of which `used` rows exist.
  __device__ __forceinline__ void start_dk(Sums& dk, int32_t used) const {
    mbarrier_wait_parity(shared.q_full(q_at.stage), q_at.parity);
    Base::template clear<2, kTile.rows, kTile.head>(shared.q(q_at.stage), used);
    named_barrier_sync(kConsumersBarrier + 2, 128);
#pragma unroll
    for (int i = 0; i < Sums::kParts; ++i)
      Products::add_gradients(dk.of[i], shared.gradients(t - 1), shared.q(q_at.stage) + i * Sums::kPartBytes);
  }
  __device__ __forceinline__ void finish_dk() {
    wgmma_wait_group<0>();
    mbarrier_arrive(shared.q_empty(q_at.stage));
    q_at.advance();
  }
  __device__ __forceinline__ void multiply(const BackwardItem& item, Sums& dk) {
    const IndexRange without = rows_without_mask<kTile>(p.scores, item);
    float g[kPartRows / 2];
    int32_t row = item.row_begin;
    mbarrier_wait_parity(shared.v_full(), items++ % 2);
    start_gradients(g);
    wgmma_wait_group<0>();
    warpgroup_fence_operand(g);
    finish(g, item, without, row);
#pragma unroll 1
    for (int32_t left = item.count; left > 1; --left) {
      start_gradients(g);
      start_dk(dk, item.s.q_length - row);
      row = Base::next_row(item, row);
      wgmma_wait_group<Sums::kParts>();
      warpgroup_fence_operand(g);
      finish(g, item, without, row);
      finish_dk();
    }
    start_dk(dk, item.s.q_length - row);
    finish_dk();
    dk.pin();
  }
  __device__ __forceinline__ void run() {
    for_each_item<kTile>(shared, [&](const BackwardItem& item) {
      Sums dk;
      if (item.count > 0) multiply(item, dk);
      mbarrier_arrive(shared.own_empty());
      wait_for_gradients();
      Base::store_sums(item, dk, float(a.scale), gradients_of_warp(shared.gradients(t)),
                       Base::rows_of(item, a.dk, p.dk, p.head_size));
    });
  }
};

// Computes dq = ds k, and adds it to the sums from registers.
template <class T, AttentionBackwardTile kTile> struct WideQueries : WideConsumer<T, kTile> {
  using Base = WideConsumer<T, kTile>;
  using Products = typename Base::Products;
  using Base::p, Base::shared, Base::t;
  static constexpr int kParts = kTile.head / 64, kSums = 32;

  template <bool kOrdered> __device__ __forceinline__ void run(const AttentionWgmmaBackwardSums& sums) {
    for_each_item<kTile>(shared, [&](const BackwardItem& item) {
      if (item.count > 0)
        Base::template clear<3, kTile.columns(), kTile.head>(shared.k(), item.s.kv_length - item.first);
      for_each_tile<kTile>(p, item, [&](int32_t head, int32_t row) {
        const int64_t tile = first_tile<kTile>(p, item.s, head) + row / kTile.rows;
        mbarrier_wait_parity(shared.gradients_full(t), t / 2 % 2);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          float dq[kSums];
          Products::dq(dq, shared.gradients(t), shared.k() + part * (kTile.k_bytes() / kParts));
          if (kOrdered && part == 0) mbarrier_wait_parity(shared.turn(t), t / 2 % 2);
          wgmma_wait_group<0>();
          warpgroup_fence_operand(dq);
          if (part == kParts - 1) mbarrier_arrive(shared.gradients_empty(t));
          float* const to = sums.dq + tile * kTile.sums() + part * (kTile.sums() / kParts) + threadIdx.x % 128 * 4;
#pragma unroll
          for (int i = 0; i < kSums; i += 4) red_add_v4_f32(to + 128 * i, dq[i], dq[i + 1], dq[i + 2], dq[i + 3]);
        }
        if (kOrdered) mbarrier_arrive(shared.added(t));
        ++t;
      });
      mbarrier_arrive(shared.own_empty());
    });
  }
};

}  // namespace minidnn
