// SPDX-License-Identifier: Apache-2.0
// Implements layout.h: strides and names of layouts, overlap of tensors, and broadcasting.
#include "cpp/core/layout.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "cpp/core/error.h"

namespace minidnn {
namespace {

// A list of dimension numbers in some order. It is on the stack, because every call needs a few such lists.
struct Dims {
  int count = 0;
  int at[kMaxRank];
  void push(int dim) { at[count++] = dim; }
  int operator[](int i) const { return at[i]; }
};

// Returns the dimensions of a layout from the outermost to the innermost.
Dims order_of(int64_t rank, Layout layout) {
  Dims order;
  bool last = layout == Layout::channels_last && rank > 2;
  for (int i = 0; i < rank; ++i)
    if (!last || i != 1) order.push(i);
  if (last) order.push(1);
  return order;
}

void set_strides(TensorDesc& d, const Dims& order) {
  int64_t step = 1;
  for (int i = order.count; i-- > 0;) {
    d.stride[order[i]] = step;
    step *= std::max<int64_t>(d.shape[order[i]], 1);
  }
}

bool is_dense_in(const TensorDesc& d, const Dims& order) {
  if (d.numel() == 0) return true;
  int64_t step = 1;
  for (int i = order.count; i-- > 0;) {
    int64_t n = d.shape[order[i]];
    if (n > 1 && d.stride[order[i]] != step) return false;
    step *= n;
  }
  return true;
}

// Returns the dimensions longer than one, from the largest stride to the smallest. Dimensions of equal stride keep
// their order.
Dims by_stride(const TensorDesc& d) {
  Dims dims;
  for (int i = 0; i < d.rank; ++i) {
    if (d.shape[i] <= 1) continue;
    int slot = dims.count++;
    for (; slot > 0 && std::abs(d.stride[dims[slot - 1]]) < std::abs(d.stride[i]); --slot)
      dims.at[slot] = dims.at[slot - 1];
    dims.at[slot] = i;
  }
  return dims;
}

// Whether tensors with equal strides share an element, if `b` begins `rest` elements after `a`. Only the dimensions
// dims[from], dims[from + 1], ... are searched, from the largest stride to the smallest. Each stride exceeds the reach
// of all smaller strides together, so few index differences need to be tried.
bool can_sum_to(int64_t rest, const TensorDesc& a, const TensorDesc& b, const TensorDesc& both, const Dims& dims,
                int from) {
  if (from == dims.count) return rest == 0;
  int k = dims[from];
  int64_t step = std::abs(both.stride[k]), inner = 0;
  for (int i = from + 1; i < dims.count; ++i) inner += std::abs(both.stride[dims[i]]) * (both.shape[dims[i]] - 1);
  int64_t ahead = a.shape[k] - 1, behind = b.shape[k] - 1;
  if (both.stride[k] < 0) std::swap(ahead, behind);
  for (int64_t d = std::max(-behind, (rest - inner) / step - 1); d <= ahead && d * step <= rest + inner; ++d)
    if (can_sum_to(rest - d * step, a, b, both, dims, from + 1)) return true;
  return false;
}

struct Names {
  const char *first, *last;
};
constexpr Names kNames[] = {{"NCW", "NWC"}, {"NCHW", "NHWC"}, {"NCDHW", "NDHWC"}};
const Names* names_of(int64_t rank) { return rank >= 3 && rank <= 5 ? &kNames[rank - 3] : nullptr; }

}  // namespace

std::string shape_text(std::span<const int64_t> shape) {
  // The largest number of sizes that the returned text shows. A sequence that is no valid shape may have millions of
  // elements.
  constexpr size_t kMostShown = 2 * kMaxRank;
  if (shape.size() <= kMostShown) return cat("[", join(shape), "]");
  return cat("[", join(shape.first(kMostShown)), ", ...]");
}
std::string shape_text(const TensorDesc& d) { return shape_text(shape_of(d)); }

std::string problem_text(const TensorDesc& d) {
  std::string text = d.rank ? join(shape_of(d), "x") : "scalar";
  if (is_row_major(d)) return text;
  std::string layout = layout_name(d);
  if (layout == "strided") return text + ":s" + join(strides_of(d), ",");
  std::transform(layout.begin(), layout.end(), layout.begin(), [](unsigned char c) { return std::tolower(c); });
  return text + ":" + layout;
}

Layout layout_from(const std::string& text, int64_t rank) {
  const Names* names = names_of(rank);
  if (names && text == names->first) return Layout::channels_first;
  if (names && text == names->last) return Layout::channels_last;
  if (text == "contiguous") return Layout::channels_first;
  std::string known = names ? cat("'", names->first, "', '", names->last, "' or ") : "";
  throw ShapeError(
      cat("layout '", text, "' does not name an order of ", rank, " dimensions; use ", known, "'contiguous'"));
}

std::string layout_name(const TensorDesc& d) {
  const Names* names = names_of(d.rank);
  if (is_row_major(d)) return names ? names->first : "contiguous";
  if (names && is_dense_in(d, order_of(d.rank, Layout::channels_last))) return names->last;
  return "strided";
}

Layout preferred_layout(const TensorDesc& d) {
  if (!names_of(d.rank) || is_row_major(d)) return Layout::channels_first;
  if (is_dense_in(d, order_of(d.rank, Layout::channels_last))) return Layout::channels_last;
  // Dimensions of stride zero are ignored. For example, the channels of NCHW data may be broadcast. Their stride is
  // then zero and the smallest of all strides, but the layout is not channels last.
  Dims dims = by_stride(d);
  while (dims.count && d.stride[dims[dims.count - 1]] == 0) --dims.count;
  return dims.count && dims[dims.count - 1] == 1 ? Layout::channels_last : Layout::channels_first;
}

TensorDesc dense(DType dtype, std::span<const int64_t> shape, Layout layout, const char* what) {
  MINIDNN_CHECK(ShapeError, shape.size() <= kMaxRank, what, " ", shape_text(shape), " has ", shape.size(),
                " dimensions; at most ", kMaxRank, " are supported");
  TensorDesc d;
  d.dtype = dtype;
  d.rank = int64_t(shape.size());
  int64_t bytes = int64_t(itemsize(dtype));
  for (size_t i = 0; i < shape.size(); ++i) {
    MINIDNN_CHECK(ShapeError, shape[i] >= 0, what, " ", shape_text(shape), " has a negative size in dimension ", i);
    d.shape[i] = shape[i];
    // A dimension of size 0 counts as size 1 here. A factor of 0 would hide an overflow in the strides of the other
    // dimensions.
    bool overflow = __builtin_mul_overflow(bytes, std::max<int64_t>(shape[i], 1), &bytes);
    MINIDNN_CHECK(ShapeError, !overflow, what, " ", shape_text(shape), " ", name(dtype), " is larger than 2^63 bytes");
  }
  set_strides(d, order_of(d.rank, layout));
  return d;
}

TensorDesc dense_like(const TensorDesc& x, DType dtype, const char* what) {
  TensorDesc d = dense(dtype, shape_of(x), preferred_layout(x), what);
  if (!names_of(x.rank) && is_dense(x) && x.numel() > 0) {
    Dims order;
    for (int i = 0; i < x.rank; ++i)
      if (x.shape[i] == 1) order.push(i);
    Dims longer = by_stride(x);
    for (int i = 0; i < longer.count; ++i) order.push(longer[i]);
    set_strides(d, order);
  }
  return d;
}

TensorDesc with_implied_strides(const TensorDesc& d) {
  TensorDesc same = d;
  for (Layout layout : {Layout::channels_first, Layout::channels_last}) {
    const Dims order = order_of(d.rank, layout);
    if (!is_dense_in(d, order)) continue;
    set_strides(same, order);
    break;
  }
  return same;
}

TensorDesc strided(DType dtype, std::span<const int64_t> shape, std::span<const int64_t> strides, const char* what) {
  TensorDesc d = dense(dtype, shape, Layout::channels_first, what);
  MINIDNN_CHECK(ShapeError, strides.size() == shape.size(), what, " ", shape_text(shape), " has ", shape.size(),
                " dimensions, strides ", shape_text(strides), " have ", strides.size());
  auto size = int64_t(itemsize(dtype));
  // The number of bytes from the lowest byte of the tensor to one past its highest byte.
  int64_t reach = size, bytes;
  for (size_t i = 0; i < strides.size(); ++i) {
    bool overflow = __builtin_mul_overflow(strides[i], size, &bytes) || bytes == std::numeric_limits<int64_t>::min() ||
                    __builtin_mul_overflow(std::abs(bytes), std::max<int64_t>(shape[i] - 1, 0), &bytes) ||
                    __builtin_add_overflow(reach, bytes, &reach);
    MINIDNN_CHECK(ShapeError, !overflow, what, " ", shape_text(shape), " ", name(dtype), " with strides ",
                  shape_text(strides), " reaches beyond 2^63 bytes");
    d.stride[i] = strides[i];
  }
  return d;
}

bool is_row_major(const TensorDesc& d) { return is_dense_in(d, order_of(d.rank, Layout::channels_first)); }

bool is_dense(const TensorDesc& d) {
  if (d.numel() == 0) return true;
  return is_dense_in(d, by_stride(d));
}

// Returns whether two elements of a tensor may share memory. The result is exact for views of dense arrays. It is false
// if each stride exceeds the largest offset that all smaller strides can reach together.
bool overlaps_itself(const TensorDesc& d) {
  if (d.numel() == 0) return false;
  // The largest offset that the dimensions checked so far can reach together.
  int64_t reach = 0;
  Dims dims = by_stride(d);
  for (int i = dims.count; i-- > 0;) {
    int64_t step = std::abs(d.stride[dims[i]]);
    if (step <= reach) return true;
    reach += step * (d.shape[dims[i]] - 1);
  }
  return false;
}

bool may_overlap(const TensorDesc& a, const TensorDesc& b, int64_t offset) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  if (a.rank != b.rank || overlaps_itself(a) || overlaps_itself(b)) return true;
  TensorDesc both = a;
  for (int i = 0; i < a.rank; ++i) {
    if (a.shape[i] > 1 && b.shape[i] > 1 && a.stride[i] != b.stride[i]) return true;
    if (b.shape[i] > a.shape[i]) {
      both.shape[i] = b.shape[i];
      both.stride[i] = b.stride[i];
    }
  }
  return overlaps_itself(both) || can_sum_to(offset, a, b, both, by_stride(both), 0);
}

