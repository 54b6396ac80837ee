// SPDX-License-Identifier: Apache-2.0
// cpu.matmul.blocked: packed, cache-blocked products of any strides. y is cut into tiles; a tile is computed whole by
// one thread, with room of its own in the workspace: slices of K are packed into panels that the micro-kernel
// (cpp/cpu/gemm_kernel.h) walks front to back, zeros beyond the edges, and its sums stay in float32, float64 for
// float64, until the last slice is in. An element's sum does not depend on the tile it lies in, nor on the number of
// threads.
#include <atomic>

#include "cpp/cpu/gemm_kernel.h"
#include "cpp/cpu/threads.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {
namespace {

template <class Acc>
const GemmKernel<Acc>& micro_kernel() {
  if constexpr (sizeof(Acc) == 8) return gemm_kernels().f64;
  else return gemm_kernels().f32;
}

// How a product is cut. m and n are multiples of the micro-kernel's rows and columns.
struct Tiling {
  int64_t m, n, k;               // a tile of y, and the length of a packed slice
  int64_t rows, columns, count;  // tiles down and across one matrix, and in all
  int64_t threads;
  size_t room_bytes;  // a thread's: packed a and b, and sums
};

template <class Acc>
Tiling tiling(const MatmulProblem& p, const Device& d) {
  const GemmKernel<Acc>& kernel = micro_kernel<Acc>();
  MatmulSizes s = sizes_of(p);
  auto up_to = [](int64_t most, int64_t size, int64_t unit) { return ceil_div(min_of(most, size), unit) * unit; };
  // Packed a and the sums, 2 x 150 KB, stay in a second-level cache, a panel of b in the first. The length of a slice
  // is no power of two: with 1024 bytes panels would meet in the same cache sets, and packing one row took 1.5 times as
  // long.
  Tiling t{};
  t.m = up_to(144, s.m, kernel.rows);
  t.n = up_to(256, s.n, kernel.columns);
  t.k = min_of<int64_t>(1216 / sizeof(Acc), s.k);
  auto count = [&] {
    t.rows = ceil_div(s.m, t.m);
    t.columns = ceil_div(s.n, t.n);
    return t.count = s.batch * t.rows * t.columns;
  };
  // Smaller tiles give every thread a share, at the price of packing more often.
  while (d.sm_count > 1 && count() < 2 * d.sm_count && (t.m > 4 * kernel.rows || t.n > 4 * kernel.columns)) {
    if (t.m >= t.n || t.n <= 4 * kernel.columns) t.m = up_to(t.m / 2, s.m, kernel.rows);
    else t.n = up_to(t.n / 2, s.n, kernel.columns);
  }
  t.threads = min_of<int64_t>(d.sm_count, count());
  t.room_bytes = size_t(t.m * t.k + t.k * t.n + t.m * t.n) * sizeof(Acc);
  t.room_bytes = ceil_div<size_t>(t.room_bytes, 64) * 64;  // no two threads write to one cache line
  return t;
}

template <int64_t n>
using Constant = std::integral_constant<int64_t, n>;

// Calls f(n), n a compile-time constant where it is one of these.
template <int64_t... known, class F>
void with_constant(int64_t n, F&& f) {
  bool found = ((n == known && (f(Constant<known>{}), true)) || ...);
  if (!found) f(n);
}

// `length` columns of `rows` rows, as panels of `width` rows laid out [length][width], zeros below the last row.
template <class T, class Acc>
void pack(const T* __restrict from, int64_t row, int64_t column, int64_t rows, int64_t length, int64_t width,
          Acc* __restrict to) {
  int64_t whole = rows / width * width;
  bool along_rows = std::abs(row) <= std::abs(column);         // in memory, where reads should go
  with_constant<4, 6, 8, 12, 16, 32>(width, [=](auto width) {  // as in cpp/cpu/gemm_kernel_isa.cpp
    if (along_rows)
      with_constant<1>(row, [=](auto unit) {
        for (int64_t k = 0; k < length; ++k)
          for (int64_t i = 0; i < whole; i += width)
            for (int64_t r = 0; r < width; ++r) to[i * length + k * width + r] = Acc(from[k * column + (i + r) * unit]);
      });
    else
      with_constant<1>(column, [=](auto unit) {
        for (int64_t i = 0; i < whole; i += width)
          for (int64_t r = 0; r < width; ++r)
            for (int64_t k = 0; k < length; ++k) to[i * length + k * width + r] = Acc(from[(i + r) * row + k * unit]);
      });
  });
  if (whole == rows) return;
  from += whole * row, to += whole * length;
  std::fill_n(to, width * length, Acc(0));
  for (int64_t r = 0; r < rows - whole; ++r)
    for (int64_t k = 0; k < length; ++k) to[k * width + r] = Acc(from[r * row + k * column]);
}

template <class T, class Y>
void compute_tile(const MatmulProblem& p, const MatmulArgs& args, const Tiling& t, int64_t tile, void* room) {
  using Acc = Accumulator<T>;
  const GemmKernel<Acc>& kernel = micro_kernel<Acc>();
  MatmulSizes s = sizes_of(p);
  int64_t batch = tile / (t.rows * t.columns), row = tile / t.columns % t.rows * t.m, column = tile % t.columns * t.n;
  int64_t rows = min_of(t.m, s.m - row), columns = min_of(t.n, s.n - column);
  Matrix<const T> a = matrix<const T>(args.a, p.a, batch), b = matrix<const T>(args.b, p.b, batch);
  Acc* packed_a = static_cast<Acc*>(room);
  Acc* packed_b = packed_a + t.m * t.k;
  Acc* sums = packed_b + t.k * t.n;

  std::fill_n(sums, t.m * t.n, Acc(0));
  for (int64_t k = 0; k < s.k; k += t.k) {
    int64_t length = min_of(t.k, s.k - k);
    pack(a.at(row, k), a.row, a.column, rows, length, kernel.rows, packed_a);
    pack(b.at(k, column), b.column, b.row, columns, length, kernel.columns, packed_b);
    GemmSegment packed{};
    for (int64_t i = 0; i < kernel.rows; ++i) packed.a[i] = i * int64_t(sizeof(Acc));
    for (int64_t j = 0; j < columns; j += kernel.columns)
      for (int64_t i = 0; i < rows; i += kernel.rows)
        kernel.multiply(&packed, 1, length, packed_a + i * length, kernel.rows, packed_b + j * length, kernel.columns,
                        sums + i * t.n + j, t.n, true);
  }

  MatmulEpilogue<T, Y> epilogue(p, args, batch);
  with_activation(p.activation, [&](auto mode) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) epilogue.template store<mode.value>(sums[i * t.n + j], row + i, column + j);
  });
}

