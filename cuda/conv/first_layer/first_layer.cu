// SPDX-License-Identifier: Apache-2.0
// Computes y of a network's first layer by tensor cores (sm_90a). For each line of y (a row of an image), it multiplies
// the matrix of all windows by the matrix of the filters.
// Method: the windows of neighbouring positions overlap in shared memory, as they do in x. This is possible because
// wgmma accepts matrices whose rows start only 16 bytes apart. A stage (a buffer in shared memory) contains all lines
// of x that one line of y depends on. Each line is loaded by one bulk copy.
// Grid: persistent blocks over the lines of y x tiles of kFilters filters. Block: 384 threads. One thread issues the
// copies. Two warpgroups compute alternate tiles of 64 positions. Shared memory (dynamic): a buffer for the epilogue,
// the filters of the block, and kStages stages.
// Bytes: writes y once. Each line of x is read for several lines of y, mostly from L2.
//
// Numerics: float32 operands are multiplied as TF32; sums are float32. Each line of a window is rounded up to a
// multiple of 16 bytes, so elements just past the end of the window are multiplied by zero weights. If one of these
// elements is an infinity or a NaN, the sums of all filters at that position become NaN. The kernel then computes those
// sums again from the elements of the window only.
#include "cuda/conv/first_layer/first_layer_params.h"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/ptx/named_barrier.cuh"
#include "cuda/device/ptx/setmaxnreg.cuh"
#include "cuda/device/ptx/tma.cuh"
#include "cuda/device/ptx/wgmma.cuh"
#include "cuda/gemm/epilogue/epilogue.cuh"

namespace minidnn {

// The sum of the products of one window and one filter in shared memory, without tensor cores.
template <class T, int kFilters>
__device__ __forceinline__ float window_sum(const FirstLayerParams& p, const char* x, const char* filter) {
  constexpr int kElements = 16 / sizeof(T);  // the number of elements of a chunk (16 bytes)
  float sum = 0;
#pragma unroll 1
  for (int r = 0; r < p.window; ++r)
#pragma unroll 1
    for (int i = 0; i < p.elements; ++i) {
      const int chunk = i / kElements, e = i % kElements;
      const char* const a = x + r * p.line_bytes + chunk % p.planes * p.plane_bytes + chunk / p.planes * 16;
      const char* const b = filter + (r * p.chunks + chunk) * kFilters * 16;
      sum += float(reinterpret_cast<const T*>(a)[e]) * float(reinterpret_cast<const T*>(b)[e]);
    }
  return sum;
}

// Multiplies the windows of positions `first` to first + 63 of a row of y by kFilters filters. `lines` and `filters`
// are shared-memory addresses.
template <class T, int kFilters>
__device__ __forceinline__ void multiply_windows(const FirstLayerParams& p, uint32_t lines, int first, uint32_t filters,
                                                 float (&sums)[kFilters / 2]) {
  const uint32_t chunk_stride = p.planes == 1 ? 16 : uint32_t(p.plane_bytes);
  uint32_t b = filters;
#pragma unroll 1
  for (int r = 0; r < p.window; ++r) {
    uint32_t a = lines + uint32_t(r * p.line_bytes + first * 16);
    int plane = 0;
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; chunk += 2, b += 2 * kFilters * 16) {
      Wgmma<T, kFilters>::template run<false, false>(sums, make_smem_descriptor<false>(a, chunk_stride, 128),
                                                     make_smem_descriptor<false>(b, kFilters * 16, 128),
                                                     r > 0 || chunk > 0);
      a += 2 * chunk_stride;
      plane += 2;
      if (plane == p.planes) {
        plane = 0;
        a += 16 - uint32_t(p.planes) * chunk_stride;
      }
    }
  }
}

// Computes the thread's NaN sums again, from the elements of the windows only.
template <class T, int kFilters>
__device__ __forceinline__ void replace_nans(const FirstLayerParams& p, const char* x, const char* filter,
                                             float (&sums)[kFilters / 2]) {
#pragma unroll 1
  for (int i = 0; i < kFilters / 2; ++i) {
    const float sum = window_sum<T, kFilters>(p, x + i / 2 % 2 * 128, filter + (i / 4 * 8 + i % 2) * 16);
#pragma unroll
    for (int j = 0; j < kFilters / 2; ++j)
      if (j == i && sums[j] != sums[j]) sums[j] = sum;
  }
}

