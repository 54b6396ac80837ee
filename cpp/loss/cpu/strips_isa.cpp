// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of a strip of rows at a time: each lane of a vector computes one row. The rows of a strip are adjacent
// in memory, or they are gathered: a tile of classes is transposed to a buffer in which the rows are adjacent.
#include "cpp/loss/cpu/strips_kernel.h"
#include "cpp/simd/columns.h"
#include "cpp/simd/transpose.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// An unsigned integer with the size of T, to move elements without conversions.
template <int bytes> struct BitsOf;
template <> struct BitsOf<2> {
  using type = uint16_t;
};
template <> struct BitsOf<4> {
  using type = uint32_t;
};
template <> struct BitsOf<8> {
  using type = uint64_t;
};
template <class T> using Bits = typename BitsOf<sizeof(T)>::type;

// A signed integer with the size of the numbers in which losses are computed, so that a vector has as many of both.
template <class A> struct TargetOf {
  using type = int32_t;
};
template <> struct TargetOf<double> {
  using type = int64_t;
};

// A vector of 16 bytes has only two elements of 8 bytes, so they are not worth a transposition in registers.
template <class B> constexpr bool kHasTiles = sizeof(B) < 8;
constexpr int64_t kTileElements = kGatheredClasses * kGatheredRows + 16;

// Copies `classes` x `width` elements to a buffer in which the elements of a class are adjacent.
template <class B>
void gather(const void* elements, int64_t class_step, int64_t row_step, void* tile, int64_t pitch, int64_t classes,
            int64_t width) {
  auto from = static_cast<const B*>(elements);
  auto to = static_cast<B*>(tile);
  if constexpr (kHasTiles<B>)
    if (class_step == 1) return transpose_tile(from, row_step, to, pitch, width, classes);
  for (int64_t c = 0; c < classes; ++c)
    for (int64_t j = 0; j < width; ++j) to[c * pitch + j] = from[c * class_step + j * row_step];
}
// The inverse of gather()
template <class B>
void scatter(const void* tile, int64_t pitch, void* elements, int64_t class_step, int64_t row_step, int64_t classes,
             int64_t width, bool non_temporal) {
  auto from = static_cast<const B*>(tile);
  auto to = static_cast<B*>(elements);
  alignas(64) B stage[kTileElements];
  if (class_step != 1) {
    for (int64_t j = 0; j < width; ++j)
      for (int64_t c = 0; c < classes; ++c) to[c * class_step + j * row_step] = from[c * pitch + j];
    return;
  }
  if constexpr (kHasTiles<B>) transpose_tile(from, pitch, stage, classes, classes, width);
  else
    for (int64_t j = 0; j < width; ++j)
      for (int64_t c = 0; c < classes; ++c) stage[j * classes + c] = from[c * pitch + j];
  if (row_step == classes) return copy_span(stage, to, classes * width, non_temporal);
  for (int64_t j = 0; j < width; ++j)
    __builtin_memcpy(to + j * row_step, stage + j * classes, size_t(classes) * sizeof(B));
}

// How elements of a dtype become numbers and back. Calls through pointers are rare, so that the loops over numbers need
// not be compiled for each dtype.
template <class A> struct Elements {
  int64_t bytes;
  const A* (*read)(const void* from, A* numbers, int64_t n);
  void (*write)(const A* from, void* to, int64_t n, bool non_temporal);
  void (*gather)(const void* from, int64_t class_step, int64_t row_step, void* to, int64_t pitch, int64_t classes,
                 int64_t width);
  void (*scatter)(const void* from, int64_t pitch, void* to, int64_t class_step, int64_t row_step, int64_t classes,
                  int64_t width, bool non_temporal);
  A (*number)(const void* at);
};
template <class T> const Accumulator<T>* read(const void* from, Accumulator<T>* numbers, int64_t n) {
  return read_span<Order::memory>(static_cast<const T*>(from), numbers, n);
}
template <class T> void write(const Accumulator<T>* from, void* to, int64_t n, bool non_temporal) {
  write_span<Order::memory>(from, static_cast<T*>(to), n, non_temporal);
}
template <class T> Accumulator<T> number(const void* at) { return Accumulator<T>(*static_cast<const T*>(at)); }
template <class T>
constexpr Elements<Accumulator<T>> kElements = {sizeof(T),       read<T>,          write<T>,
                                                gather<Bits<T>>, scatter<Bits<T>>, number<T>};

template <class A> struct Buffers {
  alignas(64) A numbers[kSpan];
  alignas(64) A tile[kTileElements];
};

