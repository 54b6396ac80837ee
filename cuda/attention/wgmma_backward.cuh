// SPDX-License-Identifier: Apache-2.0
// What the warps of wgmma_backward.cu share: shared memory, items and their tiles, the threads of the producer, the products,
// and scores and their gradients in registers.
#pragma once
#include "cuda/attention/scores.cuh"
#include "cuda/attention/tiles.cuh"
#include "cuda/attention/wgmma_backward_params.h"
#include "cuda/device/pipeline_state.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/device/ptx/tma.cuh"
#include "cuda/device/ptx/wgmma.cuh"

namespace minidnn {

constexpr int kConsumersBarrier = 1;  // a named barrier
constexpr int kConsumerThreads = 256, kAdders = 2;
constexpr uint32_t kBoxLine = 128;  // the bytes of a row of a box
constexpr int kPartRows = 64;       // rows of q whose scores are weights of a product

// Rows are counted from the first row of the sequence.
struct BackwardItem {
  SequenceRows s;
  int32_t kv_head, first;      // the first row of k
  int32_t row_begin, row_end;  // the rows of q that see the rows of k, from the first row of their tile
  int32_t count;               // of tiles of rows of all heads of q; -1: there are no more items
};

// The addresses of the parts of shared memory.
template <AttentionBackwardTile kTile> struct BackwardShared {
  uint32_t base;

  __device__ __forceinline__ BackwardShared() : base(cvta_to_shared(dynamic_shared())) {}
  __device__ __forceinline__ uint32_t k() const { return base; }
  __device__ __forceinline__ uint32_t v() const { return base + kTile.k_bytes(); }
  __device__ __forceinline__ uint32_t q(int stage) const { return base + kTile.q_begin() + stage * kTile.q_bytes(); }
  __device__ __forceinline__ uint32_t d_o(int stage) const {
    return base + kTile.do_begin() + stage * kTile.do_bytes();
  }
  __device__ __forceinline__ uint32_t gradients(uint32_t tile) const {
    return base + kTile.gradients_begin() + tile % 2 * kTile.gradient_bytes();
  }
  __device__ __forceinline__ uint32_t floats() const { return base + kTile.floats_begin(); }
  __device__ __forceinline__ uint32_t lse(int stage) const {
    return base + kTile.row_values_begin() + stage * kTile.rows * 4;
  }
  __device__ __forceinline__ uint32_t delta(int stage) const { return lse(kTile.stages + stage); }

  __device__ __forceinline__ uint32_t barrier(int i) const { return base + kTile.barriers_begin() + 8 * i; }
  __device__ __forceinline__ uint32_t k_full() const { return barrier(0); }
  __device__ __forceinline__ uint32_t v_full() const { return barrier(1); }
  __device__ __forceinline__ uint32_t own_empty() const { return barrier(2); }  // of k and v
  // The next item is known; all tiles of an item are being loaded.
  __device__ __forceinline__ uint32_t item_full() const { return barrier(3); }
  __device__ __forceinline__ uint32_t item_empty() const { return barrier(4); }
  // Narrow tiles: the sums of an even or an odd tile are stored; the sums of a tile are read.
  __device__ __forceinline__ uint32_t sums_full(int tile) const { return barrier(5 + tile % 2); }
  __device__ __forceinline__ uint32_t sums_empty() const { return barrier(7); }
  // Wide tiles: exponentials, and the gradients of an even or an odd tile.
  __device__ __forceinline__ uint32_t exponentials_full() const { return barrier(5); }
  __device__ __forceinline__ uint32_t exponentials_empty() const { return barrier(6); }
  __device__ __forceinline__ uint32_t gradients_full(int tile) const { return barrier(7 + tile % 2); }
  __device__ __forceinline__ uint32_t gradients_empty(int tile) const { return barrier(9 + tile % 2); }
  // Wide tiles with a fixed order: an even or an odd tile of dq may be added to the sums; it has been added; it has
  // been counted.
  __device__ __forceinline__ uint32_t turn(int tile) const { return barrier(11 + tile % 2); }
  __device__ __forceinline__ uint32_t added(int tile) const { return barrier(13 + tile % 2); }
  __device__ __forceinline__ uint32_t counted(int tile) const { return barrier(15 + tile % 2); }
  __device__ __forceinline__ uint32_t q_full(int stage) const { return barrier(17 + stage); }
  __device__ __forceinline__ uint32_t q_empty(int stage) const { return barrier(17 + kTile.stages + stage); }
  __device__ __forceinline__ uint32_t do_full(int stage) const { return barrier(17 + 2 * kTile.stages + stage); }
  __device__ __forceinline__ uint32_t do_empty(int stage) const { return barrier(17 + 3 * kTile.stages + stage); }
  // All lanes of a warp arrive. If one lane did, after __syncwarp(), racecheck would not see that the others have read lse
  // and delta before they are overwritten.
  template <bool kOrdered> __device__ __forceinline__ void init_barriers() const {
    constexpr int kWarpgroup = 128;
    mbarrier_init(k_full(), 1);
    mbarrier_init(v_full(), 1);
    mbarrier_init(own_empty(), kTile.threads() - kWarpgroup + (kOrdered || !kTile.is_wide() ? kAdders : 0));
    mbarrier_init(item_full(), 1);
    mbarrier_init(item_empty(), 1);
    if constexpr (kTile.is_wide()) {
      for (int i = 5; i < 17; ++i) mbarrier_init(barrier(i), kWarpgroup);
      for (int i = 0; i < 2; ++i) {
        mbarrier_init(turn(i), 1);
        mbarrier_init(counted(i), 1);
      }
    } else {
      mbarrier_init(sums_full(0), kConsumerThreads);
      mbarrier_init(sums_full(1), kConsumerThreads);
      mbarrier_init(sums_empty(), 1);
    }
    for (int i = 0; i < kTile.stages; ++i) {
      mbarrier_init(q_full(i), 1);
      mbarrier_init(do_full(i), 1);
      mbarrier_init(q_empty(i), kConsumerThreads);
      mbarrier_init(do_empty(i), kConsumerThreads);
    }
    fence_mbarrier_init();
  }
  // Item number i of this block. It shares memory with item i + kItems: when that one is taken, no thread uses item i
  // any more.
  __device__ __forceinline__ BackwardItem& item(int32_t i) const {
    static_assert(sizeof(BackwardItem) <= kTile.kItemBytes);
    return reinterpret_cast<BackwardItem*>(dynamic_shared() + kTile.items_begin())[i % kTile.kItems];
  }
};

// The tile of workspace that has row 0 of head h of a sequence.
template <AttentionBackwardTile kTile>
__device__ __forceinline__ int64_t first_tile(const AttentionWgmmaBackwardParams& p, const SequenceRows& s, int32_t h) {
  return p.scores.packed ? h * p.head_tiles + s.q_first / kTile.rows + s.b
                         : (int64_t(s.b) * p.scores.heads + h) * p.head_tiles;
}

// Item number n. Heads of k go in groups. In a group, the heads come first, then the tiles of rows of k: from the first
// to the last, since the first ones take the most time with a causal window, or backwards if kOrdered.
template <AttentionBackwardTile kTile, bool kOrdered>
__device__ __forceinline__ BackwardItem backward_item(const AttentionWgmmaBackwardParams& p, const AttentionArgs& a,
                                                      uint32_t n) {
  const uint32_t of_group = uint32_t(p.head_group) * uint32_t(p.column_tiles);
  const uint32_t first_head = n / of_group * uint32_t(p.head_group), rest = n % of_group;
  const uint32_t heads = min(uint32_t(p.head_group), uint32_t(p.kv_head_batch) - first_head);
  const uint32_t head = first_head + rest % heads, tile = rest / heads;
  BackwardItem item;
  item.s = sequence_rows(p.scores, a, int32_t(head / uint32_t(p.scores.kv_heads)));
  item.kv_head = int32_t(head % uint32_t(p.scores.kv_heads));
  item.first = (kOrdered ? p.column_tiles - 1 - int32_t(tile) : int32_t(tile)) * kTile.columns();
  const IndexRange rows = rows_of_any(p.scores, item.s, {item.first, item.first + kTile.columns()});
  item.row_begin = rows.begin / kTile.rows * kTile.rows;
  item.row_end = rows.end;
  item.count = 0;
  if (rows.begin < rows.end)
    item.count = ceil_div(rows.end - item.row_begin, kTile.rows) * int32_t(p.scores.group.divisor);
  return item;
}

// Runs body(item) for each item of a block, when its k is loaded.
template <AttentionBackwardTile kTile, class Body>
__device__ __forceinline__ void for_each_item(const BackwardShared<kTile>& shared, Body body) {
#pragma unroll 1
  for (int32_t i = 0;; ++i) {
    mbarrier_wait_parity(shared.k_full(), i % 2);
    const BackwardItem& item = shared.item(i);
    if (item.count < 0) return;
    body(item);
  }
}
// Runs body(head, row) for all tiles of an item.
template <AttentionBackwardTile kTile, class Body>
__device__ __forceinline__ void for_each_tile(const AttentionWgmmaBackwardParams& p, const BackwardItem& item,
                                              Body body) {
  int32_t head = item.kv_head * int32_t(p.scores.group.divisor), row = item.row_begin;
#pragma unroll 1
  for (int32_t t = item.count; t > 0; --t) {
    body(head, row);
    row += kTile.rows;
    if (row >= item.row_end) {
      row = item.row_begin;
      ++head;
    }
  }
}

// Loads all tiles of an item.
template <AttentionBackwardTile kTile>
__device__ __forceinline__ void load_tiles(const AttentionWgmmaBackwardParams& p,
                                           const AttentionWgmmaBackwardMaps& maps,
                                           const AttentionWgmmaBackwardSums& sums, const BackwardShared<kTile>& shared,
                                           const BackwardItem& item, PipelineState<kTile.stages>& at) {
  const int batch = p.scores.packed ? 0 : item.s.b;
  const auto load = [&](uint32_t to, const TensorMap* map, uint32_t barrier, int bytes, int rows, int row, int head) {
    const int boxes = bytes / (rows * int(kBoxLine));
#pragma unroll
    for (int box = 0; box < boxes; ++box)
      tma_load(to + box * rows * kBoxLine, map, barrier, 0, {64 * box, row, head, batch, 0});
  };
  mbarrier_arrive_expect_tx(shared.k_full(), kTile.k_bytes());
  load(shared.k(), &maps.k, shared.k_full(), kTile.k_bytes(), kTile.columns(), item.s.kv_first + item.first,
       item.kv_head);
  mbarrier_arrive_expect_tx(shared.v_full(), kTile.v_bytes());
  load(shared.v(), &maps.v, shared.v_full(), kTile.v_bytes(), kTile.columns(), item.s.kv_first + item.first,
       item.kv_head);
  for_each_tile<kTile>(p, item, [&](int32_t head, int32_t row) {
    const int64_t values = (first_tile<kTile>(p, item.s, head) + row / kTile.rows) * kTile.rows;
    row += item.s.q_first;
    mbarrier_wait_parity(shared.q_empty(at.stage), at.parity ^ 1);
    mbarrier_arrive_expect_tx(shared.q_full(at.stage), kTile.q_bytes() + kTile.rows * 4);
    load(shared.q(at.stage), &maps.q, shared.q_full(at.stage), kTile.q_bytes(), kTile.rows, row, head);
    cp_async_bulk(shared.lse(at.stage), sums.lse + values, kTile.rows * 4, shared.q_full(at.stage));
    mbarrier_wait_parity(shared.do_empty(at.stage), at.parity ^ 1);
    mbarrier_arrive_expect_tx(shared.do_full(at.stage), kTile.do_bytes() + kTile.rows * 4);
    load(shared.d_o(at.stage), &maps.d_o, shared.do_full(at.stage), kTile.do_bytes(), kTile.rows, row, head);
    cp_async_bulk(shared.delta(at.stage), sums.delta + values, kTile.rows * 4, shared.do_full(at.stage));
    at.advance();
  });
}

// Takes the next item each time that all tiles of the previous one are being loaded. One thread calls this function.
template <AttentionBackwardTile kTile, bool kOrdered>
__device__ __forceinline__ void take_items(const AttentionWgmmaBackwardParams& p, const AttentionArgs& a,
                                           const AttentionWgmmaBackwardSums& sums,
                                           const BackwardShared<kTile>& shared) {
#pragma unroll 1
  for (int32_t i = 0;; ++i) {
    mbarrier_wait_parity(shared.item_empty(), (i + 1) % 2);
    BackwardItem item;
    do {
      const uint32_t n = atomicAdd(sums.next_item, 1u);
      item = backward_item<kTile, kOrdered>(p, a, min(n, uint32_t(p.items) - 1));
      if (n >= uint32_t(p.items)) item.count = -1;
    } while (item.count >= 0 && item.first >= (p.scores.packed ? item.s.kv_length : p.scores.kv_rows));
    shared.item(i) = item;
    mbarrier_arrive(shared.item_full());
    if (item.count < 0) return;
  }
}
// Loads the tiles of all items. One thread calls this function.
template <AttentionBackwardTile kTile>
__device__ __forceinline__ void load_items(const AttentionWgmmaBackwardParams& p,
                                           const AttentionWgmmaBackwardMaps& maps,
                                           const AttentionWgmmaBackwardSums& sums,
                                           const BackwardShared<kTile>& shared) {
  PipelineState<kTile.stages> at;
#pragma unroll 1
  for (int32_t i = 0;; ++i) {
    mbarrier_wait_parity(shared.item_full(), i % 2);
    mbarrier_wait_parity(shared.own_empty(), (i + 1) % 2);
    const BackwardItem& item = shared.item(i);
    if (item.count > 0) {
      load_tiles<kTile>(p, maps, sums, shared, item, at);
    } else {
      mbarrier_arrive(shared.k_full());
      if (item.count < 0) return;
    }
    mbarrier_arrive(shared.item_empty());
  }
}

// Waits until all items with later rows of k that see a tile of q have been added to its sums. `added` counts them.
// These items have smaller numbers, and blocks compute their items in the order of the numbers, so no wait is
// endless.
template <AttentionBackwardTile kTile>
__device__ __forceinline__ void wait_for_turn(const AttentionWgmmaBackwardParams& p, const BackwardItem& item,
                                              int32_t row, const volatile uint32_t* added) {
  const IndexRange seen = columns_of_any(p.scores, item.s, {row, row + kTile.rows});
  const uint32_t before = uint32_t((seen.end - 1) / kTile.columns() - item.first / kTile.columns());
  while (*added < before) {}
  __threadfence();
}

// Adds the even or the odd tiles of dq to the sums, for narrow tiles. One thread calls this function: two warps take
// turns, so that one can wait until its tile has been added. If kOrdered, the order of the additions is fixed.
template <AttentionBackwardTile kTile, bool kOrdered>
__device__ __forceinline__ void add_tiles(const AttentionWgmmaBackwardParams& p, const AttentionWgmmaBackwardSums& sums,
                                          const BackwardShared<kTile>& shared, int odd) {
  uint32_t t = 0;
  for_each_item<kTile>(shared, [&](const BackwardItem& item) {
    mbarrier_arrive(shared.own_empty());
    for_each_tile<kTile>(p, item, [&](int32_t head, int32_t row) {
      const uint32_t mine = t++;
      if (mine % 2 != odd) return;
      const int64_t tile = first_tile<kTile>(p, item.s, head) + row / kTile.rows;
      if constexpr (kOrdered) wait_for_turn<kTile>(p, item, row, sums.added + tile);
      mbarrier_wait_parity(shared.sums_full(odd), mine / 2 % 2);
      cp_reduce_async_bulk_add_f32(sums.dq + tile * kTile.sums(), shared.floats(), kTile.sums() * 4);
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read<0>();
      mbarrier_arrive(shared.sums_empty());
      if constexpr (kOrdered) {
        cp_async_bulk_wait_group<0>();
        __threadfence();
        atomicAdd(sums.added + tile, 1u);
      }
    });
  });
}

// For wide tiles, which a warpgroup adds to the sums: one thread (gives_turns) waits for the turn of each tile, and
// another one counts the tiles that have been added. Two tiles of a block can be in flight.
template <AttentionBackwardTile kTile>
__device__ __forceinline__ void order_tiles(const AttentionWgmmaBackwardParams& p,
                                            const AttentionWgmmaBackwardSums& sums, const BackwardShared<kTile>& shared,
                                            bool gives_turns) {
  uint32_t t = 0;
  for_each_item<kTile>(shared, [&](const BackwardItem& item) {
    mbarrier_arrive(shared.own_empty());
    for_each_tile<kTile>(p, item, [&](int32_t head, int32_t row) {
      uint32_t* const added = sums.added + first_tile<kTile>(p, item.s, head) + row / kTile.rows;
      if (gives_turns) {
        mbarrier_wait_parity(shared.counted(t), (t / 2 + 1) % 2);
        wait_for_turn<kTile>(p, item, row, added);
        mbarrier_arrive(shared.turn(t));
      } else {
        mbarrier_wait_parity(shared.added(t), t / 2 % 2);
        __threadfence();
        atomicAdd(added, 1u);
        mbarrier_arrive(shared.counted(t));
      }
      ++t;
    });
  });
}

// Sets rows `used` on of a tile of kRows rows and kSize columns to zero. kThreads threads call this function, from
// thread kFirst of the block on.
template <int kRows, int kSize, int kFirst, int kThreads>
__device__ __forceinline__ void clear_rows(uint32_t tile, int used) {
  char* const memory = dynamic_shared();
  char* const to = memory + (tile - cvta_to_shared(memory));
  for (int line = used * 8 + int(threadIdx.x) - kFirst; line < kRows * 8; line += kThreads)
#pragma unroll
    for (int box = 0; box < kSize / 64; ++box)
      *reinterpret_cast<uint4*>(to + box * kRows * kBoxLine + line * 16) = uint4{0, 0, 0, 0};
}

// The rows of q that see all rows of k of an item.
template <AttentionBackwardTile kTile>
__device__ __forceinline__ IndexRange rows_without_mask(const AttentionScoreParams& p, const BackwardItem& item) {
  IndexRange rows = rows_of_all(p, item.s, {item.first, item.first + kTile.columns()});
  if (item.s.kv_length - item.first < kTile.columns()) rows.end = rows.begin;
  return rows;
}

// The scores of a consumer: element 4 f + e of a thread is row `column` + 8 (e / 2) of k, and row `row` + 8 f + e % 2
// of q, where `row` counts the lane, too. Sets those whose row of q does not see the row of k to zero.
template <int kCount>
__device__ __forceinline__ void hide(float (&x)[kCount], const AttentionScoreParams& p, const SequenceRows& s,
                                     int32_t column, int32_t row) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const IndexRange seen = rows_seeing(p, s, column + 8 * half);
    const int32_t begin = seen.begin - row, end = seen.end - row;
#pragma unroll
    for (int f = 0; f < kCount / 4; ++f)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int32_t at = 8 * f + e;
        float& v = x[4 * f + 2 * half + e];
        v = begin <= at && at < end ? v : 0.0f;
      }
  }
}
// Rounds scores to T, as operand a of wgmma.
template <class T, int kCount>
__device__ __forceinline__ void round_scores(uint32_t (&to)[kCount / 8][4], const float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) to[i / 4][i % 4] = cvt_rn_x2(T(), x[2 * i], x[2 * i + 1]);
}

