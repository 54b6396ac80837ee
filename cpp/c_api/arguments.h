// SPDX-License-Identifier: Apache-2.0
// What the functions of the C interface (include/minidnn/minidnn.h) share: statuses for exceptions, and conversions of
// arguments. The functions convert their arguments and call the public C++ function of a family, which makes all other
// checks.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpp/engine/op.h"
#include "cpp/engine/spatial.h"
#include "include/minidnn/minidnn.h"

struct minidnnTensor_s {
  minidnn::Tensor tensor;
};
struct minidnnHandle_s {
  minidnn::HandlePtr handle;
};

namespace minidnn::c_api {

// A null pointer, an unknown constant, or an options struct that was not initialised.
struct InvalidArgument : Error {
  using Error::Error;
};

// A result that the C caller receives in `slot`. If the slot points to a tensor, the call writes to it. If it points to
// null, set() stores a new tensor there. set() cannot fail, so that a call stores all of its results or none.
class Result {
 public:
  // Throws InvalidArgument if `slot` is null.
  Result(const char* call, const char* name, minidnnTensor_t* slot);
  std::optional<Tensor> out() const {
    if (fresh_) return std::nullopt;
    return (*slot_)->tensor;
  }
  void set(Tensor tensor) noexcept {
    if (!fresh_) return;  // the tensor in the slot has been written
    fresh_->tensor = std::move(tensor);
    *slot_ = fresh_.release();
  }

 private:
  minidnnTensor_t* slot_;
  std::unique_ptr<minidnnTensor_s> fresh_;
};

// Converts the arguments of one call. Error messages begin with `call`, the name of the C function.
class Arguments {
 public:
  explicit Arguments(const char* call) : call_(call) {}
  const char* name() const { return call_; }

  // Throws InvalidArgument if the pointer is null.
  template <class T> T* present(const char* name, T* pointer) const {
    MINIDNN_CHECK(InvalidArgument, pointer, call_, ": ", name, " must not be NULL");
    return pointer;
  }
  const Tensor& tensor(const char* name, minidnnTensor_t t) const { return present(name, t)->tensor; }
  static std::optional<Tensor> optional(minidnnTensor_t t) {
    if (!t) return std::nullopt;
    return t->tensor;
  }
  Result result(const char* name, minidnnTensor_t* slot) const { return {call_, name, slot}; }
  // A result that is always a new tensor. Throws InvalidArgument if the slot points to a tensor.
  Result new_result(const char* name, minidnnTensor_t* slot) const;
  DType dtype(const char* name, int64_t value) const;
  Place place(int32_t device) const;
  // Reads `rank` sizes. Throws ShapeError if there cannot be a tensor of this rank.
  std::span<const int64_t> sizes(const char* name, int64_t rank, const int64_t* values) const;
  // Reads a struct of options, where null means `defaults`. Callers compiled with an earlier version may pass a shorter
  // struct, whose missing members keep their defaults.
  template <class O> O options(const O* given, O defaults) const {
    if (!given) return defaults;
    check_size(given->size, sizeof(O));
    std::copy_n(reinterpret_cast<const char*>(given), given->size, reinterpret_cast<char*>(&defaults));
    return defaults;
  }
  // Returns the `algo` of a call whose only option it is.
  const char* algo(const minidnnOptions_t* given) const {
    return options(given, minidnnOptions_t MINIDNN_OPTIONS_INIT).algo;
  }
  void check_size(size_t given, size_t known) const;

 private:
  const char* call_;
};

inline Call call_of(minidnnHandle_t handle, const char* algo, std::optional<Tensor> out = {}) {
  return {algo ? algo : "", std::move(out), handle ? handle->handle : nullptr};
}

// The values of a window attribute for each spatial dimension.
inline std::vector<int64_t> spatial(const int64_t (&values)[3], int64_t rank) {
  return {values, values + std::clamp<int64_t>(rank - 2, 1, 3)};
}
std::vector<Sides> sides(const int64_t* before, const int64_t* after, int64_t count);

// Enters a handle for a scope. Calls without a handle then use it.
class Entered {
 public:
  explicit Entered(minidnnHandle_t handle) : handle_(handle ? handle->handle : nullptr) {
    if (handle_) enter(handle_);
  }
  ~Entered() {
    if (handle_) leave(*handle_);
  }
  Entered(const Entered&) = delete;

 private:
  const HandlePtr handle_;
};

// Must be called in a catch block. Stores the message of the exception for minidnnGetLastErrorMessage(), and returns
// the status for its class.
minidnnStatus_t status_of_exception() noexcept;
// Finds the kernel sources at the first call in the process.
void prepare();

// Calls f(arguments), and returns the status. No exception leaves a function of the C interface.
template <class F> minidnnStatus_t guarded(const char* call, F&& f) noexcept {
  try {
    prepare();
    f(Arguments(call));
    return MINIDNN_STATUS_SUCCESS;
  } catch (...) {
    return status_of_exception();
  }
}

}  // namespace minidnn::c_api
