// SPDX-License-Identifier: Apache-2.0
// cuda.attention.wgmma: attention forward with TMA and wgmma (sm_90a), for float16 and bfloat16. The scheme is that of
// FlashAttention-3 (Shah 2024).
// Grid: persistent blocks. TileScheduler lists the tiles of a block.
// Block: a producer warpgroup, of which one thread loads tiles by TMA, and consumer warpgroups with 64 rows each. A
// consumer keeps the sums of its rows in registers. It starts the products q k^T of a tile of columns before p v of the
// tile before, and computes the softmax of the former during the latter.
// Shared memory: one or two tiles of q, and rings of tiles of k and of v.
// Bytes: each tile reads k and v of its columns, mostly from the L2.
// Numerics: scores, sums and exponentials are float32. Probabilities are rounded to T before they are multiplied by v.
#include "cuda/attention/softmax.cuh"
#include "cuda/attention/wgmma_params.h"
#include "cuda/device/pipeline_state.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/device/ptx/setmaxnreg.cuh"
#include "cuda/device/ptx/tma.cuh"
#include "cuda/device/ptx/wgmma.cuh"
#include "cuda/device/tile_scheduler.cuh"

namespace minidnn {
namespace {

// What a block computes: rows `first` on of a head of a sequence, and the tiles of columns begin <= n < end.
struct WgmmaWork {
  SequenceRows sequence;
  int32_t head, first;
  IndexRange tiles;

  // Packed sequences that are short have fewer tiles of rows than others.
  __device__ __forceinline__ bool exists(const AttentionWgmmaParams& p) const {
    return !p.scores.packed || first < sequence.q_length;
  }
};

// Iterates over the tiles of a block.
struct WgmmaTiles {
  const AttentionWgmmaParams& p;
  TileScheduler units;
  int second = 0;  // whether this is the second tile of a pair

