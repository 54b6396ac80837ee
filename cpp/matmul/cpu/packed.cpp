// SPDX-License-Identifier: Apache-2.0
// cpu.matmul.packed: matrix products of any strides. y is divided into blocks, one per thread at a time. The inner
// dimension k is divided into slices. For each slice, the thread packs panels of b, such as 16 columns each, which stay
// in the second-level cache while it loops over the rows of a. If the layout of a allows it, a is read without packing.
// With AMX, products of bfloat16 are those of bf16_products.h, and both operands are packed in whole tiles. Sums are
// float32 (float64 for float64 operands). The rounding of an element of y depends neither on its block nor on the number
// of threads.
#include <algorithm>
#include <type_traits>

#include "cpp/activation/activation.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/matmul/cpu/packed_tiling.h"
#include "cpp/simd/bf16_products.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace cpu::matmul {
namespace {

template <class Acc> const GemmRow<Acc>& row_kernels() {
  if constexpr (sizeof(Acc) == 8) return gemm_kernels().row_f64;
  else return gemm_kernels().row_f32;
}
template <class Acc> const GemmKernel<Acc>& kernel_of(PackedTiling::Row row) {
  if (row == PackedTiling::Row::wide) return row_kernels<Acc>().wide;
  if constexpr (sizeof(Acc) == 8) return gemm_kernels().f64;
  else return gemm_kernels().f32;
}

template <class T> const GemmRowOf<T>& row_kernels_of() {
  if constexpr (std::is_same_v<T, float16>) return gemm_kernels().row_f16;
  else return gemm_kernels().row_bf16;
}

template <class T, class Y> struct Product {
  using Acc = Accumulator<T>;
  const PackedTiling& tiling;
  // If tiling.transposed is true, args.a is the data of b, and args.b is the data of a.
  const MatmulArgs& args;
  const MatmulProblem& p = tiling.p;
  const GemmKernel<Acc>& kernel = kernel_of<Acc>(tiling.row);
  const int64_t tile_rows = tiling.tile_rows, tile_columns = tiling.tile_columns;
  const MatmulSizes s = tiling.s;

  void block(int64_t index, char* scratch) const {
    const int64_t batch = index / (tiling.blocks_down * tiling.blocks_across);
    const int64_t tile = index / tiling.blocks_across % tiling.blocks_down * tiling.block_tiles,
                  panel = index % tiling.blocks_across * tiling.block_panels;
    const int64_t tiles = std::min(tiling.block_tiles, tiling.tiles - tile),
                  panels = std::min(tiling.block_panels, tiling.panels - panel);
    const int64_t row = tile * tile_rows, column = panel * tile_columns;
    const int64_t rows = std::min(tiles * tile_rows, s.m - row),
                  columns = std::min(panels * tile_columns, s.n - column);
    if (rows <= 0 || columns <= 0) return;
    const Matrix<const T> a = matrix<const T>(args.a, p.a, batch), b = matrix<const T>(args.b, p.b, batch);
    const Matrix<Y> y = matrix<Y>(args.y, p.y, batch);
    Acc *packed_a = reinterpret_cast<Acc*>(scratch), *packed_b = reinterpret_cast<Acc*>(scratch + tiling.b_at);
    Acc* sums = reinterpret_cast<Acc*>(scratch + tiling.sums_at);
    const int64_t pitch = panels * tile_columns;
    if (tiling.row == PackedTiling::Row::dots) {
      const T *from_a = a.at(row, 0), *from_b = b.at(0, column);
      if constexpr (sizeof(T) == sizeof(Acc)) row_kernels<Acc>().dots(from_a, from_b, b.column, columns, s.k, sums);
      else row_kernels_of<T>().dots(from_a, from_b, b.column, columns, s.k, sums);
      return finish(batch, row, column, 1, columns, sums, pitch);
    }
    if constexpr (std::is_same_v<T, bfloat16>)
      if (tiling.amx) {
        multiply_by_amx({a.at(row, 0), a.row, a.column}, rows, {b.at(0, column), b.row, b.column}, columns, scratch,
                        sums);
        return finish(batch, row, column, rows, columns, sums, pitch);
      }
    // Whether sums of whole tiles may be formed directly in y: rows of y are contiguous, y has the dtype of the sums,
    // and the epilogue changes nothing.
    const bool direct_store = sizeof(Y) == sizeof(Acc) && y.column == 1 && plain();

    // A step of k is an element of the packed operands, or two steps are a pair.
    const int64_t pair = tiling.pairs ? 2 : 1;
    for (int64_t from = 0; from == 0 || from < s.k; from += std::max<int64_t>(tiling.slice, 1)) {
      const int64_t length = std::min(tiling.slice, s.k - from), packed_length = ceil_div(length, pair);
      if (!tiling.a_in_place)
        in_strips(length, a.column == 1, [&](int64_t n, int64_t some) {
          for (int64_t t = 0; t < tiles; ++t)
            pack<true>(a.at(row + t * tile_rows, from + n), a.row, a.column, std::min(tile_rows, rows - t * tile_rows),
                       some, packed_a + (t * packed_length + n / pair) * tile_rows);
        });
      in_strips(length, b.row == 1, [&](int64_t n, int64_t some) {
        for (int64_t j = 0; j < panels; ++j) {
          const int64_t width = std::min(tile_columns, columns - j * tile_columns);
          if (!tiling.b_in_place || width < tile_columns)
            pack<false>(b.at(from + n, column + j * tile_columns), b.column, b.row, width, some,
                        packed_b + (j * packed_length + n / pair) * tile_columns);
        }
      });
      for (int64_t j = 0; j < panels; ++j) {
        const int64_t width = columns - j * tile_columns;
        const bool whole = width >= tile_columns, in_place = tiling.b_in_place && whole;
        const T* const b_in_place = b.at(from, column + j * tile_columns);
        const Acc* panel_b = in_place ? same(b_in_place) : packed_b + j * tile_columns * packed_length;
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t used = std::min(tile_rows, rows - t * tile_rows);
          GemmSegment segment{};
          const Acc* tile_a = packed_a + t * tile_rows * packed_length;
          if (tiling.a_in_place) tile_a = same(a.at(row + t * tile_rows, from));
          // If a is read in place and does not fill a tile, the remaining rows of the tile read its first row again.
          for (int64_t i = 0; i < tile_rows; ++i)
            segment.a[i] =
                tiling.a_in_place ? (i < used ? i : 0) * a.row * int64_t(sizeof(T)) : i * int64_t(sizeof(Acc));
          Acc* to = sums + t * tile_rows * pitch + j * tile_columns;
          int64_t to_pitch = pitch;
          if (direct_store && whole && used == tile_rows) {
            to = reinterpret_cast<Acc*>(y.at(row + t * tile_rows, column + j * tile_columns));
            to_pitch = y.row;
          }
          const int64_t b_step = in_place ? b.row : tile_columns, a_step = tiling.a_in_place ? 1 : tile_rows;
          for (int64_t n = 0; n == 0 || n < length; n += PackedTiling::kSegment) {
            const GemmTile<Acc> tile{&segment,
                                     1,
                                     ceil_div(std::min(PackedTiling::kSegment, length - n), pair),
                                     tile_a + n / pair * a_step,
                                     a_step,
                                     panel_b + n / pair * b_step,
                                     b_step,
                                     to,
                                     to_pitch,
                                     from + n > 0};
            multiply(tile, used, width, in_place ? b_in_place + n * b_step : nullptr);
          }
        }
      }
    }
    // Stores the sums that are not yet in y: those of partly filled tiles, or all sums.
    const int64_t done_rows = direct_store ? rows / tile_rows * tile_rows : 0;
    const int64_t done_columns = direct_store ? columns / tile_columns * tile_columns : 0;
    if (done_columns < columns)
      finish(batch, row, column + done_columns, rows, columns - done_columns, sums + done_columns, pitch);
    if (done_rows < rows && done_columns)
      finish(batch, row + done_rows, column, rows - done_rows, done_columns, sums + done_rows * pitch, pitch);
  }

