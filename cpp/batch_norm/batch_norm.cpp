// SPDX-License-Identifier: Apache-2.0
#include "cpp/batch_norm/batch_norm.h"

#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

// Returns the layout of the parameters (scale, bias) and the statistics (mean, variance). Both are row-major. Their
// shape is usually [C]. With per_activation, it is the shape of x without dimension N.
TensorDesc parameter_desc(const BatchNormProblem& p) {
  return dense(sum_dtype(p.x.dtype), shape_of(p.x).subspan(size_t(p.kept_begin), size_t(p.kept_end - p.kept_begin)),
               Layout::channels_first, "batch_norm: parameter");
}

BatchNormProblem batch_norm_problem(NormDirection direction, const Tensor& x, bool per_activation) {
  BatchNormProblem p{direction, x.desc};
  p.kept_begin = 1;
  p.kept_end = per_activation ? x.desc.rank : 2;
  return p;
}

void check_parameter(const char* call, const Tensor& x, const TensorDesc& want, const Operand& o) {
  MINIDNN_CHECK(DeviceError, o.tensor.place() == x.place(), call, ": x is on ", name(x.place()), ", ", o.name,
                " is on ", name(o.tensor.place()), "; move one with .to(device=...)");
  MINIDNN_CHECK(DTypeError, o.tensor.desc.dtype == want.dtype, call, ": ", o.name, " must be ", name(want.dtype),
                " for x of ", name(x.desc.dtype), "; got ", name(o.tensor.desc.dtype));
  check_shape(call, o, shape_of(want),
              want.rank == 1 ? "for the channels of x" : "for the samples of x, per activation");
}

void check_eps(const char* call, double eps) {
  MINIDNN_CHECK(ShapeError, eps >= 0 && std::isfinite(eps), call, ": eps must be 0 or a positive number; got ", eps);
}

// Checks the residual of a forward call. Copies the fused options (relu, residual) to the problem `p` and to the
// arguments `a`.
void fuse(const char* call, const Tensor& x, const BatchNormFusion& f, const Call& options, BatchNormProblem& p,
          BatchNormArgs& a) {
  p.relu = a.relu = f.relu;
  if (!f.residual) return;
  check_operands(call, options, {{"x", x}, {"residual", *f.residual}});
  check_shape(call, {"residual", *f.residual}, shape_of(x.desc), "like x");
  p.other = f.residual->desc;
  a.other = f.residual->data;
}

// Returns a parameter in row-major order, because engines expect it. A parameter with other strides is copied on the
// stream of the handle. Such parameters are rare and small.
Tensor packed(const Tensor& parameter, const Handle& h, const Call& call) {
  use(parameter, h.stream());
  if (is_row_major(parameter.desc)) return parameter;
  return transform(parameter, 1, 0, {}, Layout::channels_first, {"", {}, call.handle});
}

// Checks a running statistic as an output of the call, and returns it. The tensor must be row-major, because it is
// updated in place.
Tensor running_output(const char* call, const char* label, const Tensor& running, const TensorDesc& want,
                      const Handle& h, std::initializer_list<Operand> inputs) {
  Tensor t = output(call, label, running, want, h, inputs);
  MINIDNN_CHECK(ShapeError, is_row_major(t.desc), call, ": ", label, " has strides [", join(strides_of(t.desc)),
                "]; it is updated in place and must be contiguous");
  return t;
}

// Returns the stride of a parameter along each dimension of x. Parameters are row-major. Along a dimension that
// parameters do not have, their stride is 0.
std::vector<int64_t> parameter_strides(const BatchNormProblem& p) {
  std::vector<int64_t> strides(size_t(p.x.rank), 0);
  int64_t step = 1;
  for (int64_t i = p.kept_end; i-- > p.kept_begin; step *= p.x.shape[i]) strides[size_t(i)] = step;
  return strides;
}

}  // namespace