struct Blocked final : Engine<MatmulProblem> {
  std::string name() const override { return "cpu.matmul.blocked"; }
  std::string why_not(const MatmulProblem& p, const Device&) const override { return matmul_why_not(p); }
  double estimate_us(const MatmulProblem& p, const Device& d) const override {
    return roofline_us(matmul_flop(p) / 8, matmul_bytes(p), d, 0.8);
  }
  size_t workspace_bytes(const MatmulProblem& p, const Device& d, const Config&) const override {
    Tiling t = tiling_of(p, d);
    return size_t(t.threads) * t.room_bytes;
  }
  std::unique_ptr<Plan<MatmulProblem>> build(const MatmulProblem& p, const Device& d, const Config&) const override {
    return make_plan<MatmulProblem>([p, t = tiling_of(p, d)](const MatmulArgs& args, void* workspace, Stream) {
      with_matmul_types(p, [&](auto from, auto to) {
        using T = typename decltype(from)::type;
        using Y = typename decltype(to)::type;
        std::atomic<int64_t> next = 0;
        cpu::parallel_for(t.threads, 1, [&](int64_t begin, int64_t end) {
          for (int64_t thread = begin; thread < end; ++thread)
            for (int64_t tile; (tile = next++) < t.count;)
              compute_tile<T, Y>(p, args, t, tile, static_cast<char*>(workspace) + size_t(thread) * t.room_bytes);
        });
      });
    });
  }

 private:
  static Tiling tiling_of(const MatmulProblem& p, const Device& d) {
    return p.a.dtype == DType::float64 ? tiling<double>(p, d) : tiling<float>(p, d);
  }
};

}  // namespace

const Engine<MatmulProblem>& matmul_blocked() {
  static const Blocked engine;
  return engine;
}

}  // namespace minidnn
