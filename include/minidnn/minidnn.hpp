// SPDX-License-Identifier: Apache-2.0
// minidnn for C++20: the functions of minidnn.h with classes that own tensors and handles, exceptions, and default
// arguments. Header-only; programs link the C library only. docs/cpp.md has an introduction, minidnn.h says what each
// function computes, and docs/ops has formulas and numerics. For example:
//   minidnn::Tensor x({8, 3, 32, 32}), w({16, 3, 3, 3});
//   minidnn::Tensor y = minidnn::conv_forward(x, w, {.padding = 1, .activation = "relu"});
//
// A tensor that is optional is an empty Tensor{}. Functions that fail throw a class that is derived from Error.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "minidnn/minidnn.h"

namespace minidnn {
// The library itself has classes of these names. An inline namespace keeps them apart in programs that link statically.
inline namespace api {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct InvalidArgument : Error {
  using Error::Error;
};
struct ShapeError : Error {
  using Error::Error;
};
struct DTypeError : Error {
  using Error::Error;
};
struct NotSupported : Error {
  using Error::Error;
};
struct DeviceError : Error {
  using Error::Error;
};
struct OutOfMemory : Error {
  using Error::Error;
};

// Throws the error of a status, with the message of this thread's last failed call. Does nothing after success.
inline void check(minidnnStatus_t status) {
  if (status == MINIDNN_STATUS_SUCCESS) return;
  const char* text = minidnnGetLastErrorMessage();
  switch (status) {
    case MINIDNN_STATUS_INVALID_ARGUMENT:
      throw InvalidArgument(text);
    case MINIDNN_STATUS_SHAPE_ERROR:
      throw ShapeError(text);
    case MINIDNN_STATUS_DTYPE_ERROR:
      throw DTypeError(text);
    case MINIDNN_STATUS_NOT_SUPPORTED:
      throw NotSupported(text);
    case MINIDNN_STATUS_DEVICE_ERROR:
      throw DeviceError(text);
    case MINIDNN_STATUS_OUT_OF_MEMORY:
      throw OutOfMemory(text);
    default:
      throw Error(text);
  }
}

enum class DType : minidnnDType_t {
  float32 = MINIDNN_FLOAT32,
  float64 = MINIDNN_FLOAT64,
  float16 = MINIDNN_FLOAT16,
  bfloat16 = MINIDNN_BFLOAT16,
  int8 = MINIDNN_INT8,
  uint8 = MINIDNN_UINT8,
  int32 = MINIDNN_INT32,
  int64 = MINIDNN_INT64,
  boolean = MINIDNN_BOOL
};

// The dtype of the C++ type T. 16-bit floats have no C++ type here: they are copied as bytes.
template <class T> constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return DType::float32;
  else if constexpr (std::is_same_v<T, double>) return DType::float64;
  else if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  else {
    static_assert(std::is_integral_v<T>, "there is no dtype for this type");
    if constexpr (sizeof(T) == 1) return std::is_signed_v<T> ? DType::int8 : DType::uint8;
    else {
      static_assert(std::is_signed_v<T> && (sizeof(T) == 4 || sizeof(T) == 8), "there is no dtype for this type");
      return sizeof(T) == 4 ? DType::int32 : DType::int64;
    }
  }
}

// A device: Device{} is the CPU, Device{0} the first GPU.
struct Device {
  int32_t number = MINIDNN_CPU;
  bool operator==(const Device&) const = default;
};

struct HandleOptions {
  Device device{};
  void* stream = nullptr;  // GPU only; the stream outlives the handle
  size_t max_workspace = SIZE_MAX;
  bool deterministic = false;
  bool ieee = false;
  int32_t threads = 0;
  size_t max_plans = 4096;
};

// Where and how calls run. Copies are the same handle. Handle{} is the default handle of the operands' device.
class Handle {
 public:
  Handle() = default;
  explicit Handle(const HandleOptions& o) {
    minidnnHandleOptions_t c = MINIDNN_HANDLE_OPTIONS_INIT;
    c.device = o.device.number;
    c.threads = o.threads;
    c.stream = o.stream;
    c.max_workspace = o.max_workspace;
    c.max_plans = o.max_plans;
    c.deterministic = o.deterministic;
    c.ieee = o.ieee;
    minidnnHandle_t handle = nullptr;
    check(minidnnHandleCreate(&c, &handle));
    handle_ = {handle, &minidnnHandleDestroy};
  }
  // Waits for the work on the handle's stream. Handle{} cannot wait.
  void synchronize() const { check(minidnnHandleSynchronize(get())); }
  minidnnHandle_t get() const { return handle_.get(); }