template <class T, class Y, int kFilters, int kStages, Activation kActivation, bool kBias, bool kC, GemmStore kStore>
__global__ void __launch_bounds__(384, 1)
    conv_first_layer(const __grid_constant__ FirstLayerParams p, const __grid_constant__ GemmArgs args) {
  extern __shared__ char shared[];
  __shared__ uint64_t barriers[2 * kStages];
  const uint32_t start = (cvta_to_shared(shared) + 127) & ~127u, full = cvta_to_shared(barriers),
                 empty = full + 8 * kStages;
  const uint32_t weights = start + 8 * kLinesBytes;
  char* const weights_pointer = shared + (weights - cvta_to_shared(shared));
  const uint32_t weights_bytes = uint32_t(p.window * p.chunks * kFilters * 16), stages = weights + weights_bytes;
  const uint32_t stage_bytes = uint32_t(p.window * p.line_bytes);
  const int group = __shfl_sync(0xffffffff, int(threadIdx.x) / 128, 0), lane = int(threadIdx.x) % 32;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(full + 8 * i, 1);
      mbarrier_init(empty + 8 * i, 8);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  griddep_wait();

  int stage = 0;
  uint32_t parity = 0;
  auto next = [&] {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  };
  // A tile is a row of y. All tiles of a block use the same filters, which stay in shared memory.
  const int filters = int(blockIdx.y) * kFilters;
  if (group == 0) {
    setmaxnreg_dec<40>();
    if (threadIdx.x > 0) return;
    for (int tile = int(blockIdx.x); tile < p.tiles; tile += int(gridDim.x), next()) {
      const uint32_t image = p.lines.quotient(uint32_t(tile)), line = uint32_t(tile) - image * p.lines.divisor;
      mbarrier_wait_parity(empty + 8 * stage, parity ^ 1);
      mbarrier_arrive_expect_tx(full + 8 * stage, stage_bytes);
      const char* from =
          static_cast<const char*>(args.a) + image * p.image_bytes + int64_t(line) * p.step * p.line_bytes;
      for (int r = 0; r < p.window; ++r)
        cp_async_bulk(stages + stage * stage_bytes + uint32_t(r * p.line_bytes),
                      from + int64_t(r) * p.dilation * p.line_bytes, uint32_t(p.line_bytes), full + 8 * stage);
    }
    return;
  }
  setmaxnreg_inc<232>();
  const int consumer = group - 1, warp = int(threadIdx.x) / 32 % 4;
  // Copies the filters to shared memory as [row of the window][chunk of 16 bytes][filter], padded with zero filters.
  for (int i = int(threadIdx.x) - 128; i < p.window * p.chunks * kFilters; i += 256) {
    const int filter = i % kFilters, chunk = i / kFilters % p.chunks, r = i / kFilters / p.chunks;
    uint4 v = {0, 0, 0, 0};
    if (filters + filter < p.filter_count)
      v = *reinterpret_cast<const uint4*>(static_cast<const char*>(args.b) +
                                          int64_t(filters + filter) * p.filter_bytes + r * p.filter_line_bytes +
                                          chunk * 16);
    *reinterpret_cast<uint4*>(weights_pointer + i * 16) = v;
  }
  fence_proxy_async();
  named_barrier_sync(1, 256);

  using Epilogue = GemmEpilogue<T, Y, kActivation, kBias, kC, kStore, formula_of<Y>()>;
  const auto bias = Epilogue::template tile_bias<kFilters / 2>(p.y, args, 0, uint32_t(filters));
  float sums[kFilters / 2];
  for (int tile = int(blockIdx.x); tile < p.tiles; tile += int(gridDim.x), next()) {
    mbarrier_wait_parity(full + 8 * stage, parity);
    for (int first = consumer * 64; first < p.positions; first += 128) {
      warpgroup_fence_operand(sums);
      wgmma_fence();
      multiply_windows<T, kFilters>(p, stages + stage * stage_bytes, first, weights, sums);
      wgmma_commit_group();
      wgmma_wait_group<0>();
      warpgroup_fence_operand(sums);
      const Epilogue epilogue(p.y, p.y.bounds, args, 0, start + (threadIdx.x / 32 - 4) * kLinesBytes);
      const int at = first + warp * 16 + lane / 4;
      if ((at < p.positions && sums[0] != sums[0]) || (at + 8 < p.positions && sums[2] != sums[2])) {
        const char* const x = weights_pointer + weights_bytes + stage * stage_bytes + at * 16;
        replace_nans<T, kFilters>(p, x, weights_pointer + lane % 4 * 32, sums);
      }
      __syncwarp();
      // Positions past the end of the row must not be stored. GemmStore::transposed is told the number of positions
      // that exist; all other stores get an index past the end of y.
      auto row = [&](int position) {
        return kStore == GemmStore::transposed || position < p.positions
                   ? uint32_t(tile) * uint32_t(p.positions) + uint32_t(position)
                   : 0x7fffffffu;
      };
      epilogue.store(sums, row(at), row(at + 8), uint32_t(filters), bias, uint32_t(p.positions - first));
    }
    if (lane == 0) mbarrier_arrive(empty + 8 * stage);
  }
}

}  // namespace minidnn
