// SPDX-License-Identifier: Apache-2.0
// cpu.gather.contiguous_rows: gathers from row-major tensors. The forward function copies one contiguous slice of x per
// index. Each row of dx is the sum of the slices of dy whose index selects this row.
#include <algorithm>

#include "cpp/core/cpu/copy_bytes.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/gather/gather.h"
#include "cpp/pointwise/pointwise.h"

namespace minidnn {
namespace cpu::gather {
namespace {

// The smallest number of bytes that a thread gets.
constexpr int64_t kGrainBytes = 65536;
// The number of indices that are read at a time.
constexpr int64_t kIndices = 2048;
// The number of elements of a row that are summed at a time.
constexpr int64_t kColumns = 512, kLongColumns = 4096;
// The gradient adds slices of fewer bytes to dx in the order of the indices, which need not be sorted.
constexpr int64_t kShortBytes = 64;
// The number of sums of the gradient of a short 16-bit slice that are kept as floats.
constexpr int64_t kSums = 4096;

// The slices to copy: for each outer index, those whose numbers are in `rows`. The slices of two consecutive outer
// indices begin `step` bytes apart in x.
struct Slices {
  const int32_t* rows;
  int64_t n, bytes, outer, step;
};
template <class T> void copy_words(const char* from, char* to, const Slices& s) {
  const int32_t* const rows = s.rows;
  const int64_t n = s.n, step = s.step;
  constexpr int64_t kBytes = sizeof(T);
  for (int64_t o = 0; o < s.outer; ++o, from += step, to += n * kBytes)
#pragma GCC unroll 4
    for (int64_t j = 0; j < n; ++j) std::memcpy(to + j * kBytes, from + rows[j] * kBytes, kBytes);
}
void copy_slices(const char* from, char* to, const Slices& s) {
  if (s.bytes <= 8 && (s.bytes & (s.bytes - 1)) == 0)
    return with_word(s.bytes, [&](auto type) { copy_words<typename decltype(type)::type>(from, to, s); });
  for (int64_t o = 0; o < s.outer; ++o, from += s.step)
    for (int64_t j = 0; j < s.n; ++j, to += s.bytes) copy_bytes(from + s.rows[j] * s.bytes, to, s.bytes);
}
// Only find(), which does not check indices, passes an index out of range. It selects zeros.
void copy_slices_or_zeros(const char* from, char* to, const Slices& s) {
  for (int64_t o = 0; o < s.outer; ++o, from += s.step)
    for (int64_t j = 0; j < s.n; ++j, to += s.bytes) {
      if (s.rows[j] < 0) std::memset(to, 0, size_t(s.bytes));
      else copy_bytes(from + s.rows[j] * s.bytes, to, s.bytes);
    }
}

// Reads the rows that the indices [begin, end) select: -1 for an index out of range. Returns whether all are in range.
bool read_rows(const GatherProblem& p, const void* index, int64_t begin, int64_t end, int32_t* rows) {
  int32_t lowest = 0;
  for (int64_t k = begin; k < end; ++k) {
    rows[k - begin] = int32_t(gather_row_at(p, index, k));
    lowest = min_of(lowest, rows[k - begin]);
  }
  return lowest == 0;
}

void copy_selected(const GatherProblem& p, const GatherRows& g, const GatherArgs& a) {
  const int64_t bytes = g.span * int64_t(itemsize(p.x.dtype)), block = cpu::work_size(kIndices);
  const int64_t grain = max_of<int64_t>(cpu::work_size(kGrainBytes) / bytes, 1);
  cpu::parallel_for(g.outer * g.indices, grain, [&](int64_t begin, int64_t end) {
    int32_t rows[kIndices];
    int64_t first = 0, last = 0;  // the indices whose rows are in `rows`
    bool in_range = true;
    const char* from = static_cast<const char*>(a.from) + begin / g.indices * g.rows * bytes;
    for (int64_t i = begin, k = begin % g.indices, n; i < end; i += n) {
      if (k < first || k >= last) {
        // The block begins at a multiple of its size, so that the next slices can use it.
        first = k / block * block;
        last = min_of(first + block, g.indices);
        in_range = read_rows(p, a.index, first, last, rows);
      }
      Slices s{rows + (k - first), min_of(last - k, end - i), bytes, 1, g.rows * bytes};
      if (s.n == g.indices) s.outer = (end - i) / g.indices;
      (in_range ? copy_slices : copy_slices_or_zeros)(from, static_cast<char*>(a.to) + i * bytes, s);
      n = s.n * s.outer;
      k += s.n;
      if (k < g.indices) continue;
      k = 0;
      from += s.outer * s.step;
    }
  });
}

// The gradient visits ranges of rows of dx. If x has several outer indices, a range has all rows of some of them.
template <class Visit> void each_range(const GatherRows& g, int64_t itemsize, Visit&& visit) {
  const int64_t unit = g.outer > 1 ? g.rows : 1;
  const int64_t bytes = (g.rows + g.indices) * g.span * itemsize / (g.rows / unit);
  cpu::parallel_for(g.outer * g.rows / unit,
                    max_of<int64_t>(cpu::work_size(kGrainBytes) / max_of<int64_t>(bytes, 1), 1),
                    [&](int64_t begin, int64_t end) { visit(begin * unit, end * unit); });
}

// Adds short slices to sums in the order of the indices. The sums are dx itself, or float sums that are rounded to dx.
template <class T> void add_short(const GatherProblem& p, const GatherRows& g, const GatherArgs& a, void* workspace) {
  using Sum = Accumulator<T>;
  const int64_t span = g.span;
  // Each index is read only once, because another thread may write to the tensor of indices at the same time.
  int32_t* const rows = static_cast<int32_t*>(workspace);
  read_rows(p, a.index, 0, g.indices, rows);
  each_range(g, sizeof(T), [&](int64_t begin, int64_t end) {
    Sum buffer[sizeof(T) == sizeof(Sum) ? 1 : kSums];
    for (int64_t i = begin, n; i < end; i += n) {
      const int64_t outer = i / g.rows, row = i - outer * g.rows;
      n = min_of(g.rows - row, end - i);
      T* const dx = static_cast<T*>(a.to) + i * span;
      Sum* sums = buffer;
      if constexpr (sizeof(T) == sizeof(Sum)) sums = dx;
      std::fill(sums, sums + n * span, Sum(0));
      const T* dy = static_cast<const T*>(a.from) + outer * g.indices * span;
      const auto add = [&](int64_t width) __attribute__((always_inline)) {
        for (int64_t j = 0; j < g.indices; ++j) {
          const int64_t at = rows[j] - row;
          if (uint64_t(at) >= uint64_t(n)) continue;  // an index out of range is -1
          for (int64_t c = 0; c < width; ++c) sums[at * width + c] += Sum(dy[j * width + c]);
        }
      };
      if (span == 1) add(1);
      else add(span);
      if constexpr (sizeof(T) != sizeof(Sum))
        for (int64_t c = 0; c < n * span; ++c) dx[c] = T(sums[c]);
    }
  });
}

// Sums all slices of one row after the other, and writes zeros between the rows that are selected.
template <class T> void sum_rows(const GatherProblem& p, const GatherRows& g, const GatherArgs& a, void* workspace) {
  using Sum = Accumulator<T>;
  const GatherOrder o = sort_indices(p, a, workspace);
  const auto read = element_spans(p.x.dtype).read;
  const auto write = element_spans(p.x.dtype).write;
  // The rows that any index selects, in memory that sort_indices() no longer uses.
  int32_t* const selected = o.order + g.indices;
  int64_t count = 0;
  for (int64_t r = 0; r < g.rows; ++r)
    if (o.starts[r] < o.starts[r + 1]) selected[count++] = int32_t(r);

  // float32 and float64 are added to dx itself, in longer spans of dy, which are read faster.
  constexpr bool in_place = sizeof(T) == sizeof(Sum);
  const int64_t columns = cpu::work_size(in_place ? kLongColumns : kColumns);
  each_range(g, sizeof(T), [&](int64_t begin, int64_t end) {
    Sum buffer[in_place ? 1 : kColumns], line[in_place ? 1 : kColumns];
    for (int64_t i = begin, n; i < end; i += n) {
      const int64_t outer = i / g.rows, low = i - outer * g.rows, high = min_of(g.rows, low + end - i);
      n = high - low;
      const T* dy = static_cast<const T*>(a.from) + outer * g.indices * g.span;
      T* const dx = static_cast<T*>(a.to) + outer * g.rows * g.span;
      int64_t done = low;  // the rows before this one are written
      const auto zero_until = [&](int64_t row) {
        std::memset(dx + done * g.span, 0, size_t((row - done) * g.span) * sizeof(T));
      };
      for (const int32_t* s = std::lower_bound(selected, selected + count, low); s < selected + count && *s < high;
           ++s) {
        const int64_t row = *s, from = o.starts[row], to = o.starts[row + 1];
        zero_until(row);
        done = row + 1;
        T* const out = dx + row * g.span;
        if (to - from == 1) {
          copy_bytes(dy + o.order[from] * g.span, out, g.span * int64_t(sizeof(T)));
          continue;
        }
        for (int64_t c = 0; c < g.span; c += columns) {
          const int64_t m = min_of(columns, g.span - c);
          Sum* sums = buffer;
          if constexpr (in_place) sums = out + c;
          read(dy + o.order[from] * g.span + c, 1, m, sums);
          for (int64_t j = from + 1; j < to; ++j) {
            const T* slice = dy + o.order[j] * g.span + c;
            if constexpr (in_place) {
              for (int64_t k = 0; k < m; ++k) sums[k] += slice[k];
            } else {
              read(slice, 1, m, line);
              for (int64_t k = 0; k < m; ++k) sums[k] += line[k];
            }
          }
          if (!in_place) write(sums, m, out + c, false);
        }
      }
      zero_until(high);
    }
  });
}

template <class T> void gradient(const GatherProblem& p, const GatherRows& g, const GatherArgs& a, void* workspace) {
  // Float sums are worth their conversion if many of them are not zero. Each range has at most g.rows of them.
  const bool in_place = sizeof(T) == sizeof(Accumulator<T>);
  const bool few_sums = g.rows * g.span <= kSums && g.rows <= 4 * g.indices;
  if (g.span * int64_t(sizeof(T)) < kShortBytes && (in_place || few_sums)) add_short<T>(p, g, a, workspace);
  else sum_rows<T>(p, g, a, workspace);
}

}  // namespace

struct ContiguousRows final : Engine<GatherProblem> {
  std::string name() const override { return "cpu.gather.contiguous_rows"; }
  std::string why_not(const GatherProblem& p, const Device&) const override {
    GatherRows g;
    return gather_rows(p, g);
  }
  double estimate_us(const GatherProblem& p, const Device& d) const override {
    return roofline_us(0, gather_bytes(p), d, 1);
  }
  size_t workspace_bytes(const GatherProblem& p, const Device&, const Config&) const override {
    return gather_cpu_bytes(p);
  }
  std::unique_ptr<Plan<GatherProblem>> build(const GatherProblem& p, const Device&, const Config&) const override {
    GatherRows g;
    gather_rows(p, g);
    return make_plan<GatherProblem>([p, g](const GatherArgs& a, void* workspace, Stream) {
      if (p.direction == GatherDirection::forward) return copy_selected(p, g, a);
      with_floating(p.x.dtype, [&](auto type) { gradient<typename decltype(type)::type>(p, g, a, workspace); });
    });
  }
};

}  // namespace cpu::gather

template const Engine<GatherProblem>& engine_object<GatherProblem, cpu::gather::ContiguousRows>();

}  // namespace minidnn
