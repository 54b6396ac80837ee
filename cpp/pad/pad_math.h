// SPDX-License-Identifier: Apache-2.0
// The formulas of padding, shared by CPU and CUDA. They map each element of a padded tensor to an element of the input.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

enum class PadMode : int64_t { constant, replicate, reflect };

struct PadProblem {
  TensorDesc x, y;
  // In each dimension, the number of padded elements of y before the first element of x.
  int64_t before[kMaxRank]{};
  PadMode mode{};
  // The number of bytes to which x and y are aligned in memory: at most 16, and always 16 on a CPU.
  int64_t alignment = 16;
};

struct PadArgs {
  const void* x = nullptr;
  void* y = nullptr;
  // The bits of the value that constant padding writes, in the dtype of x.
  uint64_t value = 0;
};

// Returns the index in x that element i of y copies, in one dimension. i counts from the first element of x, so it is
// negative in the padding before x. For constant padding, the result may be out of bounds. Reflections are narrower
// than x, so one reflection at each end suffices.
template <class Int> MINIDNN_HD Int pad_source(PadMode mode, Int i, Int size) {
  if (mode == PadMode::constant) return i;
  if (mode == PadMode::replicate) return min_of(max_of(i, Int(0)), size - 1);
  i = i < 0 ? -i : i;
  return min_of(i, 2 * (size - 1) - i);
}

template <class T> MINIDNN_HD void pad_element(const PadProblem& p, const PadArgs& a, int64_t linear) {
  int64_t x_at = 0, y_at = 0;
  bool inside = true;
  for (int d = int(p.y.rank) - 1; d >= 0; --d) {
    const int64_t i = linear % p.y.shape[d];
    linear /= p.y.shape[d];
    const int64_t from = pad_source(p.mode, i - p.before[d], p.x.shape[d]);
    inside = inside && 0 <= from && from < p.x.shape[d];
    x_at += from * p.x.stride[d];
    y_at += i * p.y.stride[d];
  }
  static_cast<T*>(a.y)[y_at] = inside ? static_cast<const T*>(a.x)[x_at] : T(a.value);
}

constexpr int kPadOuters = kMaxRank - 1;

struct PadDimension {
  // `before` is the number of padded elements before x, and `size` the number of elements of x.
  int32_t before = 0, size = 1;
  int64_t x = 0;  // the stride of x in this dimension
};

// The padding of a dense result y as lines along its innermost dimension. A word is one or several adjacent elements
// that are always copied together. All sizes and strides are in words.
struct PadLines {
  // The number of words in y.
  int64_t words = 0;
  // The number of words in a line.
  LongDivisor width;
  PadDimension line;
  // `outer` and `along` list all dimensions of y but the innermost, from the inside out. `row` is the index in the
  // first of them, and `plane` the linear index in all others.
  int64_t outers = 1;
  FastDivmod outer[kPadOuters];
  PadDimension along[kPadOuters];
  PadMode mode{};

  // Compute the offset in x of a line of y. They return false if the whole line has the constant value. `how` must
  // equal `mode`, and makes the code faster if it is a compile-time constant.
  MINIDNN_HD bool add_plane(PadMode how, uint32_t plane, int64_t& at) const {
    bool inside = true;
#ifdef __CUDA_ARCH__
#pragma unroll 1  // The loop usually runs once. Unrolled code is longer and not faster.
#endif
    for (int d = 1; d < int(outers); ++d) inside = add(how, along[d], outer[d].divmod(plane), at) && inside;
    return inside;
  }
  MINIDNN_HD bool add_row(PadMode how, int32_t row, int64_t& at) const { return add(how, along[0], row, at); }
  MINIDNN_HD static bool add(PadMode how, const PadDimension& d, int32_t index, int64_t& at) {
    const int32_t i = pad_source(how, index - d.before, d.size);
    at += i * d.x;
    return uint32_t(i) < uint32_t(d.size);
  }
  MINIDNN_HD bool begin(PadMode how, uint32_t number, int64_t& at) const {
    at = 0;
    const int32_t row = outer[0].divmod(number);
    const bool inside = add_plane(how, number, at);
    return add_row(how, row, at) && inside;
  }
};

}  // namespace minidnn
