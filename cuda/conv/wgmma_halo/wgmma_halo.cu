// SPDX-License-Identifier: Apache-2.0
// Convolutions of large images with few channels by tensor cores (sm_90a). This kernel computes y or dx;
// wgmma_halo_filter.cu computes dw.
// TMA loads each pixel into shared memory once, for all taps of the window. A pixel has 64 channels of 16 bits each. In
// shared memory, it is one row of a tile with 128-byte swizzle. For each column of the window, wgmma reads the same
// tile, but starts at another row. This is possible because the swizzle depends on addresses only.
//
// Counted for 64 channels, 64 filters, a 3 x 3 window and 64 neighbouring positions: the tensor cores need 1152 clocks.
// An implicit GEMM (cuda/gemm/sm90/kernel.cu) loads 9 x 16 KB from L2, which takes 2500 clocks. This kernel loads 16.5
// KB, which takes 280 clocks.
// Measured for y of images of 512 x 512 (docs/notes/conv.md): this kernel takes 114 us, and the implicit GEMM takes 195
// us. Memory traffic alone takes about 95 us.
#include "cpp/core/host_device/half.h"
#include "cuda/conv/wgmma_halo/halo_ring.cuh"
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/device/ptx/math.cuh"
#include "cuda/gemm/epilogue/epilogue.cuh"

