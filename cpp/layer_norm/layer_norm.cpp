// SPDX-License-Identifier: Apache-2.0
#include "cpp/layer_norm/layer_norm.h"

#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

std::span<const int64_t> row_shape(const LayerNormProblem& p) {  // Returns the shape of a row in layer and RMS norm.
  return shape_of(p.x).subspan(size_t(p.axis));
}
TensorDesc small(const LayerNormProblem& p, std::span<const int64_t> shape) {
  return dense(sum_dtype(p.x.dtype), shape, Layout::channels_first, "layer_norm: parameter");
}
TensorDesc parameter_desc(const LayerNormProblem& p) {
  if (p.kind != RowNorm::group) return small(p, row_shape(p));
  return small(p, std::span(&p.x.shape[1], 1));
}
TensorDesc statistic_desc(const LayerNormProblem& p) {
  if (p.kind != RowNorm::group) return small(p, shape_of(p.x).subspan(0, size_t(p.axis)));
  const int64_t shape[] = {p.x.shape[0], p.groups};
  return small(p, shape);
}

LayerNormProblem problem_of(const char* call, RowNormKind kind, const Tensor& x) {
  LayerNormProblem p{.kind = kind.kind, .x = x.desc};
  if (kind.kind == RowNorm::group) {
    check_rank(call, {"x", x}, 2, 5);
    const int64_t channels = x.desc.shape[1];
    p.groups = kind.axis_or_groups ? kind.axis_or_groups : channels;
    MINIDNN_CHECK(ShapeError, kind.axis_or_groups >= 0 && (channels == 0 || channels % p.groups == 0), call,
                  ": groups must divide the ", channels, " channels of x; got ", kind.axis_or_groups);
    return p;
  }
  check_rank(call, {"x", x}, 1, kMaxRank);
  p.axis = checked_axis(call, {"x", x}, kind.axis_or_groups);
  return p;
}

void check_small(const char* call, const Tensor& x, const TensorDesc& want, const char* why, const Operand& o) {
  MINIDNN_CHECK(DeviceError, o.tensor.place() == x.place(), call, ": x is on ", name(x.place()), ", ", o.name,
                " is on ", name(o.tensor.place()), "; move one with .to(device=...)");
  MINIDNN_CHECK(DTypeError, o.tensor.desc.dtype == want.dtype, call, ": ", o.name, " must be ", name(want.dtype),
                " for x of ", name(x.desc.dtype), "; got ", name(o.tensor.desc.dtype));
  check_shape(call, o, shape_of(want), why);
}

// Returns an optional parameter in row-major order, because engines expect it. A parameter with other strides is copied
// on the stream of the handle.
OptionalTensor packed(const OptionalTensor& t, const Handle& h, const Call& call) {
  if (!t) return {};
  use(*t, h.stream());
  if (is_row_major(t->desc)) return t;
  return transform(*t, 1, 0, {}, Layout::channels_first, {"", {}, call.handle});
}
void* data_of(const OptionalTensor& t) { return t ? t->data : nullptr; }

constexpr const char* kRows = "for the rows of x";
constexpr const char* kChannels = "for the channels of x";
constexpr const char* kStatistics = "of the rows of x";

}  // namespace

LayerNormSpaces row_norm_spaces(const LayerNormProblem& p) {
  // Group norm splits dimension 1 of x, the channels, into two dimensions: the group, and the channel within the group.
  std::vector<int64_t> shape;
  std::vector<NormOffsets> steps;
  const TensorDesc& dy = p.dy.rank ? p.dy : p.x;
  for (int i = 0; i < p.x.rank; ++i) {
    const NormOffsets step{p.x.stride[i], dy.stride[i], p.out.stride[i]};
    if (p.kind == RowNorm::group && i == 1) {
      const int64_t of_group = p.x.shape[1] / p.groups;
      shape.push_back(p.groups);
      steps.push_back(NormOffsets{}.plus(of_group, step));
      shape.push_back(of_group);
    } else shape.push_back(p.x.shape[i]);
    steps.push_back(step);
  }
  const int rank = int(shape.size()), row = p.kind == RowNorm::group ? 2 : int(p.axis);
  std::vector<int> rows, members, parameters, others;
  int64_t statistic = 1, parameter = 1;
  for (int i = rank; i-- > 0;) {
    const bool is_parameter = p.kind == RowNorm::group ? i == 1 || i == 2 : i >= row;
    if (is_parameter) {
      steps[size_t(i)].parameter = parameter;
      parameter *= shape[size_t(i)];
    }
    if (i < row) {
      steps[size_t(i)].other = statistic;
      statistic *= shape[size_t(i)];
    }
    (i < row ? rows : members).insert((i < row ? rows : members).begin(), i);
    (is_parameter ? parameters : others).insert((is_parameter ? parameters : others).begin(), i);
  }
  return {norm_space(shape, steps, rows), norm_space(shape, steps, members), norm_space(shape, steps, parameters),
          norm_space(shape, steps, others), p.kind != RowNorm::rms};
}