 private:
  std::shared_ptr<minidnnHandle_s> handle_;
};

using Shape = std::vector<int64_t>;

struct TensorOptions {
  DType dtype = DType::float32;
  const char* layout = nullptr;  // "NCHW", "NHWC" and their forms; null: row-major
  Handle handle{};               // its device and stream; Handle{}: the CPU
};

// A tensor. Copies share the memory. Tensor{} is none.
class Tensor {
 public:
  Tensor() = default;
  // A tensor of uninitialised memory.
  explicit Tensor(std::span<const int64_t> shape, const TensorOptions& o = {}) {
    minidnnTensor_t tensor = nullptr;
    check(minidnnTensorCreate(o.handle.get(), minidnnDType_t(o.dtype), int64_t(shape.size()), shape.data(), o.layout,
                              &tensor));
    reset(tensor);
  }
  explicit Tensor(std::initializer_list<int64_t> shape, const TensorOptions& o = {})
      : Tensor(std::span(shape.begin(), shape.size()), o) {}
  // Takes ownership of a tensor of the C interface.
  static Tensor own(minidnnTensor_t tensor) {
    Tensor t;
    t.reset(tensor);
    return t;
  }
  // A row-major CPU tensor over memory of the caller, which must outlive every tensor over it.
  template <class T> static Tensor wrap(std::span<T> data, std::span<const int64_t> shape) {
    minidnnTensorInfo_t info = MINIDNN_TENSOR_INFO_INIT;
    if (shape.size() > MINIDNN_MAX_RANK) throw ShapeError("wrap: shape has too many dimensions");
    info.dtype = minidnnDType_t(dtype_of<std::remove_const_t<T>>());
    info.data = const_cast<std::remove_const_t<T>*>(data.data());
    info.rank = int64_t(shape.size());
    info.read_only = std::is_const_v<T>;
    int64_t elements = 1;
    for (size_t i = shape.size(); i-- > 0; elements *= shape[i]) {
      info.shape[i] = shape[i];
      info.strides[i] = elements;
    }
    if (elements != int64_t(data.size())) throw ShapeError("wrap: data must have as many elements as shape says");
    minidnnTensor_t tensor = nullptr;
    check(minidnnTensorWrap(&info, nullptr, nullptr, &tensor));
    return own(tensor);
  }
  template <class T> static Tensor wrap(std::span<T> data, std::initializer_list<int64_t> shape) {
    return wrap(data, std::span(shape.begin(), shape.size()));
  }
  // A new tensor with a copy of row-major elements, on the device of the handle.
  template <class T>
  static Tensor from(std::span<const T> data, std::span<const int64_t> shape, const Handle& handle = {}) {
    Tensor t(shape, {.dtype = dtype_of<T>(), .handle = handle});
    t.copy_from(data, handle);
    return t;
  }
  template <class T>
  static Tensor from(const std::vector<T>& data, std::initializer_list<int64_t> shape, const Handle& handle = {}) {
    return from(std::span<const T>(data), std::span(shape.begin(), shape.size()), handle);
  }
  static Tensor from_dlpack(DLManagedTensorVersioned* managed) {
    minidnnTensor_t tensor = nullptr;
    check(minidnnTensorFromDLPack(managed, &tensor));
    return own(tensor);
  }
  DLManagedTensorVersioned* to_dlpack() const {
    DLManagedTensorVersioned* managed = nullptr;
    check(minidnnTensorToDLPack(get(), &managed));
    return managed;
  }

  explicit operator bool() const { return tensor_ != nullptr; }
  minidnnTensor_t get() const { return tensor_.get(); }
  minidnnTensorInfo_t info() const {
    minidnnTensorInfo_t all = MINIDNN_TENSOR_INFO_INIT;
    check(minidnnTensorGetInfo(get(), &all));
    return all;
  }
  Shape shape() const {
    const minidnnTensorInfo_t i = info();
    return {i.shape, i.shape + i.rank};
  }
  Shape strides() const {  // in elements
    const minidnnTensorInfo_t i = info();
    return {i.strides, i.strides + i.rank};
  }
  DType dtype() const { return DType(info().dtype); }
  Device device() const { return {info().device}; }
  void* data() const { return info().data; }
  int64_t size() const {
    int64_t n = 1;
    for (int64_t s : shape()) n *= s;
    return n;
  }

  // Copies row-major elements. T must be the type of the tensor's dtype.
  template <class T> void copy_from(std::span<const T> from, const Handle& handle = {}) const {
    check_type<T>();
    check(minidnnTensorCopyFromHost(handle.get(), get(), from.data(), from.size_bytes()));
  }
  template <class T> void copy_to(std::span<T> to, const Handle& handle = {}) const {
    check_type<T>();
    check(minidnnTensorCopyToHost(handle.get(), get(), to.data(), to.size_bytes()));
  }
  template <class T> std::vector<T> to_vector(const Handle& handle = {}) const {
    std::vector<T> all(static_cast<size_t>(size()));
    copy_to(std::span(all), handle);
    return all;
  }
  void fill(double value, const Handle& handle = {}) const { check(minidnnTensorFill(handle.get(), get(), value)); }
  Tensor reshape(std::span<const int64_t> shape, const Handle& handle = {}) const {
    minidnnTensor_t tensor = nullptr;
    check(minidnnTensorReshape(handle.get(), get(), int64_t(shape.size()), shape.data(), &tensor));
    return own(tensor);
  }
  Tensor reshape(std::initializer_list<int64_t> shape, const Handle& handle = {}) const {
    return reshape(std::span(shape.begin(), shape.size()), handle);
  }
  Tensor view(const Shape& shape, const Shape& strides, int64_t offset = 0) const {
    if (shape.size() != strides.size()) throw ShapeError("view: shape and strides must have equally many elements");
    minidnnTensor_t tensor = nullptr;
    check(minidnnTensorView(get(), int64_t(shape.size()), shape.data(), strides.data(), offset, &tensor));
    return own(tensor);
  }
  Tensor to(Device device) const {
    minidnnTensor_t tensor = nullptr;
    check(minidnnTensorToDevice(get(), device.number, &tensor));
    return own(tensor);
  }