NormSpace norm_space(const std::vector<int64_t>& shape, const std::vector<NormOffsets>& steps, std::vector<int> dims) {
  std::ranges::stable_sort(dims,
                           [&](int a, int b) { return std::abs(steps[size_t(a)].x) > std::abs(steps[size_t(b)].x); });
  NormSpace space;
  space.shape[0] = 1;
  for (int i : dims) {
    const int64_t n = shape[size_t(i)];
    space.size *= n;
    if (n == 1) continue;
    const NormOffsets& inner = steps[size_t(i)];
    NormOffsets& outer = space.step[space.rank - 1];
    bool first = space.rank == 1 && space.shape[0] == 1;
    bool merges = outer.x == inner.x * n && outer.dy == inner.dy * n && outer.out == inner.out * n &&
                  outer.parameter == inner.parameter * n && outer.other == inner.other * n &&
                  outer.dresidual == inner.dresidual * n;
    if (first || merges) {
      outer = inner;
      space.shape[space.rank - 1] *= n;
    } else {
      space.step[space.rank] = inner;
      space.shape[space.rank++] = n;
    }
  }
  return space;
}

NormSpaces norm_spaces(const BatchNormProblem& p) {
  // Merges two nested loops if one loop with a constant stride per tensor visits the same elements. An absent tensor
  // gets the strides of x, so that it never prevents a merge.
  auto or_x = [&](const TensorDesc& t) -> const TensorDesc& { return t.rank ? t : p.x; };
  const std::vector<int64_t> parameter = parameter_strides(p);
  std::vector<NormOffsets> steps;
  std::vector<int> kept, others, all;
  for (int i = 0; i < p.x.rank; ++i) {
    (p.kept_begin <= i && i < p.kept_end ? kept : others).push_back(i);
    all.push_back(i);
    steps.push_back({p.x.stride[i], or_x(p.dy).stride[i], p.out.stride[i], parameter[size_t(i)],
                     or_x(p.other).stride[i], or_x(p.dresidual).stride[i]});
  }
  const std::vector<int64_t> shape(p.x.shape, p.x.shape + p.x.rank);
  return {norm_space(shape, steps, kept), norm_space(shape, steps, others), norm_space(shape, steps, all)};
}

std::string Family<BatchNormProblem>::text(const BatchNormProblem& p) {
  static const char* const directions[] = {"training", "inference", "backward"};
  std::string text = cat(head_text(name, directions[int64_t(p.direction)], p.x.dtype), " x=", problem_text(p.x));
  TensorDesc like = dense_like(p.x, p.x.dtype, name);
  if (p.direction == NormDirection::backward && !same_strides(p.dy, like)) text += " dy=" + problem_text(p.dy);
  const bool backward = p.direction == NormDirection::backward;
  const bool plain = !p.other.rank || same_strides(p.other, like);
  if (!plain) text += (backward ? " y=" : " residual=") + problem_text(p.other);
  if (backward ? p.dresidual.rank != 0 : p.other.rank && plain) text += " add";
  if (p.relu) text += " relu";
  if (p.running) text += " running";
  if (p.kept_end > 2) text += " per_activation";
  text += out_text(p.out, like);
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  return text;
}

void Family<BatchNormProblem>::ports(const BatchNormProblem& p, BatchNormArgs& a, Ports& v) {
  const TensorDesc parameter = parameter_desc(p);
  const bool training = p.direction == NormDirection::training, backward = p.direction == NormDirection::backward;
  v.in("x", p.x, a.x);
  if (backward) v.in("dy", p.dy, a.dy);
  if (p.other.rank) v.in(backward ? "y" : "residual", p.other, a.other);
  v.in("scale", parameter, a.scale);
  if (!backward) v.in("bias", parameter, a.bias);
  if (p.direction == NormDirection::inference) {
    v.in("mean", parameter, a.mean);
    v.in("var", parameter, a.var);
  }
  if (backward) {
    v.in("saved_mean", parameter, a.mean);
    v.in("saved_inv_std", parameter, a.inv_std);
  }
  if (p.running) {
    v.in_out("running_mean", parameter, a.running_mean);
    v.in_out("running_var", parameter, a.running_var);
  }
  v.out(backward ? "dx" : "y", p.out, a.out);
  if (training) {
    v.out("saved_mean", parameter, a.mean);
    v.out("saved_inv_std", parameter, a.inv_std);
  }
  if (backward) {
    v.out("dscale", parameter, a.dscale);
    v.out("dbias", parameter, a.dbias);
  }
  if (p.dresidual.rank) v.out("dresidual", p.dresidual, a.dresidual);
  v.number("eps", a.eps, 1e-5);
  v.number("momentum", a.momentum, 0.1);
  a.relu = p.relu;
}