bool same_shape(const TensorDesc& a, const TensorDesc& b) { return std::ranges::equal(shape_of(a), shape_of(b)); }

bool same_strides(const TensorDesc& a, const TensorDesc& b) {
  if (!same_shape(a, b)) return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.shape[i] > 1 && a.stride[i] != b.stride[i] && a.numel() > 0) return false;
  return true;
}

std::optional<TensorDesc> broadcast(const TensorDesc& x, std::span<const int64_t> shape) {
  TensorDesc b{x.dtype, int64_t(shape.size())};
  int64_t missing = b.rank - x.rank;
  if (missing < 0) return std::nullopt;
  for (int64_t i = 0; i < b.rank; ++i) {
    int64_t from = i - missing;
    b.shape[i] = shape[i];
    if (from < 0 || (x.shape[from] == 1 && shape[i] != 1)) continue;
    if (x.shape[from] != shape[i]) return std::nullopt;
    b.stride[i] = x.stride[from];
  }
  return b;
}

bool is_broadcast(const TensorDesc& d) {
  for (int i = 0; i < d.rank; ++i)
    if (d.shape[i] > 1 && d.stride[i] == 0) return true;
  return false;
}

Extent extent(const TensorDesc& d) {
  if (d.numel() == 0) return {0, 0};
  Extent e{0, 1};
  for (int i = 0; i < d.rank; ++i) {
    int64_t reach = d.stride[i] * (d.shape[i] - 1);
    (reach < 0 ? e.begin : e.end) += reach;
  }
  return e;
}

}  // namespace minidnn