 private:
  void reset(minidnnTensor_t tensor) { tensor_ = {tensor, &minidnnTensorDestroy}; }
  template <class T> void check_type() const {
    if (dtype_of<T>() != dtype()) throw DTypeError("the C++ type of the elements is not that of the tensor's dtype");
  }
  std::shared_ptr<minidnnTensor_s> tensor_;
};

// The last argument of every function.
struct Call {
  Tensor out{};           // receives the first result instead of a new tensor
  const char* algo = "";  // an engine by name; "": the library chooses
  Handle handle{};
};

// A window attribute: one value for all spatial dimensions, or a value for each.
struct PerDimension {
  std::array<int64_t, 3> values{};
  PerDimension(int64_t all) : values{all, all, all} {}  // NOLINT: `.stride = 2`
  PerDimension(std::initializer_list<int64_t> each) {   // NOLINT: `.stride = {2, 1}`
    if (each.size() > 3 || each.size() == 0) throw ShapeError("a window attribute has one to three values");
    size_t i = 0;
    for (int64_t value : each) values[i++] = value;
  }
};

namespace detail {

inline void store(int64_t (&to)[3], const PerDimension& from) { std::copy_n(from.values.begin(), 3, to); }
// The padding behind x is that before x, unless it is given.
struct After {
  bool given = false;
  PerDimension value{0};
  After() = default;
  After(int64_t all) : given(true), value(all) {}                           // NOLINT
  After(std::initializer_list<int64_t> each) : given(true), value(each) {}  // NOLINT
};

// Calls f(&result), where `result` is null or the given output, and returns the result.
template <class F> Tensor returned(const Tensor& out, F&& f) {
  minidnnTensor_t result = out.get();
  check(f(&result));
  return out ? out : Tensor::own(result);
}
inline minidnnOptions_t options(const Call& call) { return {sizeof(minidnnOptions_t), call.algo}; }

}  // namespace detail

// ---- Library ----

inline int32_t device_count() {
  int32_t count = 0;
  check(minidnnGetDeviceCount(&count, nullptr));
  return count;
}
inline void set_source_folder(const std::string& folder) { check(minidnnSetSourceFolder(folder.c_str())); }

namespace detail {
template <class F> std::string report(decltype(&minidnnExplain) function, F&& f) {
  struct State {
    std::remove_reference_t<F>& call;
    std::exception_ptr error;
  } state{f, nullptr};
  const char* text = "";
  const minidnnStatus_t status = function(
      [](void* context) -> minidnnStatus_t {
        auto& s = *static_cast<State*>(context);
        try {
          s.call();
          return MINIDNN_STATUS_SUCCESS;
        } catch (...) {
          s.error = std::current_exception();
          return MINIDNN_STATUS_INTERNAL_ERROR;
        }
      },
      &state, &text);
  if (state.error) std::rethrow_exception(state.error);
  check(status);
  return text;
}
}  // namespace detail
// Says which engines the calls of f() would use, without running them. find() also measures all engines, and keeps the
// fastest for later calls: minidnn::find([&] { minidnn::conv_forward(x, w); });
template <class F> std::string explain(F&& f) { return detail::report(&minidnnExplain, f); }
template <class F> std::string find(F&& f) { return detail::report(&minidnnFind, f); }

// ---- Convolution ----

struct ConvOptions {
  Tensor bias{}, residual{};
  PerDimension stride = 1, padding = 0;
  detail::After padding_after{};  // behind x, if it differs from `padding`, which then is before x
  PerDimension dilation = 1;
  int64_t groups = 1;
  const char* activation = nullptr;
  bool flip = false;
};
namespace detail {
inline minidnnConvOptions_t options(const ConvOptions& o, const Call& call) {
  minidnnConvOptions_t c = MINIDNN_CONV_OPTIONS_INIT;
  c.algo = call.algo;
  store(c.stride, o.stride);
  store(c.dilation, o.dilation);
  store(c.padding_before, o.padding);
  store(c.padding_after, o.padding_after.given ? o.padding_after.value : o.padding);
  c.groups = o.groups;
  c.flip = o.flip;
  c.activation = o.activation;
  return c;
}
}  // namespace detail

inline Tensor conv_forward(const Tensor& x, const Tensor& w, const ConvOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(call.out, [&](minidnnTensor_t* y) {
    return minidnnConvForward(call.handle.get(), x.get(), w.get(), o.bias.get(), o.residual.get(), &c, y);
  });
}
struct ConvStatistics {
  Tensor y, sum, sum_of_squares;
};
inline ConvStatistics conv_forward_statistics(const Tensor& x, const Tensor& w, const ConvOptions& o = {},
                                              const Call& call = {}) {
  const auto c = detail::options(o, call);
  minidnnConvStatistics_t r{call.out.get(), nullptr, nullptr};
  check(minidnnConvForwardStatistics(call.handle.get(), x.get(), w.get(), o.bias.get(), o.residual.get(), &c, &r));
  return {call.out ? call.out : Tensor::own(r.y), Tensor::own(r.sum), Tensor::own(r.sum_of_squares)};
}
inline Tensor conv_backward_data(const Tensor& dy, const Tensor& w, const Shape& x_shape, const ConvOptions& o = {},
                                 const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(call.out, [&](minidnnTensor_t* dx) {
    return minidnnConvBackwardData(call.handle.get(), dy.get(), w.get(), int64_t(x_shape.size()), x_shape.data(), &c,
                                   dx);
  });
}
inline Tensor conv_backward_filter(const Tensor& dy, const Tensor& x, const Shape& w_shape, const ConvOptions& o = {},
                                   const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(call.out, [&](minidnnTensor_t* dw) {
    return minidnnConvBackwardFilter(call.handle.get(), dy.get(), x.get(), int64_t(w_shape.size()), w_shape.data(), &c,
                                     dw);
  });
}
inline Tensor conv_backward_bias(const Tensor& dy, const Call& call = {}) {
  const auto c = detail::options(call);
  return detail::returned(
      call.out, [&](minidnnTensor_t* db) { return minidnnConvBackwardBias(call.handle.get(), dy.get(), &c, db); });
}

// ---- Activation ----

// alpha: the parameter of modes that have one; NaN: the default of the mode.
inline Tensor activation_forward(const Tensor& x, const char* mode, double alpha = NAN, const Call& call = {}) {
  const minidnnActivationOptions_t c{sizeof c, call.algo, alpha};
  return detail::returned(
      call.out, [&](minidnnTensor_t* y) { return minidnnActivationForward(call.handle.get(), mode, x.get(), &c, y); });
}
inline Tensor activation_backward(const Tensor& dy, const Tensor& x, const Tensor& y, const char* mode,
                                  double alpha = NAN, const Call& call = {}) {
  const minidnnActivationOptions_t c{sizeof c, call.algo, alpha};
  return detail::returned(call.out, [&](minidnnTensor_t* dx) {
    return minidnnActivationBackward(call.handle.get(), mode, dy.get(), x.get(), y.get(), &c, dx);
  });
}

// ---- Pooling ----

struct PoolOptions {
  PerDimension window = 0;
  const char* mode = "max";
  PerDimension stride = 0;  // 0: the window
  PerDimension padding = 0;
  detail::After padding_after{};
  PerDimension dilation = 1;
  PerDimension adaptive_size = 0;  // not 0: the spatial sizes of y; 1 is global pooling
  int64_t norm = 2;
  bool ceil_mode = false;
};
namespace detail {
inline minidnnPoolOptions_t options(const PoolOptions& o, const Call& call) {
  minidnnPoolOptions_t c = MINIDNN_POOL_OPTIONS_INIT;
  c.algo = call.algo;
  c.mode = o.mode;
  store(c.window, o.window);
  store(c.stride, o.stride);
  store(c.dilation, o.dilation);
  store(c.padding_before, o.padding);
  store(c.padding_after, o.padding_after.given ? o.padding_after.value : o.padding);
  store(c.adaptive_size, o.adaptive_size);
  c.norm = o.norm;
  c.ceil_mode = o.ceil_mode;
  return c;
}
}  // namespace detail

inline Tensor pool_forward(const Tensor& x, const PoolOptions& o, const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(call.out,
                          [&](minidnnTensor_t* y) { return minidnnPoolForward(call.handle.get(), x.get(), &c, y); });
}
// Returns y and the indices of the maxima.
inline std::pair<Tensor, Tensor> pool_forward_with_indices(const Tensor& x, const PoolOptions& o,
                                                           DType index_dtype = DType::int64, const Call& call = {}) {
  const auto c = detail::options(o, call);
  minidnnTensor_t indices = nullptr;
  Tensor y = detail::returned(call.out, [&](minidnnTensor_t* result) {
    return minidnnPoolForwardWithIndices(call.handle.get(), x.get(), minidnnDType_t(index_dtype), &c, result, &indices);
  });
  return {y, Tensor::own(indices)};
}
inline Tensor pool_backward(const Tensor& dy, const Tensor& x, const Tensor& y, const PoolOptions& o,
                            const Tensor& indices = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(call.out, [&](minidnnTensor_t* dx) {
    return minidnnPoolBackward(call.handle.get(), dy.get(), x.get(), y.get(), indices.get(), &c, dx);
  });
}

// ---- Softmax and cross-entropy ----

struct SoftmaxOptions {
  int64_t axis = 1;
  bool log = false;
  double scale = 1;
  Tensor mask{};  // forward only
};
namespace detail {
inline minidnnSoftmaxOptions_t options(const SoftmaxOptions& o, const Call& call) {
  return {sizeof(minidnnSoftmaxOptions_t), call.algo, o.axis, o.log, o.scale};
}
}  // namespace detail
inline Tensor softmax_forward(const Tensor& x, const SoftmaxOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(call.out, [&](minidnnTensor_t* y) {
    return minidnnSoftmaxForward(call.handle.get(), x.get(), o.mask.get(), &c, y);
  });
}
inline Tensor softmax_backward(const Tensor& dy, const Tensor& y, const SoftmaxOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(call.out, [&](minidnnTensor_t* dx) {
    return minidnnSoftmaxBackward(call.handle.get(), dy.get(), y.get(), &c, dx);
  });
}

struct CrossEntropyOptions {
  int64_t axis = 1;
  int64_t ignore_index = -100;
  double label_smoothing = 0;
  const char* reduction = "mean";
};
namespace detail {
inline minidnnCrossEntropyOptions_t options(const CrossEntropyOptions& o, const Call& call) {
  return {sizeof(minidnnCrossEntropyOptions_t), call.algo, o.axis, o.ignore_index, o.label_smoothing, o.reduction};
}
}  // namespace detail
// Returns the loss, and the logarithms of the sums of exponentials, which the gradient needs.
inline std::pair<Tensor, Tensor> cross_entropy_forward(const Tensor& x, const Tensor& target,
                                                       const CrossEntropyOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  minidnnTensor_t loss = nullptr, lse = nullptr;
  check(minidnnCrossEntropyForward(call.handle.get(), x.get(), target.get(), &c, &loss, &lse));
  return {Tensor::own(loss), Tensor::own(lse)};
}
inline Tensor cross_entropy_backward(const Tensor& dy, const Tensor& x, const Tensor& target, const Tensor& lse,
                                     const CrossEntropyOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(call.out, [&](minidnnTensor_t* dx) {
    return minidnnCrossEntropyBackward(call.handle.get(), dy.get(), x.get(), target.get(), lse.get(), &c, dx);
  });
}

// ---- CTC loss ----

struct CtcOptions {
  int64_t blank = 0;
  const char* reduction = "mean";
  bool zero_infinity = false, logits = false;
};
struct CtcTargets {
  Tensor targets, input_lengths, target_lengths;
};
struct CtcLoss {
  Tensor loss;
  Tensor alpha, exponents;
  Tensor lse;  // of logits
};
namespace detail {
inline Tensor own_if_any(minidnnTensor_t t) { return t ? Tensor::own(t) : Tensor{}; }
inline minidnnCtcOptions_t options(const CtcOptions& o, const Call& call) {
  return {sizeof(minidnnCtcOptions_t), call.algo, o.blank, o.reduction, o.zero_infinity, o.logits};
}
inline minidnnCtcTargets_t targets_of(const CtcTargets& t) {
  return {t.targets.get(), t.input_lengths.get(), t.target_lengths.get()};
}
}  // namespace detail
// Returns the loss, and what the gradient needs.
inline CtcLoss ctc_loss_forward(const Tensor& x, const CtcTargets& targets, const CtcOptions& o = {},
                                const Call& call = {}) {
  const auto c = detail::options(o, call);
  const auto t = detail::targets_of(targets);
  minidnnTensor_t loss = nullptr;
  minidnnCtcSaved_t saved{};
  check(minidnnCtcLossForward(call.handle.get(), x.get(), &t, &c, &loss, &saved));
  return {Tensor::own(loss), Tensor::own(saved.alpha), Tensor::own(saved.exponents), detail::own_if_any(saved.lse)};
}
inline Tensor ctc_loss_backward(const Tensor& dloss, const Tensor& x, const CtcTargets& targets, const CtcLoss& forward,
                                const CtcOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  const auto t = detail::targets_of(targets);
  const minidnnCtcSaved_t saved{forward.alpha.get(), forward.exponents.get(), forward.lse.get()};
  return detail::returned(call.out, [&](minidnnTensor_t* dx) {
    return minidnnCtcLossBackward(call.handle.get(), dloss.get(), x.get(), &t, &saved, &c, dx);
  });
}

// ---- Attention ----

struct AttentionOptions {
  std::optional<double> scale{};  // 1 / sqrt(D) if it is not given
  bool causal = false, bottom_right = false;
  int64_t left = -1, right = -1;
  double softcap = 0, dropout = 0;
  int64_t seed = 0, offset = 0;
  Tensor bias{}, alibi{}, sink{}, q_lengths{}, kv_lengths{}, cu_q{}, cu_kv{};
  int64_t max_q = 0, max_kv = 0;
  Tensor pages{};  // decode only
  bool bshd = false;
  bool bias_gradient = false;  // backward only
};
namespace detail {
inline minidnnAttentionOptions_t options(const AttentionOptions& o, const Call& call) {
  return {sizeof(minidnnAttentionOptions_t),
          call.algo,
          o.scale ? &*o.scale : nullptr,
          o.causal,
          o.bottom_right,
          o.left,
          o.right,
          o.softcap,
          o.dropout,
          o.seed,
          o.offset,
          o.bias.get(),
          o.alibi.get(),
          o.sink.get(),
          o.q_lengths.get(),
          o.kv_lengths.get(),
          o.cu_q.get(),
          o.cu_kv.get(),
          o.max_q,
          o.max_kv,
          o.pages.get(),
          o.bshd,
          o.bias_gradient};
}
}  // namespace detail
// Returns o, and the logarithms of the sums of exponentials, which the gradients need.
inline std::pair<Tensor, Tensor> attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                                   const AttentionOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  minidnnTensor_t lse = nullptr;
  Tensor y = detail::returned(call.out, [&](minidnnTensor_t* result) {
    return minidnnAttentionForward(call.handle.get(), q.get(), k.get(), v.get(), &c, result, &lse);
  });
  return {y, Tensor::own(lse)};
}
inline std::pair<Tensor, Tensor> attention_decode(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                                                  const Tensor& lengths, const AttentionOptions& o = {},
                                                  const Call& call = {}) {
  const auto c = detail::options(o, call);
  minidnnTensor_t lse = nullptr;
  Tensor y = detail::returned(call.out, [&](minidnnTensor_t* result) {
    return minidnnAttentionDecode(call.handle.get(), q.get(), k_cache.get(), v_cache.get(), lengths.get(), &c, result,
                                  &lse);
  });
  return {y, Tensor::own(lse)};
}
struct AttentionGradients {
  Tensor dq, dk, dv;
  Tensor dbias;  // if the options ask for it
  Tensor dsink;  // if there is a sink
};
inline AttentionGradients attention_backward(const Tensor& d_o, const Tensor& q, const Tensor& k, const Tensor& v,
                                             const std::pair<Tensor, Tensor>& forward, const AttentionOptions& o = {},
                                             const Call& call = {}) {
  const auto c = detail::options(o, call);
  const auto& [y, lse] = forward;
  minidnnAttentionGradients_t g{};
  const minidnnAttentionTensors_t tensors{q.get(), k.get(), v.get(), y.get(), lse.get()};
  check(minidnnAttentionBackward(call.handle.get(), d_o.get(), &tensors, &c, &g));
  using detail::own_if_any;
  return {own_if_any(g.dq), own_if_any(g.dk), own_if_any(g.dv), own_if_any(g.dbias), own_if_any(g.dsink)};
}

