// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/simt/axes.h"

#include <algorithm>

namespace minidnn::simt {
namespace {

Axis axis_of(const GemmIndex& index, std::initializer_list<const GemmStrides*> tensors) {
  Axis axis(kDigits);
  for (int j = 0; j < kDigits; ++j) {
    axis[j].size = index.digit[j];
    int w = 0;
    for (const GemmStrides* s : tensors) axis[j].stride[w++] = s->of[j];
  }
  return axis;
}

// Sorts the dimensions of an index by decreasing stride in `tensor`. Removes dimensions of size 1, and joins dimensions
// that all tensors store at a single stride.
void arrange(Axis& axis, int tensor) {
  std::erase_if(axis, [](const Digit& d) { return d.size == 1; });
  std::ranges::stable_sort(
      axis, [&](const Digit& a, const Digit& b) { return std::abs(a.stride[tensor]) > std::abs(b.stride[tensor]); });
  for (size_t j = axis.size(); j-- > 1;) {
    Digit &slow = axis[j - 1], &fast = axis[j];
    bool joins = !slow.moves_window() && !fast.moves_window();
    for (int w = 0; w < kTensors; ++w) joins = joins && slow.stride[w] == fast.stride[w] * fast.size;
    if (!joins) continue;
    slow.size *= fast.size;
    slow.stride = fast.stride;
    axis.erase(axis.begin() + int64_t(j));
  }
}

// Records the spatial dimensions in which a's window can leave the tensor.
void add_window(Product& p, const GemmView& v) {
  const GemmWindow& w = v.a.window;
  if (!w.on || v.k.size == 0) return;
  const bool taps_in_k = w.row_digit == 1;
  Axis &taps = taps_in_k ? p.k : p.m, &positions = taps_in_k ? p.m : p.k;
  p.window.taps_in_k = taps_in_k;
  for (int j = 0; j < 3; ++j) {
    const int64_t tap_step = taps_in_k ? w.k_step[j] : w.row_step[j];
    const int64_t position_step = taps_in_k ? w.row_step[j] : w.k_step[j];
    const int64_t tap_reach = (taps[j].size - 1) * tap_step;
    const int64_t position_reach = (positions[1 + j].size - 1) * position_step;
    const int64_t low = w.start[j] + min_of(tap_reach, int64_t(0)) + min_of(position_reach, int64_t(0));
    const int64_t high = w.start[j] + max_of(tap_reach, int64_t(0)) + max_of(position_reach, int64_t(0));
    if (low >= 0 && high < w.size[j]) continue;
    p.windowed = true;
    p.window.taps[j] = uint32_t(taps[j].size);
    p.window.first_bit[j] = uint32_t(p.tap_bits);
    p.window.size[j] = uint32_t(w.size[j]);
    p.window.start[j] = int32_t(w.start[j]);
    p.window.tap_step[j] = int32_t(tap_step);
    p.tap_bits += int(min_of(taps[j].size, int64_t(1) << 20));
    taps[j].tap[j] = 1;
    positions[1 + j].position[j] = position_step;
  }
}

}  // namespace

int64_t size_of(const Axis& axis) {
  int64_t size = 1;
  for (const Digit& d : axis) size *= d.size;
  return size;
}

double neighbourhood(Axis axis, int tensor) {
  std::erase_if(axis, [](const Digit& d) { return d.size == 1; });
  if (axis.empty()) return 0;
  auto step = [&](const Digit& d) { return std::abs(d.stride[tensor]); };
  std::ranges::stable_sort(axis, {}, step);
  int64_t least = step(axis.front()), span = 1;
  for (const Digit& d : axis)
    if (step(d) == least * span) span *= d.size;
  return double(std::min<int64_t>(span, 8)) / double(std::max<int64_t>(least, 1));
}

bool in_vectors(const Axis& axis, int tensor, bool through_window, int64_t alignment, int64_t offset,
                std::initializer_list<std::pair<const Axis*, int>> others) {
  if (alignment < 16 || axis.empty() || offset % 4) return false;
  const Digit& last = axis.back();
  if (last.stride[tensor] != 1 || last.size % 4 || (through_window && last.moves_window())) return false;
  auto even = [](const Digit& d, int w) { return d.stride[w] % 4 == 0; };
  bool all = std::all_of(axis.begin(), axis.end() - 1, [&](const Digit& d) { return even(d, tensor); });
  for (auto [other, w] : others)
    all = all && std::ranges::all_of(*other, [&, w = w](const Digit& d) { return even(d, w); });
  return all;
}

Product product_of(const GemmView& v) {
  Product p;
  p.m = axis_of(v.m, {&v.a.row, &v.y_m, &v.c_m, &v.bias_m});
  p.n = axis_of(v.n, {&v.b.row, &v.y_n, &v.c_n, &v.bias_n});
  p.k = axis_of(v.k, {&v.a.k, &v.b.k});
  p.batch = axis_of(v.batch, {&v.a.batch, &v.b.batch, &v.y_batch, &v.c_batch, &v.bias_batch});
  p.a_offset = v.a.offset;
  p.b_offset = v.b.offset;
  p.y_offset = v.y_offset;
  add_window(p, v);
  p.a_along_k = neighbourhood(p.k, kA) > neighbourhood(p.m, kOperand);
  p.b_along_k = neighbourhood(p.k, kB) > neighbourhood(p.n, kOperand);
  arrange(p.m, p.a_along_k ? kY : kOperand);
  arrange(p.n, p.b_along_k ? kY : kOperand);
  arrange(p.k, !p.a_along_k && p.b_along_k ? kB : kA);
  arrange(p.batch, kBatchY);
  return p;
}

OperandOrder operand_order_of(const GemmTask& t) {
  for (const GemmView& v : t.views) {
    if (v.a.window.on && product_of(v).windowed) return OperandOrder::as_they_are;
    if (v.b.window.on && product_of(transposed(v)).windowed) return OperandOrder::exchanged;
  }
  return OperandOrder::free;
}

int64_t tiles_over(const GemmView& v, OperandOrder order, int64_t tile_m, int64_t tile_n) {
  const int64_t as_they_are = ceil_div(v.m.size, tile_m) * ceil_div(v.n.size, tile_n) * v.batch.size;
  const int64_t exchanged = ceil_div(v.n.size, tile_m) * ceil_div(v.m.size, tile_n) * v.batch.size;
  return order == OperandOrder::as_they_are ? as_they_are
         : order == OperandOrder::exchanged ? exchanged
                                            : min_of(as_they_are, exchanged);
}

Products products_of(const GemmTask& t, int64_t tile_m, int64_t tile_n) {
  Products all;
  OperandOrder order = operand_order_of(t);
  if (order == OperandOrder::free) {
    const GemmView& v = t.views.front();
    const int64_t as_they_are = tiles_over(v, OperandOrder::as_they_are, tile_m, tile_n);
    const int64_t exchanged = tiles_over(v, OperandOrder::exchanged, tile_m, tile_n);
    const Product p = product_of(v);
    const bool along_m = neighbourhood(p.m, kY) >= neighbourhood(p.n, kY);
    order = (as_they_are != exchanged ? as_they_are < exchanged : along_m) ? OperandOrder::as_they_are
                                                                           : OperandOrder::exchanged;
  }
  all.exchanged = order == OperandOrder::exchanged;
  for (const GemmView& v : t.views) all.phases.push_back(product_of(all.exchanged ? transposed(v) : v));
  return all;
}

}  // namespace minidnn::simt
