// SPDX-License-Identifier: Apache-2.0
#include "cpp/core/layout.h"

#include <algorithm>
#include <numeric>

#include "cpp/core/error.h"

namespace minidnn {
namespace {

// Dimension numbers from the outermost to the innermost.
std::vector<int> order_of(int64_t rank, Layout layout) {
  std::vector<int> order(size_t(rank), 0);
  std::iota(order.begin(), order.end(), 0);
  if (layout == Layout::channels_last && rank > 2) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

void set_strides(TensorDesc& d, const std::vector<int>& order) {
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    d.stride[order[i]] = step;
    step *= std::max<int64_t>(d.shape[order[i]], 1);
  }
}

bool is_dense_in(const TensorDesc& d, const std::vector<int>& order) {
  TensorDesc packed = d;
  set_strides(packed, order);
  return same_strides(d, packed);
}

// Dimensions longer than one, from the largest stride to the smallest.
std::vector<int> by_stride(const TensorDesc& d) {
  std::vector<int> dims;
  for (int i = 0; i < d.rank; ++i)
    if (d.shape[i] > 1) dims.push_back(i);
  std::stable_sort(dims.begin(), dims.end(),
                   [&](int a, int b) { return std::abs(d.stride[a]) > std::abs(d.stride[b]); });
  return dims;
}

struct Names { const char *first, *last; };
constexpr Names kNames[] = {{"NCW", "NWC"}, {"NCHW", "NHWC"}, {"NCDHW", "NDHWC"}};
const Names* names_of(int64_t rank) { return rank >= 3 && rank <= 5 ? &kNames[rank - 3] : nullptr; }

}  // namespace

std::string shape_text(std::span<const int64_t> shape) { return cat("[", join(shape), "]"); }
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
  throw ShapeError(cat("layout '", text, "' does not name an order of ", rank, " dimensions; use ", known, "'contiguous'"));
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
  std::vector<int> dims = by_stride(d);
  return !dims.empty() && dims.back() == 1 ? Layout::channels_last : Layout::channels_first;
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
    // An empty dimension must not hide an overflow in the strides of the others.
    bool overflow = __builtin_mul_overflow(bytes, std::max<int64_t>(shape[i], 1), &bytes);
    MINIDNN_CHECK(ShapeError, !overflow, what, " ", shape_text(shape), " ", name(dtype),
                  " is larger than 2^63 bytes");
  }
  set_strides(d, order_of(d.rank, layout));
  return d;
}

TensorDesc dense_like(const TensorDesc& x, DType dtype, const char* what) {
  TensorDesc d = dense(dtype, shape_of(x), preferred_layout(x), what);
  if (!names_of(x.rank) && is_dense(x) && x.numel() > 0) {
    std::vector<int> order = by_stride(x);
    for (int i = 0; i < x.rank; ++i)
      if (x.shape[i] <= 1) order.insert(order.begin(), i);
    set_strides(d, order);
  }
  return d;
}

bool is_row_major(const TensorDesc& d) { return is_dense_in(d, order_of(d.rank, Layout::channels_first)); }

bool is_dense(const TensorDesc& d) {
  if (d.numel() == 0) return true;
  int64_t step = 1;
  std::vector<int> dims = by_stride(d);
  for (size_t i = dims.size(); i-- > 0;) {
    if (d.stride[dims[i]] != step) return false;
    step *= d.shape[dims[i]];
  }
  return true;
}

// Exact for what views of dense arrays produce: walking inwards, each stride must step over all that lies inside it.
bool overlaps_itself(const TensorDesc& d) {
  if (d.numel() == 0) return false;
  int64_t reach = 0;  // the furthest offset of the inner dimensions
  std::vector<int> dims = by_stride(d);
  for (size_t i = dims.size(); i-- > 0;) {
    int64_t step = std::abs(d.stride[dims[i]]);
    if (step <= reach) return true;
    reach += step * (d.shape[dims[i]] - 1);
  }
  return false;
}

bool same_shape(const TensorDesc& a, const TensorDesc& b) {
  return std::ranges::equal(shape_of(a), shape_of(b));
}

bool same_strides(const TensorDesc& a, const TensorDesc& b) {
  if (!same_shape(a, b)) return false;
  for (int i = 0; i < a.rank; ++i)
    if (a.shape[i] > 1 && a.stride[i] != b.stride[i] && a.numel() > 0) return false;
  return true;
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
