// SPDX-License-Identifier: Apache-2.0
// cpu.pad.contiguous_rows: writes the result in lines along the innermost dimension. The middle of each line is a copy
// from x. Non-temporal stores were slower: 1.4 times the time, because they need a buffer (58 elements per line, 26 MB,
// 2 Zen 3 cores, 2026-11).
#include <algorithm>

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/pad/pad.h"

namespace minidnn {
namespace cpu::pad {
namespace {

// The smallest number of bytes that a thread gets.
constexpr int64_t kGrainBytes = 65536;

// Writes the elements [first, end) of one line of the result to y. x points to the line of x that is copied.
template <class T> void fill(const PadLines& l, const T* x, bool inside, T value, int64_t first, int64_t end, T* y) {
  const PadDimension& d = l.line;
  if (!inside) return std::fill(y, y + (end - first), value);
  const int64_t from = std::clamp<int64_t>(d.before, first, end);
  const int64_t to = std::clamp<int64_t>(int64_t(d.before) + d.size, from, end);
  auto fill_padding = [&](int64_t begin, int64_t stop) {
    if (l.mode == PadMode::constant) std::fill(y + (begin - first), y + (stop - first), value);
    else
      for (int64_t i = begin; i < stop; ++i) y[i - first] = x[pad_source<int64_t>(l.mode, i - d.before, d.size) * d.x];
  };
  fill_padding(first, from);
  if (d.x == 1 && from < to) std::memcpy(y + (from - first), x + (from - d.before), size_t(to - from) * sizeof(T));
  else
    for (int64_t i = from; i < to; ++i) y[i - first] = x[(i - d.before) * d.x];
  fill_padding(to, end);
}

template <class T> void compute(const PadLines& l, const PadArgs& a) {
  const int64_t width = int64_t(l.width.divisor), rows = int64_t(l.outer[0].divisor);
  cpu::parallel_for(l.words, cpu::work_size(kGrainBytes) / int64_t(sizeof(T)), [&](int64_t begin, int64_t end) {
    int64_t line = begin / width, column = begin - line * width;
    uint32_t plane = uint32_t(line);
    int32_t row = l.outer[0].divmod(plane);
    int64_t plane_at = 0;
    bool in_plane = l.add_plane(l.mode, plane, plane_at);
    for (int64_t done = begin, n; done < end; done += n, column = 0, ++row) {
      n = min_of(width - column, end - done);
      if (row == rows) {
        row = 0;
        plane_at = 0;
        in_plane = l.add_plane(l.mode, ++plane, plane_at);
      }
      int64_t at = plane_at;
      const bool inside = l.add_row(l.mode, row, at) && in_plane;
      fill(l, static_cast<const T*>(a.x) + (inside ? at : 0), inside, T(a.value), column, column + n,
           static_cast<T*>(a.y) + done);
    }
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
