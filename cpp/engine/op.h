// SPDX-License-Identifier: Apache-2.0
// What the public functions of all families share: the options of a call, and checks of operands and outputs. The
// messages of the checks name the called function. A check that fails throws an error.
#pragma once
#include <optional>

#include "cpp/engine/engine.h"
#include "cpp/engine/roofline.h"

namespace minidnn {

// The options of a call. They are the last keyword arguments of every public function in Python.
struct Call {
  // The name of an engine, or the last word of the name, such as "direct". If it is empty, the library chooses the
  // engine.
  std::string algo;
  // The tensor to which the result is written. If it is empty, a new tensor is made.
  std::optional<Tensor> out;
  HandlePtr handle;  // the handle of the call; if null, the current handle is used
};

struct Operand {
  const char* name;
  const Tensor& tensor;
};

// Returns the handle that the call uses. Throws unless every operand is on the handle's device, and all operands have
// the same floating dtype.
Handle& check_operands(const char* call, const Call&, std::initializer_list<Operand>);
void check_rank(const char* call, const Operand&, int64_t least, int64_t most);
// Returns `axis` as a non-negative number. A negative `axis` counts from the end. Throws ShapeError if `axis` is out of
// range.
int64_t checked_axis(const char* call, const Operand&, int64_t axis);
void check_shape(const char* call, const Operand&, std::span<const int64_t> wanted, const char* why);

// Returns the tensor for a result. If `out` is not given, this is a new tensor. If `out` is given, it is returned after
// checks: it must have the shape and dtype of `want`, be writable, and not share memory with `inputs`. `out` may be a
// tensor of `in_place`, if each element of both has the same address.
Tensor output(const char* call, const char* name, const std::optional<Tensor>& out, const TensorDesc& want,
              const Handle&, std::initializer_list<Operand> inputs, std::initializer_list<Operand> in_place = {});

// The dtype of the result of a matrix product. It is float32 if the operands have 16-bit elements and `out` is float32.
// If not, it is the dtype of the operands.
DType product_dtype(DType operands, const std::optional<Tensor>& out);
// The largest power of two, at most 16, that divides all the given addresses. On the CPU the result is always 16,
// because CPU engines do not use the alignment.
int64_t alignment_of(const Handle&, std::initializer_list<const void*>);
// Calls f(Type<T>, Type<Y>), where T is the type of the operands of a matrix product, and Y the type of its result.
template <class F> void with_product_types(DType operands, DType result, F&& f) {
  with_floating(operands, [&](auto type) {
    if constexpr (sizeof(typename decltype(type)::type) == 2) {
      if (result == DType::float32) return f(type, Type<float>{});
    }
    f(type, type);
  });
}

// Returns the shape and strides of an output for the text of a problem, such as " out=4x5:s1,4". The text is empty if
// `out` has the strides of `like`, the tensor that the library would make.
std::string out_text(const TensorDesc& out, const TensorDesc& like);

// Returns the first words of a problem text, such as "softmax forward f32".
inline std::string head_text(const char* family, const char* direction, DType dtype) {
  return cat(family, " ", direction, " ", short_name(dtype));
}

}  // namespace minidnn