  __device__ __forceinline__ explicit WgmmaTiles(const AttentionWgmmaParams& params)
      : p(params), units(int(blockIdx.x), int(gridDim.x)) {}
  __device__ __forceinline__ bool is_valid() const { return units.index < p.units; }
  __device__ __forceinline__ WgmmaWork work(const AttentionArgs& a, const WgmmaTile& tile) const {
    WgmmaWork w;
    uint32_t b = uint32_t(units.index);
    const int32_t n = p.head_units.divmod(b);
    w.head = p.heads.divmod(b);
    w.first = (second ? n : p.blocks - 1 - n) * tile.rows();
    w.sequence = sequence_rows(p.scores, a, int32_t(b));
    const IndexRange seen = columns_of_any(p.scores, w.sequence, {w.first, w.first + tile.rows()});
    w.tiles = {seen.begin / tile.columns, (seen.end + tile.columns - 1) / tile.columns};
    return w;
  }
  // `w` is the work of this tile.
  __device__ __forceinline__ void advance(const WgmmaWork& w, const WgmmaTile& tile) {
    second = p.has_pairs && !second && 2 * w.first > (p.blocks - 1) * tile.rows();
    if (!second) units.advance();
  }
};

// Shared memory: `full` barriers say that TMA has loaded a tile, `empty` barriers that all consumers have read it.
template <WgmmaTile kTile> struct WgmmaMemory {
  static constexpr int kStages = kTile.stages, kQStages = kTile.q_stages, kBarriers = 2 * kQStages + 4 * kStages;
  char* data;
  uint32_t first_q, first_k, first_v, barriers;

  __device__ __forceinline__ WgmmaMemory(char* shared, uint64_t (&memory)[kBarriers]) {
    first_q = (cvta_to_shared(shared) + 1023) & ~1023u;
    data = shared + (first_q - cvta_to_shared(shared));
    first_k = first_q + kQStages * kTile.q_bytes();
    first_v = first_k + kStages * kTile.k_bytes();
    barriers = cvta_to_shared(memory);
  }
  // Only one thread of a block calls this function.
  __device__ __forceinline__ void init_barriers() const {
    constexpr int kWarps = 4 * kTile.warpgroups;
    for (int i = 0; i < kBarriers; ++i) mbarrier_init(barriers + 8 * i, i % 2 == 0 ? 1 : kWarps);
    fence_mbarrier_init();
  }
  __device__ __forceinline__ uint32_t q_full(int stage) const { return barriers + 16 * stage; }
  __device__ __forceinline__ uint32_t q_empty(int stage) const { return q_full(stage) + 8; }
  __device__ __forceinline__ uint32_t k_full(int stage) const { return barriers + 16 * kQStages + 32 * stage; }
  __device__ __forceinline__ uint32_t k_empty(int stage) const { return k_full(stage) + 8; }
  __device__ __forceinline__ uint32_t v_full(int stage) const { return k_full(stage) + 16; }
  __device__ __forceinline__ uint32_t v_empty(int stage) const { return k_full(stage) + 24; }
  __device__ __forceinline__ uint32_t q(int stage) const { return first_q + stage * kTile.q_bytes(); }
  __device__ __forceinline__ uint32_t k(int stage) const { return first_k + stage * kTile.k_bytes(); }
  __device__ __forceinline__ uint32_t v(int stage) const { return first_v + stage * kTile.v_bytes(); }
};

// A warp tells the producer that it has read a tile.
__device__ __forceinline__ void wgmma_release(uint32_t barrier) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(barrier);
}

// Loads the tiles of all work of the block. One thread calls this function.
template <WgmmaTile kTile>
__device__ __forceinline__ void wgmma_load(const AttentionWgmmaParams& p, const AttentionArgs& a,
                                           const WgmmaMemory<kTile>& memory, WgmmaTiles tiles) {
  PipelineState<kTile.q_stages> q_at;
  PipelineState<kTile.stages> k_at, v_at;
  auto load = [](uint32_t to, const TensorMap& map, uint32_t barrier, int boxes, int rows, const int(&at)[3],
                 CachePolicy policy) {
    mbarrier_arrive_expect_tx(barrier, uint32_t(boxes * rows * 128));
    for (int i = 0; i < boxes; ++i)
      tma_load(to + uint32_t(i * rows * 128), &map, barrier, 0, {64 * i, at[0], at[1], at[2], 0}, policy);
  };
#pragma unroll 1
  for (WgmmaWork w; tiles.is_valid(); tiles.advance(w, kTile)) {
    w = tiles.work(a, kTile);
    if (!w.exists(p)) continue;
    const SequenceRows& s = w.sequence;
    const int32_t b = p.scores.packed ? 0 : s.b, kv_head = int32_t(p.scores.group.quotient(uint32_t(w.head)));
    mbarrier_wait_parity(memory.q_empty(q_at.stage), q_at.parity ^ 1);
    load(memory.q(q_at.stage), p.q, memory.q_full(q_at.stage), kTile.k_boxes(), kTile.rows(),
         {s.q_first + w.first, w.head, b}, CachePolicy::evict_first);
    q_at.advance();
    auto load_k = [&](int32_t n) {
      mbarrier_wait_parity(memory.k_empty(k_at.stage), k_at.parity ^ 1);
      load(memory.k(k_at.stage), p.k, memory.k_full(k_at.stage), kTile.k_boxes(), kTile.columns,
           {s.kv_first + n * kTile.columns, kv_head, b}, CachePolicy::normal);
      k_at.advance();
    };
    if (w.tiles.begin < w.tiles.end) load_k(w.tiles.end - 1);
#pragma unroll 1
    for (int32_t n = w.tiles.end - 1; n >= w.tiles.begin; --n) {
      if (n > w.tiles.begin) load_k(n - 1);
      mbarrier_wait_parity(memory.v_empty(v_at.stage), v_at.parity ^ 1);
      load(memory.v(v_at.stage), p.v, memory.v_full(v_at.stage), kTile.v_boxes(), kTile.columns,
           {s.kv_first + n * kTile.columns, kv_head, b}, CachePolicy::normal);
      v_at.advance();
    }
  }
}

// Named barriers: kTurn + i lets warpgroup i start its products, kOwn + i is for the warps of warpgroup i.
enum WgmmaBarrier { kTurn = 1, kOwn = 4 };

// The scores and sums of a consumer warpgroup.
template <class T, WgmmaTile kTile> struct WgmmaConsumer {
  static constexpr int kScores = kTile.columns / 8, kValues = kTile.value / 8, kSteps = kTile.columns / 16;
  static constexpr int kQBox = kTile.rows() * 128, kColumnBox = kTile.columns * 128;
  static_assert(kTile.columns % 16 == 0 && kTile.head % 16 == 0 && kTile.value % 16 == 0);
  static_assert(kTile.value % 32 == 0, "store() exchanges words of four fragments");

  const WgmmaMemory<kTile>& memory;
  int warpgroup;
  float s[kScores][4], o[kValues][4];
  uint32_t p[kSteps][4] = {};
  PipelineState<kTile.q_stages> q_at;
  PipelineState<kTile.stages> k_at, v_at;
  // Whether there are exponentials that are still to be multiplied by v, and whether these are the first ones of a tile.
  // Before the first tile of a block, products of any numbers take the place of those of the previous tile. Without a
  // branch around them, the compiler does not wait for each wgmma.
  bool has_exponentials = false, first = true;

  __device__ __forceinline__ WgmmaConsumer(const WgmmaMemory<kTile>& shared, int group)
      : memory(shared), warpgroup(group) {}

  __device__ __forceinline__ static int warp() { return int(threadIdx.x) / 32 % 4; }
  __device__ __forceinline__ static int lane() { return int(threadIdx.x) % 32; }
  // The row of the tile of an element of half h.
  __device__ __forceinline__ int row_of(int h) const { return 64 * warpgroup + 16 * warp() + 8 * h + lane() / 4; }
  __device__ __forceinline__ static int column_of_lane() { return 2 * (lane() % 4); }
  __device__ __forceinline__ float (&flat_s())[4 * kScores] { return reinterpret_cast<float(&)[4 * kScores]>(s); }
  __device__ __forceinline__ float (&flat_o())[4 * kValues] { return reinterpret_cast<float(&)[4 * kValues]>(o); }

  // Starts s = q k^T for the tiles of q and k at two addresses.
  __device__ __forceinline__ void multiply_k(uint32_t q, uint32_t k) {
    const uint64_t from_q = make_smem_descriptor<true>(q + uint32_t(warpgroup) * (64 * 128), 16, 1024);
    const uint64_t from_k = make_smem_descriptor<true>(k, 16, 1024);
    warpgroup_fence_operand(flat_s());
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kTile.head / 16; ++step)
      Wgmma<T, kTile.columns>::template run<false, false>(flat_s(), from_q + (step / 4 * kQBox + step % 4 * 32 >> 4),
                                                          from_k + (step / 4 * kColumnBox + step % 4 * 32 >> 4),
                                                          step > 0);
    wgmma_commit_group();
  }
  // Starts o += p v, or o = p v if this is the first tile, for the tile of v at an address.
  __device__ __forceinline__ void multiply_v(uint32_t v, bool first) {
    const uint64_t from_v = make_smem_descriptor<true>(v, kColumnBox, 1024);
    warpgroup_fence_operand(flat_o());
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
      Wgmma<T, kTile.value>::template run<true>(flat_o(), p[step], from_v + (step * 16 * 128 >> 4), step > 0 || !first);
    wgmma_commit_group();
  }
  // Rounds the exponentials to the operand of p v.
  __device__ __forceinline__ void round_scores() {
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const pair = s[2 * step + i / 2] + 2 * (i % 2);
        p[step][i] = cvt_rn_x2(T(), pair[0], pair[1]);
      }
  }
  __device__ __forceinline__ void shrink_sums(const float (&shrink)[2]) {
#pragma unroll
    for (int j = 0; j < kValues; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) o[j][e] *= shrink[e / 2];
  }
  // Replaces rows `from` on of the next tile of v by zeros. Their probabilities are 0, but they may hold NaN. All consumers do
  // the same, so that they need not wait for each other.
  __device__ __forceinline__ void clear_v(int from) const {
    mbarrier_wait_parity(memory.v_full(v_at.stage), v_at.parity);
    char* const first_row = memory.data + (memory.v(v_at.stage) - memory.first_q) + from * 128;
    const int chunks = (kTile.columns - from) * 8;
#pragma unroll 1
    for (int box = 0; box < kTile.v_boxes(); ++box)
#pragma unroll 1
      for (int i = int(threadIdx.x) % 128; i < chunks; i += 128)
        *reinterpret_cast<uint4*>(first_row + box * kColumnBox + i * 16) = {0, 0, 0, 0};
    fence_proxy_async();
    named_barrier_sync(kOwn + warpgroup, 128);
  }

  // Starts the products of the exponentials with the next tile of v.
  __device__ __forceinline__ void start_v() {
    if (has_exponentials) mbarrier_wait_parity(memory.v_full(v_at.stage), v_at.parity);
    multiply_v(has_exponentials ? memory.v(v_at.stage) : memory.q(q_at.stage), first);
  }
  __device__ __forceinline__ void finish_v() {
    wgmma_wait_group<0>();
    warpgroup_fence_operand(flat_o());
    if (!has_exponentials) return;
    wgmma_release(memory.v_empty(v_at.stage));
    v_at.advance();
  }
  // Multiplies q by the next tile of k, and starts the products of the exponentials.
  __device__ __forceinline__ void multiply() {
    mbarrier_wait_parity(memory.k_full(k_at.stage), k_at.parity);
    if constexpr (kTile.turns) named_barrier_sync(kTurn + warpgroup, 256);
    multiply_k(memory.q(q_at.stage), memory.k(k_at.stage));
    start_v();
    if constexpr (kTile.turns) named_barrier_arrive(kTurn + (warpgroup + 1) % kTile.warpgroups, 256);
    wgmma_wait_group<1>();
    warpgroup_fence_operand(flat_s());
    wgmma_release(memory.k_empty(k_at.stage));
    k_at.advance();
  }
  __device__ __forceinline__ void release_q() {
    wgmma_release(memory.q_empty(q_at.stage));
    q_at.advance();
  }

  // Stores o and lse of rows of the tile. `m_scale` times the reference of a row is in natural units. Without kSums, o is
  // 0.
  template <bool kSums>
  __device__ __forceinline__ void store(const AttentionWgmmaParams& params, const AttentionArgs& a, const WgmmaWork& w,
                                        SoftmaxRows rows, float m_scale) const {
    const AttentionScoreParams& scores = params.scores;
    const SequenceRows& sequence = w.sequence;
    const int32_t count = (scores.packed ? sequence.q_length : scores.q_size) - w.first;
    const int64_t lse_row = lse_row_of(scores, sequence, w.head) + w.first;
    T* const to = static_cast<T*>(a.o) + (scores.packed ? 0 : sequence.b * params.o.batch) + w.head * params.o.head +
                  (sequence.q_first + w.first) * params.o.row;
    rows.finish(m_scale);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = row_of(h);
      const RowEnd end = row_end(scores, a, w.head, w.first + r < sequence.q_length, rows.largest[h], rows.sum[h]);
      if (lane() % 4 == 0 && r < count) static_cast<float*>(a.lse)[lse_row + r] = end.lse;
#pragma unroll
      for (int j = 0; j < kValues; j += 4) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[i] = kSums ? cvt_rn_x2(T(), end.of(o[j + i][2 * h]), end.of(o[j + i][2 * h + 1])) : 0;
        exchange_four(words);
        const int32_t column = 8 * (j + lane() % 4);
        if (r < count && column < params.value_size)
          st_global_v4(to + r * params.o.row + column, {words[0], words[1], words[2], words[3]});
      }
    }
  }
};

