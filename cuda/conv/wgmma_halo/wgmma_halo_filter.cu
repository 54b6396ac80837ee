// SPDX-License-Identifier: Apache-2.0
// Computes partial sums of dw for convolutions of large images with few channels, by tensor cores (sm_90a). Lines (64
// neighbouring pixels of a row) of x and dy are in shared memory; wgmma_halo.cu explains their layout.
#include "cuda/conv/wgmma_halo/halo_ring.cuh"
#include "cuda/device/ptx/cluster.cuh"
#include "cuda/device/ptx/named_barrier.cuh"

namespace minidnn {

// Adds the sums of the two blocks of a cluster through shared memory. Each block keeps one half of the results, and
// leaves them in the first half of `sums`. `to` (generic) and start + offset (shared) are the address of the thread's
// first four floats; the next four are `pitch` bytes further.
template <int n>
__device__ __forceinline__ void exchange_halves(char* to, uint32_t start, uint32_t offset, uint32_t pitch,
                                                uint32_t rank, float (&sums)[n]) {
  constexpr int kKept = n / 2;
#pragma unroll
  for (int i = 0; i < kKept; i += 4) {
    float v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      v[j] = rank ? sums[i + j] : sums[kKept + i + j];
      if (rank) sums[i + j] = sums[kKept + i + j];
    }
    *reinterpret_cast<float4*>(to + i / 4 * pitch) = make_float4(v[0], v[1], v[2], v[3]);
  }
  cluster_sync();
#pragma unroll
  for (int i = 0; i < kKept; i += 4) {
    float v[4];
    ld_cluster<4>(v, start + offset + i / 4 * pitch, rank ^ 1);
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[i + j] += v[j];
  }
  cluster_sync();
}

// Multiplies `count` lines of dy by lines of x, and releases their buffers. `any` says whether `sums` already contains
// products, which must not be overwritten.
template <class T, int kColumns>
__device__ __forceinline__ void multiply_lines(HaloRing& x, HaloRing& dy, int count, uint32_t columns, bool& any,
                                               float (&sums)[kColumns * 32]) {
  const int lane = int(threadIdx.x) % 32;
  auto release = [&](uint32_t barrier) {
    if (lane == 0) mbarrier_arrive(barrier);
  };
  uint32_t x_before = 0, dy_before = 0;
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    x.wait_full();
    dy.wait_full();
    const uint64_t a = halo_matrix(dy.slot(), 64 * 128), b = halo_matrix(x.slot(), columns);
    warpgroup_fence_operand(sums);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s)  // 16 pixels per iteration
      Wgmma<T, kColumns * 64>::template run<true, true>(sums, a + s * (2048 >> 4), b + s * (2048 >> 4), any || s > 0);
    wgmma_commit_group();
    any = true;
    if (i > 0) {
      wgmma_wait_group<1>();
      release(x_before);
      release(dy_before);
    }
    x_before = x.empty();
    dy_before = dy.empty();
    x.next();
    dy.next();
  }
  wgmma_wait_group<0>();
  release(x_before);
  release(dy_before);
}