namespace minidnn {

// The epilogue: stores activation(sum + bias + c) to y. c and y may be the same memory. kStore = lines needs contiguous
// positions, in multiples of four. kStore = transposed needs contiguous filters, in multiples of four. Both store
// vectors of four 16-bit results. kStore = any stores single elements.
template <class T, class Y, int kPositions, Activation kActivation, bool kBias, bool kC, GemmStore kStore>
__device__ __forceinline__ void store_line(const WgmmaHaloParams& p, const GemmArgs& args, const LineSpan& span,
                                           int line, int filter, float (&sums)[kPositions / 2]) {
  const int lane = int(threadIdx.x) % 32, row = filter + lane / 4, column = span.segment * kPositions;
  float bias[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (kBias && row + 8 * r < p.rows) bias[r] = float(static_cast<const T*>(args.bias)[(row + 8 * r) * p.bias_stride]);
  const auto ended = [&](float sum, int r, float residual) {
    if constexpr (kBias) sum += bias[r];
    if constexpr (kC) sum += residual;
    return activate<kActivation, formula_of<Y>()>(sum, args.activation_alpha);
  };
  const auto at = [&](const WgmmaHaloParams::Strides& s, int first_row, int first_column) {
    return span.image * s.image + line * s.line + first_column * s.column + first_row * s.row;
  };
  const auto y_at = [&](int first_row, int first_column) {
    return static_cast<Y*>(args.y) + at(p.y, first_row, first_column);
  };
  const auto c_at = [&](int first_row, int first_column) {
    return kC ? static_cast<const Y*>(args.c) + at(p.c, first_row, first_column) : nullptr;
  };
  if constexpr (kStore == GemmStore::any) {
    const int first = column + lane % 4 * 2;
    Y* const y = y_at(row, first);
    const Y* const c = c_at(row, first);
#pragma unroll
    // Sum i belongs to filter row + 8 r and position first + q.
    for (int i = 0; i < kPositions / 2; ++i) {
      const int r = i / 2 % 2, q = i / 4 * 8 + i % 2;
      if (row + 8 * r >= p.rows || first + q >= p.positions) continue;
      y[8 * r * p.y.row + q * p.y.column] = Y(ended(sums[i], r, kC ? float(c[8 * r * p.c.row + q * p.c.column]) : 0));
    }
  } else {
    constexpr bool kTransposed = kStore == GemmStore::transposed;
    // Stores four contiguous results, after an exchange with another lane. The lane itself has sums i, i + 1, next and
    // next + 1, of one filter or, if kTransposed, of two filters.
    const auto store = [&](Y* y, const Y* c, bool exists, int i, int next, int r) {
      uint32_t words[2] = {};
      if constexpr (kC) {
        uint2 four = {0, 0};
        if (exists) four = *reinterpret_cast<const uint2*>(c);
        // The same exchange for c, in the opposite direction.
        four = exchange_pair(four.x, four.y);
        words[0] = kTransposed ? movmatrix_trans(four.x) : four.x;
        words[1] = kTransposed ? movmatrix_trans(four.y) : four.y;
      }
#pragma unroll
      for (int w = 0; w < 2; ++w) {
        float v[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          Y residual;
          residual.bits = uint16_t(words[w] >> 16 * j);
          v[j] = ended(sums[(w ? next : i) + j], kTransposed ? w : r, float(residual));
        }
        words[w] = cvt_rn_x2(Y(), v[0], v[1]);
        if constexpr (kTransposed) words[w] = movmatrix_trans(words[w]);
      }
      const uint2 four = exchange_pair(words[0], words[1]);
      if (exists) *reinterpret_cast<uint2*>(y) = four;
    };
    if constexpr (kTransposed) {
      const int four = filter + (lane % 2 ? 8 : 0) + lane % 4 / 2 * 4, first = column + lane / 4;
      const int left = four < p.rows ? p.positions - first : 0;
      Y* y = y_at(four, first);
      const Y* c = c_at(four, first);
#pragma unroll
      for (int j = 0; j < kPositions / 8; ++j, y += 8 * p.y.column, c += kC ? 8 * p.c.column : 0)
        store(y, c, 8 * j < left, 4 * j, 4 * j + 2, 0);
    } else {
      const int first = column + lane % 4 * 2 + (lane % 2 ? 6 : 0);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int left = row + 8 * r < p.rows ? p.positions - first : 0;
        Y* const y = y_at(row + 8 * r, first);
        const Y* const c = c_at(row + 8 * r, first);
#pragma unroll
        for (int j = 0; j < kPositions / 16; ++j)
          store(y + 16 * j, c + (kC ? 16 * j : 0), 16 * j < left, 8 * j + 2 * r, 8 * j + 4 + 2 * r, r);
      }
    }
  }
}

// Computes y or dx for a tile of 64 filters, from up to 64 channels. Grid: the lines (kPositions positions of a row),
// divided evenly among blocks, x tiles of filters. Block: 512 threads. Warpgroup 0 issues the TMA loads. Each of the
// warpgroups 1 to 3 computes every third line, and releases rows of the input that it no longer needs. Shared memory:
// the weights of the tile (8 KB per tap, loaded once), then a ring of rows of the input. wgmma: M = 64 filters, N =
// kPositions. It reads 96 bytes of shared memory per clock with N = 128, and 128 bytes with N = 64, the peak. kAlongM:
// whether the weights are contiguous along M in shared memory, as for dx. kSteps: wgmma instructions per tap, with 16
// channels each.
template <class T, class Y, int kPositions, int kSteps, bool kAlongM, Activation kActivation, bool kBias, bool kC,
          GemmStore kStore>
__global__ void __launch_bounds__(512, 1)
    conv_wgmma_halo(const __grid_constant__ WgmmaHaloParams p, const __grid_constant__ GemmArgs args) {
  constexpr uint32_t kTap = 64 * 128;  // the bytes of the tile's weights for one tap
  extern __shared__ char shared[];
  __shared__ uint64_t barriers[2 * kHaloSlots + 1];
  const uint32_t weights = (cvta_to_shared(shared) + 1023) & ~1023u;
  const int taps = p.window_lines * p.window_columns;
  HaloRing x{weights + uint32_t(taps) * kTap, uint32_t(p.x_pitch), cvta_to_shared(barriers), p.x_slots};
  const uint32_t weights_full = x.barriers + 16 * kHaloSlots;
  const int group = __shfl_sync(0xffffffff, int(threadIdx.x) / 128, 0);
  const int first = int(int64_t(p.lines.count) * blockIdx.x / gridDim.x),
            last = int(int64_t(p.lines.count) * (blockIdx.x + 1) / gridDim.x);
  const int reach = (p.window_lines - 1) * p.lines.line_step;  // n adjacent rows of y read n + reach rows of x

  if (threadIdx.x == 0) {
    for (int i = 0; i < kHaloSlots; ++i) {
      mbarrier_init(x.barriers + 8 * i, 1);
      mbarrier_init(x.barriers + 8 * (kHaloSlots + i), 12);
    }
    mbarrier_init(weights_full, 1);
    fence_mbarrier_init();
    prefetch_tensormap(&p.x);
    prefetch_tensormap(&p.w);
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
      const LineSpan span(p.lines, at, last);
      const int column = p.lines.first_column + span.segment * kPositions, line = p.lines.first_line + span.line;
#pragma unroll 1
      for (int i = 0; i < span.count + reach; ++i, x.next()) {
        x.wait_empty();
        mbarrier_arrive_expect_tx(x.full(), uint32_t(p.x_bytes));
        tma_load(x.slot(), &p.x, x.full(), 0, {0, column, line + i, span.image, 0});
      }
      at += span.count;
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
  const uint32_t column_step = uint32_t(p.lines.column_step) * 128 >> 4;
  const int over = min_of(3, reach + 1);  // the rows of x to release after each row of y
  mbarrier_wait_parity(weights_full, 0);
  float sums[kPositions / 2];
  int own_line = first + group - 1;  // the next line that this warpgroup computes
  for (int at = first; at < last;) {
    const LineSpan span(p.lines, at, last);
    int passed = 0;
#pragma unroll 1
    for (; own_line < at + span.count; own_line += 3) {
      const int line = own_line - at;
      pass(line - passed);
      passed = line;
      HaloRing of_tap = x;
      uint64_t a = halo_matrix(weights, 64 * 128);
      warpgroup_fence_operand(sums);
      wgmma_fence();
#pragma unroll 1
      for (int r = 0; r < p.window_lines; ++r) {
        of_tap.wait_full();
        uint64_t b = halo_matrix(of_tap.slot(), 64 * 128);
#pragma unroll 1
        for (int s = 0; s < p.window_columns; ++s, a += kTap >> 4, b += column_step)
#pragma unroll
          for (int k = 0; k < kSteps; ++k)  // each iteration multiplies 16 channels
            Wgmma<T, kPositions>::template run<kAlongM, false>(sums, a + k * (kAlongM ? 2048 >> 4 : 32 >> 4),
                                                               b + k * (32 >> 4), r > 0 || s > 0 || k > 0);
        of_tap.skip(p.lines.line_step);
      }
      wgmma_commit_group();
      wgmma_wait_group<0>();
      warpgroup_fence_operand(sums);
      pass(over);
      passed += over;
      store_line<T, Y, kPositions, kActivation, kBias, kC, kStore>(
          p, args, span, span.line + line, int(blockIdx.y) * 64 + int(threadIdx.x) / 32 % 4 * 16, sums);
    }
    pass(span.count + reach - passed);
    at += span.count;
  }
}

}  // namespace minidnn
