// SPDX-License-Identifier: Apache-2.0
// Implements spatial.h: checks of window attributes, the attributes as text, and the sizes of outputs.
#include "cpp/engine/spatial.h"

#include <algorithm>

#include "cpp/core/error.h"

namespace minidnn {
namespace {

std::string sides_text(const Sides& s) { return s.before == s.after ? cat(s.before) : cat(s.before, ":", s.after); }

// Joins the values with commas. If all values are equal, only one of them is returned.
std::string collapsed(const std::vector<std::string>& values) {
  bool equal = std::ranges::all_of(values, [&](auto& v) { return v == values.front(); });
  return equal ? values.front() : join(values, ",");
}

}  // namespace

std::vector<int64_t> per_dimension(const char* call, const char* name, const std::vector<int64_t>& values, int64_t rank,
                                   int64_t least) {
  MINIDNN_CHECK(ShapeError, values.size() == 1 || int64_t(values.size()) == rank, call, ": ", name,
                " must be one value or one for each of ", rank, " spatial dimensions; got ", shape_text(values));
  for (int64_t v : values)
    MINIDNN_CHECK(ShapeError, least <= v && v <= kMaxAttribute, call, ": ", name, " must be from ", least, " to ",
                  kMaxAttribute, "; got ", shape_text(values));
  return values.size() == 1 ? std::vector<int64_t>(size_t(rank), values[0]) : values;
}

SpatialAttributes spatial_attributes(const char* call, int64_t rank, const std::vector<int64_t>& stride,
                                     const std::vector<Sides>& padding, const std::vector<int64_t>& dilation) {
  std::vector<int64_t> before, after;
  for (const Sides& s : padding) {
    before.push_back(s.before);
    after.push_back(s.after);
  }
  SpatialAttributes a;
  std::ranges::copy(per_dimension(call, "stride", stride, rank, 1), a.stride);
  std::ranges::copy(per_dimension(call, "padding", before, rank, 0), a.before);
  std::ranges::copy(per_dimension(call, "padding", after, rank, 0), a.after);
  std::ranges::copy(per_dimension(call, "dilation", dilation, rank, 1), a.dilation);
  return a;
}

Shape output_sizes(const char* call, const SpatialAttributes& a, std::span<const int64_t> sizes,
                   std::span<const int64_t> window, bool ceil_mode) {
  Shape counts;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t padded = a.before[i] + sizes[i] + a.after[i], count = 0;
    // The distance in elements from the first element of a window to its last.
    int64_t reach;
    if (!__builtin_mul_overflow(a.dilation[i], window[i] - 1, &reach)) {
      // The largest index in padded x at which a window may begin. With ceil_mode, it may extend beyond padded x by
      // less than a stride.
      int64_t last_begin = padded - reach - 1 + (ceil_mode ? a.stride[i] - 1 : 0);
      if (last_begin >= 0) count = last_begin / a.stride[i] + 1;
      if (ceil_mode && (count - 1) * a.stride[i] >= a.before[i] + sizes[i]) --count;
    }
    MINIDNN_CHECK(ShapeError, count > 0, call, ": a window of ", window[i], " with dilation ", a.dilation[i],
                  " does not fit in spatial dimension ", i, " of x; got ", sizes[i], " elements, ", padded,
                  " with padding");
    counts.push_back(count);
  }
  return counts;
}

std::string attribute_text(std::span<const int64_t> values) {
  std::vector<std::string> texts;
  for (int64_t v : values) texts.push_back(cat(v));
  return collapsed(texts);
}

std::string spatial_text(const SpatialAttributes& a, int64_t rank, std::span<const int64_t> default_stride) {
  std::span stride{a.stride, size_t(rank)}, dilation{a.dilation, size_t(rank)};
  std::vector<std::string> pads;
  for (int64_t i = 0; i < rank; ++i) pads.push_back(sides_text({a.before[i], a.after[i]}));
  std::string text;
  if (!std::ranges::equal(stride, default_stride.first(size_t(rank)))) text += " stride=" + attribute_text(stride);
  if (std::string pad = collapsed(pads); pad != "0") text += " pad=" + pad;
  if (std::string d = attribute_text(dilation); d != "1") text += " dilation=" + d;
  return text;
}

int64_t plane_of(const TensorDesc& x) {
  int64_t plane = 1;
  for (int i = 2; i < x.rank; ++i) plane *= x.shape[i];
  return plane;
}

namespace {

bool has_channel_stride(const TensorDesc& x, int64_t stride) {
  return (x.shape[1] <= 1 || x.stride[1] == stride) && (x.shape[0] <= 1 || x.stride[0] == plane_of(x) * x.shape[1]);
}

}  // namespace

bool channels_in_order(const TensorDesc& x) { return has_channel_stride(x, plane_of(x)); }
bool channels_innermost(const TensorDesc& x) { return has_channel_stride(x, 1); }

}  // namespace minidnn