// The scores of a tile of rows, in a consumer warpgroup.
template <class T, WgmmaTile kTile> struct WgmmaScores {
  static constexpr int kFragments = WgmmaConsumer<T, kTile>::kScores;
  static constexpr bool kNatural = kTile.options != 0;  // whether scores are in natural units
  using Options = ScoreOptions<T, kFragments, kTile.options>;
  const AttentionWgmmaParams& p;
  const AttentionArgs& a;
  SequenceRows sequence;
  IndexRange seen[2], all;  // columns that the two rows of this lane see, and that all rows of the warpgroup see
  Options options;          // the compiler drops it where it is not used
  SoftmaxRows rows;
  float shrink[2];

  __device__ __forceinline__ WgmmaScores(const AttentionWgmmaParams& params, const AttentionArgs& args,
                                         const WgmmaWork& w, const WgmmaConsumer<T, kTile>& c)
      : p(params),
        a(args),
        sequence(w.sequence),
        seen{columns_seen(p.scores, sequence, w.first + c.row_of(0)),
             columns_seen(p.scores, sequence, w.first + c.row_of(1))},
        all(columns_of_all(p.scores, sequence, {w.first + 64 * c.warpgroup, w.first + 64 * c.warpgroup + 64})),
        options(p.scores, a, sequence, {w.head, w.head}, {w.first + c.row_of(0), w.first + c.row_of(1)}) {}

  // Begins to load the bias of tile n of the columns.
  __device__ __forceinline__ auto bias(int32_t n) const {
    if constexpr (kTile.options & kBias)
      return typename Options::Bias(p.scores, a, options.rows, column_of_lane(n), sequence.kv_length);
    else return 0;
  }
  // Finishes the scores of tile n, and replaces them by exponentials. Returns whether sums are to be multiplied by
  // `shrink`.
  template <class Bias>
  __device__ __forceinline__ bool finish(int32_t n, const Bias& bias, float factor, float (&s)[kFragments][4]) {
    const int32_t column = n * kTile.columns;
    if constexpr (kNatural) options.finish_scores(p.scores, a, bias, column_of_lane(n), s);
    if (column < all.begin || column + kTile.columns > all.end)
#pragma unroll
      for (int h = 0; h < 2; ++h) hide_columns(s, h, seen[h], column_of_lane(n));
    const bool grown = exponentials<kNatural>(s, factor, rows, shrink);
    if constexpr (kNatural) options.drop(p.scores, a, column_of_lane(n), s);
    return grown;
  }

 private:
  __device__ __forceinline__ static int32_t column_of_lane(int32_t n) {
    return n * kTile.columns + WgmmaConsumer<T, kTile>::column_of_lane();
  }
};

