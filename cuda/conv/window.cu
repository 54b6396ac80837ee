// SPDX-License-Identifier: Apache-2.0
// Convolutions over large images with few channels on tensor cores (sm_90a): conv_window computes y or dx,
// conv_window_filter partial sums of dw. TMA loads each pixel into shared memory once, and all taps of the window read
// it there. The 64 channels of a pixel (16 bits each) are one row of a 128-byte swizzle. The operand of the next tap is
// the same tile starting one row later: the swizzle depends on addresses only, so a wgmma matrix may start at any row.
//
// Counted for 64 channels, 64 filters, a 3 x 3 window and a line of 64 positions, for which tensor cores need 1152
// clocks: an implicit GEMM (cuda/gemm/sm90/kernel.cuh) loads 9 x 16 KB from L2 in 2500 clocks; this kernel loads 16.5 KB in
// 280 clocks. Measured over 512 x 512 (docs/notes/conv.md): y takes 114 us, the implicit GEMM 195 us, memory
// traffic alone about 95 us.
#include "cpp/core/half.h"
#include "cuda/conv/window.h"
#include "cuda/device/ptx/cluster.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/device/ptx/math.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/device/ptx/setmaxnreg.cuh"
#include "cuda/device/ptx/tma.cuh"
#include "cuda/device/ptx/wgmma.cuh"
#include "cuda/gemm/epilogue/epilogue.cuh"

namespace minidnn {

// A ring of slots in shared memory, with the current position of one side (producer or consumer). The kWindowSlots
// `full` barriers are stored first, then the `empty` ones.
struct WindowRing {
  uint32_t slots, pitch, barriers;
  int count, at = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ uint32_t slot() const { return slots + uint32_t(at) * pitch; }
  __device__ __forceinline__ uint32_t full() const { return barriers + 8 * uint32_t(at); }
  __device__ __forceinline__ uint32_t empty() const { return full() + 8 * kWindowSlots; }
  __device__ __forceinline__ void wait_full() const { mbarrier_wait_parity(full(), parity); }
  __device__ __forceinline__ void wait_empty() const { mbarrier_wait_parity(empty(), parity ^ 1); }
  __device__ __forceinline__ void next() {
    if (++at == count) at = 0, parity ^= 1;
  }
  __device__ __forceinline__ void skip(int slots) {  // fewer than `count`
    at += slots;
    if (at >= count) at -= count, parity ^= 1;
  }
};

// Descriptor of a matrix of 128-byte rows that may start at any row. Submatrices of 64 columns are `columns` bytes
// apart.
__device__ __forceinline__ uint64_t window_matrix(uint32_t address, uint32_t columns) {
  return make_smem_descriptor<true>(address, columns, 1024);
}

// A contiguous span of lines, one below the other, in one segment (column of lines) of an image.
struct WindowWalk {
  int image, segment, line, count;

