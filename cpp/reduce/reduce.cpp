// SPDX-License-Identifier: Apache-2.0
// Implements reduce.h: checks of arguments, the text that names a call in tuning files and tests, and estimates of the
// time of a call.
#include "cpp/reduce/reduce.h"

namespace minidnn {
namespace {

constexpr const char* kModes[] = {"sum",   "mean", "max", "min", "prod",   "norm1", "norm2",
                                  "sumsq", "amax", "any", "all", "argmax", "argmin"};

ReduceMode mode_from(const std::string& text) {
  auto at = std::ranges::find(kModes, text);
  MINIDNN_CHECK(ShapeError, at != std::end(kModes), "reduce: mode must be one of ", join(kModes), "; got '", text, "'");
  return ReduceMode(at - kModes);
}

DType result_dtype(ReduceMode m, DType x) {
  switch (m) {
    case ReduceMode::any:
    case ReduceMode::all:
      return DType::boolean;
    case ReduceMode::argmax:
    case ReduceMode::argmin:
      return DType::int64;
    case ReduceMode::mean:
    case ReduceMode::norm1:
    case ReduceMode::norm2:
      return is_floating(x) ? x : DType::float32;
    case ReduceMode::sum:
    case ReduceMode::prod:
    case ReduceMode::sumsq:
      return is_floating(x) ? x : DType::int64;
    default:
      return x;
  }
}

}  // namespace

std::string Family<ReduceProblem>::text(const ReduceProblem& p) {
  std::vector<int64_t> axes;
  Shape kept;
  for (int i = 0; i < p.x.rank; ++i)
    if (p.axes >> i & 1) axes.push_back(i);
    else kept.push_back(p.x.shape[i]);
  std::string text = cat(head_text("reduce", kModes[int64_t(p.mode)], p.x.dtype), " x=", problem_text(p.x),
                         " axes=", axes.empty() ? "none" : join(axes, ","));
  if (p.alignment != 16) text += cat(" align=", p.alignment);
  return text + out_text(p.y, dense(p.y.dtype, kept, Layout::channels_first, name));
}

void Family<ReduceProblem>::ports(const ReduceProblem& p, ReduceArgs& a, Ports& v) {
  v.in("x", p.x, a.x);
  v.out("y", p.y, a.y);
}

Tensor reduce(const Tensor& x, const std::string& mode_name, const std::optional<std::vector<int64_t>>& axes,
              bool keepdims, const Call& call) {
  const char* me = "reduce";
  Handle& h = handle_for(call.handle, x.place(), me, "x");
  const ReduceMode mode = mode_from(mode_name);
  const int64_t rank = x.desc.rank;
  ReduceProblem p;
  p.mode = mode;
  p.x = x.desc;
  if (!axes) p.axes = (int64_t(1) << rank) - 1;
  else
    for (int64_t axis : *axes) {
      const int64_t dimension = checked_axis(me, {"x", x}, axis), bit = int64_t(1) << dimension;
      MINIDNN_CHECK(ShapeError, !(p.axes & bit), me, ": axis names dimension ", dimension, " twice");
      p.axes |= bit;
    }
  Shape kept, full;
  int64_t count = 1;
  for (int i = 0; i < rank; ++i) {
    const bool reduced = p.axes >> i & 1;
    if (reduced) count *= x.desc.shape[i];
    else kept.push_back(x.desc.shape[i]);
    if (!reduced || keepdims) full.push_back(reduced ? 1 : x.desc.shape[i]);
  }
  const bool needs_one = kind_of(mode) == ReduceKind::arg || mode == ReduceMode::max || mode == ReduceMode::min ||
                         mode == ReduceMode::amax;
  MINIDNN_CHECK(ShapeError, count > 0 || !needs_one, me, ": ", mode_name, " of no elements has no value; x is ",
                shape_text(x.desc));
  const DType t = result_dtype(mode, x.desc.dtype);
  Tensor out = output(me, "out", call.out, dense(t, full, Layout::channels_first, me), h, {{"x", x}});
  if (out.desc.numel() == 0) return out;
  p.y.dtype = t;
  for (int i = 0, at = 0; i < rank; ++i) {
    const bool reduced = p.axes >> i & 1;
    if (!reduced) {
      p.y.shape[p.y.rank] = out.desc.shape[at];
      p.y.stride[p.y.rank++] = out.desc.stride[at];
    }
    at += !reduced || keepdims;
  }
  p.alignment = alignment_of(h, {x.data});
  use(x, h.stream());
  run(h, p, ReduceArgs{x.data, out.data}, call.algo);
  return out;
}

TensorDesc joined(const TensorDesc& d, bool any_order) {
  std::vector<int> order;
  for (int i = 0; i < d.rank; ++i)
    if (d.shape[i] != 1) order.push_back(i);
  if (any_order)
    std::ranges::stable_sort(order, [&](int a, int b) { return std::abs(d.stride[a]) > std::abs(d.stride[b]); });
  TensorDesc j;
  j.dtype = d.dtype;
  for (int i : order) {
    const int last = int(j.rank) - 1;
    if (last >= 0 && j.stride[last] == d.stride[i] * d.shape[i]) {
      j.shape[last] *= d.shape[i];
      j.stride[last] = d.stride[i];
    } else {
      j.shape[j.rank] = d.shape[i];
      j.stride[j.rank++] = d.stride[i];
    }
  }
  return j;
}

double reduce_bytes(const ReduceProblem& p) {
  return double(p.x.numel()) * double(itemsize(p.x.dtype)) + double(p.y.numel()) * double(itemsize(p.y.dtype));
}

}  // namespace minidnn
