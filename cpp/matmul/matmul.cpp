// SPDX-License-Identifier: Apache-2.0
#include "cpp/matmul/matmul.h"

#include "cpp/activation/activation.h"

namespace minidnn {
namespace {

TensorDesc transposed(TensorDesc d) {
  std::swap(d.shape[d.rank - 1], d.shape[d.rank - 2]);
  std::swap(d.stride[d.rank - 1], d.stride[d.rank - 2]);
  return d;
}

// Returns an operand as text for error messages, such as "a [3, 4] transposed".
std::string operand_text(const char* name, const Tensor& t, bool transpose) {
  return cat(name, " ", shape_text(t.desc), transpose ? " transposed" : "");
}

// Returns the shape of the result of a batched product. The batch dimensions of a and b are broadcast. The last two
// dimensions have size 1 until the caller sets them. Returns nullopt if the batch dimensions do not broadcast.
std::optional<Shape> batch_shape(const TensorDesc& a, const TensorDesc& b) {
  int64_t rank = std::max(a.rank, b.rank);
  Shape shape(size_t(rank), 1);
  for (int64_t back = 3; back <= rank; ++back) {
    int64_t of_a = back <= a.rank ? a.shape[a.rank - back] : 1, of_b = back <= b.rank ? b.shape[b.rank - back] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) return std::nullopt;
    shape[size_t(rank - back)] = of_a == 1 ? of_b : of_a;
  }
  return shape;
}

TensorDesc with_batch(const TensorDesc& d, Shape shape) {
  std::copy_n(d.shape + d.rank - 2, 2, shape.end() - 2);
  return *broadcast(d, shape);
}

TensorDesc bias_desc(const MatmulProblem& p) { return {p.a.dtype, 1, {sizes_of(p).n}, {p.bias_stride}}; }

}  // namespace

std::string Family<MatmulProblem>::text(const MatmulProblem& p) {
  std::string text = cat(head_text(name, "forward", p.a.dtype), " a=", problem_text(p.a), " b=", problem_text(p.b));
  if (p.c.rank) text += " c=" + problem_text(p.c);
  if (p.has_bias) text += " bias";
  if (p.has_bias && !is_row_major(bias_desc(p))) text += cat(" bias_stride=", p.bias_stride);
  if (p.activation != Activation::identity) text += " activation=" + minidnn::name(p.activation);
  if (p.ieee) text += " math=ieee";
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  if (p.y.dtype != p.a.dtype) text += " to=" + short_name(p.y.dtype);
  return text + out_text(p.y, dense(p.y.dtype, shape_of(p.y), Layout::channels_first, name));
}

