// SPDX-License-Identifier: Apache-2.0
#include "cpp/lrn/lrn.h"

namespace minidnn {
namespace {

// Checks the arguments that lrn and lcn calls have in common. Returns a problem in which `kind`, `x` and `size` are
// set.
LrnProblem problem_of(const char* call, LocalNorm kind, const Tensor& x, const LrnOptions& o) {
  check_rank(call, {"x", x}, kind == LocalNorm::lrn ? 2 : 3, 5);
  // The largest window size along a dimension. The number of elements of a window is a product of up to three such
  // sizes. With this limit, the product cannot overflow.
  constexpr int64_t kMostSize = 1 << 20;
  MINIDNN_CHECK(ShapeError, 1 <= o.size && o.size <= kMostSize, call, ": size must be in [1, ", kMostSize, "]; got ",
                o.size);
  auto check = [&](const char* name, double v, bool fits, const char* want) {
    MINIDNN_CHECK(ShapeError, fits && std::isfinite(v), call, ": ", name, " must be ", want, "; got ", v);
  };
  check("alpha", o.alpha, o.alpha >= 0, "0 or a positive number");
  check("beta", o.beta, o.beta > 0, "a positive number");
  check("k", o.k, o.k >= 0, "0 or a positive number");
  return {.kind = kind, .x = x.desc, .size = o.size};
}
LrnArgs args_of(const LrnOptions& o) { return {.alpha = o.alpha, .beta = o.beta, .k = o.k}; }

}  // namespace

std::string Family<LrnProblem>::text(const LrnProblem& p) {
  const std::string direction = cat(p.kind == LocalNorm::lrn ? "lrn" : "lcn", p.backward ? "_backward" : "_forward");
  std::string text = cat(head_text(name, direction.c_str(), p.x.dtype), " x=", problem_text(p.x));
  TensorDesc like = dense_like(p.x, p.x.dtype, name);
  if (p.backward && !same_strides(p.dy, like)) text += " dy=" + problem_text(p.dy);
  if (p.means.rank && !same_strides(p.means, like)) text += " means=" + problem_text(p.means);
  if (p.means.rank && same_strides(p.means, like)) text += " centered";
  text += cat(" size=", p.size) + out_text(p.out, like);
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  return text;
}

void Family<LrnProblem>::ports(const LrnProblem& p, LrnArgs& a, Ports& v) {
  v.in("x", p.x, a.x);
  if (p.backward) v.in("dy", p.dy, a.dy);
  if (p.means.rank) v.in("means", p.means, a.means);
  v.out(p.backward ? "dx" : "y", p.out, a.out);
  if (p.dmeans.rank) v.out("dmeans", p.dmeans, a.dmeans);
  v.number("alpha", a.alpha, 1);
  v.number("beta", a.beta, 0.75);
  v.number("k", a.k, 1);
}

namespace {

Tensor forward(const char* me, LocalNorm kind, const Tensor& x, const std::optional<Tensor>& means, const LrnOptions& o,
               const Call& call) {
  const Tensor& m = means ? *means : x;
  Handle& h = check_operands(me, call, {{"x", x}, {"means", m}});
  LrnProblem p = problem_of(me, kind, x, o);
  check_shape(me, {"means", m}, shape_of(x.desc), "like x");
  Tensor y = output(me, "out", call.out, dense_like(x.desc, x.desc.dtype, me), h, {{"x", x}, {"means", m}});
  if (y.desc.numel() == 0) return y;
  p.out = y.desc;
  LrnArgs a = args_of(o);
  a.x = x.data;
  a.out = y.data;
  if (means) {
    p.means = m.desc;
    a.means = m.data;
  }
  p.alignment = alignment_of(h, {a.x, a.out, a.means});
  run(h, p, a, call.algo);
  return y;
}

LcnBackward backward(const char* me, LocalNorm kind, const Tensor& dy, const Tensor& x,
                     const std::optional<Tensor>& means, const LrnOptions& o, const Call& call) {
  const Tensor& m = means ? *means : x;
  Handle& h = check_operands(me, call, {{"x", x}, {"dy", dy}, {"means", m}});
  LrnProblem p = problem_of(me, kind, x, o);
  check_shape(me, {"dy", dy}, shape_of(x.desc), "like x");
  check_shape(me, {"means", m}, shape_of(x.desc), "like x");
  const TensorDesc like = dense_like(x.desc, x.desc.dtype, me);
  LcnBackward r{output(me, "out", call.out, like, h, {{"dy", dy}, {"x", x}, {"means", m}}), {}};
  if (means) r.dmeans = output(me, "dmeans", {}, like, h, {});
  if (r.dx.desc.numel() == 0) return r;
  p.backward = 1;
  p.dy = dy.desc;
  p.out = r.dx.desc;
  LrnArgs a = args_of(o);
  a.x = x.data;
  a.dy = dy.data;
  a.out = r.dx.data;
  if (means) {
    p.means = m.desc;
    a.means = m.data;
    p.dmeans = r.dmeans->desc;
    a.dmeans = r.dmeans->data;
  }
  p.alignment = alignment_of(h, {a.x, a.dy, a.out, a.means, a.dmeans});
  run(h, p, a, call.algo);
  return r;
}

}  // namespace

Tensor lrn_forward(const Tensor& x, const LrnOptions& o, const Call& call) {
  return forward("lrn_forward", LocalNorm::lrn, x, {}, o, call);
}
Tensor lrn_backward(const Tensor& dy, const Tensor& x, const LrnOptions& o, const Call& call) {
  return backward("lrn_backward", LocalNorm::lrn, dy, x, {}, o, call).dx;
}
Tensor lcn_forward(const Tensor& x, const std::optional<Tensor>& means, const LrnOptions& o, const Call& call) {
  return forward("lcn_forward", LocalNorm::lcn, x, means, o, call);
}
LcnBackward lcn_backward(const Tensor& dy, const Tensor& x, const std::optional<Tensor>& means, const LrnOptions& o,
                         const Call& call) {
  return backward("lcn_backward", LocalNorm::lcn, dy, x, means, o, call);
}

double local_norm_bytes(const LrnProblem& p) {
  const int64_t tensors = (p.backward ? 3 : 2) + (p.means.rank != 0) + (p.dmeans.rank != 0);
  return double(p.x.numel()) * double(itemsize(p.x.dtype)) * double(tensors);
}
double local_norm_flop(const LrnProblem& p) {
  const double window = window_elements(p);
  return double(p.x.numel()) * (p.backward ? 40 + 4 * window : 20 + 2 * window);
}
size_t local_norm_workspace(const LrnProblem& p) {
  return p.backward ? size_t(p.x.numel()) * itemsize(sum_dtype(p.x.dtype)) : 0;
}

std::string why_not_cross_channel(const LrnProblem& p) {
  const bool equal_strides = same_strides(p.x, p.out) && (!p.backward || same_strides(p.x, p.dy));
  if (!equal_strides || !is_dense(p.x) || !(channels_in_order(p.x) || channels_innermost(p.x)))
    return "needs dense tensors with equal strides, channels first or last";
  return "";
}

std::string why_not_spatial_window(const LrnProblem& p) {
  if (p.kind != LocalNorm::lcn) return "supports lcn only";
  if (p.x.dtype == DType::float64) return "float64 is not supported";
  if (p.x.rank > 4) return cat("supports one or two spatial dimensions only; got ", p.x.rank - 2);
  auto like_x = [&](const TensorDesc& t) { return !t.rank || same_strides(p.x, t); };
  const bool last = same_strides(p.x, dense(p.x.dtype, shape_of(p.x), Layout::channels_last, "lrn: x"));
  if (!(last || is_row_major(p.x)) || !like_x(p.out) || !like_x(p.dy) || !like_x(p.means) || !like_x(p.dmeans))
    return "needs dense tensors with equal strides, channels first or last";
  return "";
}

}  // namespace minidnn