// ---- Recurrent layers ----

struct RnnOptions {
  const char* mode = nullptr;  // "relu", "tanh", "lstm" or "gru"
  int64_t hidden_size = 0, layers = 1;
  bool bidirectional = false, bias = true;
  Tensor h0{}, c0{}, lengths{}, batch_sizes{};
  int64_t batch = -1;  // packed sequences: their number; -1: that of h0
  bool reset_after = true;
  bool ntc = false;
  double dropout = 0;
  int64_t seed = 0, offset = 0;
  double clip = 0;  // 0: none
  bool training = false;
};
namespace detail {
inline minidnnRnnOptions_t options(const RnnOptions& o, const Call& call, bool accumulate = false) {
  return {sizeof(minidnnRnnOptions_t),
          call.algo,
          o.mode,
          o.hidden_size,
          o.layers,
          o.bidirectional,
          !o.bias,
          o.h0.get(),
          o.c0.get(),
          o.lengths.get(),
          o.batch_sizes.get(),
          o.batch,
          !o.reset_after,
          o.ntc,
          o.dropout,
          o.seed,
          o.offset,
          o.clip,
          o.training,
          accumulate};
}
inline std::vector<minidnnTensor_t> tensors_of(std::span<const Tensor> tensors) {
  std::vector<minidnnTensor_t> all;
  for (const Tensor& t : tensors) all.push_back(t.get());
  return all;
}
inline std::vector<Tensor> owned(const std::vector<minidnnTensor_t>& tensors) {
  std::vector<Tensor> all;
  for (minidnnTensor_t t : tensors) all.push_back(Tensor::own(t));
  return all;
}
inline size_t weights_of(const RnnOptions& o) {
  return size_t(std::max<int64_t>(o.layers, 0)) * (o.bidirectional ? 2 : 1) * (o.bias ? 4 : 2);
}
}  // namespace detail
struct RnnResults {
  Tensor y, hn;
  Tensor cn;       // of an lstm
  Tensor reserve;  // if `training` is set
};
// `weights` are a tensor for each weight, or the tensor that rnn_pack() returns.
inline RnnResults rnn_forward(const Tensor& x, std::span<const Tensor> weights, const RnnOptions& o,
                              const Call& call = {}) {
  const auto c = detail::options(o, call);
  const auto w = detail::tensors_of(weights);
  minidnnRnnResults_t r{};
  Tensor y = detail::returned(call.out, [&](minidnnTensor_t* result) {
    r.y = *result;
    const minidnnStatus_t status = minidnnRnnForward(call.handle.get(), x.get(), w.data(), int64_t(w.size()), &c, &r);
    *result = r.y;
    return status;
  });
  using detail::own_if_any;
  return {y, own_if_any(r.hn), own_if_any(r.cn), own_if_any(r.reserve)};
}
struct RnnDataGradients {
  Tensor dx, dh0;
  Tensor dc0;  // of an lstm
  Tensor dgates;
};
// `forward` are the results of rnn_forward(). dhn and dcn may be empty.
inline RnnDataGradients rnn_backward_data(const Tensor& dy, const Tensor& dhn, const Tensor& dcn,
                                          const RnnResults& forward, std::span<const Tensor> weights,
                                          const RnnOptions& o, const Call& call = {}) {
  const auto c = detail::options(o, call);
  const auto w = detail::tensors_of(weights);
  const minidnnRnnOutputGradients_t of{dy.get(), dhn.get(), dcn.get(), forward.y.get(), forward.reserve.get()};
  minidnnRnnDataGradients_t g{};
  Tensor dx = detail::returned(call.out, [&](minidnnTensor_t* result) {
    g.dx = *result;
    const minidnnStatus_t status = minidnnRnnBackwardData(call.handle.get(), &of, w.data(), int64_t(w.size()), &c, &g);
    *result = g.dx;
    return status;
  });
  using detail::own_if_any;
  return {dx, own_if_any(g.dh0), own_if_any(g.dc0), own_if_any(g.dgates)};
}
// The gradients of the weights, one for each, or a single tensor if `flat` is true.
inline std::vector<Tensor> rnn_backward_weights(const Tensor& x, const RnnResults& forward, const Tensor& dgates,
                                                const RnnOptions& o, bool flat = false, const Call& call = {}) {
  const auto c = detail::options(o, call);
  std::vector<minidnnTensor_t> made(flat ? 1 : detail::weights_of(o));
  check(minidnnRnnBackwardWeights(call.handle.get(), x.get(), forward.y.get(), dgates.get(), forward.reserve.get(), &c,
                                  made.data(), int64_t(made.size())));
  return detail::owned(made);
}
// The same, written to `out` or, if `accumulate` is true, added to it. `out` has the form of the weights.
inline void rnn_backward_weights(const Tensor& x, const RnnResults& forward, const Tensor& dgates,
                                 std::span<const Tensor> out, bool accumulate, const RnnOptions& o,
                                 const Call& call = {}) {
  const auto c = detail::options(o, call, accumulate);
  auto w = detail::tensors_of(out);
  check(minidnnRnnBackwardWeights(call.handle.get(), x.get(), forward.y.get(), dgates.get(), forward.reserve.get(), &c,
                                  w.data(), int64_t(w.size())));
}
inline Tensor rnn_pack(std::span<const Tensor> weights, const RnnOptions& o, const Call& call = {}) {
  const auto c = detail::options(o, call);
  const auto w = detail::tensors_of(weights);
  return detail::returned(call.out, [&](minidnnTensor_t* packed) {
    return minidnnRnnPack(call.handle.get(), w.data(), int64_t(w.size()), &c, packed);
  });
}
inline std::vector<Tensor> rnn_unpack(const Tensor& packed, const RnnOptions& o) {
  const auto c = detail::options(o, Call{});
  std::vector<minidnnTensor_t> made(detail::weights_of(o));
  check(minidnnRnnUnpack(packed.get(), &c, made.data(), int64_t(made.size())));
  return detail::owned(made);
}

