// SPDX-License-Identifier: Apache-2.0
// The public functions of transform.h: checks of the arguments, time estimates, copies between devices, and the text
// that names a call in tuning files and tests.
#include "cpp/transform/transform.h"

#include "cpp/core/recording.h"

namespace minidnn {
namespace {

TensorDesc result_desc(const TensorDesc& x, std::optional<DType> dtype, std::optional<Layout> layout,
                       const char* call) {
  DType t = dtype.value_or(x.dtype);
  return layout ? dense(t, shape_of(x), *layout, call) : dense_like(x, t, call);
}

}  // namespace

std::string Family<TransformProblem>::text(const TransformProblem& p) {
  std::string text = cat(head_text("transform",
                                   p.reads_y  ? "accumulate"
                                   : p.scaled ? "scale"
                                              : "copy",
                                   p.x.dtype),
                         " x=", problem_text(p.x));
  if (p.y.dtype != p.x.dtype) text += " to=" + short_name(p.y.dtype);
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  return text + out_text(p.y, dense_like(p.x, p.x.dtype, name));
}

void Family<TransformProblem>::ports(const TransformProblem& p, TransformArgs& a, Ports& v) {
  v.in("x", p.x, a.x);
  if (p.reads_y) v.in_out("y", p.y, a.y);
  else v.out("y", p.y, a.y);
  v.number("alpha", a.alpha, 1);
  v.number("beta", a.beta, p.reads_y ? 0.5 : 0);
}

Tensor transform(const Tensor& x, double alpha, double beta, std::optional<DType> dtype, std::optional<Layout> layout,
                 const Call& call) {
  const char* me = "transform";
  Handle& h = handle_for(call.handle, x.place(), me, "x");
  MINIDNN_CHECK(ShapeError, call.out || beta == 0, me, ": beta=", beta, " needs out, which is not given");
  TensorDesc want = result_desc(x.desc, dtype, layout, me);
  if (call.out) {
    MINIDNN_CHECK(ShapeError, !dtype && !layout, me,
                  ": dtype and layout are those of out; omit them when out is given");
    want = call.out->desc;
  }
  bool scaled = alpha != 1 || beta != 0;
  MINIDNN_CHECK(DTypeError, !scaled || (is_floating(x.desc.dtype) && is_floating(want.dtype)), me,
                ": alpha and beta need floating dtypes; x is ", name(x.desc.dtype), ", the result ", name(want.dtype));
  std::optional<TensorDesc> seen = broadcast(x.desc, shape_of(want));
  MINIDNN_CHECK(ShapeError, seen, me, ": x ", shape_text(x.desc), " does not broadcast to out ", shape_text(want));
  TransformProblem p{*seen, want, scaled, beta != 0};
  Tensor y = output(me, "out", call.out, want, h, {}, {{"x", x}});
  if (y.desc.numel() == 0) return y;
  p.alignment = alignment_of(h, {x.data, y.data});
  use(x, h.stream());
  run(h, p, TransformArgs{x.data, y.data, alpha, beta}, call.algo);
  return y;
}

Tensor to(const Tensor& x, std::optional<Place> place, std::optional<DType> dtype, std::optional<Layout> layout,
          bool copy) {
  Place target = place.value_or(x.place());
  TensorDesc want = result_desc(x.desc, dtype, layout, "to");
  bool as_asked = want.dtype == x.desc.dtype && (!layout || same_strides(want, x.desc));
  if (target == x.place()) {
    if (as_asked && !copy) return x;
    return transform(x, 1, 0, want.dtype, layout, {});
  }
  // A graph is recorded for one device, so a copy between devices is made at once.
  check_computed(x, "to");
  const RecordingPause at_once;
  // One contiguous block moves between the devices. If x has gaps, it is packed and cast first. Otherwise a cast to
  // smaller elements is done before, and any other cast afterwards.
  bool shrinks = itemsize(want.dtype) < itemsize(x.desc.dtype);
  if (!is_dense(x.desc) || (!as_asked && shrinks))
    return to(transform(x, 1, 0, want.dtype, layout, {}), target, {}, {}, false);
  device_at(target);
  // A GPU makes the copy. It is the GPU of x, or the GPU of the result if x is on the CPU.
  Place gpu = x.place().is_cuda ? x.place() : target;
  Handle& h = handle_for(nullptr, gpu, "to", "x");
  Handle& there = handle_for(nullptr, target, "to", "x");
  Tensor moved = empty(x.desc, target, there.stream(), "to", "result");
  const bool peers = x.place().is_cuda && target.is_cuda;
  // `moved` may have the memory of an earlier tensor that the target's stream still uses. The copy waits for this work.
  if (peers) memory_of(target).order(there.stream(), gpu, h.stream());
  // The copy waits for all earlier work that used x, on any stream. The caller need not know which streams these are.
  x.storage->settle_before(h.stream());
  use(x, h.stream());
  if (moved.nbytes()) memory_of(gpu).copy(moved.data, x.data, size_t(x.nbytes()), h.stream());
  if (peers) memory_of(gpu).order(h.stream(), target, there.stream());
  return as_asked ? moved : transform(moved, 1, 0, want.dtype, layout, {});
}

Tensor reshape(const Tensor& x, Shape shape) {
  const char* me = "reshape: shape";
  auto elements = [&] { return dense(x.desc.dtype, shape, Layout::channels_first, me).numel(); };
  if (auto open = std::ranges::find(shape, -1); open != shape.end()) {
    MINIDNN_CHECK(ShapeError, std::ranges::count_if(shape, [](int64_t n) { return n < 0; }) == 1, me,
                  " may have one negative size, -1; got ", shape_text(shape));
    const std::string given = shape_text(shape);
    *open = 1;
    const int64_t others = elements();
    MINIDNN_CHECK(ShapeError, others > 0, me, " ", given,
                  " does not determine -1, because the other sizes hold no elements; pass the size");
    MINIDNN_CHECK(ShapeError, x.desc.numel() % others == 0, me, " ", given, " does not divide the ", x.desc.numel(),
                  " elements of ", shape_text(x.desc));
    *open = x.desc.numel() / others;
  }
  TensorDesc view;
  bool copies = elements() == x.desc.numel() && !can_view_as(x.desc, shape, me, &view);
  return view_as(copies ? to(x, {}, {}, Layout::channels_first, true) : x, shape, me);
}

Tensor as_strided(const Tensor& t, std::span<const int64_t> shape, std::span<const int64_t> strides, int64_t offset) {
  Tensor v = t;
  v.desc = strided(t.desc.dtype, shape, strides, "as_strided: shape");
  if (v.desc.numel() == 0) return v;
  Extent have = extent(t.desc), want = extent(v.desc);
  int64_t first, last;
  bool inside = !__builtin_add_overflow(offset, want.begin, &first) && have.begin <= first &&
                !__builtin_add_overflow(offset, want.end, &last) && last <= have.end;
  MINIDNN_CHECK(ShapeError, inside, "as_strided: ", shape_text(shape), " with strides ", shape_text(strides),
                " reaches elements ", want.begin, " to ", want.end, " around offset ", offset, "; the tensor has ",
                have.begin, " to ", have.end);
  v.data = static_cast<char*>(t.data) + offset * int64_t(itemsize(t.desc.dtype));
  return v;
}

namespace {
template <class T> Tensor host_scalar(DType dtype, T value) {
  const RecordingPause at_once;
  Tensor t = empty(dense(dtype, {}, Layout::channels_first, "scalar"), Place{}, nullptr, "scalar", "value");
  *static_cast<T*>(t.data) = value;
  return t;
}
}  // namespace

Tensor scalar_of(double value) { return host_scalar(DType::float64, value); }
Tensor scalar_of(int64_t value) { return host_scalar(DType::int64, value); }

Tensor full(const TensorDesc& desc, Place place, const Tensor& scalar, const HandlePtr& handle) {
  Handle& h = handle_for(handle, place, "full", "the result");
  Tensor t = empty(desc, place, h.stream(), "full", "shape");
  if (desc.numel() == 0) return t;
  uint64_t bits;
  std::memcpy(&bits, scalar.data, sizeof bits);
  // In every dtype, the value 0 has only zero bits. A tensor of zeros is therefore filled with zero bytes. While a
  // graph is recorded, the fill is a node of the graph, as any other call.
  if (bits == 0 && !TensorRecorder::current()) memory_of(place).fill(t.data, 0, size_t(t.nbytes()), h.stream());
  else transform(to(scalar, place, {}, {}, false), 1, 0, {}, {}, {"", t, handle});
  return t;
}

double transform_bytes(const TransformProblem& p) {
  return double(p.y.numel()) * double(itemsize(p.x.dtype) + itemsize(p.y.dtype) * (p.reads_y ? 2 : 1));
}

}  // namespace minidnn