std::string Family<LayerNormProblem>::text(const LayerNormProblem& p) {
  static const char* const kinds[] = {"layer", "rms", "group"};
  const std::string direction = cat(kinds[int64_t(p.kind)], p.backward ? "_backward" : "_forward");
  std::string text = cat(head_text(name, direction.c_str(), p.x.dtype), " x=", problem_text(p.x));
  TensorDesc like = dense_like(p.x, p.x.dtype, name);
  if (p.backward && !same_strides(p.dy, like)) text += " dy=" + problem_text(p.dy);
  text += p.kind == RowNorm::group ? cat(" groups=", p.groups) : cat(" axis=", p.axis);
  text += out_text(p.out, like);
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  return text;
}

void Family<LayerNormProblem>::ports(const LayerNormProblem& p, LayerNormArgs& a, Ports& v) {
  const TensorDesc parameter = parameter_desc(p), statistic = statistic_desc(p);
  const bool centered = p.kind != RowNorm::rms;
  v.in("x", p.x, a.x);
  if (p.backward) v.in("dy", p.dy, a.dy);
  v.in("scale", parameter, a.scale);
  if (!p.backward && centered) v.in("bias", parameter, a.bias);
  if (p.backward) {
    if (centered) v.in("mean", statistic, a.mean);
    v.in("inv_std", statistic, a.inv_std);
    v.out("dx", p.out, a.out);
    v.out("dscale", parameter, a.dscale);
    if (centered) v.out("dbias", parameter, a.dbias);
  } else {
    v.out("y", p.out, a.out);
    if (centered) v.out("mean", statistic, a.mean);
    v.out("inv_std", statistic, a.inv_std);
  }
  v.number("eps", a.eps, 1e-5);
}

RowNormKind row_norm_kind(const std::string& call, const std::string& kind, int64_t axis_or_groups) {
  if (kind == "layer") return {RowNorm::layer, axis_or_groups};
  if (kind == "rms") return {RowNorm::rms, axis_or_groups};
  if (kind == "instance") return {RowNorm::group, 0};
  MINIDNN_CHECK(ShapeError, axis_or_groups >= 1, call, ": groups must be 1 or more; got ", axis_or_groups);
  return {RowNorm::group, axis_or_groups};
}

LayerNormForward layer_norm_forward(const char* me, RowNormKind kind, const Tensor& x, const OptionalTensor& scale,
                                    const OptionalTensor& bias, double eps, const Call& call) {
  Handle& h = check_operands(me, call, {{"x", x}});
  LayerNormProblem p = problem_of(me, kind, x);
  const TensorDesc parameter = parameter_desc(p), statistic = statistic_desc(p);
  const char* why = p.kind == RowNorm::group ? kChannels : kRows;
  if (scale) check_small(me, x, parameter, why, {"scale", *scale});
  if (bias) check_small(me, x, parameter, why, {"bias", *bias});
  MINIDNN_CHECK(ShapeError, eps >= 0 && std::isfinite(eps), me, ": eps must be 0 or a positive number; got ", eps);
  const bool centered = p.kind != RowNorm::rms;
  LayerNormForward r{output(me, "y", {}, dense_like(x.desc, x.desc.dtype, me), h, {}),
                     {},
                     output(me, "inv_std", {}, statistic, h, {})};
  if (centered) r.mean = output(me, "mean", {}, statistic, h, {});
  if (statistic.numel() == 0) return r;
  MINIDNN_CHECK(ShapeError, x.desc.numel() > 0, me, ": a row of x ", shape_text(x.desc), " has no elements");
  p.out = r.y.desc;
  const OptionalTensor s = packed(scale, h, call), b = packed(bias, h, call);
  p.alignment = alignment_of(h, {x.data, r.y.data, data_of(s), data_of(b)});
  run(h, p,
      LayerNormArgs{.x = x.data,
                    .out = r.y.data,
                    .scale = data_of(s),
                    .bias = data_of(b),
                    .mean = data_of(r.mean),
                    .inv_std = r.inv_std.data,
                    .eps = eps},
      call.algo);
  return r;
}

