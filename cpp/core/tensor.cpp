// SPDX-License-Identifier: Apache-2.0
// Implements tensor.h: creates tensors and views, and tests whether tensors share memory.
#include "cpp/core/tensor.h"

#include <numeric>

#include "cpp/core/recording.h"

namespace minidnn {

Tensor empty(const TensorDesc& desc, Place place, Stream stream, const char* call, const char* label) {
  if (TensorRecorder* recorder = TensorRecorder::current()) return recorder->stand_in(desc, place, call, label);
  Tensor t;
  t.desc = desc;
  t.storage = allocator_of(place).allocate(size_t(desc.numel()) * itemsize(desc.dtype), stream,
                                           [&] { return cat(call, ": ", label, " ", t.text()); });
  t.data = t.storage->data;
  return t;
}

void use(const Tensor& t, Stream stream) {
  if (TensorRecorder* recorder = TensorRecorder::current()) recorder->note(t);
  t.storage->used_on(stream);
}

Tensor adopt(const TensorDesc& desc, void* data, Place place, std::shared_ptr<Storage> owner, const char* call) {
  auto size = int64_t(itemsize(desc.dtype));
  if (desc.numel() > 0) {
    MINIDNN_CHECK(ShapeError, data, call, ": x ", shape_text(desc),
                  " has a null data pointer; its exporter is at fault");
    MINIDNN_CHECK(ShapeError, reinterpret_cast<uintptr_t>(data) % uintptr_t(size) == 0, call, ": x has its data at ",
                  data, ", which is not aligned to its element size ", size, "; copy it first");
    MINIDNN_CHECK(DeviceError, memory_of(place).reaches(data), call, ": x has its data at ", data,
                  " and says that it is on ", name(place),
                  ", which cannot reach that address; its exporter is at fault");
  }
  Extent e = extent(desc);
  owner->data = static_cast<char*>(data) + e.begin * size;
  owner->bytes = size_t(e.end - e.begin) * size_t(size);
  owner->place = place;
  return {desc, data, std::move(owner)};
}

// Computes the strides of a view with another shape. From the innermost dimension outwards, it matches groups of old
// and new dimensions with equal numbers of elements. If the old dimensions of a group have gaps, there is no view.
bool can_view_as(const TensorDesc& d, std::span<const int64_t> shape, const char* what, TensorDesc* result) {
  TensorDesc r = dense(d.dtype, shape, Layout::channels_first, what);
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
  MINIDNN_CHECK(ShapeError, can_view_as(t.desc, shape, what, &v.desc), what, " ", shape_text(shape),
                " cannot be a view of ", t.text(), " with strides ", shape_text(strides_of(t.desc)),
                std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>()) == t.desc.numel()
                    ? " without a copy"
                    : ", which has another number of elements");
  return v;
}

bool share_memory(const TensorDesc& x, uintptr_t x_address, const TensorDesc& y, uintptr_t y_address) {
  if (x.numel() == 0 || y.numel() == 0) return false;
  auto size = int64_t(itemsize(x.dtype)), y_size = int64_t(itemsize(y.dtype));
  int64_t offset = int64_t(y_address) - int64_t(x_address);
  Extent ex = extent(x), ey = extent(y);
  if (ex.end * size <= offset + ey.begin * y_size || offset + ey.end * y_size <= ex.begin * size) return false;

  return size != y_size || offset % size != 0 || may_overlap(x, y, offset / size);
}

bool share_memory(const Tensor& a, const Tensor& b) {
  return a.place() == b.place() &&
         share_memory(a.desc, reinterpret_cast<uintptr_t>(a.data), b.desc, reinterpret_cast<uintptr_t>(b.data));
}

}  // namespace minidnn