// Computes all tiles of a block with one consumer warpgroup. The last products of a tile overlap the first softmax of the
// next one.
template <class T, WgmmaTile kTile>
__device__ __forceinline__ void wgmma_compute(const AttentionWgmmaParams& p, const AttentionArgs& a,
                                              const WgmmaMemory<kTile>& memory, WgmmaTiles tiles, int warpgroup) {
  WgmmaConsumer<T, kTile> c(memory, warpgroup);
  const float m_scale = kTile.options ? 1.0f : float(a.scale), factor = m_scale * fast::kLog2E;
  if (kTile.turns && warpgroup == kTile.warpgroups - 1) named_barrier_arrive(kTurn, 256);
  WgmmaWork previous;  // the tile of the exponentials that are still to be multiplied
  SoftmaxRows previous_rows;

#pragma unroll 1
  for (WgmmaWork w; tiles.is_valid(); tiles.advance(w, kTile)) {
    w = tiles.work(a, kTile);
    const SequenceRows& s = w.sequence;
    if (p.scores.packed && w.first == 0)
      clear_gaps<T>(p.scores, a, p.o, p.value_size, s, {w.head, w.head + 1}, int32_t(threadIdx.x) - 128,
                    128 * kTile.warpgroups);
    if (!w.exists(p)) continue;
    mbarrier_wait_parity(memory.q_full(c.q_at.stage), c.q_at.parity);
    if (w.tiles.begin >= w.tiles.end) {
      c.release_q();
      c.template store<false>(p, a, w, SoftmaxRows(), m_scale);
      continue;
    }
    WgmmaScores<T, kTile> scores(p, a, w, c);
    int32_t n = w.tiles.end - 1;
    {
      const auto bias = scores.bias(n);
      c.multiply();
      if (n == w.tiles.begin) c.release_q();
      scores.finish(n, bias, factor, c.s);
    }
    c.finish_v();
    if (c.has_exponentials) c.template store<true>(p, a, previous, previous_rows, m_scale);
    c.round_scores();
    c.has_exponentials = c.first = true;
    // Only this tile can contain the end of the sequence. TMA has loaded zeros for rows outside of the tensor.
    const int32_t length = s.kv_length - n * kTile.columns;
    if (length < kTile.columns && s.kv_first + s.kv_length < p.scores.kv_rows) c.clear_v(length);
#pragma unroll 1
    for (--n; n >= w.tiles.begin; --n) {
      const auto bias = scores.bias(n);
      c.multiply();
      if (n == w.tiles.begin) c.release_q();
      const bool grown = scores.finish(n, bias, factor, c.s);
      c.finish_v();
      if (grown) c.shrink_sums(scores.shrink);
      c.round_scores();
      c.first = false;
    }
    previous = w;
    previous_rows = scores.rows;
  }
  c.start_v();
  c.finish_v();
  if (c.has_exponentials) c.template store<true>(p, a, previous, previous_rows, m_scale);
}

}  // namespace

