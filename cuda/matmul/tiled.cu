// SPDX-License-Identifier: Apache-2.0
// Matrix products without tensor cores, of any strides and sizes: y = activation(alpha * a @ b + beta * c + bias). T is
// the dtype of a and b; Y is the dtype of y and c.
// Block: 256 threads compute a tile of kTileM x kTileN elements of y. A thread has the sums of kTileM / 16 rows by
// kTileN / 16 columns in registers. Each block computes several tiles, one after another.
// Shared memory: two buffers. A buffer has a slice of a and a slice of b, with 16 values of k. While the slices of one
// buffer are multiplied, the next slices are loaded into registers. At the end, the sums pass through the same memory,
// so that neighbouring threads access c and y along the smaller stride. A tile of 128 x 64 takes 33 KB.
#include "cpp/matmul/matmul_math.h"

namespace minidnn {

constexpr int kThreads = 256, kTileK = 16;
// Padding of a slice's rows in shared memory, in elements. It reduces bank conflicts and keeps 16-byte alignment.
constexpr int kPad = 4;

// Copies slices of an operand to shared memory, as [kTileK][kLines + kPad]. A line is a row of a or a column of b.
// Elements beyond the matrix become zeros. Adjacent threads read along the smaller stride.
template <class T, int kLines>
class SliceLoader {
 public:
  static constexpr int kPitch = kLines + kPad;

  // `from`: the tile's first line at k = 0. `lines`: the number of lines to the edge of the matrix.
  __device__ SliceLoader(const T* from, int64_t line_stride, int64_t k_stride, int64_t lines, int64_t k)
      : k_left_(k), slice_step_(kTileK * k_stride) {
    int64_t along_line = line_stride < 0 ? -line_stride : line_stride, along_k = k_stride < 0 ? -k_stride : k_stride;
    bool lines_first = along_line < along_k;
    line_ = lines_first ? threadIdx.x % kLines : threadIdx.x / kTileK;
    k_ = lines_first ? threadIdx.x / kLines : threadIdx.x % kTileK;
    line_step_ = lines_first ? 0 : kThreads / kTileK;
    k_step_ = lines_first ? kThreads / kLines : 0;
    lines_left_ = lines - line_;
    k_left_ -= k_;
    from_ = from + line_ * line_stride + k_ * k_stride;
    step_ = line_step_ * line_stride + k_step_ * k_stride;
  }

  __device__ void load() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      bool inside = i * line_step_ < lines_left_ && i * k_step_ < k_left_;
      values_[i] = inside ? from_[i * step_] : T(0.0f);
    }
    from_ += slice_step_;
    k_left_ -= kTileK;
  }
  __device__ void store(Accumulator<T>* slice) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      slice[(k_ + i * k_step_) * kPitch + line_ + i * line_step_] = Accumulator<T>(values_[i]);
  }

 private:
  static constexpr int kCount = kLines * kTileK / kThreads;
  const T* from_;
  int64_t lines_left_, k_left_, step_, slice_step_;
  int line_, k_, line_step_, k_step_;
  T values_[kCount];
};

// Loads n elements from shared memory in vectors of 16 bytes.
template <int n, class T>
__device__ __forceinline__ void load_fragment(T (&to)[n], const T* from) {
  struct alignas(16) Chunk {
    T v[16 / sizeof(T)];
  };
#pragma unroll
  for (int i = 0; i < n; i += 16 / sizeof(T)) {
    Chunk chunk = *reinterpret_cast<const Chunk*>(from + i);
#pragma unroll
    for (int j = 0; j < 16 / int(sizeof(T)); ++j) to[i + j] = chunk.v[j];
  }
}