// The logits of `width` rows. `first` is class 0 of the first row. Steps count elements.
template <class A> struct Strip {
  const Elements<A>& elements;
  const char* first;
  int64_t class_step, row_step, classes, width;
  Buffers<A>& buffers;
  int64_t gathered = -1;  // the first class of the tile

  int64_t pitch() const { return whole_steps(width); }
  const char* at(int64_t c, int64_t row) const { return first + (c * class_step + row * row_step) * elements.bytes; }
  // Returns the logits of class c as numbers, padded to whole steps.
  __attribute__((noinline)) const A* row(int64_t c) {
    if (row_step == 1) return elements.read(at(c, 0), buffers.numbers, width);
    const int64_t begin = c / kGatheredClasses * kGatheredClasses;
    if (begin != gathered)
      elements.gather(at(begin, 0), class_step, row_step, buffers.tile, pitch(),
                      min_of(kGatheredClasses, classes - begin), width);
    gathered = begin;
    return elements.read(reinterpret_cast<const char*>(buffers.tile) + (c - begin) * pitch() * elements.bytes,
                         buffers.numbers, width);
  }
};

struct StripItem {
  int64_t row, width;  // the number of the first row, and the number of rows
};
inline __attribute__((always_inline)) StripItem strip_of(const LossTiling& t, int64_t item) {
  const int64_t at = item % t.strips * t.width;
  return {item / t.strips * t.run + at, min_of(t.width, t.run - at)};
}
inline __attribute__((always_inline)) int64_t target_at(const LossProblem& p, const LossArgs& a, const LossTiling& t,
                                                        int64_t row) {
  if (!t.row_major_target) return detail::target_of(p, a, row);
  return p.target.dtype == DType::int32 ? static_cast<const int32_t*>(a.target)[row]
                                        : static_cast<const int64_t*>(a.target)[row];
}
template <class A>
Strip<A> strip_at(const LossProblem& p, const LossArgs& a, const LossTiling& t, const Elements<A>& elements,
                  StripItem item, Buffers<A>& buffers) {
  const char* first = static_cast<const char*>(a.x) + t.x_rows.offset_of(item.row) * elements.bytes;
  return {elements, first, p.x.stride[p.axis], t.x_step, p.cols(), item.width, buffers};
}

// Returns the sum of n numbers.
template <class A> A compensated_sum(const A* v, int64_t n) {
  CompensatedSum<Vector<A>> lanes;
  for (int64_t j = 0; j < n; j += kLanes<A>) lanes.add(load(v + j));
  A sums[kLanes<A>], compensations[kLanes<A>];
  store(sums, lanes.sum);
  store(compensations, lanes.compensation);
  CompensatedSum<A> sum;
#pragma GCC unroll 1
  for (int i = 0; i < kLanes<A>; ++i) sum.add(CompensatedSum<A>{sums[i], compensations[i]});
  return sum.value();
}

template <class A>
void forward(const LossProblem& p, const LossArgs& a, const LossTiling& tiling, const Elements<A>& elements, A* sums,
             int64_t begin, int64_t end) {
  const int64_t cols = p.cols();
  const A smoothing = A(a.smoothing);
  Buffers<A> buffers;
  Columns<A> largest, sum, logits, unused;
  for (int64_t i = begin; i < end; ++i) {
    const StripItem item = strip_of(tiling, i);
    Strip<A> x = strip_at(p, a, tiling, elements, item, buffers);
    const int64_t n = x.pitch();
    for (A& v : largest.at) v = -INFINITY;
    for (int64_t c = 0; c < cols; ++c) {
      const A* v = x.row(c);
      // If a row has a NaN, the maximum may miss it, but the sum of its exponentials is NaN.
      fold(largest.at, v, v, n, [](A most, A v, A) __attribute__((always_inline)) { return most > v ? most : v; });
    }
    sum_rows(cols, n, sum,
             [&](int64_t c, A* plain) { add_exponentials(x.row(c), A(1), largest.at, unused.at, plain, n); });
    if (p.smoothed)
      sum_rows(cols, n, logits, [&](int64_t c, A* plain) {
        const A* v = x.row(c);
        fold(plain, v, v, n, [](A sum, A v, A) __attribute__((always_inline)) { return sum + v; });
      });
    if constexpr (sizeof(A) == 4)
      for (int64_t j = 0; j < n; ++j) sum.at[j] = elementary::log(sum.at[j]);
    A *const lse = static_cast<A*>(a.lse) + item.row, *const losses =
                                                          sums ? unused.at : static_cast<A*>(a.loss) + item.row;
    for (int64_t j = 0; j < item.width; ++j) {
      const A log_sum = sizeof(A) == 4 ? sum.at[j] : maths::log(sum.at[j]);
      lse[j] = largest.at[j] + log_sum;
      const int64_t target = target_at(p, a, tiling, item.row + j);
      const bool known = 0 <= target && target < cols;
      const A logit = known ? elements.number(x.at(target, j)) : A(INFINITY) - A(INFINITY);
      const A loss = detail::loss_of<A>(largest.at[j], log_sum, logit, logits.at[j], cols, p.smoothed, smoothing);
      losses[j] = target == p.ignore_index ? A(0) : loss;
    }
    if (!sums) continue;
    for (int64_t j = item.width; j < n; ++j) losses[j] = 0;
    sums[i] = compensated_sum(losses, n);
  }
}