template <class T, WgmmaTile kTile>
__global__ void __launch_bounds__(kTile.threads(), 1)
    attention_wgmma(const __grid_constant__ AttentionWgmmaParams p, const __grid_constant__ AttentionArgs a) {
  static_assert(kTile.warpgroups == 2 || kTile.warpgroups == 3);
  extern __shared__ char shared[];
  __shared__ uint64_t barriers[WgmmaMemory<kTile>::kBarriers];
  const WgmmaMemory<kTile> memory(shared, barriers);
  const int group = __shfl_sync(0xffffffff, int(threadIdx.x) / 128, 0);
  if (threadIdx.x == 0) {
    memory.init_barriers();
    for (const TensorMap* map : {&p.q, &p.k, &p.v}) prefetch_tensormap(map);
  }
  __syncthreads();
  griddep_wait();
  const WgmmaTiles tiles(p);
  if (group == 0) {
    setmaxnreg_dec<24>();
    if (threadIdx.x == 0) {
      wgmma_load<kTile>(p, a, memory, tiles);
      griddep_launch_dependents();
    }
  } else {
    setmaxnreg_inc<kTile.warpgroups == 3 ? 160 : 240>();
    wgmma_compute<T, kTile>(p, a, memory, tiles, group - 1);
  }
}

}  // namespace minidnn