BatchNormTraining batch_norm_forward_training(const Tensor& x, const Tensor& scale, const Tensor& bias,
                                              const BatchNormRunning& running, const BatchNormAttributes& attributes,
                                              const BatchNormFusion& fusion, const Call& call) {
  const char* me = "batch_norm_forward_training";
  Handle& h = check_operands(me, call, {{"x", x}});
  check_rank(me, {"x", x}, 2, 5);
  BatchNormProblem p = batch_norm_problem(NormDirection::training, x, attributes.per_activation);
  TensorDesc parameter = parameter_desc(p);
  check_parameter(me, x, parameter, {"scale", scale});
  check_parameter(me, x, parameter, {"bias", bias});
  check_eps(me, attributes.eps);
  MINIDNN_CHECK(ShapeError, 0 <= running.momentum && running.momentum <= 1, me, ": momentum must be in [0, 1]; got ",
                running.momentum);
  MINIDNN_CHECK(
      ShapeError, running.mean.has_value() == running.var.has_value(), me, ": ",
      running.mean ? "running_mean is given without running_var" : "running_var is given without running_mean",
      "; pass both or neither");
  BatchNormArgs a{.x = x.data, .eps = attributes.eps, .momentum = running.momentum};
  fuse(me, x, fusion, call, p, a);
  p.running = running.mean.has_value();
  if (p.running) {
    a.running_mean =
        running_output(me, "running_mean", *running.mean, parameter, h, {{"x", x}, {"scale", scale}, {"bias", bias}})
            .data;
    a.running_var = running_output(me, "running_var", *running.var, parameter, h,
                                   {{"x", x}, {"scale", scale}, {"bias", bias}, {"running_mean", *running.mean}})
                        .data;
  }
  BatchNormTraining r{output(me, "y", {}, dense_like(x.desc, x.desc.dtype, me), h, {}),
                      output(me, "saved_mean", {}, parameter, h, {}),
                      output(me, "saved_inv_std", {}, parameter, h, {})};
  // If x has no channels, all results are empty, and no engine runs. If x has channels but no samples, an engine runs,
  // and the statistics are NaN.
  if (parameter.numel() == 0) return r;
  p.out = r.y.desc;
  Tensor scale_packed = packed(scale, h, call), bias_packed = packed(bias, h, call);
  a.out = r.y.data;
  a.mean = r.saved_mean.data;
  a.inv_std = r.saved_inv_std.data;
  a.scale = scale_packed.data;
  a.bias = bias_packed.data;
  p.alignment = alignment_of(h, {a.x, a.out, a.other});
  run(h, p, a, call.algo);
  return r;
}

Tensor batch_norm_forward_inference(const Tensor& x, const Tensor& scale, const Tensor& bias, const Tensor& mean,
                                    const Tensor& var, const BatchNormAttributes& attributes,
                                    const BatchNormFusion& fusion, const Call& call) {
  const char* me = "batch_norm_forward_inference";
  Handle& h = check_operands(me, call, {{"x", x}});
  check_rank(me, {"x", x}, 2, 5);
  BatchNormProblem p = batch_norm_problem(NormDirection::inference, x, attributes.per_activation);
  TensorDesc parameter = parameter_desc(p);
  for (const Operand& o : {Operand{"scale", scale}, {"bias", bias}, {"mean", mean}, {"var", var}})
    check_parameter(me, x, parameter, o);
  check_eps(me, attributes.eps);
  BatchNormArgs a{.x = x.data, .eps = attributes.eps};
  fuse(me, x, fusion, call, p, a);
  Tensor y = output(me, "out", call.out, dense_like(x.desc, x.desc.dtype, me), h,
                    {{"scale", scale}, {"bias", bias}, {"mean", mean}, {"var", var}},
                    {{"x", x}, {"residual", fusion.residual ? *fusion.residual : x}});
  if (y.desc.numel() == 0) return y;
  p.out = y.desc;
  Tensor scale_packed = packed(scale, h, call), bias_packed = packed(bias, h, call);
  Tensor mean_packed = packed(mean, h, call), var_packed = packed(var, h, call);
  a.out = y.data;
  a.scale = scale_packed.data;
  a.bias = bias_packed.data;
  a.mean = mean_packed.data;
  a.var = var_packed.data;
  p.alignment = alignment_of(h, {a.x, a.out, a.other});
  run(h, p, a, call.algo);
  return y;
}

