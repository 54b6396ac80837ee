// SPDX-License-Identifier: Apache-2.0
// The C functions for handles and tensors.
#include "cpp/c_api/arguments.h"
#include "cpp/core/dlpack.h"
#include "cpp/transform/transform.h"

using namespace minidnn;
using namespace minidnn::c_api;

namespace {

// Memory of the C caller, which is released by the caller's function.
struct Wrapped final : Storage {
  void (*free)(void*) = nullptr;
  void* context = nullptr;
  ~Wrapped() override {
    if (free) free(context);
  }
};

// Describes host memory of the C caller as a row-major tensor of the shape and dtype of `t`.
Tensor host_copy_of(const Arguments& a, const char* name, const Tensor& t, void* data, size_t bytes) {
  MINIDNN_CHECK(ShapeError, bytes == size_t(t.nbytes()), a.name(), ": bytes must be ", t.nbytes(), ", the size of ",
                t.text(), "; got ", bytes);
  if (bytes) a.present(name, data);
  return adopt(dense(t.desc.dtype, shape_of(t.desc), Layout::channels_first, a.name()), data, Place{},
               std::make_shared<Storage>(), a.name());
}

void copy_elements(const Tensor& from, const Tensor& to) { transform(from, 1, 0, {}, {}, {"", to, nullptr}); }

int32_t number_of(Place p) { return p.is_cuda ? p.index : MINIDNN_CPU; }

}  // namespace

minidnnStatus_t minidnnHandleCreate(const minidnnHandleOptions_t* options, minidnnHandle_t* handle) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnHandleOptions_t>(options, MINIDNN_HANDLE_OPTIONS_INIT);
    a.present("handle", handle);
    const Place place = a.place(o.device);
    MINIDNN_CHECK(ShapeError, o.threads >= 0, a.name(), ": threads must be 0 or more; got ", o.threads);
    MINIDNN_CHECK(DeviceError, !o.threads || !place.is_cuda, a.name(), ": threads is supported on the CPU only");
    MINIDNN_CHECK(DeviceError, !o.stream || place.is_cuda, a.name(), ": stream is supported on a GPU only");
    MINIDNN_CHECK(ShapeError, o.max_plans >= 1, a.name(), ": max_plans must be 1 or more; got 0");
    const HandleOptions chosen{o.max_workspace, o.deterministic != 0, o.ieee ? Math::ieee : Math::tf32, o.threads,
                               o.max_plans};
    *handle = new minidnnHandle_s{std::make_shared<Handle>(place, o.stream, chosen)};
  });
}

minidnnStatus_t minidnnHandleDestroy(minidnnHandle_t handle) {
  return guarded(__func__, [&](const Arguments&) { delete handle; });
}

minidnnStatus_t minidnnHandleSynchronize(minidnnHandle_t handle) {
  return guarded(__func__, [&](const Arguments& a) { a.present("handle", handle)->handle->synchronize(); });
}

minidnnStatus_t minidnnTensorCreate(minidnnHandle_t handle, minidnnDType_t dtype, int64_t rank, const int64_t* shape,
                                    const char* layout, minidnnTensor_t* tensor) {
  return guarded(__func__, [&](const Arguments& a) {
    Result result = a.new_result("tensor", tensor);
    const DType type = a.dtype("dtype", dtype);
    const auto sizes = a.sizes("shape", rank, shape);
    const Layout order = layout ? layout_from(layout, rank) : Layout::channels_first;
    const HandlePtr given = handle ? handle->handle : nullptr;
    const Place place = given ? given->place() : Place{};
    const Handle& h = handle_for(given, place, a.name(), "the tensor");
    result.set(empty(dense(type, sizes, order, "minidnnTensorCreate: shape"), place, h.stream(), a.name(), "tensor"));
  });
}

minidnnStatus_t minidnnTensorWrap(const minidnnTensorInfo_t* info, void (*release)(void*), void* context,
                                  minidnnTensor_t* tensor) {
  return guarded(__func__, [&](const Arguments& a) {
    const auto o = a.options<minidnnTensorInfo_t>(a.present("info", info), MINIDNN_TENSOR_INFO_INIT);
    Result result = a.new_result("tensor", tensor);
    const auto shape = a.sizes("shape", o.rank, o.shape);
    const TensorDesc desc = strided(a.dtype("dtype", o.dtype), shape, {o.strides, shape.size()}, a.name());
    auto owner = std::make_shared<Wrapped>();
    owner->read_only = o.read_only != 0;
    Tensor t = adopt(desc, o.data, a.place(o.device), owner, a.name());
    owner->free = release;  // nothing can fail from here on
    owner->context = context;
    result.set(std::move(t));
  });
}