// ---- Normalization ----

struct BatchNormOptions {
  double eps = 1e-5, momentum = 0.1;
  bool per_activation = false, relu = false;
  Tensor running_mean{}, running_var{};
  Tensor residual{};
  Tensor y{};
  bool dresidual = false;
};
namespace detail {
inline minidnnBatchNormOptions_t options(const BatchNormOptions& o, const Call& call) {
  return {sizeof(minidnnBatchNormOptions_t),
          call.algo,
          o.eps,
          o.momentum,
          o.per_activation,
          o.relu,
          o.running_mean.get(),
          o.running_var.get(),
          o.residual.get(),
          o.y.get(),
          o.dresidual};
}
}  // namespace detail
struct BatchNormTraining {
  Tensor y, saved_mean, saved_inv_std;
};
inline BatchNormTraining batch_norm_forward_training(const Tensor& x, const Tensor& scale, const Tensor& bias,
                                                     const BatchNormOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  minidnnTensor_t y = nullptr, mean = nullptr, inv_std = nullptr;
  check(minidnnBatchNormForwardTraining(call.handle.get(), x.get(), scale.get(), bias.get(), &c, &y, &mean, &inv_std));
  return {Tensor::own(y), Tensor::own(mean), Tensor::own(inv_std)};
}
inline Tensor batch_norm_forward_inference(const Tensor& x, const Tensor& scale, const Tensor& bias, const Tensor& mean,
                                           const Tensor& var, const BatchNormOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(call.out, [&](minidnnTensor_t* y) {
    return minidnnBatchNormForwardInference(call.handle.get(), x.get(), scale.get(), bias.get(), mean.get(), var.get(),
                                            &c, y);
  });
}
struct NormGradients {
  Tensor dx, dscale, dbias;
  Tensor dresidual;  // batch norm only, if the options ask for it
};
namespace detail {
inline NormGradients gradients(const minidnnNormGradients_t& g) {
  return {own_if_any(g.dx), own_if_any(g.dscale), own_if_any(g.dbias), own_if_any(g.dresidual)};
}
}  // namespace detail
inline NormGradients batch_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& scale,
                                         const Tensor& saved_mean, const Tensor& saved_inv_std,
                                         const BatchNormOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  minidnnNormGradients_t g{};
  check(minidnnBatchNormBackward(call.handle.get(), dy.get(), x.get(), scale.get(), saved_mean.get(),
                                 saved_inv_std.get(), &c, &g));
  return detail::gradients(g);
}

