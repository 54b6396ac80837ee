// SPDX-License-Identifier: Apache-2.0
// cpu.matmul.packed: products of any strides. y is divided into blocks; one thread computes a block, slice by slice of
// K. For each slice, panels of b are packed for the micro-kernel (cpp/simd/gemm_microkernel.h) and are kept in the
// second-level cache while the rows of a are traversed. a is read without packing if its layout allows it. Sums are
// kept in float32 (float64 for float64) until the last slice has been added. The sum of an element depends neither on
// its block nor on the number of threads.
#include <algorithm>

#include "cpp/activation/activation.h"
#include "cpp/core/thread_pool.h"
#include "cpp/core/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/matmul/matmul.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::matmul {
namespace {

constexpr int64_t kBlockTiles = 32;  // the most tiles in a block
// steps of K summed in one go and then added to the sums before: the same order for every blocking
constexpr int64_t kRun = 256;
// The length of a slice of K, a multiple of kRun, and the number of panels of b in a block: a packed slice of b has 200
// KB. If a must be packed too, slices are shorter and blocks are wider; each packing then serves more columns.
constexpr int64_t kSlice = 512, kBlockPanels = 6, kPackedSlice = 256, kPackedPanels = 12;
constexpr int64_t kFewTiles = 2;  // b is not packed for this many tiles of rows or fewer

template <class Acc> const GemmKernel<Acc>& micro_kernel() {
  if constexpr (sizeof(Acc) == 8) return gemm_kernels().f64;
  else return gemm_kernels().f32;
}
template <class Acc> const GemmRow<Acc>& row_kernels() {
  if constexpr (sizeof(Acc) == 8) return gemm_kernels().row_f64;
  else return gemm_kernels().row_f32;
}

// How a product with one row is computed, by the layout of b: rows contiguous (wide), columns contiguous (dots), or not
// specially (no).
enum class Row { no, wide, dots };
template <class T> Row row_of(const MatmulProblem& p) {
  const MatmulSizes s = sizes_of(p);
  if (sizeof(T) != sizeof(Accumulator<T>) || s.m != 1 || s.k < 2 || s.n < 2) return Row::no;
  if (p.b.stride[p.b.rank - 1] == 1) return Row::wide;
  return p.b.stride[p.b.rank - 2] == 1 && p.a.stride[p.a.rank - 1] == 1 ? Row::dots : Row::no;
}
template <class T> const GemmKernel<Accumulator<T>>& kernel_of(const MatmulProblem& p) {
  using Acc = Accumulator<T>;
  return row_of<T>(p) == Row::wide ? row_kernels<Acc>().wide : micro_kernel<Acc>();
}

// How a product is divided into blocks, in tiles and panels of the kernel.
struct Blocking {
  int64_t tiles, panels;              // of one matrix
  int64_t block_tiles, block_panels;  // of a block
  int64_t down, across, count;        // blocks of one matrix, and of all matrices
  int64_t slice;                      // of K
  bool a_lies, b_lies;                // read without packing
  size_t b_at, sums_at, room_bytes, bytes;
};

template <class T> Blocking blocking(const MatmulProblem& p, const Device& d) {
  using Acc = Accumulator<T>;
  const GemmKernel<Acc>& kernel = kernel_of<T>(p);
  const MatmulSizes s = sizes_of(p);
  Blocking k{};
  k.tiles = ceil_div(s.m, kernel.rows);
  k.panels = ceil_div(s.n, kernel.columns);
  const bool same = sizeof(T) == sizeof(Acc);
  k.a_lies = same && p.a.stride[p.a.rank - 1] == 1 && s.k > 1;
  k.slice = std::min(cpu::work_size(k.a_lies ? kSlice : kPackedSlice, kRun), s.k);
  k.block_tiles = std::min(cpu::work_size(kBlockTiles), k.tiles);
  k.block_panels = std::min(cpu::work_size(k.a_lies ? kBlockPanels : kPackedPanels), k.panels);
  auto count = [&] {
    k.down = ceil_div(k.tiles, k.block_tiles);
    k.across = ceil_div(k.panels, k.block_panels);
    return k.count = s.batch * k.down * k.across;
  };
  // Halve the blocks until there are two for each thread.
  while (count() < 2 * d.sm_count && d.sm_count > 1 && (k.block_tiles > 4 || k.block_panels > 1))
    if (k.block_tiles > 4) k.block_tiles = ceil_div<int64_t>(k.block_tiles, 2);
    else k.block_panels = ceil_div<int64_t>(k.block_panels, 2);
  k.block_tiles = ceil_div(k.tiles, k.down);
  k.block_panels = ceil_div(k.panels, k.across);  // blocks of equal size
  count();
  k.b_lies = same && p.b.stride[p.b.rank - 1] == 1 && s.n > 1 && k.block_tiles <= kFewTiles;
  auto align = [](size_t n) { return ceil_div<size_t>(n, 64) * 64; };
  k.b_at = k.a_lies ? 0 : align(size_t(k.block_tiles * kernel.rows * k.slice) * sizeof(Acc));
  k.sums_at = k.b_at + align(size_t(k.block_panels * kernel.columns * k.slice) * sizeof(Acc));
  k.room_bytes = k.sums_at + align(size_t(k.block_tiles * kernel.rows * k.block_panels * kernel.columns) * sizeof(Acc));
  k.bytes = k.room_bytes * size_t(std::min<int64_t>(d.sm_count, k.count));
  return k;
}

// If the columns of y are contiguous, as in planes, y^T = b^T a^T is computed instead: its rows are contiguous, and
// sums are formed in y itself.
bool is_turned(const MatmulProblem& p) {
  const int64_t last = p.y.rank - 1;
  return p.a.dtype != DType::float64 && p.y.stride[last] != 1 && p.y.stride[last - 1] == 1 && p.y.shape[last] > 1 &&
         p.y.shape[last - 1] > 1;
}
MatmulProblem turned(MatmulProblem p) {
  std::swap(p.a, p.b);
  for (TensorDesc* d : {&p.a, &p.b, &p.c, &p.y}) {
    if (!d->rank) continue;
    std::swap(d->shape[d->rank - 2], d->shape[d->rank - 1]);
    std::swap(d->stride[d->rank - 2], d->stride[d->rank - 1]);
  }
  return p;
}
MatmulArgs turned(MatmulArgs args) {
  std::swap(args.a, args.b);
  return args;
}

template <class T, class Y> struct Product {
  using Acc = Accumulator<T>;
  const MatmulProblem& p;
  const MatmulArgs& args;
  const Blocking& k;
  const bool turned;  // the bias then belongs to rows
  const GemmKernel<Acc>& kernel = kernel_of<T>(p);
  const MatmulSizes s = sizes_of(p);

  void block(int64_t index, char* room) const {
    const int64_t batch = index / (k.down * k.across);
    const int64_t tile = index / k.across % k.down * k.block_tiles, panel = index % k.across * k.block_panels;
    const int64_t tiles = std::min(k.block_tiles, k.tiles - tile), panels = std::min(k.block_panels, k.panels - panel);
    const int64_t row = tile * kernel.rows, column = panel * kernel.columns;
    const int64_t rows = std::min(tiles * kernel.rows, s.m - row),
                  columns = std::min(panels * kernel.columns, s.n - column);
    if (rows <= 0 || columns <= 0) return;
    const Matrix<const T> a = matrix<const T>(args.a, p.a, batch), b = matrix<const T>(args.b, p.b, batch);
    const Matrix<Y> y = matrix<Y>(args.y, p.y, batch);
    Acc *packed_a = reinterpret_cast<Acc*>(room), *packed_b = reinterpret_cast<Acc*>(room + k.b_at);
    Acc* sums = reinterpret_cast<Acc*>(room + k.sums_at);
    const int64_t pitch = panels * kernel.columns;
    if constexpr (sizeof(T) == sizeof(Acc))
      if (row_of<T>(p) == Row::dots) {
        row_kernels<Acc>().dots(a.at(row, 0), b.at(0, column), b.column, columns, s.k, sums);
        return finish(batch, row, column, 1, columns, sums, pitch);
      }
    // If the result is nothing but sums, whole tiles are summed in y itself.
    const bool straight = sizeof(Y) == sizeof(Acc) && y.column == 1 && plain();

    for (int64_t from = 0; from == 0 || from < s.k; from += std::max<int64_t>(k.slice, 1)) {
      const int64_t length = std::min(k.slice, s.k - from);
      if (!k.a_lies)
        in_strips(length, a.column == 1, [&](int64_t n, int64_t some) {
          for (int64_t t = 0; t < tiles; ++t)
            pack<true>(a.at(row + t * kernel.rows, from + n), a.row, a.column,
                       std::min(kernel.rows, rows - t * kernel.rows), some, packed_a + (t * length + n) * kernel.rows);
        });
      in_strips(length, b.row == 1, [&](int64_t n, int64_t some) {
        for (int64_t j = 0; j < panels; ++j) {
          const int64_t width = std::min(kernel.columns, columns - j * kernel.columns);
          if (!k.b_lies || width < kernel.columns)
            pack<false>(b.at(from + n, column + j * kernel.columns), b.column, b.row, width, some,
                        packed_b + (j * length + n) * kernel.columns);
        }
      });
      for (int64_t j = 0; j < panels; ++j) {
        const bool whole = columns - j * kernel.columns >= kernel.columns, lies = k.b_lies && whole;
        const Acc* panel_b =
            lies ? same(b.at(from, column + j * kernel.columns)) : packed_b + j * kernel.columns * length;
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t used = std::min(kernel.rows, rows - t * kernel.rows);
          GemmSegment segment{};
          const Acc* tile_a = packed_a + t * kernel.rows * length;
          if (k.a_lies) tile_a = same(a.at(row + t * kernel.rows, from));
          for (int64_t i = 0; i < kernel.rows; ++i)  // rows beyond the last read the first row again
            segment.a[i] = (k.a_lies ? (i < used ? i : 0) * a.row : i) * int64_t(sizeof(Acc));
          Acc* to = sums + t * kernel.rows * pitch + j * kernel.columns;
          int64_t to_pitch = pitch;
          if (straight && whole && used == kernel.rows) {
            to = reinterpret_cast<Acc*>(y.at(row + t * kernel.rows, column + j * kernel.columns));
            to_pitch = y.row;
          }
          const int64_t b_step = lies ? b.row : kernel.columns, a_step = k.a_lies ? 1 : kernel.rows;
          for (int64_t n = 0; n == 0 || n < length; n += kRun)
            kernel.multiply(&segment, 1, std::min(kRun, length - n), tile_a + n * a_step, a_step, panel_b + n * b_step,
                            b_step, to, to_pitch, from + n > 0);
        }
      }
    }
    // Store what is not in y yet: everything, or the edges.
    const int64_t done_rows = straight ? rows / kernel.rows * kernel.rows : 0;
    const int64_t done_columns = straight ? columns / kernel.columns * kernel.columns : 0;
    if (done_columns < columns)
      finish(batch, row, column + done_columns, rows, columns - done_columns, sums + done_columns, pitch);
    if (done_rows < rows && done_columns)
      finish(batch, row + done_rows, column, rows - done_rows, done_columns, sums + done_rows * pitch, pitch);
  }