  // Computes the sums of a block. Operands are packed with zeros up to whole tiles.
  void multiply_by_amx(const Matrix<const T>& a, int64_t rows, const Matrix<const T>& b, int64_t columns, char* scratch,
                       float* sums) const {
    const Bf16Kernels& amx = *bf16_products();
    bfloat16 *packed_a = reinterpret_cast<bfloat16*>(scratch),
             *packed_b = reinterpret_cast<bfloat16*>(scratch + tiling.b_at);
    const int64_t pitch = ceil_div(columns, tile_columns) * tile_columns;
    amx.begin();
    for (int64_t from = 0; from < s.k; from += tiling.slice) {
      const int64_t length = std::min(tiling.slice, s.k - from), steps = ceil_div(length, kBf16Steps) * kBf16Steps;
      pack_rows_for_amx({a.at(0, from), a.row, a.column}, rows, length, packed_a);
      for (int64_t j = 0; j < columns; j += tile_columns) {
        const int64_t width = std::min(tile_columns, columns - j), packed = ceil_div<int64_t>(length, 2);
        bfloat16* const panel = packed_b + j * steps;
        float* const pairs_of_panel = reinterpret_cast<float*>(panel);
        gemm_kernels().pairs.pack(b.at(from, j), b.column, b.row, width, length, pairs_of_panel);
        std::fill(pairs_of_panel + packed * tile_columns, pairs_of_panel + steps / 2 * tile_columns, 0.0f);
        amx.multiply({packed_a, 0, panel, 2 * kBf16Lines, sums + j, pitch, ceil_div(rows, kBf16Lines) * kBf16Lines,
                      ceil_div(width, kBf16Lines) * kBf16Lines, steps, from > 0, 2 * tile_columns});
      }
    }
    amx.end();
  }
  // Packs `length` steps of k of rows of a in tiles, with zeros up to whole tiles.
  void pack_rows_for_amx(const Matrix<const T>& a, int64_t rows, int64_t length, bfloat16* to) const {
    const Bf16Kernels& amx = *bf16_products();
    for (int64_t i = 0; i < rows; i += kBf16Lines)
      for (int64_t k = 0; k < length; k += kBf16Steps, to += kBf16Lines * kBf16Steps) {
        const int64_t count = std::min(kBf16Lines, rows - i), steps = std::min(kBf16Steps, length - k);
        if (count < kBf16Lines || (a.column != 1 && steps < kBf16Steps))
          std::fill_n(to, kBf16Lines * kBf16Steps, bfloat16{});
        if (a.column == 1) amx.pad_rows(a.at(i, k), a.row, count, steps, to, kBf16Steps, kBf16Steps);
        else if (a.row == 1 && count == kBf16Lines && steps == kBf16Steps)
          amx.transpose(a.at(i, k), a.column, steps, count, to, kBf16Steps);
        else
          for (int64_t n = 0; n < steps; ++n)
            for (int64_t j = 0; j < count; ++j) to[j * kBf16Steps + n] = *a.at(i + j, k + n);
      }
  }