BatchNormBackward batch_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& scale, const Tensor& saved_mean,
                                      const Tensor& saved_inv_std, bool per_activation,
                                      const BatchNormBackwardFusion& fusion, const Call& call) {
  const char* me = "batch_norm_backward";
  Handle& h = check_operands(me, call, {{"x", x}, {"dy", dy}});
  check_rank(me, {"x", x}, 2, 5);
  check_shape(me, {"dy", dy}, shape_of(x.desc), "like x");
  MINIDNN_CHECK(ShapeError, fusion.y.has_value() == fusion.relu, me, ": ",
                fusion.relu ? "activation 'relu' needs y, the result of the forward call"
                            : "y needs activation='relu'; got None");
  if (fusion.y) {
    check_operands(me, call, {{"x", x}, {"y", *fusion.y}});
    check_shape(me, {"y", *fusion.y}, shape_of(x.desc), "like x");
  }
  BatchNormProblem p = batch_norm_problem(NormDirection::backward, x, per_activation);
  TensorDesc parameter = parameter_desc(p);
  for (const Operand& o : {Operand{"scale", scale}, {"saved_mean", saved_mean}, {"saved_inv_std", saved_inv_std}})
    check_parameter(me, x, parameter, o);
  BatchNormBackward r{output(me, "dx", {}, dense_like(x.desc, x.desc.dtype, me), h, {}),
                      output(me, "dscale", {}, parameter, h, {}),
                      output(me, "dbias", {}, parameter, h, {}),
                      {}};
  if (fusion.dresidual) r.dresidual = output(me, "dresidual", {}, dense_like(x.desc, x.desc.dtype, me), h, {});
  // If x has no channels, all results are empty, and no engine runs. If x has channels but no samples, an engine runs,
  // and the gradients are zeros.
  if (parameter.numel() == 0) return r;
  p.dy = dy.desc;
  p.out = r.dx.desc;
  p.relu = fusion.relu;
  if (fusion.y) p.other = fusion.y->desc;
  if (fusion.dresidual) p.dresidual = r.dresidual->desc;
  Tensor scale_packed = packed(scale, h, call), mean_packed = packed(saved_mean, h, call);
  Tensor inv_std_packed = packed(saved_inv_std, h, call);
  const BatchNormArgs a{.x = x.data,
                        .dy = dy.data,
                        .out = r.dx.data,
                        .scale = scale_packed.data,
                        .mean = mean_packed.data,
                        .inv_std = inv_std_packed.data,
                        .dscale = r.dscale.data,
                        .dbias = r.dbias.data,
                        .other = fusion.y ? fusion.y->data : nullptr,
                        .dresidual = fusion.dresidual ? r.dresidual->data : nullptr,
                        .relu = fusion.relu};
  p.alignment = alignment_of(h, {a.x, a.dy, a.out, a.other, a.dresidual});
  run(h, p, a, call.algo);
  return r;
}

double norm_bytes(const BatchNormProblem& p) {
  const int64_t tensors =
      (p.direction == NormDirection::backward ? 3 : 2) + (p.other.rank != 0) + (p.dresidual.rank != 0);
  return double(p.x.numel()) * double(itemsize(p.x.dtype)) * double(tensors);
}
double norm_flop(const BatchNormProblem& p) {
  return double(p.x.numel()) * (p.direction == NormDirection::inference ? 3 : 8);
}

}  // namespace minidnn
