// SPDX-License-Identifier: Apache-2.0
#include "cpp/core/tensor.h"

#include <numeric>

namespace minidnn {

Tensor empty(const TensorDesc& desc, Place place, Stream stream, const char* call, const char* label) {
  Tensor t;
  t.desc = desc;
  t.storage = allocator_of(place).allocate(size_t(desc.numel()) * itemsize(desc.dtype), stream,
                                           [&] { return cat(call, ": ", label, " ", t.text()); });
  t.data = t.storage->data;
  return t;
}

// Walks old and new dimensions from the innermost outwards in groups of equal size. Inside a group the old dimensions
// must be packed against each other; the new ones are then laid into the same stretch.
bool can_view_as(const TensorDesc& d, std::span<const int64_t> shape, TensorDesc* result) {
  TensorDesc r = dense(d.dtype, shape, Layout::channels_first, "view");
  if (r.numel() != d.numel()) return false;
  if (d.numel() > 0) {
    int to = int(r.rank) - 1;
    for (int from = int(d.rank) - 1; from >= 0;) {
      if (d.shape[from] == 1) {
        --from;
        continue;
      }
      int64_t old_size = d.shape[from], new_size = 1, stride = d.stride[from];
      int64_t packed = stride * d.shape[from];
      --from;
      do {
        while (to >= 0 && new_size < old_size) {
          r.stride[to] = stride * new_size;
          new_size *= r.shape[to--];
        }
        if (new_size == old_size) break;
        while (from >= 0 && d.shape[from] == 1) --from;
        if (from < 0 || d.stride[from] != packed) return false;
        packed *= d.shape[from];
        old_size *= d.shape[from--];
      } while (true);
    }
  }
  *result = r;
  return true;
}

Tensor view_as(const Tensor& t, std::span<const int64_t> shape, const char* what) {
  Tensor v = t;
  MINIDNN_CHECK(ShapeError, can_view_as(t.desc, shape, &v.desc), what, ": ", t.text(), " with strides [",
                join(strides_of(t.desc)), "] cannot be seen as ", shape_text(shape),
                std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>()) == t.desc.numel()
                    ? " without a copy"
                    : ", which has another number of elements");
  return v;
}

bool share_memory(const Tensor& a, const Tensor& b) {
  if (a.place() != b.place() || a.desc.numel() == 0 || b.desc.numel() == 0) return false;
  auto range = [](const Tensor& t) {
    Extent e = extent(t.desc);
    auto base = reinterpret_cast<intptr_t>(t.data);
    auto size = intptr_t(itemsize(t.desc.dtype));
    return std::pair{base + e.begin * size, base + e.end * size};
  };
  auto [a0, a1] = range(a);
  auto [b0, b1] = range(b);
  return a0 < b1 && b0 < a1;
}

}  // namespace minidnn