minidnnStatus_t minidnnTensorDestroy(minidnnTensor_t tensor) {
  return guarded(__func__, [&](const Arguments&) { delete tensor; });
}

minidnnStatus_t minidnnTensorGetInfo(minidnnTensor_t tensor, minidnnTensorInfo_t* info) {
  return guarded(__func__, [&](const Arguments& a) {
    const Tensor& t = a.tensor("tensor", tensor);
    minidnnTensorInfo_t all{
        a.present("info", info)->size, minidnnDType_t(t.desc.dtype), number_of(t.place()), t.data, t.desc.rank, {}, {},
        t.storage->read_only};
    a.check_size(info->size, sizeof all);
    std::ranges::copy(shape_of(t.desc), all.shape);
    std::ranges::copy(strides_of(t.desc), all.strides);
    std::copy_n(reinterpret_cast<const char*>(&all), all.size, reinterpret_cast<char*>(info));
  });
}

minidnnStatus_t minidnnTensorCopyFromHost(minidnnHandle_t handle, minidnnTensor_t tensor, const void* from,
                                          size_t bytes) {
  return guarded(__func__, [&](const Arguments& a) {
    const Tensor& t = a.tensor("tensor", tensor);
    const Tensor host = host_copy_of(a, "from", t, const_cast<void*>(from), bytes);
    const Entered scope(handle);
    copy_elements(to(host, t.place(), {}, {}, false), t);
    if (t.place().is_cuda) handle_for(nullptr, t.place(), a.name(), "tensor").synchronize();
  });
}

minidnnStatus_t minidnnTensorCopyToHost(minidnnHandle_t handle, minidnnTensor_t tensor, void* target, size_t bytes) {
  return guarded(__func__, [&](const Arguments& a) {
    const Tensor& t = a.tensor("tensor", tensor);
    const Tensor host = host_copy_of(a, "to", t, target, bytes);
    const Entered scope(handle);
    copy_elements(to(t, Place{}, {}, {}, false), host);
  });
}

minidnnStatus_t minidnnTensorFill(minidnnHandle_t handle, minidnnTensor_t tensor, double value) {
  return guarded(__func__, [&](const Arguments& a) {
    const Tensor& t = a.tensor("tensor", tensor);
    const Entered scope(handle);
    copy_elements(to(scalar_of(value), t.place(), {}, {}, false), t);
  });
}

minidnnStatus_t minidnnTensorReshape(minidnnHandle_t handle, minidnnTensor_t tensor, int64_t rank, const int64_t* shape,
                                     minidnnTensor_t* reshaped) {
  return guarded(__func__, [&](const Arguments& a) {
    Result result = a.new_result("reshaped", reshaped);
    const auto sizes = a.sizes("shape", rank, shape);
    const Entered scope(handle);
    result.set(reshape(a.tensor("tensor", tensor), Shape(sizes.begin(), sizes.end())));
  });
}

minidnnStatus_t minidnnTensorView(minidnnTensor_t tensor, int64_t rank, const int64_t* shape, const int64_t* strides,
                                  int64_t offset, minidnnTensor_t* view) {
  return guarded(__func__, [&](const Arguments& a) {
    Result result = a.new_result("view", view);
    const auto sizes = a.sizes("shape", rank, shape);
    result.set(as_strided(a.tensor("tensor", tensor), sizes, a.sizes("strides", rank, strides), offset));
  });
}

minidnnStatus_t minidnnTensorToDevice(minidnnTensor_t tensor, int32_t device, minidnnTensor_t* moved) {
  return guarded(__func__, [&](const Arguments& a) {
    Result result = a.new_result("moved", moved);
    result.set(to(a.tensor("tensor", tensor), a.place(device), {}, {}, false));
  });
}

minidnnStatus_t minidnnTensorToDLPack(minidnnTensor_t tensor, DLManagedTensorVersioned** managed) {
  return guarded(__func__, [&](const Arguments& a) {
    a.present("managed", managed);
    *managed = dlpack::export_versioned(a.tensor("tensor", tensor), false);
  });
}

minidnnStatus_t minidnnTensorFromDLPack(DLManagedTensorVersioned* managed, minidnnTensor_t* tensor) {
  return guarded(__func__, [&](const Arguments& a) {
    Result result = a.new_result("tensor", tensor);
    result.set(dlpack::import(a.present("managed", managed)));
  });
}
