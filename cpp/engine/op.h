// SPDX-License-Identifier: Apache-2.0
// Shared by the functions of all families: the options of a call, and checks of operands and outputs whose messages
// name the call. Each check returns or throws.
#pragma once
#include <optional>

#include "cpp/engine/engine.h"
#include "cpp/engine/roofline.h"

namespace minidnn {

// The last keyword arguments of every public function.
struct Call {
  std::string algo;           // an engine's name, or its last part ("direct"); empty: the library chooses
  std::optional<Tensor> out;  // the result is written to it instead of to a new tensor
  HandlePtr handle;           // null: the current handle
};

struct Operand {
  const char* name;
  const Tensor& tensor;
};

// Returns the handle that the call runs on. Throws unless every operand is on its device and all have one floating
// dtype.
Handle& check_operands(const char* call, const Call&, std::initializer_list<Operand>);
void check_rank(const char* call, const Operand&, int64_t least, int64_t most);
// `axis` as a non-negative dimension; a negative `axis` counts from the end. ShapeError if it is out of range.
int64_t checked_axis(const char* call, const Operand&, int64_t axis);
void check_shape(const char* call, const Operand&, std::span<const int64_t> wanted, const char* why);

// Returns call.out if given, after checking that it has the shape and dtype of `want` and can be written; else a new
// tensor. `out` must not share memory with `inputs`. It may be exactly one of `in_place`, element for element.
Tensor output(const char* call, const char* name, const std::optional<Tensor>& out, const TensorDesc& want,
              const Handle&, std::initializer_list<Operand> inputs, std::initializer_list<Operand> in_place = {});

// The dtype of a product: float32 if the operands have 16 bits and `out` is float32, else the operands' dtype.
DType product_dtype(DType operands, const std::optional<Tensor>& out);
// The largest power of two, at most 16, that divides all these addresses, in bytes. Always 16 on the CPU, whose engines
// do not use it.
int64_t alignment_of(const Handle&, std::initializer_list<const void*>);
// Calls f(Type<T>, Type<Y>) for the dtypes of the operands and of their product.
template <class F> void with_product_types(DType operands, DType result, F&& f) {
  with_floating(operands, [&](auto type) {
    if constexpr (sizeof(typename decltype(type)::type) == 2) {
      if (result == DType::float32) return f(type, Type<float>{});
    }
    f(type, type);
  });
}

// " out=4x5:s1,4" if the output's strides differ from those that the library would choose for `like`; for problem
// texts.
std::string out_text(const TensorDesc& out, const TensorDesc& like);

// "softmax forward f32": the first words of every problem text.
inline std::string head_text(const char* family, const char* direction, DType dtype) {
  return cat(family, " ", direction, " ", short_name(dtype));
}

}  // namespace minidnn
