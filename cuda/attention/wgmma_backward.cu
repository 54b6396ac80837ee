// SPDX-License-Identifier: Apache-2.0
// The gradients of attention on Hopper (sm_90a), with TMA and wgmma, for 16-bit types and scores without options.
// - attention_wgmma_begin: delta = rowsum(d_o o), and lse in the unit of the exponential, to workspace; zeros for the
//   sums of dq.
// - attention_wgmma_backward: dk, dv, and the sums of dq.
// - attention_wgmma_end: dq from its sums.
// - attention_wgmma_dsink: a block for each head.
//
// attention_wgmma_backward has a persistent block on each SM, which takes items. An item is 128 rows of k and v of a
// head, and a loop over the tiles of rows of q that see them, for all heads of q that use them. A block has a producer
// warpgroup and two consumer warpgroups. Four threads of the producer work: one takes items, one loads k and v, and q,
// d_o, lse and delta into a ring of stages, and two add tiles of dq to the sums. Each consumer owns 64 rows of k and v:
//   s^T = k q^T, g^T = v d_o^T, p = 2^(factor s - lse), ds = p (g - delta), dv += p^T d_o, dk += ds^T q,
// with p^T and ds^T in registers, rounded to T. Both consumers store ds to shared memory, and compute one half of
// dq = ds k: half of the columns for tiles of 64 rows, half of the rows for tiles of 128 rows. Tiles of dq are added in
// any order or, if kOrdered, from the last rows of k to the first.
// Shared memory: AttentionBackwardTile. Tiles are in 128-byte swizzle, as boxes of 64 columns.
// Bytes: an item reads all rows of q and d_o that see its rows of k, mostly from the L2, and adds to their sums.
#include "cuda/attention/scores.cuh"
#include "cuda/attention/tiles.cuh"
#include "cuda/attention/wgmma_backward_params.h"
#include "cuda/device/pipeline_state.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/device/ptx/setmaxnreg.cuh"
#include "cuda/device/ptx/tma.cuh"
#include "cuda/device/ptx/wgmma.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vec.cuh"

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
  __device__ __forceinline__ uint32_t v() const { return base + kTile.own_bytes(); }
  __device__ __forceinline__ uint32_t q(int stage) const {
    return base + kTile.loop_begin() + stage * kTile.loop_bytes();
  }
  __device__ __forceinline__ uint32_t d_o(int stage) const { return q(kTile.stages + stage); }
  __device__ __forceinline__ uint32_t gradients(int buffer) const {
    return base + kTile.gradients_begin() + buffer * kTile.gradient_bytes();
  }
  __device__ __forceinline__ uint32_t sums() const { return base + kTile.sums_begin(); }
  __device__ __forceinline__ uint32_t lse(int stage) const {
    return base + kTile.row_values_begin() + stage * kTile.rows * 4;
  }
  __device__ __forceinline__ uint32_t delta(int stage) const { return lse(kTile.stages + stage); }

  __device__ __forceinline__ uint32_t barrier(int i) const { return base + kTile.barriers_begin() + 8 * i; }
  __device__ __forceinline__ uint32_t k_full() const { return barrier(0); }
  __device__ __forceinline__ uint32_t v_full() const { return barrier(1); }
  __device__ __forceinline__ uint32_t own_empty() const { return barrier(2); }  // of k and v
  // The sums of an even or an odd tile are stored; the sums of a tile are read.
  __device__ __forceinline__ uint32_t sums_full(int tile) const { return barrier(3 + tile % 2); }
  __device__ __forceinline__ uint32_t sums_empty() const { return barrier(5); }
  // The next item is known; all tiles of an item are being loaded.
  __device__ __forceinline__ uint32_t item_full() const { return barrier(6); }
  __device__ __forceinline__ uint32_t item_empty() const { return barrier(7); }
  __device__ __forceinline__ uint32_t q_full(int stage) const { return barrier(8 + stage); }
  __device__ __forceinline__ uint32_t q_empty(int stage) const { return barrier(8 + kTile.stages + stage); }
  __device__ __forceinline__ uint32_t do_full(int stage) const { return barrier(8 + 2 * kTile.stages + stage); }
  __device__ __forceinline__ uint32_t do_empty(int stage) const { return barrier(8 + 3 * kTile.stages + stage); }
  __device__ __forceinline__ void init_barriers() const {
    constexpr int kWarps = kConsumerThreads / 32;
    mbarrier_init(k_full(), 1);
    mbarrier_init(v_full(), 1);
    mbarrier_init(own_empty(), kWarps + kAdders);
    mbarrier_init(item_full(), 1);
    mbarrier_init(item_empty(), 1);
    mbarrier_init(sums_full(0), kWarps);
    mbarrier_init(sums_full(1), kWarps);
    mbarrier_init(sums_empty(), 1);
    for (int i = 0; i < kTile.stages; ++i) {
      mbarrier_init(q_full(i), 1);
      mbarrier_init(do_full(i), 1);
      mbarrier_init(q_empty(i), kWarps);
      mbarrier_init(do_empty(i), kWarps);
    }
    fence_mbarrier_init();
  }
  // Item number i of this block. It shares memory with item i + kItems: when that one is taken, no thread uses item i any
  // more.
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
// Row `row` of head h of a tensor.
template <class T>
__device__ __forceinline__ T* row_of_head(const void* data, const AttentionStrides& d, int32_t b, int32_t h,
                                          int64_t row) {
  return static_cast<T*>(const_cast<void*>(data)) + (b * d.batch + h * d.head + row * d.row);
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
  item.first = (kOrdered ? p.column_tiles - 1 - int32_t(tile) : int32_t(tile)) * kTile.kColumns;
  const IndexRange rows = rows_of_any(p.scores, item.s, {item.first, item.first + kTile.kColumns});
  item.row_begin = rows.begin / kTile.rows * kTile.rows;
  item.row_end = rows.end;
  item.count = 0;
  if (rows.begin < rows.end)
    item.count = ceil_div(rows.end - item.row_begin, kTile.rows) * int32_t(p.scores.group.divisor);
  return item;
}