enum class Norm : minidnnNorm_t {
  layer = MINIDNN_LAYER_NORM,
  rms = MINIDNN_RMS_NORM,
  group = MINIDNN_GROUP_NORM,
  instance = MINIDNN_INSTANCE_NORM
};
struct NormOptions {
  Norm norm = Norm::layer;
  int64_t axis = -1, groups = 1;
  double eps = 1e-5;
};
namespace detail {
inline minidnnNormOptions_t options(const NormOptions& o, const Call& call) {
  return {sizeof(minidnnNormOptions_t), call.algo, minidnnNorm_t(o.norm), o.axis, o.groups, o.eps};
}
}  // namespace detail
struct NormForward {
  Tensor y, mean, inv_std;  // RMS norm has no mean
};
inline NormForward norm_forward(const Tensor& x, const Tensor& scale, const Tensor& bias, const NormOptions& o = {},
                                const Call& call = {}) {
  const auto c = detail::options(o, call);
  minidnnTensor_t y = nullptr, mean = nullptr, inv_std = nullptr;
  check(minidnnNormForward(call.handle.get(), x.get(), scale.get(), bias.get(), &c, &y, &mean, &inv_std));
  return {Tensor::own(y), detail::own_if_any(mean), Tensor::own(inv_std)};
}
inline NormGradients norm_backward(const Tensor& dy, const Tensor& x, const Tensor& scale, const Tensor& mean,
                                   const Tensor& inv_std, const NormOptions& o = {}, const Call& call = {}) {
  const auto c = detail::options(o, call);
  minidnnNormGradients_t g{};
  check(minidnnNormBackward(call.handle.get(), dy.get(), x.get(), scale.get(), mean.get(), inv_std.get(), &c, &g));
  return detail::gradients(g);
}