  // Calls f(first k, count) for strips of K. If each k is a separate line of memory, strips are short: all tiles or
  // panels copy from a few lines before the next lines are read.
  template <class F> static void in_strips(int64_t length, bool k_lies, F&& f) {
    const int64_t some = k_lies ? length : 16;
    for (int64_t n = 0; n < length; n += some) f(n, std::min(some, length - n));
  }
  bool plain() const {
    return args.alpha == 1 && !(p.c.rank && args.beta != 0) && !p.has_bias && p.activation == Activation::identity;
  }
  static const Acc* same(const T* from) { return reinterpret_cast<const Acc*>(from); }

  // Packs a tile of rows of a, or a panel of columns of b; these are `unit` elements apart.
  template <bool rows> void pack(const T* from, int64_t unit, int64_t step, int64_t count, int64_t length,
                                 Acc* to) const {
    if constexpr (sizeof(T) == sizeof(Acc))
      (rows ? kernel.pack_rows : kernel.pack)(from, unit, step, count, length, to);
    else {
      const int64_t width = rows ? kernel.rows : kernel.columns;
      for (int64_t n = 0; n < length; ++n)
        for (int64_t i = 0; i < width; ++i) to[n * width + i] = i < count ? Acc(from[i * unit + n * step]) : Acc(0);
    }
  }

