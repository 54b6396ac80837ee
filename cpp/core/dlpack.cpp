// SPDX-License-Identifier: Apache-2.0
// Conversions between DLPack structures and Tensor.
#include "cpp/core/dlpack.h"

#include <limits>

#include "cpp/core/handle.h"

namespace minidnn::dlpack {
namespace {

struct Code {
  uint8_t code, bits;
};
// The DLPack type code and the number of bits of each DType, in the order of the enum.
constexpr Code kCodes[] = {{kDLFloat, 32}, {kDLFloat, 64}, {kDLFloat, 16}, {kDLBfloat, 16}, {kDLInt, 8},
                           {kDLUInt, 8},   {kDLInt, 32},   {kDLInt, 64},   {kDLBool, 8}};

DType dtype_of(DLDataType t, const char* what) {
  for (size_t i = 0; i < std::size(kCodes); ++i)
    if (t.code == kCodes[i].code && t.bits == kCodes[i].bits && t.lanes == 1) return DType(i);
  throw DTypeError(cat(what, " has elements of DLPack type (code ", int(t.code), ", ", int(t.bits), " bits, ", t.lanes,
                       " lanes); supported are ", dtype_names()));
}

// An exported DLPack structure, with the tensor whose memory it points to. The object exists until the consumer of the
// tensor calls the deleter.
template <class M> struct Export {
  M managed;
  Tensor tensor;
};

template <class M> M* make_export(const Tensor& t) {
  auto* e = new Export<M>{{}, t};
  e->managed.dl_tensor = view(e->tensor);
  e->managed.manager_ctx = e;
  e->managed.deleter = [](M* m) { delete static_cast<Export<M>*>(m->manager_ctx); };
  return &e->managed;
}

template <class M> struct Imported final : Storage {
  M* managed = nullptr;
  ~Imported() override {
    if (managed && managed->deleter) managed->deleter(managed);
  }
};

std::span<const int64_t> shape_in(const DLTensor& d, const char* what) {
  MINIDNN_CHECK(ShapeError, d.ndim >= 0 && d.ndim <= kMaxRank, what, " has ", d.ndim, " dimensions; 0 to ", kMaxRank,
                " are supported");
  MINIDNN_CHECK(ShapeError, d.shape || d.ndim == 0, what, " has ", d.ndim,
                " dimensions and a null shape; its exporter is at fault");
  return {d.shape, size_t(d.ndim)};
}

template <class M> Tensor take(M* managed, bool read_only) {
  const DLTensor& d = managed->dl_tensor;
  const char* what = "from_dlpack: x";
  std::span<const int64_t> shape = shape_in(d, what);
  TensorDesc desc = d.strides ? strided(dtype_of(d.dtype, what), shape, {d.strides, shape.size()}, what)
                              : dense(dtype_of(d.dtype, what), shape, Layout::channels_first, what);
  auto storage = std::make_shared<Imported<M>>();
  storage->read_only = read_only;
  MINIDNN_CHECK(ShapeError, d.byte_offset <= uint64_t(std::numeric_limits<int64_t>::max()),
                "from_dlpack: x has byte_offset ", d.byte_offset, ", which exceeds 2^63 - 1; its exporter is at fault");
  void* data = static_cast<char*>(d.data) + (d.data ? d.byte_offset : 0);
  Tensor t = adopt(desc, data, place_of(d.device), storage, "from_dlpack");
  // The import has succeeded at this point. From now on, this library is responsible for calling the exporter's
  // deleter.
  storage->managed = managed;
  return t;
}

}  // namespace

DLDevice device_of(Place p) { return {p.is_cuda ? kDLCUDA : kDLCPU, p.index}; }

Place place_of(DLDevice d) {
  if (d.device_type == kDLCPU || d.device_type == kDLCUDAHost) return {};
  MINIDNN_CHECK(DeviceError, d.device_type == kDLCUDA || d.device_type == kDLCUDAManaged, "device type ",
                int32_t(d.device_type), " is neither the CPU (1) nor CUDA (2); copy the array to one of them first");
  device_at({true, d.device_id});  // device_at() throws DeviceError if the machine does not have the device
  return {true, d.device_id};
}

DLTensor view(const Tensor& t) {
  const TensorDesc& d = t.desc;
  const Code& code = kCodes[int64_t(d.dtype)];
  // The C structure has no const, but its consumers must not write the shape and the strides.
  return {t.data,
          device_of(t.place()),
          int32_t(d.rank),
          {code.code, code.bits, 1},
          const_cast<int64_t*>(d.shape),
          const_cast<int64_t*>(d.stride),
          0};
}

Tensor allocate_like(const DLTensor& d, const char* call) {
  const std::string what = cat(call, ": the prototype");
  const Place place = place_of(d.device);
  const TensorDesc desc =
      dense(dtype_of(d.dtype, what.c_str()), shape_in(d, what.c_str()), Layout::channels_first, what.c_str());
  return empty(desc, place, handle_for(nullptr, place, call, "the prototype").stream(), call, "the prototype");
}

DLManagedTensorVersioned* export_versioned(const Tensor& t, bool copied) {
  DLManagedTensorVersioned* m = make_export<DLManagedTensorVersioned>(t);
  m->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  m->flags = (t.storage->read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0) | (copied ? DLPACK_FLAG_BITMASK_IS_COPIED : 0);
  return m;
}

DLManagedTensor* export_legacy(const Tensor& t) { return make_export<DLManagedTensor>(t); }

Tensor import(DLManagedTensorVersioned* m) {
  MINIDNN_CHECK(DeviceError, m->version.major == DLPACK_MAJOR_VERSION, "from_dlpack: x uses DLPack ", m->version.major,
                ".", m->version.minor, "; supported is ", DLPACK_MAJOR_VERSION, ".x");
  return take(m, m->flags & DLPACK_FLAG_BITMASK_READ_ONLY);
}

Tensor import(DLManagedTensor* m) { return take(m, false); }

}  // namespace minidnn::dlpack