struct LrnOptions {
  int64_t window = 0;
  double alpha = 1e-4, beta = 0.75, k = 1;
};
namespace detail {
inline minidnnLrnOptions_t options(const LrnOptions& o, const Call& call) {
  return {sizeof(minidnnLrnOptions_t), call.algo, o.window, o.alpha, o.beta, o.k};
}
}  // namespace detail
inline Tensor lrn_forward(const Tensor& x, const LrnOptions& o, const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(call.out,
                          [&](minidnnTensor_t* y) { return minidnnLrnForward(call.handle.get(), x.get(), &c, y); });
}
inline Tensor lrn_backward(const Tensor& dy, const Tensor& x, const LrnOptions& o, const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(
      call.out, [&](minidnnTensor_t* dx) { return minidnnLrnBackward(call.handle.get(), dy.get(), x.get(), &c, dx); });
}
inline Tensor lcn_forward(const Tensor& x, const Tensor& means, const LrnOptions& o, const Call& call = {}) {
  const auto c = detail::options(o, call);
  return detail::returned(
      call.out, [&](minidnnTensor_t* y) { return minidnnLcnForward(call.handle.get(), x.get(), means.get(), &c, y); });
}
// Returns dx and dmeans; dmeans is empty if there are no means.
inline std::pair<Tensor, Tensor> lcn_backward(const Tensor& dy, const Tensor& x, const Tensor& means,
                                              const LrnOptions& o, const Call& call = {}) {
  const auto c = detail::options(o, call);
  minidnnTensor_t dmeans = nullptr;
  Tensor dx = detail::returned(call.out, [&](minidnnTensor_t* result) {
    return minidnnLcnBackward(call.handle.get(), dy.get(), x.get(), means.get(), &c, result, &dmeans);
  });
  return {dx, detail::own_if_any(dmeans)};
}

// ---- Matrix product ----