  void finish(int64_t batch, int64_t row, int64_t column, int64_t rows, int64_t columns, Acc* sums,
              int64_t pitch) const {
    if constexpr (sizeof(Acc) == 8) {
      MatmulEpilogue<T, Y> epilogue(p, args, batch);
      with_activation(p.activation, [&](auto mode) {
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < columns; ++j)
            epilogue.template store<mode.value>(sums[i * pitch + j], row + i, column + j);
      });
    } else {
      const Matrix<Y> y = matrix<Y>(args.y, p.y, batch);
      const bool reads_c = p.c.rank && args.beta != 0;
      const Matrix<const Y> c = reads_c ? matrix<const Y>(args.c, p.c, batch) : Matrix<const Y>{nullptr, 0, 0};
      Epilogue f;
      f.activation = activation_on_floats(p.activation);
      f.activation_alpha = float(args.activation_alpha);
      f.alpha = float(args.alpha);
      f.beta = float(args.beta);
      f.y_column = y.column;
      f.c_column = c.column;
      (turned ? f.bias_row : f.bias_column) = p.bias_stride;
      int64_t y_rows[kBlockTiles * kGemmRows], c_rows[kBlockTiles * kGemmRows];
      for (int64_t i = 0; i < rows; ++i) {
        y_rows[i] = i * y.row;
        c_rows[i] = i * c.row;
      }
      const int64_t first = (turned ? row : column) * p.bias_stride;
      const T* bias = p.has_bias ? static_cast<const T*>(args.bias) + first : nullptr;
      gemm_finish<T, Y>()(f, sums, pitch, rows, columns, y.at(row, column), y_rows,
                          reads_c ? c.at(row, column) : nullptr, c_rows, bias);
    }
  }
};

}  // namespace