// Runs body(item, i) for each item i of a block, when its k is loaded.
template <AttentionBackwardTile kTile, class Body>
__device__ __forceinline__ void for_each_item(const BackwardShared<kTile>& shared, Body body) {
#pragma unroll 1
  for (int32_t i = 0;; ++i) {
    mbarrier_wait_parity(shared.k_full(), i % 2);
    const BackwardItem& item = shared.item(i);
    if (item.count < 0) return;
    body(item, i);
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
  const auto load = [&](uint32_t to, const TensorMap* map, uint32_t barrier, int rows, int row, int head) {
#pragma unroll
    for (int box = 0; box < kTile.head / 64; ++box)
      tma_load(to + box * rows * kBoxLine, map, barrier, 0, {64 * box, row, head, batch, 0});
  };
  mbarrier_arrive_expect_tx(shared.k_full(), kTile.own_bytes());
  load(shared.k(), &maps.k, shared.k_full(), kTile.kColumns, item.s.kv_first + item.first, item.kv_head);
  mbarrier_arrive_expect_tx(shared.v_full(), kTile.own_bytes());
  load(shared.v(), &maps.v, shared.v_full(), kTile.kColumns, item.s.kv_first + item.first, item.kv_head);
  for_each_tile<kTile>(p, item, [&](int32_t head, int32_t row) {
    const int64_t values = (first_tile<kTile>(p, item.s, head) + row / kTile.rows) * kTile.rows;
    row += item.s.q_first;
    mbarrier_wait_parity(shared.q_empty(at.stage), at.parity ^ 1);
    mbarrier_arrive_expect_tx(shared.q_full(at.stage), kTile.loop_bytes() + kTile.rows * 4);
    load(shared.q(at.stage), &maps.q, shared.q_full(at.stage), kTile.rows, row, head);
    cp_async_bulk(shared.lse(at.stage), sums.lse + values, kTile.rows * 4, shared.q_full(at.stage));
    mbarrier_wait_parity(shared.do_empty(at.stage), at.parity ^ 1);
    mbarrier_arrive_expect_tx(shared.do_full(at.stage), kTile.loop_bytes() + kTile.rows * 4);
    load(shared.d_o(at.stage), &maps.d_o, shared.do_full(at.stage), kTile.rows, row, head);
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
      mbarrier_arrive(shared.v_full());
      if (item.count < 0) return;
    }
    mbarrier_arrive(shared.item_empty());
  }
}

// Adds the even or the odd tiles of dq to the sums. One thread calls this function: two warps take turns, so that one
// can wait until its tile has been added. If kOrdered, an item adds to a tile after all items with later rows of k that
// see it. These have smaller numbers, and blocks compute their items in the order of the numbers, so no wait is endless.
template <AttentionBackwardTile kTile, bool kOrdered>
__device__ __forceinline__ void add_tiles(const AttentionWgmmaBackwardParams& p, const AttentionWgmmaBackwardSums& sums,
                                          const BackwardShared<kTile>& shared, int odd) {
  uint32_t t = 0;
  for_each_item<kTile>(shared, [&](const BackwardItem& item, int32_t) {
    mbarrier_arrive(shared.own_empty());
    for_each_tile<kTile>(p, item, [&](int32_t head, int32_t row) {
      const uint32_t mine = t++;
      if (mine % 2 != odd) return;
      const int64_t tile = first_tile<kTile>(p, item.s, head) + row / kTile.rows;
      if constexpr (kOrdered) {
        const IndexRange seen = columns_of_any(p.scores, item.s, {row, row + kTile.rows});
        const uint32_t before = uint32_t((seen.end - 1) / kTile.kColumns - item.first / kTile.kColumns);
        const volatile uint32_t* const added = sums.added + tile;
        while (*added < before) {}
        __threadfence();
      }
      mbarrier_wait_parity(shared.sums_full(odd), mine / 2 % 2);
      cp_reduce_async_bulk_add_f32(sums.dq + tile * kTile.sums(), shared.sums(), kTile.sums() * 4);
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

// Sets rows `used` on of a tile of `rows` rows to zero. All threads of the consumers call this function.
template <AttentionBackwardTile kTile>
__device__ __forceinline__ void clear_rows(uint32_t tile, int rows, int used) {
  char* const memory = dynamic_shared();
  char* const to = memory + (tile - cvta_to_shared(memory));
  for (int line = used * 8 + int(threadIdx.x) - 128; line < rows * 8; line += kConsumerThreads)
#pragma unroll
    for (int box = 0; box < kTile.head / 64; ++box)
      *reinterpret_cast<uint4*>(to + box * rows * kBoxLine + line * 16) = uint4{0, 0, 0, 0};
}

// The scores of a consumer: element 4 f + e of a thread is row `column` + 8 (e / 2) of k, and row `row` + 8 f + e % 2 of
// q, where `row` counts the lane, too. Sets those whose row of q does not see the row of k to zero.
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
  static constexpr int kScores = kTile.rows / 2, kSums = kTile.head / 2;
  static constexpr uint32_t kStep = 16 * kBoxLine >> 4;  // 16 rows of a box, in units of descriptors

  // scores = own loop^T, where `own` are 64 rows of k or v, and `loop` a tile of q or d_o
  static __device__ __forceinline__ void scores(float (&d)[kScores], uint32_t own, uint32_t loop) {
    const uint64_t a = make_smem_descriptor<true>(own, 16, 1024), b = make_smem_descriptor<true>(loop, 16, 1024);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTile.head / 16; ++i)
      Wgmma<T, kTile.rows>::template run<false, false>(d, a + i / 4 * (kTile.kColumns * kBoxLine >> 4) + i % 4 * 2,
                                                       b + i / 4 * (kTile.rows * kBoxLine >> 4) + i % 4 * 2, i > 0);
    wgmma_commit_group();
  }
  // sums += weights loop, for kPartRows rows of the tile from row `begin` on
  static __device__ __forceinline__ void add_weighted(float (&d)[kSums], const uint32_t (&weights)[4][4], uint32_t loop,
                                                      int begin) {
    const uint64_t b = make_smem_descriptor<true>(loop + begin * kBoxLine, kTile.rows * kBoxLine, 1024);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) Wgmma<T, kTile.head>::template run<true>(d, weights[i], b + i * kStep, 1);
    wgmma_commit_group();
  }
  // A half of dq: d = ds k, for 64 rows of ds, and 64 columns of k.
  static __device__ __forceinline__ void dq(float (&d)[32], uint32_t gradients, uint32_t k) {
    const uint64_t a = make_smem_descriptor<true>(gradients, 16, 1024), b = make_smem_descriptor<true>(k, 16, 1024);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTile.kColumns / 16; ++i)
      Wgmma<T, 64>::template run<true, true>(d, a + i * kStep, b + i * kStep, i > 0);
    wgmma_commit_group();
  }
};

// The consumer warpgroup's part of the gradients of the rows of k and v.
template <class T, AttentionBackwardTile kTile> struct BackwardConsumer {
  using Products = BackwardProducts<T, kTile>;
  static constexpr int kScores = Products::kScores, kParts = kTile.rows / kPartRows;
  static constexpr int kSums = Products::kSums;
  using Part = float[kPartRows / 2];  // the scores of kPartRows rows of q
  const BackwardShared<kTile>& shared;
  int warpgroup;
  PipelineState<kTile.stages> at{};
  uint32_t t = 0;  // the number of tiles that the block has computed

  static __device__ __forceinline__ void arrive(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
  }
  // s = 2^(factor s - lse), with the lse of each row of q
  static __device__ __forceinline__ void probabilities(Part& s, float factor, uint32_t lse) {
#pragma unroll
    for (int f = 0; f < 8; ++f) {
      const float2 of = load_pair(lse + 32 * f);
#pragma unroll
      for (int e = 0; e < 4; ++e) s[4 * f + e] = fast::exp2_ftz(s[4 * f + e] * factor - (e % 2 ? of.y : of.x));
    }
  }
  // g = s (g - delta), with the delta of each row of q
  static __device__ __forceinline__ void gradients(Part& g, const Part& s, uint32_t delta) {
#pragma unroll
    for (int f = 0; f < 8; ++f) {
      const float2 of = load_pair(delta + 32 * f);
#pragma unroll
      for (int e = 0; e < 4; ++e) g[4 * f + e] = s[4 * f + e] * (g[4 * f + e] - (e % 2 ? of.y : of.x));
    }
  }
  // The values of the neighbouring rows of this lane.
  static __device__ __forceinline__ float2 load_pair(uint32_t values) {
    uint32_t a, b;
    ld_shared_unordered(values + threadIdx.x % 4 * 8, a, b);
    return {__uint_as_float(a), __uint_as_float(b)};
  }
  static __device__ __forceinline__ Part& part(float (&x)[kScores], int i) {
    return reinterpret_cast<Part&>(x[i * kPartRows / 2]);
  }
  // Stores a part of ds^T: lines are rows of k, with 64 rows of q.
  __device__ __forceinline__ void store_gradients(const uint32_t (&ds)[4][4], uint32_t to) const {
    const uint32_t lane = threadIdx.x % 32, line = warpgroup * 64 + threadIdx.x / 32 % 4 * 16 + lane % 16;
    to += line * kBoxLine + ((lane / 16) ^ (lane % 8)) * 16;
#pragma unroll
    for (int i = 0; i < 4; ++i) stmatrix_x4(to ^ (i * 32), ds[i][0], ds[i][1], ds[i][2], ds[i][3]);
  }
  // Waits until the memory of dq is free for tile number t of the block.
  __device__ __forceinline__ void wait_for_sums(uint32_t t) const {
    mbarrier_wait_parity(shared.sums_empty(), (t + 1) % 2);
  }
  // Stores this warpgroup's half of dq of tile number t.
  __device__ __forceinline__ void store_dq(const float (&dq)[32], uint32_t t) const {
    wait_for_sums(t);
    float4* const to = reinterpret_cast<float4*>(dynamic_shared() + kTile.sums_begin() + warpgroup * kTile.sums() * 2);
#pragma unroll
    for (int i = 0; i < 8; ++i)
      to[128 * i + threadIdx.x % 128] = {dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
    fence_proxy_async();
    arrive(shared.sums_full(t));
  }

  // Adds the tiles of item number i to dk / scale and dv.
  __device__ __forceinline__ void multiply(const AttentionWgmmaBackwardParams& p, const AttentionArgs& a,
                                           const BackwardItem& item, int32_t i, float (&dk)[kSums],
                                           float (&dv)[kSums]) {
    const float factor = float(a.scale) * fast::kLog2E;
    const int32_t used_columns = item.s.kv_length - item.first;
    // The rows of q that see all rows of k.
    IndexRange complete = rows_of_all(p.scores, item.s, {item.first, item.first + kTile.kColumns});
    if (used_columns < kTile.kColumns) complete.end = complete.begin;
    const int32_t column = item.first + warpgroup * 64 + int32_t(threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4);
    const uint32_t own = warpgroup * 64 * kBoxLine;
    const uint32_t dq_rows = kTile.rows == 128 ? warpgroup * kTile.kColumns * kBoxLine : 0;
    const uint32_t dq_columns = kTile.rows == 128 ? 0 : warpgroup * kTile.kColumns * kBoxLine;

    float s[kScores], g[kScores], dq[32];
    uint32_t weights[kParts][4][4], ds[kParts][4][4];
    if (used_columns < kTile.kColumns) {
      clear_rows<kTile>(shared.k(), kTile.kColumns, used_columns);
      fence_proxy_async();
      named_barrier_sync(kConsumersBarrier, kConsumerThreads);
    }
    mbarrier_wait_parity(shared.v_full(), i % 2);
    int32_t row = item.row_begin;
#pragma unroll 1
    for (int32_t left = item.count; left > 0; --left, ++t) {
      mbarrier_wait_parity(shared.q_full(at.stage), at.parity);
      Products::scores(s, shared.k() + own, shared.q(at.stage));
      mbarrier_wait_parity(shared.do_full(at.stage), at.parity);
      const int32_t used = item.s.q_length - row;
      if (used < kTile.rows) {
        clear_rows<kTile>(shared.q(at.stage), kTile.rows, used);
        clear_rows<kTile>(shared.d_o(at.stage), kTile.rows, used);
        fence_proxy_async();
        named_barrier_sync(kConsumersBarrier, kConsumerThreads);
      }
      Products::scores(g, shared.v() + own, shared.d_o(at.stage));
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
        gradients(part(g, n), part(s, n), shared.delta(at.stage) + n * kPartRows * 4);
        if (masked) hide(part(g, n), p.scores, item.s, column, lane_row + n * kPartRows);
        round_scores<T>(ds[n], part(g, n));
        store_gradients(ds[n], shared.gradients(t % 2) + n * kTile.kColumns * kBoxLine);
      }
      fence_proxy_async();
      named_barrier_sync(kConsumersBarrier, kConsumerThreads);
      Products::dq(dq, shared.gradients(t % 2) + dq_rows, shared.k() + dq_columns);
#pragma unroll
      for (int n = 0; n < kParts; ++n) Products::add_weighted(dk, ds[n], shared.q(at.stage), n * kPartRows);
      wgmma_wait_group<kParts>();
      warpgroup_fence_operand(dq);
      arrive(shared.do_empty(at.stage));
      store_dq(dq, t);
      wgmma_wait_group<0>();
      arrive(shared.q_empty(at.stage));
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
    const uint32_t memory = shared.sums() + warpgroup * kTile.sums() * 2;
    const int32_t mine = item.first + warpgroup * 64 + warp_row, b = item.s.b;
    const int32_t existing = p.scores.packed ? item.s.kv_length : p.scores.kv_rows;
    const int64_t row = item.s.kv_first + mine;
    StoredRows<T> out{row_of_head<T>(a.dk, p.dk, b, item.kv_head, row), p.dk.row, existing - mine,
                      item.s.kv_length - mine, p.head_size};
    wait_for_sums(t);
    store_rows<T, Memory>(reinterpret_cast<Fragments>(dk), float(a.scale), memory, warp_row, 0, out);
    __syncwarp();
    out.to = row_of_head<T>(a.dv, p.dv, b, item.kv_head, row);
    out.pitch = p.dv.row;
    out.columns = p.value_size;
    store_rows<T, Memory>(reinterpret_cast<Fragments>(dv), 1.0f, memory, warp_row, 0, out);
    __syncwarp();
  }

  __device__ __forceinline__ void run(const AttentionWgmmaBackwardParams& p, const AttentionArgs& a) {
    for_each_item<kTile>(shared, [&](const BackwardItem& item, int32_t i) {
      float dk[kSums] = {}, dv[kSums] = {};
      if (item.count > 0) multiply(p, a, item, i, dk, dv);
      arrive(shared.own_empty());
      store(p, a, item, dk, dv);
    });
  }
};

// dk and dv, and the sums of dq. Blocks are persistent, and take items until there are no more.
template <class T, AttentionBackwardTile kTile, bool kOrdered>
__global__ void __launch_bounds__(384, 1)
    attention_wgmma_backward(const __grid_constant__ AttentionWgmmaBackwardParams p,
                             const __grid_constant__ AttentionArgs a,
                             const __grid_constant__ AttentionWgmmaBackwardMaps maps,
                             const __grid_constant__ AttentionWgmmaBackwardSums sums) {
  const BackwardShared<kTile> shared;
  const int group = __shfl_sync(0xffffffff, int(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) shared.init_barriers();
  __syncthreads();
  griddep_wait();
  if (group == 0) {
    setmaxnreg_dec<24>();
    const int warp = int(threadIdx.x) / 32;
    if (threadIdx.x % 32 != 0) return;
    if (warp == 0) load_items<kTile>(p, maps, sums, shared);
    else if (warp == 1) take_items<kTile, kOrdered>(p, a, sums, shared);
    else add_tiles<kTile, kOrdered>(p, sums, shared, warp - 2);
  } else {
    setmaxnreg_inc<240>();
    BackwardConsumer<T, kTile> consumer{shared, group - 1};
    consumer.run(p, a);
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
  const int64_t lse_row = p.scores.packed ? int64_t(h) * p.scores.q_rows + s.q_first
                                          : (int64_t(s.b) * p.scores.heads + h) * p.scores.q_rows;
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

// A tile of dq. Each half of the block has the accumulators of a consumer warpgroup.
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
  float dq[1][8][4] = {};
  if (first < s.q_length) {
    const int64_t of_half = (first_tile<kTile>(p, s, h) + tile) * 2 + half;
    const float4* const from =
        reinterpret_cast<const float4*>(sums.dq + of_half * (kTile.sums() / 2)) + threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 v = from[128 * i];
      dq[0][i][0] = v.x;
      dq[0][i][1] = v.y;
      dq[0][i][2] = v.z;
      dq[0][i][3] = v.w;
    }
  }
  const int32_t column = kTile.rows == 128 ? 0 : 64 * half;
  const int32_t mine = first + warp_row + (kTile.rows == 128 ? 64 * half : 0);
  const StoredRows<T> out{row_of_head<T>(a.dq, p.dq, s.b, h, int64_t(s.q_first) + mine) + column, p.dq.row,
                          existing - mine, s.q_length - mine, p.head_size - column};
  store_rows<T, SharedTile<T, 128, 64>>(dq, float(a.scale), cvta_to_shared(dynamic_shared()), 64 * half + warp_row, 0,
                                        out);
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
