// SPDX-License-Identifier: Apache-2.0
// Shapes, strides and layouts. Logical dimensions are N, C, spatial... in every layout. A layout is only an order of
// strides: it is derived from the strides and never stored.
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
std::string shape_text(const TensorDesc&);  // "[64, 3, 224, 224]"
std::string shape_text(std::span<const int64_t>);
std::string problem_text(const TensorDesc&);  // "64x3x224x224:nhwc"; without a suffix: row-major

// "NCHW" for rank 4, "NWC" for rank 3 ...; ShapeError when the name is unknown or of another rank.
Layout layout_from(const std::string& name, int64_t rank);
// The name of the layout that the strides have: "NCHW", "NDHWC", "contiguous" for other ranks, else "strided". A tensor
// that is dense in both orders (one channel, for example) counts as channels first.
std::string layout_name(const TensorDesc&);
// The layout of a result computed from this input: channels last if the input's strides have that order, even with
// gaps.
Layout preferred_layout(const TensorDesc&);

// A dense tensor. ShapeError for a negative size, a rank above kMaxRank, or more bytes than an int64 counts. Its text
// begins with `what` ("conv_forward: y").
TensorDesc dense(DType, std::span<const int64_t> shape, Layout, const char* what);
TensorDesc dense_like(const TensorDesc&, DType, const char* what);  // keeps the stride order of a dense input
// A tensor with the given strides, in elements. In addition to dense()'s errors: ShapeError if the number of strides is
// wrong, or if a byte offset would not fit an int64.
TensorDesc strided(DType, std::span<const int64_t> shape, std::span<const int64_t> strides, const char* what);

bool is_row_major(const TensorDesc&);
bool is_dense(const TensorDesc&);         // some permutation of it is row-major: no gaps, no overlap
bool overlaps_itself(const TensorDesc&);  // two indices may share an element, so it cannot be an output
// Whether `a` and `b` may share an element; b's first element is `offset` elements after a's. Exact if neither overlaps
// itself and their strides are equal, as those of slices of one array are.
bool may_overlap(const TensorDesc& a, const TensorDesc& b, int64_t offset);
bool same_shape(const TensorDesc&, const TensorDesc&);
bool same_strides(const TensorDesc&, const TensorDesc&);  // over dimensions longer than one

// x with strides for `shape`, broadcast as in NumPy: missing dimensions are added in front, and dimensions of length
// one are repeated with stride zero. Empty if the shapes are incompatible.
std::optional<TensorDesc> broadcast(const TensorDesc& x, std::span<const int64_t> shape);

// The range of elements that the tensor touches, relative to its pointer: the first, and one past the last.
struct Extent {
  int64_t begin, end;
};
Extent extent(const TensorDesc&);

}  // namespace minidnn
