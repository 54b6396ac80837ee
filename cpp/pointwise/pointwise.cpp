// SPDX-License-Identifier: Apache-2.0
// Implements pointwise.h: checks of arguments, the text that names a call in tests and tuning files, estimates of the
// bytes and FLOP of a call, and the indexing of operands in the order of the result's memory.
#include "cpp/pointwise/pointwise.h"

namespace minidnn {
namespace {

constexpr PointwiseInfo kInfos[] = {
#define MINIDNN_INFO(name, group, operands, formula) {#name, PointwiseGroup::group, operands},
    MINIDNN_POINTWISE(MINIDNN_INFO)
#undef MINIDNN_INFO
};

int kind_of(DType t) { return is_floating(t) ? kRealOperands : t == DType::boolean ? 4 : kIntegerOperands; }

// Returns the names of the dtypes in a mask such as kRealOperands, for messages of errors.
const char* dtypes_text(int operands) {
  switch (operands) {
    case kRealOperands:
      return "float32, float64, float16 and bfloat16";
    case kIntegerOperands:
      return "int8, uint8, int32 and int64";
    case kBitOperands:
      return "int8, uint8, int32, int64 and bool";
    default:
      return "float32, float64, float16 and bfloat16, int8, uint8, int32 and int64";
  }
}

// Returns the description of the result. It has the memory layout of the first operand that is not broadcast.
TensorDesc result_like(std::initializer_list<const TensorDesc*> operands, std::span<const int64_t> shape, DType dtype) {
  for (const TensorDesc* d : operands)
    if (d->rank == int64_t(shape.size()) && !is_broadcast(*d)) return dense_like(*d, dtype, "pointwise: the result");
  return dense(dtype, shape, Layout::channels_first, "pointwise: the result");
}

TensorDesc result_of(const PointwiseProblem& p) {
  const int n = arity(info(p.op).group);
  DType t = p.out.dtype;
  if (n == 1) return result_like({&p.a}, shape_of(p.out), t);
  if (n == 2) return result_like({&p.a, &p.b}, shape_of(p.out), t);
  return result_like({&p.a, &p.b, &p.c}, shape_of(p.out), t);
}

Shape broadcast_shape(const char* call, std::span<const Operand> operands) {
  Shape shape;
  for (const Operand& o : operands) {
    std::span<const int64_t> s = shape_of(o.tensor.desc);
    if (s.size() > shape.size()) shape.insert(shape.begin(), s.size() - shape.size(), 1);
    for (size_t i = 0; i < s.size(); ++i) {
      int64_t& size = shape[shape.size() - s.size() + i];
      if (size == 1) size = s[i];
      else
        MINIDNN_CHECK(ShapeError, s[i] == 1 || s[i] == size, call, ": ", o.name, " ", shape_text(o.tensor.desc),
                      " does not broadcast with ", shape_text(operands[0].tensor.desc));
    }
  }
  return shape;
}

}  // namespace

const PointwiseInfo& info(Pointwise op) { return kInfos[int64_t(op)]; }

bool accepts(Pointwise op, DType dtype) { return info(op).operands & kind_of(dtype); }

int arity(PointwiseGroup g) {
  if (g <= PointwiseGroup::test1) return 1;
  return g <= PointwiseGroup::test2 ? 2 : 3;
}
bool gives_bool(PointwiseGroup g) { return g == PointwiseGroup::test1 || g == PointwiseGroup::test2; }

std::vector<std::string> pointwise_names() {
  std::vector<std::string> names;
  for (const PointwiseInfo& i : kInfos) names.push_back(i.name);
  return names;
}

Pointwise pointwise_from(const std::string& text, const char* call) {
  for (const PointwiseInfo& i : kInfos)
    if (text[0] == *i.name && text == i.name) return Pointwise(&i - kInfos);
  throw ShapeError(cat(call,
                       ": op must be the name of a function of docs/ops/pointwise.md, such as add, exp or where; got '",
                       text, "'"));
}

DType pointwise_dtype(const PointwiseProblem& p) {
  return info(p.op).group == PointwiseGroup::select ? p.b.dtype : p.a.dtype;
}

std::string Family<PointwiseProblem>::text(const PointwiseProblem& p) {
  std::string text = cat(head_text("pointwise", info(p.op).name, pointwise_dtype(p)), " a=", problem_text(p.a));
  const int n = arity(info(p.op).group);
  if (n > 1) text += " b=" + problem_text(p.b);
  if (n > 2) text += " c=" + problem_text(p.c);
  return text + out_text(p.out, result_of(p));
}

void Family<PointwiseProblem>::ports(const PointwiseProblem& p, PointwiseArgs& a, Ports& v) {
  const int n = arity(info(p.op).group);
  v.in("a", p.a, a.a);
  if (n > 1) v.in("b", p.b, a.b);
  if (n > 2) v.in("c", p.c, a.c);
  v.out("y", p.out, a.out);
}

Tensor pointwise(Pointwise op, const Tensor& a, const std::optional<Tensor>& b, const std::optional<Tensor>& c,
                 const Call& call) {
  const PointwiseInfo& what = info(op);
  const char* me = what.name;
  const int n = arity(what.group), given = 1 + b.has_value() + c.has_value();
  MINIDNN_CHECK(ShapeError, n == given && (b || !c), me, ": ",
                n == 1   ? "a"
                : n == 2 ? "a and b"
                         : "a, b and c",
                " must be given, and no more; got ", given, given == 1 ? " operand" : " operands");
  Handle& h = handle_for(call.handle, a.place(), me, "a");
  const Operand operands[] = {{"a", a}, {"b", b ? *b : a}, {"c", c ? *c : a}};
  const std::span<const Operand> all(operands, size_t(n));

  const bool selects = what.group == PointwiseGroup::select;
  const DType type = selects ? b->desc.dtype : a.desc.dtype;
  MINIDNN_CHECK(DTypeError, !selects || a.desc.dtype == DType::boolean, me, ": a is ", name(a.desc.dtype),
                "; a is the condition and must be bool");
  MINIDNN_CHECK(DTypeError, accepts(op, type), me, ": ", selects ? "b" : "a", " is ", name(type), "; supported are ",
                dtypes_text(what.operands));
  for (const Operand& o : all) {
    MINIDNN_CHECK(DeviceError, o.tensor.place() == h.place(), me, ": a is on ", name(h.place()), ", ", o.name,
                  " is on ", name(o.tensor.place()), "; move one with .to(device=...)");
    const bool condition = selects && &o == &operands[0];
    MINIDNN_CHECK(DTypeError, condition || o.tensor.desc.dtype == type, me, ": ", selects ? "b" : "a", " is ",
                  name(type), ", ", o.name, " is ", name(o.tensor.desc.dtype), "; cast one with .to(dtype=...)");
  }

  const Shape shape = broadcast_shape(me, all);
  PointwiseProblem p{op};
  p.a = *broadcast(a.desc, shape);
  if (n > 1) p.b = *broadcast(b->desc, shape);
  if (n > 2) p.c = *broadcast(c->desc, shape);
  p.out = dense(gives_bool(what.group) ? DType::boolean : type, shape, Layout::channels_first, me);
  p.out = result_of(p);
  // `out` must not share memory with a broadcast operand, because an element of that operand would be overwritten
  // before its last use.
  for (const Operand& o : all)
    MINIDNN_CHECK(ShapeError, !call.out || same_shape(o.tensor.desc, p.out) || !share_memory(*call.out, o.tensor), me,
                  ": out shares memory with ", o.name, ", which is broadcast; pass another tensor");
  Tensor out = [&] {
    if (n == 1) return output(me, "out", call.out, p.out, h, {}, {operands[0]});
    if (n == 2) return output(me, "out", call.out, p.out, h, {}, {operands[0], operands[1]});
    return output(me, "out", call.out, p.out, h, {}, {operands[0], operands[1], operands[2]});
  }();
  if (out.desc.numel() == 0) return out;
  for (const Operand& o : all) use(o.tensor, h.stream());
  p.out = out.desc;
  run(h, p, PointwiseArgs{a.data, b ? b->data : nullptr, c ? c->data : nullptr, out.data}, call.algo);
  return out;
}

namespace {

// Returns how an operand is indexed in memory order of the result. `w` has the result's dimensions in this order, and
// `strides` the operand's strides.
PointwiseAccess access_of(const ElementIndexing& w, const int64_t* strides) {
  PointwiseAccess x{Access::dense};
  int64_t step = 1;
  bool dense = true;
  int64_t varying = 0, at = -1;
  for (int64_t d = w.rank - 1; d >= 0; --d) {
    x.strides[d] = strides[d];
    dense = dense && (strides[d] == step || w.shape[d] == 1);
    step *= w.shape[d];
    if (strides[d] != 0 && w.shape[d] > 1) {
      ++varying;
      at = d;
    }
  }
  if (dense) return x;
  if (varying > 1) {
    x.kind = Access::strided;
    return x;
  }
  x.kind = Access::periodic;
  if (varying == 0) return x;
  x.length = w.shape[at];
  x.stride = strides[at];
  for (int64_t d = w.rank - 1; d > at; --d) x.inner *= w.shape[d];
  return x;
}

}  // namespace

JointIndexing joint_indexing(const std::vector<TensorDesc>& tensors) {
  struct Dim {
    int64_t size;
    std::vector<int64_t> stride;  // of each tensor
  };
  const TensorDesc& first = tensors.front();
  const size_t count = tensors.size();
  std::vector<Dim> dims;
  for (int i = 0; i < first.rank; ++i) {
    if (first.shape[i] == 1) continue;
    Dim d{first.shape[i], {}};
    for (const TensorDesc& t : tensors) d.stride.push_back(t.stride[i]);
    dims.push_back(std::move(d));
  }
  auto size = [](int64_t stride) { return stride < 0 ? -stride : stride; };
  std::ranges::stable_sort(dims, [&](const Dim& x, const Dim& y) { return size(x.stride[0]) > size(y.stride[0]); });
  std::vector<Dim> joined;
  for (Dim& d : dims) {
    bool joins = !joined.empty();
    for (size_t k = 0; joins && k < count; ++k) joins = joined.back().stride[k] == d.stride[k] * d.size;
    if (joins) {
      d.size *= joined.back().size;
      joined.back() = std::move(d);
    } else {
      joined.push_back(std::move(d));
    }
  }
  if (joined.empty()) joined.push_back({1, std::vector<int64_t>(count)});
  JointIndexing all;
  all.elements.n = first.numel();
  all.elements.rank = int64_t(joined.size());
  for (size_t i = 0; i < joined.size(); ++i) all.elements.shape[i] = joined[i].size;
  for (size_t k = 0; k < count; ++k) {
    int64_t strides[kMaxRank];
    for (size_t i = 0; i < joined.size(); ++i) strides[i] = joined[i].stride[k];
    all.access.push_back(access_of(all.elements, strides));
    // No two elements of the result share memory, so a period of the result is a stride.
    if (k == 0 && all.access[0].kind == Access::periodic) all.access[0].kind = Access::strided;
  }
  return all;
}

PointwiseIndexing indexing_of(const PointwiseProblem& p) {
  const int n = arity(info(p.op).group);
  const JointIndexing all = joint_indexing({p.out, p.a, n > 1 ? p.b : p.a, n > 2 ? p.c : p.a});
  return {all.elements, all.access[1], all.access[2], all.access[3], all.access[0]};
}

double pointwise_bytes(const PointwiseProblem& p) {
  auto bytes = [](const TensorDesc& d) {
    double n = double(itemsize(d.dtype));
    for (int i = 0; i < d.rank; ++i) n *= d.stride[i] == 0 ? 1 : double(d.shape[i]);
    return n;
  };
  const int n = arity(info(p.op).group);
  return bytes(p.a) + (n > 1 ? bytes(p.b) : 0) + (n > 2 ? bytes(p.c) : 0) + bytes(p.out);
}
double pointwise_flop(const PointwiseProblem& p) {
  const PointwiseGroup g = info(p.op).group;
  return double(p.out.numel()) * (g == PointwiseGroup::maths1 || g == PointwiseGroup::maths2 ? 20 : 2);
}

}  // namespace minidnn
