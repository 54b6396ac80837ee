// SPDX-License-Identifier: Apache-2.0
// Implements op.h: the checks of operands and outputs.
#include "cpp/engine/op.h"

namespace minidnn {

Handle& check_operands(const char* call, const Call& options, std::initializer_list<Operand> operands) {
  const Operand& first = *operands.begin();
  Handle& handle = handle_for(options.handle, first.tensor.place(), call, first.name);
  MINIDNN_CHECK(DTypeError, is_floating(first.tensor.desc.dtype), call, ": ", first.name, " is ",
                name(first.tensor.desc.dtype), "; supported are float32, float64, float16 and bfloat16");
  for (const Operand& o : operands) {
    MINIDNN_CHECK(DeviceError, o.tensor.place() == handle.place(), call, ": ", first.name, " is on ",
                  name(handle.place()), ", ", o.name, " is on ", name(o.tensor.place()),
                  "; move one with .to(device=...)");
    MINIDNN_CHECK(DTypeError, o.tensor.desc.dtype == first.tensor.desc.dtype, call, ": ", first.name, " is ",
                  name(first.tensor.desc.dtype), ", ", o.name, " is ", name(o.tensor.desc.dtype),
                  "; cast one with .to(dtype=...)");
  }
  for (const Operand& o : operands) use(o.tensor, handle.stream());
  return handle;
}

void check_rank(const char* call, const Operand& o, int64_t least, int64_t most) {
  int64_t rank = o.tensor.desc.rank;
  MINIDNN_CHECK(ShapeError, least <= rank && rank <= most, call, ": ", o.name, " must have ",
                least == most ? cat(least) : cat(least, " to ", most), " dimensions; got ", shape_text(o.tensor.desc));
}

int64_t checked_axis(const char* call, const Operand& o, int64_t axis) {
  const int64_t rank = o.tensor.desc.rank;
  MINIDNN_CHECK(ShapeError, -rank <= axis && axis < rank, call, ": axis must be from ", -rank, " to ", rank - 1,
                " for ", o.name, " ", shape_text(o.tensor.desc), "; got ", axis);
  return axis < 0 ? axis + rank : axis;
}

void check_shape(const char* call, const Operand& o, std::span<const int64_t> wanted, const char* why) {
  MINIDNN_CHECK(ShapeError, std::ranges::equal(shape_of(o.tensor.desc), wanted), call, ": ", o.name, " must be ",
                shape_text(wanted), " ", why, "; got ", shape_text(o.tensor.desc));
}

Tensor output(const char* call, const char* label, const std::optional<Tensor>& out, const TensorDesc& want,
              const Handle& handle, std::initializer_list<Operand> inputs, std::initializer_list<Operand> in_place) {
  if (!out) return empty(want, handle.place(), handle.stream(), call, label);
  const TensorDesc& d = out->desc;
  MINIDNN_CHECK(DeviceError, out->place() == handle.place(), call, ": the inputs are on ", name(handle.place()), ", ",
                label, " is on ", name(out->place()));
  MINIDNN_CHECK(DTypeError, d.dtype == want.dtype, call, ": ", label, " must be ", name(want.dtype), "; got ",
                name(d.dtype));
  MINIDNN_CHECK(ShapeError, same_shape(d, want), call, ": ", label, " must be ", shape_text(want), "; got ",
                shape_text(d));
  MINIDNN_CHECK(ShapeError, !out->storage->read_only, call, ": ", label, " is read-only; pass a writable tensor");
  MINIDNN_CHECK(ShapeError, !overlaps_itself(d), call, ": ", label, " has strides [", join(strides_of(d)),
                "], so two of its elements share memory; pass a tensor of distinct elements");
  for (const Operand& o : inputs)
    MINIDNN_CHECK(ShapeError, !share_memory(*out, o.tensor), call, ": ", label, " shares memory with ", o.name,
                  "; pass another tensor");
  for (const Operand& o : in_place) {
    const TensorDesc& x = o.tensor.desc;
    bool itself = out->data == o.tensor.data && same_strides(d, x) && itemsize(d.dtype) == itemsize(x.dtype);
    MINIDNN_CHECK(ShapeError, itself || !share_memory(*out, o.tensor), call, ": ", label, " overlaps ", o.name,
                  " without being the same elements; pass ", o.name, " itself or another tensor");
  }
  use(*out, handle.stream());
  return *out;
}

int64_t alignment_of(const Handle& h, std::initializer_list<const void*> addresses) {
  uintptr_t bits = 16;
  if (h.place().is_cuda)
    for (const void* a : addresses) bits |= reinterpret_cast<uintptr_t>(a);
  return int64_t(bits & -bits);
}

DType product_dtype(DType operands, const std::optional<Tensor>& out) {
  bool wider = out && out->desc.dtype == DType::float32 && itemsize(operands) == 2;
  return wider ? DType::float32 : operands;
}

std::string out_text(const TensorDesc& out, const TensorDesc& like) {
  return same_strides(out, like) ? "" : " out=" + problem_text(out);
}

}  // namespace minidnn