  // Calls f(first, count) for chunks of the inner dimension k. If k is not contiguous, chunks are short, so that
  // adjacent rows that share cache lines are packed soon after each other.
  template <class F> static void in_strips(int64_t length, bool k_is_contiguous, F&& f) {
    const int64_t some = k_is_contiguous ? length : 16;
    for (int64_t n = 0; n < length; n += some) f(n, std::min(some, length - n));
  }
  bool plain() const {
    return args.alpha == 1 && !(p.c.rank && args.beta != 0) && !p.has_bias && p.activation == Activation::identity;
  }
  // Multiplies the first `used` rows and `width` columns of a tile. `b` is not null if b is read in place.
  void multiply(const GemmTile<Acc>& t, int64_t used, int64_t width, const T* b) const {
    const bool several = tiling.row == PackedTiling::Row::no;
    if constexpr (sizeof(T) < sizeof(Acc)) {
      if (b)
        return row_kernels_of<T>().multiply(
            {t.segments, t.count, t.steps, t.a, t.a_step, b, t.b_step, t.to, t.pitch, t.add});
      if (!several) return row_kernels_of<T>().multiply_packed(t);
    }
    if constexpr (sizeof(Acc) == 4)
      if (several) return gemm_multiply(tiling.pairs, used, width)(t);
    kernel.multiply(t);
  }
  static const Acc* same(const T* from) { return reinterpret_cast<const Acc*>(from); }

