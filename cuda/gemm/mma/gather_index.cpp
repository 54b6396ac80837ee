// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/mma/gather_index.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace minidnn {
namespace {

// The limit of index sizes and of window coordinates.
constexpr int64_t kMost = int64_t(1) << 30;

GatherIndex gather_index(const GemmIndex& from) {
  GatherIndex index;
  index.size = uint32_t(from.size);
  for (int j = 1; j < kDigits; ++j) index.by[j - 1] = FastDivmod(max_of<int64_t>(from.digit[j], 1));
  return index;
}

// The index of an operand that counts taps, and the index that counts positions of the window. One is the row index,
// the other is k. The steps are the distances of adjacent taps and positions in the tensor.
struct Sides {
  const GemmIndex &taps, &positions;
  const int64_t (&tap_step)[3], (&position_step)[3];
};
Sides sides(const GemmWindow& w, const GemmIndex& rows, const GemmIndex& k) {
  if (w.k_digit == 0) return {k, rows, w.k_step, w.row_step};
  return {rows, k, w.row_step, w.k_step};
}

// Fills in `to`. Returns an empty string, or why bit masks cannot represent the window.
std::string read_window(GatherWindow& to, const GemmWindow& w, const GemmIndex& rows, const GemmIndex& k) {
  if (!w.on || rows.size == 0 || k.size == 0) return "";
  const Sides s = sides(w, rows, k);
  to.taps_in_k = w.k_digit == 0;
  uint32_t bits = 0;
  for (int j = 0; j < 3; ++j) {
    const int64_t taps = s.taps.digit[j], last_tap = (taps - 1) * s.tap_step[j];
    const int64_t last_position = (s.positions.digit[1 + j] - 1) * s.position_step[j];
    const int64_t least = w.start[j] + min_of<int64_t>(last_tap, 0) + min_of<int64_t>(last_position, 0);
    const int64_t most = w.start[j] + max_of<int64_t>(last_tap, 0) + max_of<int64_t>(last_position, 0);
    if (least >= 0 && most < w.size[j]) continue;
    if (max_of(max_of(-least, most), max_of(w.size[j], std::abs(s.tap_step[j]))) >= kMost)
      return "supports window coordinates below 2^30; got more";
    const bool mirror = taps > 1 && s.tap_step[j] < 0;
    to.on = 1;
    to.taps[j] = uint32_t(min_of<int64_t>(taps, kMaxTapBits + 1));
    to.first_bit[j] = bits;
    to.size[j] = int32_t(w.size[j]);
    to.start[j] = int32_t(mirror ? w.size[j] - 1 - w.start[j] : w.start[j]);
    to.position_step[j] = int32_t(mirror ? -s.position_step[j] : s.position_step[j]);
    to.tap_step[j] = FastDivmod(taps > 1 ? std::abs(s.tap_step[j]) : 1);
    bits += to.taps[j];
  }
  if (bits > kMaxTapBits)
    return cat("supports at most ", kMaxTapBits,
               " taps along the dimensions in which the window leaves the tensor; got more");
  return "";
}

// An index of an operand, with strides. decides[j]: whether dimension j of the index matters for the bounds check.
struct StridedIndex {
  const GemmIndex& index;
  const GemmStrides& strides;
  bool decides[kDigits];
};

// The width in bytes of the widest vectors along an index that are contiguous, aligned, and inside or outside of the
// tensor as a whole.
uint32_t width_along(const StridedIndex& w, const StridedIndex& other, const StridedIndex& batch, int64_t offset,
                     int64_t element, int64_t alignment) {
  int64_t span = 1;  // contiguous elements along the index
  int j = kDigits - 1;
  for (; j >= 0; --j) {
    if (w.index.digit[j] == 1) continue;
    if (w.strides.of[j] != span || w.decides[j]) break;
    span *= w.index.digit[j];
  }
  for (int64_t width = 16; width > element; width /= 2) {
    const int64_t count = width / element;
    bool fits = span % count == 0 && offset % count == 0 && alignment % width == 0;
    for (int i = 0; i < kDigits; ++i) {
      fits = fits && (i > j || w.index.digit[i] == 1 || w.strides.of[i] % count == 0);
      for (const StridedIndex* o : {&other, &batch})
        fits = fits && (o->index.digit[i] == 1 || o->strides.of[i] % count == 0);
    }
    if (fits) return uint32_t(width);
  }
  return uint32_t(element);
}

// The single stride of an index over all its dimensions, or nullopt. An index with one element has stride 0.
std::optional<int64_t> even_step(const StridedIndex& w) {
  std::optional<int64_t> step;
  int64_t next = 0;
  for (int j = kDigits - 1; j >= 0; --j) {
    if (w.index.digit[j] == 1) continue;
    if (!step) step = w.strides.of[j];
    else if (w.strides.of[j] != next) return std::nullopt;
    next = w.strides.of[j] * w.index.digit[j];
  }
  return step.value_or(0);
}

int64_t smallest_step(const StridedIndex& w) {
  int64_t smallest = std::numeric_limits<int64_t>::max();
  for (int j = 0; j < kDigits; ++j)
    if (w.index.digit[j] > 1) smallest = min_of(smallest, int64_t(std::abs(w.strides.of[j])));
  return smallest;
}

struct Widths {
  uint32_t along_k = 16, along_rows = 16;
  int64_t step_k = 0, step_rows = 0;  // the smallest strides, in elements
};

std::string read_operand(GatherOperand& to, Widths& widths, const GemmOperand& o, const GemmView& v,
                         const GemmIndex& rows, int64_t element, int64_t alignment) {
  to.offset = o.offset;
  to.row = o.row;
  to.k = o.k;
  to.batch = o.batch;
  std::string why = read_window(to.window, o.window, rows, v.k);
  StridedIndex k{v.k, o.k, {}}, row{rows, o.row, {}}, batch{v.batch, o.batch, {}};
  for (int j = 0; j < 3; ++j)
    if (to.window.taps[j]) {
      (to.window.taps_in_k ? k : row).decides[j] = true;
      (to.window.taps_in_k ? row : k).decides[1 + j] = true;
    }
  widths.along_k = min_of(widths.along_k, width_along(k, row, batch, o.offset, element, alignment));
  widths.along_rows = min_of(widths.along_rows, width_along(row, k, batch, o.offset, element, alignment));
  widths.step_k = max_of(widths.step_k, smallest_step(k));
  widths.step_rows = max_of(widths.step_rows, smallest_step(row));
  return why;
}

// Decides how the kernel advances along k: by a constant, or by a table with an offset and a mask for each k.
void read_slices(MmaParams& p, const GemmView& v, int64_t element) {
  const int64_t k_of_slice = kSliceBytes / element;
  const bool one_digit = v.k.digit[0] * v.k.digit[1] * v.k.digit[2] == 1;
  // whether the k of a slice (64 bytes) differ only in the last dimension of k
  const bool even = one_digit || v.k.digit[3] % k_of_slice == 0;
  auto positions_in_k = [](const GatherOperand& o) { return o.window.on && !o.window.taps_in_k; };
  p.inner_slices = kNoCarry;
  if (even && !positions_in_k(p.a) && !positions_in_k(p.b)) {
    if (!one_digit) p.inner_slices = uint32_t(v.k.digit[3] / k_of_slice);
    for (GatherOperand* o : {&p.a, &p.b}) {
      o->k_step = o->k.of[3] * element;
      // A carry into dimension j resets the dimensions after j, which lowers the offset by `back` elements.
      int64_t back = 0;
      for (int j = kDigits - 1; j >= 0; --j) {
        const int64_t step = o->k.of[j] * (j == kDigits - 1 ? k_of_slice : 1);
        o->advance[j] = (step - back) * element;
        back += j == kDigits - 1 ? (v.k.digit[j] - k_of_slice) * o->k.of[j] : (v.k.digit[j] - 1) * o->k.of[j];
      }
    }
    return;
  }
  for (GatherOperand* o : {&p.a, &p.b}) {
    const std::optional<int64_t> step = even_step({v.k, o->k, {}});
    o->table = o->window.on || !step;
    o->k_step = step.value_or(0) * element;
    o->advance[3] = o->k_step * k_of_slice;
  }
}

bool contiguous(const GemmIndex& index, const GemmStrides& s) {
  for (int j = kDigits - 1; j >= 0; --j)
    if (index.digit[j] > 1) return s.of[j] == 1;
  return false;
}

}  // namespace

