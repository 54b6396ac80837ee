// SPDX-License-Identifier: Apache-2.0
// Concatenation of tensors. Each tensor is copied to its range of the result.
#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

// A view of a tensor, or of a slice of it along a dimension. The view does not own the memory.
struct Slice {
  TensorDesc desc;
  char* data;

  explicit Slice(const Tensor& t) : desc(t.desc), data(static_cast<char*>(t.data)) {}
  // Returns the slice that has `count` indices of dimension `dim`, beginning with index `first`.
  Slice along(int dim, int64_t first, int64_t count) const {
    Slice s = *this;
    s.data += first * desc.stride[dim] * int64_t(itemsize(desc.dtype));
    s.desc.shape[dim] = count;
    return s;
  }
};

void copy(Handle& h, const Slice& from, const Slice& to) {
  if (to.desc.numel() == 0) return;
  TransformProblem p{from.desc, to.desc};
  p.alignment = alignment_of(h, {from.data, to.data});
  run(h, p, TransformArgs{from.data, to.data}, "");
}

}  // namespace

Tensor concat(const std::vector<Tensor>& tensors, int64_t axis, const Call& call) {
  const char* me = "concat";
  MINIDNN_CHECK(ShapeError, !tensors.empty(), me, ": tensors must hold one tensor or more; got none");
  const TensorDesc& first = tensors.front().desc;
  const int64_t dim = axis < 0 ? axis + first.rank : axis;
  MINIDNN_CHECK(ShapeError, 0 <= dim && dim < first.rank, me, ": axis must be a dimension of tensors[0] ",
                shape_text(first), "; got ", axis);
  Handle& h = handle_for(call.handle, tensors.front().place(), me, "tensors[0]");
  Shape shape(first.shape, first.shape + first.rank);
  shape[size_t(dim)] = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    MINIDNN_CHECK(DeviceError, t.place() == h.place(), me, ": tensors[0] is on ", name(h.place()), ", tensors[", i,
                  "] is on ", name(t.place()));
    MINIDNN_CHECK(DTypeError, t.desc.dtype == first.dtype, me, ": tensors[0] is ", name(first.dtype), ", tensors[", i,
                  "] is ", name(t.desc.dtype), "; cast one with .to(dtype=...)");
    bool same_shape = t.desc.rank == first.rank;
    for (int d = 0; same_shape && d < first.rank; ++d) same_shape = d == dim || t.desc.shape[d] == first.shape[d];
    MINIDNN_CHECK(ShapeError, same_shape, me, ": tensors[", i, "] must have the shape of tensors[0], ",
                  shape_text(first), ", except in dimension ", dim, "; got ", shape_text(t.desc));
    shape[size_t(dim)] += t.desc.shape[dim];
  }
  Tensor y = output(me, "out", call.out, dense(first.dtype, shape, preferred_layout(first), "concat: result"), h, {});
  for (size_t i = 0; i < tensors.size(); ++i)
    MINIDNN_CHECK(ShapeError, !share_memory(y, tensors[i]), me, ": out shares memory with tensors[", i,
                  "]; pass another tensor");
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    use(t, h.stream());
    copy(h, Slice(t), Slice(y).along(int(dim), at, t.desc.shape[dim]));
    at += t.desc.shape[dim];
  }
  return y;
}

}  // namespace minidnn
