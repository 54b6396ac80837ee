// SPDX-License-Identifier: Apache-2.0
// cpu.pad.contiguous_rows: writes the result in lines along the innermost dimension. The middle of each line is a copy
// from x. Constant padding fills a block of lines first, and then copies the middles. In the other modes, a line of the
// padding is copied from the line of y that it repeats. Non-temporal stores were slower: 1.4 times the time, because
// they need a buffer (58 elements per line, 26 MB, 2 Zen 3 cores, 2026-11).
#include <algorithm>

#include "cpp/core/cpu/copy_bytes.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pad/pad.h"

namespace minidnn {
namespace cpu::pad {
namespace {

// The smallest number of bytes that a thread gets.
constexpr int64_t kGrainBytes = 65536;

// The number of bytes that constant padding fills at a time. They stay in a first-level cache until x is copied.
constexpr int64_t kBlockBytes = 16384;

template <class T> void fill_values(T* y, int64_t n, T value) {
  typedef T Lanes __attribute__((vector_size(16)));
  constexpr int64_t kLanes = 16 / int64_t(sizeof(T));
  if (value == 0) return void(std::memset(y, 0, size_t(n) * sizeof(T)));
  const Lanes v = Lanes{} + value;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) std::memcpy(y + i, &v, sizeof v);
  for (; i < n; ++i) y[i] = value;
}

// Copies every `step`-th element of x, n in all.
template <class T> void copy_elements(const T* x, int64_t step, T* y, int64_t n) {
  if (step == 1) return copy_bytes(x, y, n * int64_t(sizeof(T)));
  for (int64_t i = 0; i < n; ++i) y[i] = x[i * step];
}

// Writes the elements [begin, end) of y.
template <class T> void pad_constant(const PadLines& l, const T* x, T value, int64_t begin, int64_t end, T* y) {
  const int64_t width = int64_t(l.width.divisor), rows = int64_t(l.outer[0].divisor);
  const PadDimension &d = l.line, &along = l.along[0];
  const int64_t block = cpu::work_size(kBlockBytes) / int64_t(sizeof(T));
  for (int64_t done = begin, stop; done < end; done = stop) {
    stop = min_of(done + block, end);
    fill_values(y + done, stop - done, value);
    int64_t line = done / width;
    while (line * width < stop) {
      // The lines of a plane that copy elements of x.
      const int64_t plane = line / rows, first = plane * rows + along.before;
      int64_t plane_at = 0;
      const bool in_plane = l.add_plane(PadMode::constant, uint32_t(plane), plane_at);
      const int64_t last = in_plane ? first + along.size : 0;
      for (line = max_of(line, first); line < last && line * width < stop; ++line) {
        const int64_t middle = line * width + d.before, from = max_of(middle, done), to = min_of(middle + d.size, stop);
        if (from < to)
          copy_elements(x + plane_at + (line - first) * along.x + (from - middle) * d.x, d.x, y + from, to - from);
      }
      if (line >= last) line = (plane + 1) * rows;
    }
  }
}

// Writes the elements [first, end) of one line of the result to y, by replication or reflection. x points to the line
// of x that is copied.
template <class T> void pad_line(const PadLines& l, const T* x, int64_t first, int64_t end, T* y) {
  const PadDimension& d = l.line;
  const int64_t from = std::clamp<int64_t>(d.before, first, end), last = d.size - 1;
  const int64_t to = std::clamp<int64_t>(int64_t(d.before) + d.size, from, end);
  if (l.mode == PadMode::replicate) {
    for (int64_t i = first; i < from; ++i) y[i - first] = x[0];
    for (int64_t i = to; i < end; ++i) y[i - first] = x[last * d.x];
  } else {
    for (int64_t i = first; i < from; ++i) y[i - first] = x[(d.before - i) * d.x];
    for (int64_t i = to; i < end; ++i) y[i - first] = x[(2 * last - (i - d.before)) * d.x];
  }
  copy_elements(x + (from - d.before) * d.x, d.x, y + (from - first), to - from);
}

// Writes the elements [begin, end) of y, by replication or reflection.
template <class T> void pad_copied(const PadLines& l, const T* x, int64_t begin, int64_t end, T* y) {
  const int64_t width = int64_t(l.width.divisor), rows = int64_t(l.outer[0].divisor);
  const PadDimension& along = l.along[0];
  int64_t line = begin / width, column = begin - line * width, plane_at = 0;
  uint32_t plane = uint32_t(line);
  int64_t row = l.outer[0].divmod(plane);
  l.add_plane(l.mode, plane, plane_at);
  for (int64_t done = begin, n; done < end; done += n, column = 0, ++row) {
    n = min_of(width - column, end - done);
    if (row == rows) {
      row = 0;
      plane_at = 0;
      l.add_plane(l.mode, ++plane, plane_at);
    }
    const int64_t source = pad_source<int64_t>(l.mode, row - along.before, along.size);
    // A line above that has the same elements, or -1.
    int64_t same = source + along.before < row ? source + along.before : -1;
    if (l.mode == PadMode::replicate && row < along.before) same = row - 1;
    const int64_t back = (row - same) * width;
    if (same >= 0 && column == 0 && done - back >= begin) copy_bytes(y + done - back, y + done, n * int64_t(sizeof(T)));
    else pad_line(l, x + plane_at + source * along.x, column, column + n, y + done);
  }
}

template <class T> void compute(const PadLines& l, const PadArgs& a) {
  const T* const x = static_cast<const T*>(a.x);
  T* const y = static_cast<T*>(a.y);
  cpu::parallel_for(l.words, cpu::work_size(kGrainBytes) / int64_t(sizeof(T)), [&](int64_t begin, int64_t end) {
    if (l.mode == PadMode::constant) pad_constant(l, x, T(a.value), begin, end, y);
    else pad_copied(l, x, begin, end, y);
  });
}

}  // namespace

struct ContiguousRows final : Engine<PadProblem> {
  std::string name() const override { return "cpu.pad.contiguous_rows"; }
  std::string why_not(const PadProblem& p, const Device&) const override {
    PadLines l;
    int64_t word;
    return pad_lines(p, 1, l, word);
  }
  double estimate_us(const PadProblem& p, const Device& d) const override {
    // The estimate assumes twice the rate of copies of the device (copy_gb_s), as the estimate of cpu.transform.tiled
    // does.
    return roofline_us(0, pad_bytes(p), d, 2);
  }
  std::unique_ptr<Plan<PadProblem>> build(const PadProblem& p, const Device&, const Config&) const override {
    PadLines l;
    int64_t word;
    pad_lines(p, 1, l, word);
    return make_plan<PadProblem>([=](const PadArgs& a, void*, Stream) {
      with_word(word, [&](auto type) { compute<typename decltype(type)::type>(l, a); });
    });
  }
};

}  // namespace cpu::pad

template const Engine<PadProblem>& engine_object<PadProblem, cpu::pad::ContiguousRows>();

}  // namespace minidnn