  // The longest span that starts at line `at` and ends before `last`.
  __device__ WindowWalk(const WindowLines& w, int at, int last) {
    const uint32_t column = w.lines.quotient(uint32_t(at));
    line = at - int(column * w.lines.divisor);
    count = min_of(int(w.lines.divisor) - line, last - at);
    image = int(w.segments.quotient(column)), segment = int(column - uint32_t(image) * w.segments.divisor);
  }
};

// Epilogue: stores activation(sum + bias + c) to y; c may be the same memory as y. A lane holds the sums of filters
// lane / 4 and lane / 4 + 8, at two neighbouring positions of every eight. kStore = lines: positions are contiguous in
// y and c, in groups of four that exist or not as a whole. kStore = turned: the same holds for filters. In both cases
// neighbouring lanes exchange 16-bit results (transposed for `turned`). Then each lane has four contiguous results, and
// four lanes write a sector of 32 bytes.
template <class T, class Y, int kPositions, Activation kActivation, bool kBias, bool kC, GemmStore kStore>
__device__ __forceinline__ void window_store(const WindowProduct& p, const GemmArgs& args, const WindowWalk& walk,
                                             int line, int filter, float (&sums)[kPositions / 2]) {
  const int lane = int(threadIdx.x) % 32, row = filter + lane / 4, column = walk.segment * kPositions;
  float bias[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (kBias && row + 8 * r < p.rows) bias[r] = float(static_cast<const T*>(args.bias)[(row + 8 * r) * p.bias_stride]);
  const auto ended = [&](float sum, int r, float residual) {
    if constexpr (kBias) sum += bias[r];
    if constexpr (kC) sum += residual;
    return activate<kActivation>(sum, args.activation_alpha);
  };
  const auto at = [&](const WindowProduct::Strides& s, int first_row, int first_column) {
    return walk.image * s.image + line * s.line + first_column * s.column + first_row * s.row;
  };
  const auto place = [&](int first_row, int first_column) {
    return static_cast<Y*>(args.y) + at(p.y, first_row, first_column);
  };
  const auto place_of_c = [&](int first_row, int first_column) {
    return kC ? static_cast<const Y*>(args.c) + at(p.c, first_row, first_column) : nullptr;
  };
  if constexpr (kStore == GemmStore::any) {
    const int first = column + lane % 4 * 2;
    Y* const y = place(row, first);
    const Y* const c = place_of_c(row, first);
#pragma unroll
    // r: which of the lane's two filters the sum belongs to; q: its position
    for (int i = 0; i < kPositions / 2; ++i) {
      const int r = i / 2 % 2, q = i / 4 * 8 + i % 2;
      if (row + 8 * r >= p.rows || first + q >= p.positions) continue;
      y[8 * r * p.y.row + q * p.y.column] = Y(ended(sums[i], r, kC ? float(c[8 * r * p.c.row + q * p.c.column]) : 0));
    }
  } else {
    constexpr bool kTurned = kStore == GemmStore::transposed;
    // Stores four results: the two sums from index i and the two from `next`, after an exchange with the neighbouring
    // lane. The sums at i belong to filter r; those at `next` belong to filter r too, or (turned) to the other filter.
    const auto store = [&](Y* y, const Y* c, bool exists, int i, int next, int r) {
      uint32_t words[2] = {};
      if constexpr (kC) {
        uint2 four = {0, 0};
        if (exists) four = *reinterpret_cast<const uint2*>(c);
        four = exchange_pair(four.x, four.y);  // back to the lane that holds the sums
        words[0] = kTurned ? movmatrix_trans(four.x) : four.x, words[1] = kTurned ? movmatrix_trans(four.y) : four.y;
      }
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        float v[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          Y residual;
          residual.bits = uint16_t(words[w] >> 16 * j);
          v[j] = ended(sums[(w ? next : i) + j], kTurned ? w : r, float(residual));
        }
        words[w] = cvt_rn_x2(Y(), v[0], v[1]);
        if constexpr (kTurned) words[w] = movmatrix_trans(words[w]);
      }
      const uint2 four = exchange_pair(words[0], words[1]);
      if (exists) *reinterpret_cast<uint2*>(y) = four;
    };
    if constexpr (kTurned) {
      const int four = filter + (lane % 2 ? 8 : 0) + lane % 4 / 2 * 4, first = column + lane / 4;
      const int left = four < p.rows ? p.positions - first : 0;
      Y* y = place(four, first);
      const Y* c = place_of_c(four, first);
#pragma unroll
      for (int j = 0; j < kPositions / 8; ++j, y += 8 * p.y.column, c += kC ? 8 * p.c.column : 0)
        store(y, c, 8 * j < left, 4 * j, 4 * j + 2, 0);
    } else {
      const int first = column + lane % 4 * 2 + (lane % 2 ? 6 : 0);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int left = row + 8 * r < p.rows ? p.positions - first : 0;
        Y* const y = place(row + 8 * r, first);
        const Y* const c = place_of_c(row + 8 * r, first);
#pragma unroll
        for (int j = 0; j < kPositions / 16; ++j)
          store(y + 16 * j, c + (kC ? 16 * j : 0), 16 * j < left, 8 * j + 2 * r, 8 * j + 4 + 2 * r, r);
      }
    }
  }
}

// Computes y, or dx, for a tile of 64 filters from up to 64 channels.
// Grid: x splits the lines evenly, y counts tiles of filters. Block: 512 threads. Warpgroup 0 issues the TMA loads;
// warpgroups 1 to 3 compute lines of y alternately, and each releases the lines of x that it does not need.
// Shared memory: the weights of the tile, 8 KB a tap, loaded once; then a ring of lines of x.
// wgmma: M = 64 filters, N = kPositions of a line. Of the 128 bytes a clock that shared memory delivers, N = 128 reads
// 96, N = 64 all.
// kAlongM: the stored rows of the weights are the summed dimension, as in backward_data. kSteps: the number of steps of
// 16 channels.
template <class T, class Y, int kPositions, int kSteps, bool kAlongM, Activation kActivation, bool kBias, bool kC,
          GemmStore kStore>