LayerNormBackward layer_norm_backward(const char* me, RowNormKind kind, const Tensor& dy, const Tensor& x,
                                      const OptionalTensor& scale, const OptionalTensor& mean, const Tensor& inv_std,
                                      const Call& call) {
  Handle& h = check_operands(me, call, {{"x", x}, {"dy", dy}});
  LayerNormProblem p = problem_of(me, kind, x);
  p.backward = 1;
  check_shape(me, {"dy", dy}, shape_of(x.desc), "like x");
  const TensorDesc parameter = parameter_desc(p), statistic = statistic_desc(p);
  if (scale) check_small(me, x, parameter, p.kind == RowNorm::group ? kChannels : kRows, {"scale", *scale});
  const bool centered = p.kind != RowNorm::rms;
  MINIDNN_CHECK(ShapeError, mean || !centered, me, ": mean is None; pass the mean that the forward call returned");
  if (mean) check_small(me, x, statistic, kStatistics, {"mean", *mean});
  check_small(me, x, statistic, kStatistics, {centered ? "inv_std" : "inv_rms", inv_std});
  LayerNormBackward r{output(me, "dx", {}, dense_like(x.desc, x.desc.dtype, me), h, {}),
                      output(me, "dscale", {}, parameter, h, {}),
                      {}};
  if (centered) r.dbias = output(me, "dbias", {}, parameter, h, {});
  // If there are no parameters, no engine runs. If there are parameters but the batch is empty, an engine runs, and
  // dscale and dbias are zeros.
  if (parameter.numel() == 0) return r;
  p.dy = dy.desc;
  p.out = r.dx.desc;
  const OptionalTensor s = packed(scale, h, call), m = packed(mean, h, call), i = packed(inv_std, h, call);
  p.alignment = alignment_of(h, {x.data, dy.data, r.dx.data, data_of(s), r.dscale.data, data_of(r.dbias)});
  run(h, p,
      LayerNormArgs{.x = x.data,
                    .dy = dy.data,
                    .out = r.dx.data,
                    .scale = data_of(s),
                    .mean = data_of(m),
                    .inv_std = data_of(i),
                    .dscale = r.dscale.data,
                    .dbias = data_of(r.dbias)},
      call.algo);
  return r;
}

double row_norm_bytes(const LayerNormProblem& p) {
  return double(p.x.numel()) * double(itemsize(p.x.dtype)) * (p.backward ? 3 : 2);
}
double row_norm_flop(const LayerNormProblem& p) { return double(p.x.numel()) * (p.backward ? 12 : 8); }

template <class Acc>
void sum_parameter_gradients(const Acc* sums, int64_t samples, int64_t channels, const LayerNormArgs& a) {
  for (int64_t c = 0; c < channels; ++c) {
    double dscale = 0, dbias = 0;
    for (int64_t i = 0; i < samples; ++i) {
      dscale += double(sums[(i * channels + c) * 2]);
      dbias += double(sums[(i * channels + c) * 2 + 1]);
    }
    static_cast<Acc*>(a.dscale)[c] = Acc(dscale), static_cast<Acc*>(a.dbias)[c] = Acc(dbias);
  }
}
template void sum_parameter_gradients(const float*, int64_t, int64_t, const LayerNormArgs&);
template void sum_parameter_gradients(const double*, int64_t, int64_t, const LayerNormArgs&);

}  // namespace minidnn