struct Packed final : Engine<MatmulProblem> {
  std::string name() const override { return "cpu.matmul.packed"; }
  std::string why_not(const MatmulProblem& p, const Device&) const override { return matmul_why_not(p); }
  double estimate_us(const MatmulProblem& p, const Device& d) const override {
    const GemmKernel<float>& kernel = gemm_kernels().f32;
    const MatmulSizes s = sizes_of(is_turned(p) ? turned(p) : p);
    const double waste = s.m && s.n ? wasted(s.m, s.m > 1 ? kernel.rows : 1) * wasted(s.n, kernel.columns) : 1;
    return roofline_us(matmul_flop(p) * waste / 10, matmul_bytes(p), d, 0.85);
  }
  size_t workspace_bytes(const MatmulProblem& p, const Device& d, const Config&) const override {
    return blocking_of(p, d).bytes;
  }
  std::unique_ptr<Plan<MatmulProblem>> build(const MatmulProblem& p, const Device& d, const Config&) const override {
    const bool turns = is_turned(p);
    return make_plan<MatmulProblem>(
        [p = turns ? turned(p) : p, turns, k = blocking_of(p, d)](const MatmulArgs& given, void* workspace, Stream) {
          const MatmulArgs args = turns ? turned(given) : given;
          with_matmul_types(p, [&](auto from, auto to) {
            const Product<typename decltype(from)::type, typename decltype(to)::type> product{p, args, k, turns};
            // A single thread finishes a few microseconds of work before another one is woken.
            const bool small = matmul_flop(p) < double(cpu::work_size(1000000));
            auto block = [&](int64_t i, int64_t room) {
              product.block(i, static_cast<char*>(workspace) + size_t(room) * k.room_bytes);
            };
            if (small)
              for (int64_t i = 0; i < k.count; ++i) block(i, 0);
            else cpu::parallel_items(k.count, block);
          });
        });
  }

 private:
  static Blocking blocking_of(const MatmulProblem& p, const Device& d) {
    Blocking k{};
    const MatmulProblem as_computed = is_turned(p) ? turned(p) : p;
    with_floating(p.a.dtype, [&](auto type) { k = blocking<typename decltype(type)::type>(as_computed, d); });
    return k;
  }
};

}  // namespace cpu::matmul

template const Engine<MatmulProblem>& engine_object<MatmulProblem, cpu::matmul::Packed>();

}  // namespace minidnn
