// SPDX-License-Identifier: Apache-2.0
// Shapes, strides and layouts. Logical dimensions are N, C, spatial... in every layout; a layout is only a stride
// order, read off the strides and never stored.
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
// The name of the layout the strides spell: "NCHW", "NDHWC", "contiguous" for other ranks, else "strided".
// A tensor that is dense in both orders (one channel, say) counts as channels first.
std::string layout_name(const TensorDesc&);
// The order a result should take after this input: channels last if its strides say so, also when they have gaps.
Layout preferred_layout(const TensorDesc&);

// A dense tensor. `what` ("conv_forward: y") opens the ShapeError for a negative size, a rank above kMaxRank, or more
// bytes than an int64 counts.
TensorDesc dense(DType, std::span<const int64_t> shape, Layout, const char* what);
TensorDesc dense_like(const TensorDesc&, DType, const char* what);  // keeps the stride order of a dense input
// A tensor with the strides given, in elements. Beside dense()'s errors: ShapeError when there are too few or too many,
// or when they reach so far that a byte offset would not fit an int64.
TensorDesc strided(DType, std::span<const int64_t> shape, std::span<const int64_t> strides, const char* what);

bool is_row_major(const TensorDesc&);
bool is_dense(const TensorDesc&);         // some permutation of it is row-major: no gaps, no overlap
bool overlaps_itself(const TensorDesc&);  // two indices may share an element: unfit for an output
// Whether an element of `a` may be one of `b`, whose first element lies `apart` elements after a's. Exact where the
// strides agree, as those of slices of one array do, and neither overlaps itself.
bool may_overlap(const TensorDesc& a, const TensorDesc& b, int64_t apart);
bool same_shape(const TensorDesc&, const TensorDesc&);
bool same_strides(const TensorDesc&, const TensorDesc&);  // over dimensions longer than one

// x seen through `shape`, NumPy's way: missing dimensions in front, and a length of one repeats with a stride of zero.
// Empty when that does not fit.
std::optional<TensorDesc> broadcast(const TensorDesc& x, std::span<const int64_t> shape);

// The elements from the first to one past the last that the tensor touches, relative to its pointer.
struct Extent {
  int64_t begin, end;
};
Extent extent(const TensorDesc&);

}  // namespace minidnn