// The numbers of each row from which its gradient is computed.
template <class A> struct RowNumbers {
  using Target = typename TargetOf<A>::type;
  Columns<A> lse, g;
  alignas(64) Target target[kSpan];
};
// The target of an ignored row, and that of a row whose target is not a class
constexpr int kIgnored = -2, kUnknown = -1;

template <class A>
void load_rows(const LossProblem& p, const LossArgs& a, const LossTiling& tiling, const A* gradient, StripItem item,
               RowNumbers<A>& rows) {
  for (int64_t j = 0; j < item.width; ++j) {
    const int64_t row = item.row + j, target = target_at(p, a, tiling, row);
    const bool known = 0 <= target && target < p.cols(), ignored = target == p.ignore_index;
    rows.lse.at[j] = static_cast<const A*>(a.lse)[row];
    rows.g.at[j] =
        known || ignored ? gradient[p.reduction == LossReduction::none ? row : 0] : A(INFINITY) - A(INFINITY);
    rows.target[j] = typename TargetOf<A>::type(ignored ? kIgnored : known ? target : kUnknown);
  }
}
template <class A>
void gradients(const A* x, const RowNumbers<A>& rows, A* out, int64_t n, int64_t c, A each, A hit) {
  const auto class_index = typename TargetOf<A>::type(c);
  n &= -kStep;
#pragma GCC ivdep  // `out` is x itself or does not overlap x
  for (int64_t j = 0; j < n; ++j) {
    const A wanted = rows.target[j] == class_index ? hit : each;
    const A d = rows.g.at[j] * (elementary::exp(x[j] - rows.lse.at[j]) - wanted);
    out[j] = rows.target[j] == kIgnored ? A(0) : d;
  }
}

template <class A>
void backward(const LossProblem& p, const LossArgs& a, const LossTiling& tiling, const Elements<A>& elements,
              const A* gradient, int64_t begin, int64_t end) {
  const int64_t cols = p.cols(), class_step = p.dx.stride[p.axis];
  const A each = A(a.smoothing) / A(cols), hit = 1 - A(a.smoothing) + each;
  Buffers<A> buffers, results;
  RowNumbers<A> rows{};
  for (int64_t i = begin; i < end; ++i) {
    const StripItem item = strip_of(tiling, i);
    Strip<A> x = strip_at(p, a, tiling, elements, item, buffers);
    const int64_t n = x.pitch();
    load_rows(p, a, tiling, gradient, item, rows);
    const int64_t at = tiling.dx_rows.offset_of(item.row);
    auto dx = [&](int64_t c) { return static_cast<char*>(a.dx) + (at + c * class_step) * elements.bytes; };
    for (int64_t first = 0; first < cols; first += kGatheredClasses) {
      const int64_t classes = min_of(kGatheredClasses, cols - first);
      for (int64_t c = first; c < first + classes; ++c) {
        gradients(x.row(c), rows, results.numbers, n, c, each, hit);
        if (tiling.dx_step == 1) elements.write(results.numbers, dx(c), item.width, tiling.non_temporal);
        else
          elements.write(results.numbers, reinterpret_cast<char*>(results.tile) + (c - first) * n * elements.bytes, n,
                         false);
      }
      if (tiling.dx_step != 1)
        elements.scatter(results.tile, n, dx(first), class_step, tiling.dx_step, classes, item.width,
                         tiling.non_temporal);
    }
  }
  if (tiling.non_temporal) store_fence();
}

template <class T>
void forward_of(const LossProblem& p, const LossArgs& a, const LossTiling& tiling, void* sums, int64_t begin,
                int64_t end) {
  using A = Accumulator<T>;
  forward<A>(p, a, tiling, kElements<T>, static_cast<A*>(sums), begin, end);
}
template <class T>
void backward_of(const LossProblem& p, const LossArgs& a, const LossTiling& tiling, const void* gradient, int64_t begin,
                 int64_t end) {
  using A = Accumulator<T>;
  backward<A>(p, a, tiling, kElements<T>, static_cast<const A*>(gradient), begin, end);
}

}  // namespace

extern const LossStripKernels loss_strip_kernels;
const LossStripKernels loss_strip_kernels = {
    {forward_of<float>, forward_of<double>, forward_of<float16>, forward_of<bfloat16>},
    {backward_of<float>, backward_of<double>, backward_of<float16>, backward_of<bfloat16>}};

}  // namespace minidnn::MINIDNN_ISA