template <class T, class Y, int kTileM, int kTileN>
__global__ void __launch_bounds__(kThreads) matmul_tiled(const __grid_constant__ MatmulProblem p, MatmulArgs args) {
  using Acc = Accumulator<T>;
  constexpr int kPerM = kTileM / 16, kPerN = kTileN / 16;
  using LoaderA = SliceLoader<T, kTileM>;
  using LoaderB = SliceLoader<T, kTileN>;
  constexpr int kSliceA = kTileK * LoaderA::kPitch, kSliceB = kTileK * LoaderB::kPitch, kSumPitch = kTileN + 1;
  constexpr int kSlices = 2 * (kSliceA + kSliceB), kSums = kTileM * kSumPitch;
  alignas(16) __shared__ Acc shared[kSlices > kSums ? kSlices : kSums];
  Acc *slice_a = shared, *slice_b = shared + 2 * kSliceA;

  const MatmulSizes s = sizes_of(p);
  const int64_t tiles_m = ceil_div(s.m, int64_t(kTileM)), tiles_n = ceil_div(s.n, int64_t(kTileN));
  const int thread_m = threadIdx.x / 16 * kPerM, thread_n = threadIdx.x % 16 * kPerN;
  for (int64_t tile = blockIdx.x; tile < s.batch * tiles_m * tiles_n; tile += gridDim.x) {
    const int64_t batch = tile / (tiles_m * tiles_n);
    const int64_t row = tile / tiles_n % tiles_m * kTileM, column = tile % tiles_n * kTileN;
    const Matrix<const T> a = matrix<const T>(args.a, p.a, batch), b = matrix<const T>(args.b, p.b, batch);
    LoaderA load_a(a.at(row, 0), a.row, a.column, s.m - row, s.k);
    LoaderB load_b(b.at(0, column), b.column, b.row, s.n - column, s.k);

    Acc sums[kPerM][kPerN] = {};
    load_a.load();
    load_b.load();
    load_a.store(slice_a);
    load_b.store(slice_b);
    __syncthreads();
    int buffer = 0;
    for (int64_t k = 0; k < s.k; k += kTileK, buffer ^= 1) {
      bool more = k + kTileK < s.k;
      if (more) {
        load_a.load();
        load_b.load();
      }
      const Acc* at_a = slice_a + buffer * kSliceA + thread_m;
      const Acc* at_b = slice_b + buffer * kSliceB + thread_n;
#pragma unroll
      for (int step = 0; step < kTileK; ++step) {
        Acc from_a[kPerM], from_b[kPerN];
        load_fragment(from_a, at_a + step * LoaderA::kPitch);
        load_fragment(from_b, at_b + step * LoaderB::kPitch);
#pragma unroll
        for (int i = 0; i < kPerM; ++i)
#pragma unroll
          for (int j = 0; j < kPerN; ++j) sums[i][j] += from_a[i] * from_b[j];
      }
      // The buffer that is not being multiplied. All threads had read it before the previous barrier.
      if (more) {
        load_a.store(slice_a + (buffer ^ 1) * kSliceA);
        load_b.store(slice_b + (buffer ^ 1) * kSliceB);
      }
      __syncthreads();
    }

#pragma unroll
    for (int i = 0; i < kPerM; ++i)
#pragma unroll
      for (int j = 0; j < kPerN; ++j) shared[(thread_m + i) * kSumPitch + thread_n + j] = sums[i][j];
    __syncthreads();
    const MatmulEpilogue<T, Y> epilogue(p, args, batch);
    int64_t down = epilogue.y.row < 0 ? -epilogue.y.row : epilogue.y.row;
    int64_t across = epilogue.y.column < 0 ? -epilogue.y.column : epilogue.y.column;
    bool along_rows = across <= down;
#pragma unroll 1  // not unrolled, because the code of the thirteen activations is long
    for (int e = threadIdx.x; e < kTileM * kTileN; e += kThreads) {
      int i = along_rows ? e / kTileN : e % kTileM, j = along_rows ? e % kTileN : e / kTileM;
      if (row + i < s.m && column + j < s.n)
        epilogue.store(p.activation, shared[i * kSumPitch + j], row + i, column + j);
    }
    // The next tile overwrites the sums.
    __syncthreads();
  }
}

}  // namespace minidnn
