// SPDX-License-Identifier: Apache-2.0
// What the functions of every family share: the options of a call, and checks of operands and outputs whose texts name
// the call. Each check returns or throws; none does work.
#pragma once
#include <optional>

#include "cpp/engine/engine.h"
#include "cpp/engine/roofline.h"

namespace minidnn {

// The last keyword arguments of every public function.
struct Call {
  std::string algo;           // one engine's name, or its last part ("direct"); empty: let the library choose
  std::optional<Tensor> out;  // written instead of a new tensor
  HandlePtr handle;           // null: the current one
};

struct Operand {
  const char* name;
  const Tensor& tensor;
};

// The handle the call runs on. Every operand must be on its device and of one floating dtype.
Handle& check_operands(const char* call, const Call&, std::initializer_list<Operand>);
void check_rank(const char* call, const Operand&, int64_t least, int64_t most);
// A dimension that may count from the end, from the front.
int64_t checked_axis(const char* call, const Operand&, int64_t axis);
void check_shape(const char* call, const Operand&, std::span<const int64_t> wanted, const char* why);

// call.out if given, after checking it is fit to be written with `want`'s shape and dtype; else a new tensor.
// It may not touch `inputs` in memory, except that it may be one of `in_place` element for element.
Tensor output(const char* call, const char* name, const std::optional<Tensor>& out, const TensorDesc& want,
              const Handle&, std::initializer_list<Operand> inputs, std::initializer_list<Operand> in_place = {});

// What a product of 16-bit operands may be written in instead: float32, if `out` is. Else their dtype.
DType product_dtype(DType operands, const std::optional<Tensor>& out);
// What divides all these addresses, in bytes: 16 at most, and always on the CPU, whose engines do not ask.
int64_t alignment_of(const Handle&, std::initializer_list<const void*>);
// Calls f(Type<T>, Type<Y>) for the dtypes of operands and of a product of theirs.
template <class F> void with_product_types(DType operands, DType result, F&& f) {
  with_floating(operands, [&](auto type) {
    if constexpr (sizeof(typename decltype(type)::type) == 2) {
      if (result == DType::float32) return f(type, Type<float>{});
    }
    f(type, type);
  });
}

// " out=4x5:s1,4" when the output's strides are not what the library would choose for `like`; for problem texts.
std::string out_text(const TensorDesc& out, const TensorDesc& like);

// "forward f32": the words after a family's name in every problem text.
inline std::string head_text(const char* family, const char* direction, DType dtype) {
  return cat(family, " ", direction, " ", short_name(dtype));
}

}  // namespace minidnn