// The products of a consumer warpgroup. They are started, and not waited for.
template <class T, AttentionBackwardTile kTile> struct BackwardProducts {
  static constexpr int kScores = kTile.rows / 2;
  static constexpr uint32_t kStep = 16 * kBoxLine >> 4;  // 16 rows of a box, in units of descriptors
  static constexpr uint32_t kOwnBox = kTile.columns() * kBoxLine, kLoopBox = kTile.rows * kBoxLine;

  // scores = own loop^T, where `own` are 64 rows of k or v, and `loop` a tile of q or d_o, with kSize columns
  template <int kSize> static __device__ __forceinline__ void scores(float (&d)[kScores], uint32_t own, uint32_t loop) {
    const uint64_t a = make_smem_descriptor<true>(own, 16, 1024), b = make_smem_descriptor<true>(loop, 16, 1024);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kSize / 16; ++i)
      Wgmma<T, kTile.rows>::template run<false, false>(d, a + i / 4 * (kOwnBox >> 4) + i % 4 * 2,
                                                       b + i / 4 * (kLoopBox >> 4) + i % 4 * 2, i > 0);
    wgmma_commit_group();
  }
  // sums += weights loop, for kPartRows rows of the tile from row `begin` on
  template <int kSums>
  static __device__ __forceinline__ void add_weighted(float (&d)[kSums], const uint32_t (&weights)[4][4], uint32_t loop,
                                                      int begin) {
    const uint64_t b = make_smem_descriptor<true>(loop + begin * kBoxLine, kLoopBox, 1024);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) Wgmma<T, 2 * kSums>::template run<true>(d, weights[i], b + i * kStep, 1);
    wgmma_commit_group();
  }
  // sums += ds^T loop, for 64 rows of ds^T in shared memory
  template <int kSums>
  static __device__ __forceinline__ void add_gradients(float (&d)[kSums], uint32_t gradients, uint32_t loop) {
    const uint64_t a = make_smem_descriptor<true>(gradients, 16, 1024);
    const uint64_t b = make_smem_descriptor<true>(loop, kLoopBox, 1024);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) Wgmma<T, 2 * kSums>::template run<false, true>(d, a + i * 2, b + i * kStep, 1);
    wgmma_commit_group();
  }
  // A part of dq: d = ds k, for 64 rows of ds, and some columns of k.
  template <int kSums>
  static __device__ __forceinline__ void dq(float (&d)[kSums], uint32_t gradients, uint32_t k) {
    const uint64_t a = make_smem_descriptor<true>(gradients, 16, 1024);
    const uint64_t b = make_smem_descriptor<true>(k, kOwnBox, 1024);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTile.columns() / 16; ++i)
      Wgmma<T, 2 * kSums>::template run<true, true>(d, a + i * kStep, b + i * kStep, i > 0);
    wgmma_commit_group();
  }
};