MmaViews::MmaViews(const GemmTask& t) : element(int64_t(itemsize(t.type))) {
  const GemmView& most = *std::ranges::max_element(t.views, {}, [](const GemmView& v) { return v.m.size; });
  exchanged = contiguous(most.m, most.y_m) && !contiguous(most.n, most.y_n) && most.n.size > 8;
  Widths of_a, of_b;
  for (const GemmView& from : t.views) {
    const GemmView& v = views.emplace_back(exchanged ? transposed(from) : from);
    MmaParams& p = phases.emplace_back();
    for (const GemmIndex* index : {&v.m, &v.n, &v.k, &v.batch})
      if (index->size >= kMost) why = cat("supports M, N, K and batch below 2^30; got ", index->size);
    if (!why.empty()) return;
    p.m = gather_index(v.m);
    p.n = gather_index(v.n);
    p.k = gather_index(v.k);
    p.batch = gather_index(v.batch);
    // the widths for an empty k, which no kernel uses
    Widths none;
    why = read_operand(p.a, v.k.size ? of_a : none, v.a, v, v.m, element, t.alignment);
    if (why.empty()) why = read_operand(p.b, v.k.size ? of_b : none, v.b, v, v.n, element, t.alignment);
    if (!why.empty()) return;
    read_slices(p, v, element);
  }
  auto decide = [&](const Widths& w, GatherOperand MmaParams::* operand) {
    const bool along_k = w.along_k == w.along_rows ? w.step_k <= w.step_rows : w.along_k > w.along_rows;
    for (MmaParams& p : phases) (p.*operand).along_k = along_k, (p.*operand).width = max_of(w.along_k, w.along_rows);
    return along_k;
  };
  a_along_k = decide(of_a, &MmaParams::a);
  b_along_k = decide(of_b, &MmaParams::b);
  wide = phases.front().a.width == 16 && phases.front().b.width == 16;
}

}  // namespace minidnn