struct MatmulOptions {
  bool transpose_a = false, transpose_b = false;
  double alpha = 1, beta = 0;
  Tensor c{}, bias{};
  const char* activation = nullptr;
};
inline Tensor matmul(const Tensor& a, const Tensor& b, const MatmulOptions& o = {}, const Call& call = {}) {
  const minidnnMatmulOptions_t c{sizeof c, call.algo, o.transpose_a, o.transpose_b, o.alpha, o.beta, o.activation};
  return detail::returned(call.out, [&](minidnnTensor_t* y) {
    return minidnnMatmul(call.handle.get(), a.get(), b.get(), o.c.get(), o.bias.get(), &c, y);
  });
}

// ---- Elements, sums and copies ----

inline Tensor pointwise(const char* op, const Tensor& a, const Tensor& b = {}, const Tensor& c = {},
                        const Call& call = {}) {
  const auto o = detail::options(call);
  return detail::returned(call.out, [&](minidnnTensor_t* y) {
    return minidnnPointwise(call.handle.get(), op, a.get(), b.get(), c.get(), &o, y);
  });
}
struct ReduceOptions {
  std::optional<Shape>
      axes{};  // dimensions to reduce, such as Shape{0, 2}; negative ones count from the end. Absent: all
  bool keepdims = false;
};
inline Tensor reduce(const char* mode, const Tensor& x, const ReduceOptions& o = {}, const Call& call = {}) {
  minidnnReduceOptions_t c = MINIDNN_REDUCE_OPTIONS_INIT;
  c.algo = call.algo;
  c.keepdims = o.keepdims;
  static constexpr int64_t none = 0;
  if (o.axes) c.axes = o.axes->empty() ? &none : o.axes->data();
  if (o.axes) c.axis_count = int64_t(o.axes->size());
  return detail::returned(call.out,
                          [&](minidnnTensor_t* y) { return minidnnReduce(call.handle.get(), mode, x.get(), &c, y); });
}

struct TransformOptions {
  double alpha = 1, beta = 0;
  std::optional<DType> dtype{};
  const char* layout = nullptr;
};
inline Tensor transform(const Tensor& x, const TransformOptions& o = {}, const Call& call = {}) {
  const minidnnTransformOptions_t c{sizeof c, call.algo, o.alpha, o.beta, o.dtype ? minidnnDType_t(*o.dtype) : -1,
                                    o.layout};
  return detail::returned(call.out,
                          [&](minidnnTensor_t* y) { return minidnnTransform(call.handle.get(), x.get(), &c, y); });
}
inline Tensor concat(std::span<const Tensor> tensors, int64_t axis, const Call& call = {}) {
  std::vector<minidnnTensor_t> all;
  for (const Tensor& t : tensors) all.push_back(t.get());
  return detail::returned(call.out, [&](minidnnTensor_t* y) {
    return minidnnConcat(call.handle.get(), all.data(), int64_t(all.size()), axis, y);
  });
}
// before[d] and after[d] are the numbers of elements that are added in dimension d.
inline Tensor pad(const Tensor& x, const Shape& before, const Shape& after, const char* mode = "constant",
                  double value = 0, const Call& call = {}) {
  if (before.size() != after.size() || before.size() != x.shape().size())
    throw ShapeError("pad: before and after must have a value for each dimension of x");
  const minidnnPadOptions_t c{sizeof c, call.algo, mode, value};
  return detail::returned(call.out, [&](minidnnTensor_t* y) {
    return minidnnPad(call.handle.get(), x.get(), before.data(), after.data(), &c, y);
  });
}
inline Tensor gather(const Tensor& x, const Tensor& index, int64_t axis = 0, const Call& call = {}) {
  const auto c = detail::options(call);
  return detail::returned(call.out, [&](minidnnTensor_t* y) {
    return minidnnGather(call.handle.get(), x.get(), index.get(), axis, &c, y);
  });
}
inline Tensor gather_backward(const Tensor& dy, const Tensor& index, const Shape& x_shape, int64_t axis = 0,
                              const Call& call = {}) {
  const auto c = detail::options(call);
  return detail::returned(call.out, [&](minidnnTensor_t* dx) {
    return minidnnGatherBackward(call.handle.get(), dy.get(), index.get(), int64_t(x_shape.size()), x_shape.data(),
                                 axis, &c, dx);
  });
}

// ---- Random numbers ----

inline void fill_uniform(const Tensor& out, int64_t seed, int64_t offset = 0, double low = 0, double high = 1,
                         const Call& call = {}) {
  const auto c = detail::options(call);
  check(minidnnFillUniform(call.handle.get(), out.get(), seed, offset, low, high, &c));
}
inline void fill_normal(const Tensor& out, int64_t seed, int64_t offset = 0, double mean = 0, double std = 1,
                        const Call& call = {}) {
  const auto c = detail::options(call);
  check(minidnnFillNormal(call.handle.get(), out.get(), seed, offset, mean, std, &c));
}
inline Tensor dropout_forward(const Tensor& x, double p, int64_t seed, int64_t offset = 0, const Call& call = {}) {
  const auto c = detail::options(call);
  return detail::returned(call.out, [&](minidnnTensor_t* y) {
    return minidnnDropoutForward(call.handle.get(), x.get(), p, seed, offset, &c, y);
  });
}
inline Tensor dropout_backward(const Tensor& dy, double p, int64_t seed, int64_t offset = 0, const Call& call = {}) {
  const auto c = detail::options(call);
  return detail::returned(call.out, [&](minidnnTensor_t* dx) {
    return minidnnDropoutBackward(call.handle.get(), dy.get(), p, seed, offset, &c, dx);
  });
}

}  // namespace api
}  // namespace minidnn