__global__ void __launch_bounds__(512, 1)
    conv_window(const __grid_constant__ WindowProduct p, const __grid_constant__ GemmArgs args) {
  constexpr uint32_t kTap = 64 * 128;  // bytes of weights
  extern __shared__ char shared[];
  __shared__ uint64_t barriers[2 * kWindowSlots + 1];
  const uint32_t weights = (cvta_to_shared(shared) + 1023) & ~1023u;
  const int taps = p.window_lines * p.window_columns;
  WindowRing x{weights + uint32_t(taps) * kTap, uint32_t(p.x_pitch), cvta_to_shared(barriers), p.x_slots};
  const uint32_t weights_full = x.barriers + 16 * kWindowSlots;
  const int group = __shfl_sync(0xffffffff, int(threadIdx.x) / 128, 0);
  const int first = int(int64_t(p.walk.count) * blockIdx.x / gridDim.x),
            last = int(int64_t(p.walk.count) * (blockIdx.x + 1) / gridDim.x);
  const int reach = (p.window_lines - 1) * p.walk.line_step;  // lines of x in addition to those of y

  if (threadIdx.x == 0) {
    for (int i = 0; i < kWindowSlots; ++i)
      mbarrier_init(x.barriers + 8 * i, 1), mbarrier_init(x.barriers + 8 * (kWindowSlots + i), 12);
    mbarrier_init(weights_full, 1);
    fence_mbarrier_init();
    prefetch_tensormap(&p.x), prefetch_tensormap(&p.w);
  }
  __syncthreads();
  griddep_wait();

  if (group == 0) {
    setmaxnreg_dec<40>();
    if (threadIdx.x > 0) return;
    mbarrier_arrive_expect_tx(weights_full, uint32_t(taps) * kTap);
    uint32_t to = weights;
    for (int r = 0; r < p.window_lines; ++r)
      for (int s = 0; s < p.window_columns; ++s, to += kTap) {
        const int line = p.backwards ? p.window_lines - 1 - r : r, column = p.backwards ? p.window_columns - 1 - s : s;
        const int tile = int(blockIdx.y) * 64;
        tma_load(to, &p.w, weights_full, 0, {kAlongM ? tile : 0, column, line, kAlongM ? 0 : tile, 0});
      }
    for (int at = first; at < last;) {
      const WindowWalk walk(p.walk, at, last);
      const int column = p.walk.first_column + walk.segment * kPositions, line = p.walk.first_line + walk.line;
#pragma unroll 1
      for (int i = 0; i < walk.count + reach; ++i, x.next()) {
        x.wait_empty();
        mbarrier_arrive_expect_tx(x.full(), uint32_t(p.x_bytes));
        tma_load(x.slot(), &p.x, x.full(), 0, {0, column, line + i, walk.image, 0});
      }
      at += walk.count;
    }
    griddep_launch_dependents();
    return;
  }
  setmaxnreg_inc<152>();
  auto pass = [&](int count) {
#pragma unroll 1
    for (int i = 0; i < count; ++i, x.next()) {
      x.wait_full();
      if (threadIdx.x % 32 == 0) mbarrier_arrive(x.empty());
    }
  };
  const uint32_t column_step = uint32_t(p.walk.column_step) * 128 >> 4;
  const int over = min_of(3, reach + 1);  // lines of x that a warpgroup releases after its line of y
  mbarrier_wait_parity(weights_full, 0);
  float sums[kPositions / 2];
  int mine = first + group - 1;  // the next line of this warpgroup
  for (int at = first; at < last;) {
    const WindowWalk walk(p.walk, at, last);
    int passed = 0;
#pragma unroll 1
    for (; mine < at + walk.count; mine += 3) {
      const int line = mine - at;
      pass(line - passed);
      passed = line;
      WindowRing of_tap = x;
      uint64_t a = window_matrix(weights, 64 * 128);
      warpgroup_fence_operand(sums);
      wgmma_fence();
#pragma unroll 1
      for (int r = 0; r < p.window_lines; ++r) {
        of_tap.wait_full();
        uint64_t b = window_matrix(of_tap.slot(), 64 * 128);
#pragma unroll 1
        for (int s = 0; s < p.window_columns; ++s, a += kTap >> 4, b += column_step)
#pragma unroll
          for (int k = 0; k < kSteps; ++k)  // a step of 16 channels
            Wgmma<T, kPositions>::template run<kAlongM, false>(sums, a + k * (kAlongM ? 2048 >> 4 : 32 >> 4),
                                                               b + k * (32 >> 4), r > 0 || s > 0 || k > 0);
        of_tap.skip(p.walk.line_step);
      }
      wgmma_commit_group();
      wgmma_wait_group<0>();
      warpgroup_fence_operand(sums);
      pass(over);
      passed += over;
      window_store<T, Y, kPositions, kActivation, kBias, kC, kStore>(
          p, args, walk, walk.line + line, int(blockIdx.y) * 64 + int(threadIdx.x) / 32 % 4 * 16, sums);
    }
    pass(walk.count + reach - passed);
    at += walk.count;
  }
}