// The values of the neighbouring rows of q of this lane.
__device__ __forceinline__ float2 load_pair(uint32_t values) {
  uint32_t a, b;
  ld_shared_unordered(values + threadIdx.x % 4 * 8, a, b);
  return {__uint_as_float(a), __uint_as_float(b)};
}
using ScoresPart = float[kPartRows / 2];  // the scores of kPartRows rows of q
// s = 2^(factor s - lse), with the lse of each row of q
__device__ __forceinline__ void probabilities(ScoresPart& s, float factor, uint32_t lse) {
#pragma unroll
  for (int f = 0; f < 8; ++f) {
    const float2 of = load_pair(lse + 32 * f);
#pragma unroll
    for (int e = 0; e < 4; ++e) s[4 * f + e] = fast::exp2_ftz(s[4 * f + e] * factor - (e % 2 ? of.y : of.x));
  }
}
// g = s (g - delta), with the delta of each row of q, where probabilities(f) returns elements 4 f to 4 f + 3 of s
template <class Probabilities>
__device__ __forceinline__ void gradients(ScoresPart& g, uint32_t delta, Probabilities probabilities) {
#pragma unroll
  for (int f = 0; f < 8; ++f) {
    const float2 of = load_pair(delta + 32 * f);
    const float4 s = probabilities(f);
    g[4 * f] = s.x * (g[4 * f] - of.x);
    g[4 * f + 1] = s.y * (g[4 * f + 1] - of.y);
    g[4 * f + 2] = s.z * (g[4 * f + 2] - of.x);
    g[4 * f + 3] = s.w * (g[4 * f + 3] - of.y);
  }
}
// The address that a lane passes to stmatrix_x4() and ldmatrix_x4() for 16 lines of a box, from line 0 of the warp on:
// the words 4 i to 4 i + 3 of a lane's rounded accumulators are at this address xor 32 i.
__device__ __forceinline__ uint32_t lines_address(uint32_t lines) {
  const uint32_t lane = threadIdx.x % 32;
  return lines + lane % 16 * kBoxLine + ((lane / 16) ^ (lane % 8)) * 16;
}
// The lines of this warp in a box of ds^T: lines are rows of k, with 64 rows of q.
__device__ __forceinline__ uint32_t gradients_of_warp(uint32_t box) {
  return box + threadIdx.x / 32 % 4 * 16 * kBoxLine;
}
__device__ __forceinline__ void store_lines(const uint32_t (&words)[4][4], uint32_t lines) {
  const uint32_t to = lines_address(lines);
#pragma unroll
  for (int i = 0; i < 4; ++i) stmatrix_x4(to ^ (i * 32), words[i][0], words[i][1], words[i][2], words[i][3]);
}

}  // namespace minidnn
