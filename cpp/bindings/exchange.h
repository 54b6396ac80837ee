// SPDX-License-Identifier: Apache-2.0
// DLPack's C exchange: takes arrays of other libraries without Python objects between them and a Tensor.
#pragma once
#include "cpp/bindings/casters.h"
#include "third_party/dlpack/dlpack.h"

namespace minidnn {

// A Python type, and its table of C functions.
struct ForeignType {
  PyTypeObject* type = nullptr;
  const DLPackExchangeAPI* table = nullptr;  // null if the type has no table
  bool is_of_torch = false;                  // whether the type has torch's method is_neg
};

// Returns the type of an array that the C exchange can take. The result is empty for any other object, and for a
// DeviceTensor.
std::optional<ForeignType> foreign_type_of(PyObject*);

// Takes an array of the given type. It shares the memory. The stream of `handle` waits for the work that the other
// library has put on its current stream. stream_for() says which stream is used if `handle` is null or belongs to
// another device. Throws the Python exception of the other library, or an Error, whose text begins with "from_dlpack".
Tensor exchange(const ForeignType&, PyObject*, const HandlePtr& handle);

// As exchange(), for any object. The result is empty if the object cannot be taken, or is a torch tensor that
// pyminidnn/conversion.py refuses. That module then raises the error. This function throws only exceptions that are no
// errors, such as KeyboardInterrupt.
std::optional<Tensor> try_exchange(PyObject*, const HandlePtr& handle = nullptr);

// Returns the stream on which an imported array will be used. `place` is the device of the array. If `handle` belongs
// to this device, the result is the handle's stream. If not, it is the stream of the current handle for the device.
Stream stream_for(const HandlePtr& handle, Place place, const char* call);

// Binds the table of DeviceTensor, and the function that takes the operands of a call.
void bind_c_exchange(py::module_&, py::class_<Tensor>&);

}  // namespace minidnn
