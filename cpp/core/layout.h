// SPDX-License-Identifier: Apache-2.0
// Shapes, strides and layouts of tensors. The dimensions of a tensor are numbered N, C, spatial... in every layout. A
// layout is only an order of strides: it is derived from the strides and never stored.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cpp/core/dtype.h"

namespace minidnn {

enum class Layout { channels_first, channels_last };

using Shape = std::vector<int64_t>;

inline std::span<const int64_t> shape_of(const TensorDesc& d) { return {d.shape, size_t(d.rank)}; }
inline std::span<const int64_t> strides_of(const TensorDesc& d) { return {d.stride, size_t(d.rank)}; }
std::string shape_text(const TensorDesc&);  // the shape of a tensor as text: "[64, 3, 224, 224]"
std::string shape_text(std::span<const int64_t>);
// The shape and layout of a tensor as text, such as "64x3x224x224:nhwc". A row-major tensor has no suffix.
std::string problem_text(const TensorDesc&);

// Finds a layout by its name for the given rank, such as "NCHW" for rank 4 or "NWC" for rank 3. Throws ShapeError if
// the name is unknown or belongs to another rank.
Layout layout_from(const std::string& name, int64_t rank);
// The name of the layout of a tensor, such as "NCHW" or "NDHWC". These names exist for ranks 3 to 5; a row-major tensor
// of another rank is "contiguous". All other tensors are "strided". A tensor that is both channels first and channels
// last, for example with a single channel, gets the name of channels first.
std::string layout_name(const TensorDesc&);
// Returns the layout for a result that is computed from the tensor: channels last if the strides of the tensor are
// sorted as in channels last, even with gaps between elements, else channels first.
Layout preferred_layout(const TensorDesc&);

// The description of a dense tensor. Throws ShapeError for a negative size, a rank above kMaxRank, or more bytes than
// an int64 counts. The text of the error begins with `what`, such as "conv_forward: y".
TensorDesc dense(DType, std::span<const int64_t> shape, Layout, const char* what);
// Describes a dense tensor with the shape of a given tensor. For ranks 3 to 5 it has the preferred_layout() of the
// given tensor. For other ranks, it keeps the order of the given tensor's strides if that tensor is dense.
TensorDesc dense_like(const TensorDesc&, DType, const char* what);
// Describes the same elements at the same addresses. The strides of dimensions of length one, which have no effect, are
// those that problem_text() implies.
TensorDesc with_implied_strides(const TensorDesc&);
// The description of a tensor with the given strides, in elements. Throws the errors of dense(). Also throws ShapeError
// if the number of strides is wrong, or if a byte offset would not fit an int64.
TensorDesc strided(DType, std::span<const int64_t> shape, std::span<const int64_t> strides, const char* what);

bool is_row_major(const TensorDesc&);
// Whether the tensor is row-major after some permutation of its dimensions: it has no gaps and no overlap.
bool is_dense(const TensorDesc&);
// Whether two different indices of the tensor may refer to the same element in memory. Such a tensor cannot be an
// output.
bool overlaps_itself(const TensorDesc&);
// Whether tensors `a` and `b` may share an element. `offset` is the distance in elements from the first element of `a`
// to the first element of `b`. The answer is exact if neither tensor overlaps itself and both have equal strides, as
// slices of one array have.
bool may_overlap(const TensorDesc& a, const TensorDesc& b, int64_t offset);
bool same_shape(const TensorDesc&, const TensorDesc&);
// Whether two tensors have equal shapes and equal strides. Strides of dimensions of length one have no effect, so they
// are not compared.
bool same_strides(const TensorDesc&, const TensorDesc&);

// The description of x broadcast to `shape`, as in NumPy: missing dimensions are added in front, and dimensions of
// length one are repeated with stride zero. The result is empty if the shapes are incompatible.
std::optional<TensorDesc> broadcast(const TensorDesc& x, std::span<const int64_t> shape);
// Whether several elements have the same address.
bool is_broadcast(const TensorDesc&);

// The range of elements that a tensor touches, relative to its data pointer: the first element, and one past the last.
struct Extent {
  int64_t begin, end;
};
Extent extent(const TensorDesc&);

}  // namespace minidnn