void Family<MatmulProblem>::ports(const MatmulProblem& p, MatmulArgs& a, Ports& v) {
  v.in("a", p.a, a.a);
  v.in("b", p.b, a.b);
  if (p.c.rank) v.in("c", p.c, a.c);
  else v.unused(a.c);
  if (p.has_bias) v.in("bias", bias_desc(p), a.bias);
  v.out("y", p.y, a.y);
  v.number("alpha", a.alpha, 1);
  v.number("beta", a.beta, p.c.rank ? 0.5 : 0);
  v.number("activation_alpha", a.activation_alpha, default_alpha(p.activation));
}

Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& options, const Call& call) {
  const char* me = "matmul";
  Handle& h = check_operands(me, call, {{"a", a}, {"b", b}});
  DType to = product_dtype(a.desc.dtype, call.out);
  Operand of_result = to == a.desc.dtype ? Operand{"a", a} : Operand{"out", *call.out};
  if (options.c) check_operands(me, call, {of_result, {"c", *options.c}});
  if (options.bias) check_operands(me, call, {{"a", a}, {"bias", *options.bias}});
  check_rank(me, {"a", a}, 2, 5);
  check_rank(me, {"b", b}, 2, 5);

  TensorDesc a_desc = options.transpose_a ? transposed(a.desc) : a.desc;
  TensorDesc b_desc = options.transpose_b ? transposed(b.desc) : b.desc;
  int64_t m = a_desc.shape[a_desc.rank - 2], k = a_desc.shape[a_desc.rank - 1], n = b_desc.shape[b_desc.rank - 1];
  auto operands = [&] {
    return cat(me, ": ", operand_text("a", a, options.transpose_a), " and ", operand_text("b", b, options.transpose_b));
  };
  MINIDNN_CHECK(ShapeError, k == b_desc.shape[b_desc.rank - 2], operands(), ": the matrices of a have ", k,
                " columns, so those of b must have ", k, " rows; got ", b_desc.shape[b_desc.rank - 2]);
  std::optional<Shape> shape = batch_shape(a_desc, b_desc);
  MINIDNN_CHECK(ShapeError, shape, operands(),
                ": the dimensions before the last two do not broadcast; each pair of sizes must be equal or contain 1");
  MatmulProblem p{with_batch(a_desc, *shape), with_batch(b_desc, *shape)};
  shape->end()[-2] = m;
  shape->end()[-1] = n;
  TensorDesc want = dense(to, *shape, Layout::channels_first, "matmul: the result");

  MINIDNN_CHECK(ShapeError, options.beta == 0 || options.c || call.out, me, ": beta=", options.beta,
                " needs c, or an out to add to; got neither");
  // If the caller passes no c, the checks below get `out` in its place. If there is no `out` either, they get a.
  const Tensor& c = options.c ? *options.c : call.out ? *call.out : a;
  if (options.c) {
    std::optional<TensorDesc> seen = broadcast(c.desc, *shape);
    MINIDNN_CHECK(ShapeError, seen, me, ": c ", shape_text(c.desc), " does not broadcast to the result ",
                  shape_text(*shape));
    if (options.beta != 0) p.c = *seen;
  }
  if (options.bias) {
    int64_t length[] = {n};
    check_shape(me, {"bias", *options.bias}, length, cat("for ", n, " columns").c_str());
    p.has_bias = 1;
    p.bias_stride = options.bias->desc.stride[0];
  }
  // If there is no bias, the checks get b in its place.
  Tensor y = output(me, "out", call.out, want, h, {{"a", a}, {"b", b}, {"bias", options.bias ? *options.bias : b}},
                    {{"c", c}});
  if (options.beta != 0 && !options.c) p.c = y.desc;
  p.y = y.desc;
  p.ieee = a.desc.dtype == DType::float32 && h.options().math == Math::ieee;
  p.alignment = alignment_of(h, {a.data, b.data, c.data, y.data});
  p.activation = options.activation;
  if (want.numel() == 0) return y;
  run(h, p,
      MatmulArgs{a.data, b.data, c.data, options.bias ? options.bias->data : nullptr, y.data, options.alpha,
                 options.beta, default_alpha(options.activation)},
      call.algo);
  return y;
}

std::string matmul_why_not(const MatmulProblem& p) {
  DType t = p.a.dtype;
  if (p.b.dtype != t) return cat("needs a and b of the same dtype; got ", name(t), " and ", name(p.b.dtype));
  if (p.y.dtype != t && (p.y.dtype != DType::float32 || itemsize(t) != 2))
    return cat("supports y in the dtype of a, or float32 for float16 and bfloat16; got y of ", name(p.y.dtype),
               " and a of ", name(t));
  if (p.c.rank && p.c.dtype != p.y.dtype)
    return cat("needs c in the dtype of y, ", name(p.y.dtype), "; got ", name(p.c.dtype));
  return "";
}

double matmul_bytes(const MatmulProblem& p) {
  double bytes = 0;
  for (const TensorDesc* d : {&p.a, &p.b, &p.c, &p.y}) {
    double distinct = d->rank ? double(itemsize(d->dtype)) : 0;
    for (int i = 0; i < d->rank; ++i)
      if (d->stride[i] != 0) distinct *= double(d->shape[i]);
    bytes += distinct;
  }
  return bytes;
}
double matmul_flop(const MatmulProblem& p) {
  MatmulSizes s = sizes_of(p);
  return 2.0 * double(s.batch) * double(s.m) * double(s.n) * double(s.k);
}

}  // namespace minidnn