  // Packs a tile of rows of a, or a panel of columns of b. Adjacent rows (or columns) are `unit` elements apart, and
  // adjacent steps of k are `step` elements apart.
  template <bool rows> void pack(const T* from, int64_t unit, int64_t step, int64_t count, int64_t length,
                                 Acc* to) const {
    const auto with = [&](const auto& packing) {
      (rows ? packing.pack_rows : packing.pack)(from, unit, step, count, length, to);
    };
    if constexpr (sizeof(T) == sizeof(Acc)) with(kernel);
    else if (tiling.row != PackedTiling::Row::no) {
      const int64_t width = rows ? tile_rows : tile_columns;
      for (int64_t n = 0; n < length; ++n)
        for (int64_t i = 0; i < width; ++i) to[n * width + i] = i < count ? Acc(from[i * unit + n * step]) : Acc(0);
    } else with(gemm_packing<T>(tiling.pairs));
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
      // The transposed product has one bias element per row.
      (tiling.transposed ? f.bias_row : f.bias_column) = p.bias_stride;
      int64_t y_rows[PackedTiling::kBlockTiles * kGemmRows], c_rows[PackedTiling::kBlockTiles * kGemmRows];
      for (int64_t i = 0; i < rows; ++i) {
        y_rows[i] = i * y.row;
        c_rows[i] = i * c.row;
      }
      const int64_t first = (tiling.transposed ? row : column) * p.bias_stride;
      const T* bias = p.has_bias ? static_cast<const T*>(args.bias) + first : nullptr;
      gemm_finish<T, Y>()(f, {sums, pitch, rows, columns, y.at(row, column), y_rows,
                              reads_c ? c.at(row, column) : nullptr, c_rows, bias});
    }
  }
};

}  // namespace

struct Packed final : Engine<MatmulProblem> {
  std::string name() const override { return "cpu.matmul.packed"; }
  std::string why_not(const MatmulProblem& p, const Device&) const override { return matmul_why_not(p); }
  double estimate_us(const MatmulProblem& p, const Device& d) const override {
    const GemmKernel<float>& kernel = gemm_kernels().f32;
    const PackedTiling tiling(p, d);
    const MatmulSizes s = tiling.s;
    const double waste = s.m && s.n ? wasted(s.m, s.m > 1 ? kernel.rows : 1) * wasted(s.n, kernel.columns / 2) : 1;
    const double of_pairs = tiling.amx ? kAmxCost : tiling.pairs ? 0.5 : 1;
    return roofline_us(matmul_flop(p) * waste * of_pairs / 10, matmul_bytes(p), d, 0.85);
  }
  size_t workspace_bytes(const MatmulProblem& p, const Device& d, const Config&) const override {
    return PackedTiling(p, d).bytes;
  }
  std::unique_ptr<Plan<MatmulProblem>> build(const MatmulProblem& p, const Device& d, const Config&) const override {
    return make_plan<MatmulProblem>([tiling = PackedTiling(p, d)](const MatmulArgs& given, void* workspace, Stream) {
      MatmulArgs args = given;
      if (tiling.transposed) std::swap(args.a, args.b);
      with_matmul_types(tiling.p, [&](auto from, auto to) {
        const Product<typename decltype(from)::type, typename decltype(to)::type> product{tiling, args};
        auto block = [&](int64_t i, int64_t thread) {
          product.block(i, static_cast<char*>(workspace) + size_t(thread) * tiling.scratch_bytes);
        };
        // Products of a few microseconds end before another thread would wake up.
        const bool small = matmul_flop(tiling.p) < double(cpu::work_size(1000000));
        if (small)
          for (int64_t i = 0; i < tiling.blocks; ++i) block(i, 0);
        else cpu::parallel_items(tiling.blocks, block);
      });
    });
  }
};

}  // namespace cpu::matmul

template const Engine<MatmulProblem>& engine_object<MatmulProblem, cpu::matmul::Packed>();

}  // namespace minidnn