// Computes partial sums of dw for a tile of 64 filters and 64 channels.
// Grid: x splits the lines evenly, y counts tiles of dw. Cluster: kBlocks, 1 or 2. Block: 512 threads. Warpgroup 0
// issues the TMA loads; warpgroups 1 to 3 each compute one line of the window.
// wgmma: M = 64 filters, N = kColumns x 64 channels, K = positions. Each column of the window is a submatrix of 64
// channels that starts one pixel later. Both operands have one position (k) per stored row.
// Each cluster writes its sums as one part of dw; cuda/gemm/epilogue/split_k.cu adds the parts in a fixed order.
// An infinity in x next to the last position of a line produces NaN, because it is multiplied by the zeros that pad dy.
template <class T, int kColumns, int kBlocks>
__global__ void __launch_bounds__(512, 1) conv_window_filter(const __grid_constant__ WindowFilter p, float* parts) {
  extern __shared__ char shared[];
  __shared__ uint64_t barriers[4 * kWindowSlots];
  const uint32_t start = (cvta_to_shared(shared) + 1023) & ~1023u;
  WindowRing x{start, uint32_t(p.x_pitch), cvta_to_shared(barriers), p.x_slots};
  WindowRing dy{start + uint32_t(p.x_slots * p.x_pitch), 64 * 128, x.barriers + 16 * kWindowSlots, p.dy_slots};

  uint32_t job = blockIdx.y;
  const int channel = p.channel_tiles.divmod(job) * 64, first_column = p.column_groups.divmod(job) * kColumns;
  const int first_line = p.line_groups.divmod(job) * p.lines_each, filter = int(job) * 64;
  const int lines = min_of(p.lines_each, p.window_lines - first_line);
  const int group = __shfl_sync(0xffffffff, int(threadIdx.x) / 128, 0);
  const int first = int(int64_t(p.walk.count) * blockIdx.x / gridDim.x),
            last = int(int64_t(p.walk.count) * (blockIdx.x + 1) / gridDim.x);
  const int reach = (lines - 1) * p.walk.line_step;  // lines of x in addition to those of dy

  if (threadIdx.x == 0) {
    for (int i = 0; i < kWindowSlots; ++i) {
      mbarrier_init(x.barriers + 8 * i, 1), mbarrier_init(x.barriers + 8 * (kWindowSlots + i), 4 * lines);
      mbarrier_init(dy.barriers + 8 * i, 1), mbarrier_init(dy.barriers + 8 * (kWindowSlots + i), 4 * lines);
    }
    fence_mbarrier_init();
    prefetch_tensormap(&p.x), prefetch_tensormap(&p.dy);
  }
  __syncthreads();
  griddep_wait();

  auto together = [] {
    if constexpr (kBlocks > 1) cluster_sync();
  };
  if (group == 0) {
    setmaxnreg_dec<40>();
    for (int at = threadIdx.x > 0 ? last : first; at < last;) {
      const WindowWalk walk(p.walk, at, last);
      const int x_line = p.walk.first_line + first_line * p.walk.line_step + walk.line;
      const int x_column = p.walk.first_column + first_column * p.walk.column_step + walk.segment * 64;
#pragma unroll 1
      for (int i = 0; i < walk.count + reach; ++i) {
        x.wait_empty();
        mbarrier_arrive_expect_tx(x.full(), uint32_t(p.x_bytes));
        tma_load(x.slot(), &p.x, x.full(), 0, {channel, x_column, x_line + i, walk.image, 0});
        x.next();
        if (i < reach) continue;
        dy.wait_empty();
        mbarrier_arrive_expect_tx(dy.full(), 64 * 128);
        tma_load(dy.slot(), &p.dy, dy.full(), 0, {filter, walk.segment * 64, walk.line + i - reach, walk.image, 0});
        dy.next();
      }
      at += walk.count;
    }
    griddep_launch_dependents();
    __syncwarp();
    together(), together();
    return;
  }
  const int mine = group - 1;  // line of the window
  if (mine >= lines) {
    together(), together();
    return;
  }
  setmaxnreg_inc<152>();
  const int lane = int(threadIdx.x) % 32;
  auto release = [&](uint32_t barrier) {
    if (lane == 0) mbarrier_arrive(barrier);
  };
  auto skip = [&](int count) {  // lines of x that only other lines of the window read
#pragma unroll 1
    for (int i = 0; i < count; ++i, x.next()) {
      x.wait_full();
      release(x.empty());
    }
  };
  const uint32_t columns = uint32_t(p.walk.column_step) * 128;
  float sums[kColumns * 32];
  bool any = false;
  for (int at = first; at < last;) {
    const WindowWalk walk(p.walk, at, last);
    skip(mine * p.walk.line_step);
    uint32_t x_before = 0, dy_before = 0;
#pragma unroll 1
    for (int i = 0; i < walk.count; ++i) {
      x.wait_full();
      dy.wait_full();
      const uint64_t a = window_matrix(dy.slot(), 64 * 128), b = window_matrix(x.slot(), columns);
      warpgroup_fence_operand(sums);
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < 4; ++s)  // a step of 16 positions
        Wgmma<T, kColumns * 64>::template run<true, true>(sums, a + s * (2048 >> 4), b + s * (2048 >> 4), any || s > 0);
      wgmma_commit_group();
      any = true;
      if (i > 0) {
        wgmma_wait_group<1>();
        release(x_before), release(dy_before);
      }
      x_before = x.empty(), dy_before = dy.empty();
      x.next(), dy.next();
    }
    wgmma_wait_group<0>();
    release(x_before), release(dy_before);
    skip(reach - mine * p.walk.line_step);
    at += walk.count;
  }
  warpgroup_fence_operand(sums);

  // Cluster of two: each block adds up one half of the sums of both. A block sends the other half through shared
  // memory, where the rings are no longer in use.
  constexpr int kKept = kColumns * 32 / kBlocks;
  const uint32_t rank = kBlocks > 1 ? cluster_ctarank() : 0;
  if constexpr (kBlocks > 1) {
    named_barrier_sync(1, lines * 128);
    const uint32_t pitch = uint32_t(lines) * 2048, place = (threadIdx.x - 128) * 16;
    char* const to = shared + (start - cvta_to_shared(shared)) + place;
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
    together();
#pragma unroll
    for (int i = 0; i < kKept; i += 4) {
      float v[4];
      ld_cluster<4>(v, start + place + i / 4 * pitch, rank ^ 1);
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i + j] += v[j];
    }
    together();
  }

  const int row = filter + int(threadIdx.x) / 32 % 4 * 16 + lane / 4, taps = p.window_lines * p.window_columns;
  float* const part = parts + blockIdx.x / kBlocks * p.part_stride +
                      (int64_t(row) * taps + (first_line + mine) * p.window_columns + first_column) * p.channels;
#pragma unroll
  for (int j = 0; j < kKept / 4; ++j) {
    const int eight = j + int(rank) * kKept / 4, column = eight / 8, c = channel + eight % 8 * 8 + lane % 4 * 2;
    if (first_column + column >= p.window_columns || c >= p.channels) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (row + 8 * half < p.filters)
        *reinterpret_cast<float2*>(part + (int64_t(8 * half) * taps + column) * p.channels + c) =
            make_float2(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
  }
}

}  // namespace minidnn