// The elements of dw of a warpgroup: row `line` of the window, from this filter, channel and column on.
struct FilterTile {
  int filter, channel, line, column;
};
// Stores the first kKept sums of each thread to a partial sum of dw.
template <int kKept, int kBlocks, int n>
__device__ __forceinline__ void store_filter(const WgmmaHaloFilterParams& p, float* partial_sums, uint32_t rank,
                                             const float (&sums)[n], const FilterTile& tile) {
  const int lane = int(threadIdx.x) % 32;
  const int row = tile.filter + int(threadIdx.x) / 32 % 4 * 16 + lane / 4, taps = p.window_lines * p.window_columns;
  float* const to = partial_sums + blockIdx.x / kBlocks * p.partial_sum_stride +
                    (int64_t(row) * taps + tile.line * p.window_columns + tile.column) * p.channels;
#pragma unroll
  for (int j = 0; j < kKept / 4; ++j) {
    const int eight = j + int(rank) * kKept / 4, column = eight / 8, c = tile.channel + eight % 8 * 8 + lane % 4 * 2;
    if (tile.column + column >= p.window_columns || c >= p.channels) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (row + 8 * half < p.filters)
        *reinterpret_cast<float2*>(to + (int64_t(8 * half) * taps + column) * p.channels + c) =
            make_float2(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
  }
}

// Computes partial sums of dw for a tile of 64 filters and 64 channels. Grid: the lines (64 positions of a row),
// divided evenly among blocks, x tiles of dw. Cluster: kBlocks blocks, 1 or 2. Block: 512 threads. Warpgroup 0 issues
// the TMA loads. Each of the warpgroups 1 to 3 computes one row of the window. wgmma: M = 64 filters, N = kColumns
// columns of the window x 64 channels, K = positions. Adjacent columns of the window read the same tile of x, starting
// at another position. Each cluster writes one partial sum; cuda/gemm/epilogue/split_k.cu adds the partial sums in a
// fixed order. Known limit: past the end of a row, dy is zero. If x is an infinity there, dw becomes NaN.
template <class T, int kColumns, int kBlocks>
__global__ void __launch_bounds__(512, 1)
    conv_wgmma_halo_filter(const __grid_constant__ WgmmaHaloFilterParams p, float* partial_sums) {
  extern __shared__ char shared[];
  __shared__ uint64_t barriers[4 * kHaloSlots];
  const uint32_t start = (cvta_to_shared(shared) + 1023) & ~1023u;
  HaloRing x{start, uint32_t(p.x_pitch), cvta_to_shared(barriers), p.x_slots};
  HaloRing dy{start + uint32_t(p.x_slots * p.x_pitch), 64 * 128, x.barriers + 16 * kHaloSlots, p.dy_slots};

  uint32_t job = blockIdx.y;
  const int channel = p.channel_tiles.divmod(job) * 64, first_column = p.column_groups.divmod(job) * kColumns;
  const int first_line = p.line_groups.divmod(job) * p.lines_each, filter = int(job) * 64;
  const int lines = min_of(p.lines_each, p.window_lines - first_line);
  const int group = __shfl_sync(0xffffffff, int(threadIdx.x) / 128, 0);
  const int first = int(int64_t(p.lines.count) * blockIdx.x / gridDim.x),
            last = int(int64_t(p.lines.count) * (blockIdx.x + 1) / gridDim.x);
  const int reach = (lines - 1) * p.lines.line_step;  // n adjacent rows of dy need n + reach rows of x

  if (threadIdx.x == 0) {
    for (int i = 0; i < kHaloSlots; ++i) {
      mbarrier_init(x.barriers + 8 * i, 1);
      mbarrier_init(x.barriers + 8 * (kHaloSlots + i), 4 * lines);
      mbarrier_init(dy.barriers + 8 * i, 1);
      mbarrier_init(dy.barriers + 8 * (kHaloSlots + i), 4 * lines);
    }
    fence_mbarrier_init();
    prefetch_tensormap(&p.x);
    prefetch_tensormap(&p.dy);
  }
  __syncthreads();
  griddep_wait();

  auto together = [] {
    if constexpr (kBlocks > 1) cluster_sync();
  };
  if (group == 0) {
    setmaxnreg_dec<40>();
    for (int at = threadIdx.x > 0 ? last : first; at < last;) {
      const LineSpan span(p.lines, at, last);
      const int x_line = p.lines.first_line + first_line * p.lines.line_step + span.line;
      const int x_column = p.lines.first_column + first_column * p.lines.column_step + span.segment * 64;
#pragma unroll 1
      for (int i = 0; i < span.count + reach; ++i) {
        x.wait_empty();
        mbarrier_arrive_expect_tx(x.full(), uint32_t(p.x_bytes));
        tma_load(x.slot(), &p.x, x.full(), 0, {channel, x_column, x_line + i, span.image, 0});
        x.next();
        if (i < reach) continue;
        dy.wait_empty();
        mbarrier_arrive_expect_tx(dy.full(), 64 * 128);
        tma_load(dy.slot(), &p.dy, dy.full(), 0, {filter, span.segment * 64, span.line + i - reach, span.image, 0});
        dy.next();
      }
      at += span.count;
    }
    griddep_launch_dependents();
    __syncwarp();
    together();
    together();
    return;
  }
  const int own_line = group - 1;  // this warpgroup's row of the window
  if (own_line >= lines) {
    together();
    together();
    return;
  }
  setmaxnreg_inc<152>();
  const int lane = int(threadIdx.x) % 32;
  auto release = [&](uint32_t barrier) {
    if (lane == 0) mbarrier_arrive(barrier);
  };
  auto skip = [&](int count) {  // releases `count` rows of x that only other warpgroups read
#pragma unroll 1
    for (int i = 0; i < count; ++i, x.next()) {
      x.wait_full();
      release(x.empty());
    }
  };
  const uint32_t columns = uint32_t(p.lines.column_step) * 128;
  float sums[kColumns * 32];
  bool any = false;
  for (int at = first; at < last;) {
    const LineSpan span(p.lines, at, last);
    skip(own_line * p.lines.line_step);
    multiply_lines<T, kColumns>(x, dy, span.count, columns, any, sums);
    skip(reach - own_line * p.lines.line_step);
    at += span.count;
  }
  warpgroup_fence_operand(sums);

  // The sums reuse the shared memory of x and dy.
  constexpr int kKept = kColumns * 32 / kBlocks;
  const uint32_t rank = kBlocks > 1 ? cluster_ctarank() : 0;
  if constexpr (kBlocks > 1) {
    named_barrier_sync(1, lines * 128);
    const uint32_t pitch = uint32_t(lines) * 2048, offset = (threadIdx.x - 128) * 16;
    exchange_halves(shared + (start - cvta_to_shared(shared)) + offset, start, offset, pitch, rank, sums);
  }

  store_filter<kKept, kBlocks>(p, partial_sums, rank, sums, {filter, channel, first_line + own_line, first_column});
}

}  // namespace minidnn
