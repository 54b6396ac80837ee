// SPDX-License-Identifier: Apache-2.0
// The C interface of minidnn: neural-network primitives like cuDNN's, on the CPU and on NVIDIA GPUs. docs/cpp.md has an
// introduction; docs/ops has the formulas, dtypes and numerics of each function, under its name in Python, such as
// conv_forward for minidnnConvForward. minidnn.hpp is the same interface for C++20.
//
// Status. Every function returns a status, unless its comment says otherwise. MINIDNN_STATUS_SUCCESS is 0. After any
// other status, minidnnGetLastErrorMessage() has the reason, and the call has not changed any argument.
//
// Tensors. A tensor has a dtype, a shape of 0 to MINIDNN_MAX_RANK dimensions, strides in elements, and memory on one
// device. Images are [N, C, spatial...] in every layout. Operands may have any strides.
//
// Results. A result is an argument of type minidnnTensor_t*. If it points to NULL, the function makes a new tensor and
// stores it there; the caller destroys it. If it points to a tensor, the function writes to this tensor. The tensor
// must then have the shape and dtype of the result, and it must not share memory with an operand unless the comment of
// the function permits this. Results that are called `new` always must point to NULL.
//
// Options. The last argument before the results points to a struct of options. NULL means the default of every option.
// A struct is initialised by the macro that follows it, which has the defaults:
//   minidnnConvOptions_t options = MINIDNN_CONV_OPTIONS_INIT;
// `algo` names an engine, such as "cpu.conv.direct" or "direct"; NULL lets the library choose. Arrays of three elements
// have one value for each spatial dimension of the operands; further elements are ignored.
//
// Handles. A handle says where and how calls run (minidnnHandleOptions_t). NULL stands for the default handle of the
// operands' device, which each thread has: the default stream, and default options. Functions on a GPU only put work on
// the stream; they do not wait for it.
//
// Threads. All functions may be called by any thread at any time. A tensor may be used by several threads, as long as
// no thread writes its elements or destroys it.
#ifndef MINIDNN_MINIDNN_H
#define MINIDNN_MINIDNN_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "minidnn/version.h"

#define MINIDNN_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t minidnnStatus_t;
enum {
  MINIDNN_STATUS_SUCCESS = 0,
  MINIDNN_STATUS_INVALID_ARGUMENT = 1,  // a null pointer, an unknown constant, or an options struct without its INIT
  MINIDNN_STATUS_SHAPE_ERROR = 2,       // a shape, a stride, a size or another value does not fit
  MINIDNN_STATUS_DTYPE_ERROR = 3,       // an operand has a wrong dtype
  MINIDNN_STATUS_NOT_SUPPORTED = 4,     // no engine can run the call; the message has the reason of each engine
  MINIDNN_STATUS_DEVICE_ERROR = 5,      // a device is absent, is not the one of another operand, or failed
  MINIDNN_STATUS_OUT_OF_MEMORY = 6,
  MINIDNN_STATUS_INTERNAL_ERROR = 7  // an error of the library itself
};

typedef int32_t minidnnDType_t;
enum {
  MINIDNN_FLOAT32 = 0,
  MINIDNN_FLOAT64 = 1,
  MINIDNN_FLOAT16 = 2,
  MINIDNN_BFLOAT16 = 3,
  MINIDNN_INT8 = 4,
  MINIDNN_UINT8 = 5,
  MINIDNN_INT32 = 6,
  MINIDNN_INT64 = 7,
  MINIDNN_BOOL = 8
};

#define MINIDNN_MAX_RANK 8
// A device is a number: MINIDNN_CPU, or the index of a GPU, from 0.
#define MINIDNN_CPU (-1)

typedef struct minidnnTensor_s* minidnnTensor_t;
typedef struct minidnnHandle_s* minidnnHandle_t;

// ---- Library ----

// The version of the library, such as "0.1.0". Never fails.
MINIDNN_API const char* minidnnGetVersion(void);
// The name of a status, such as "MINIDNN_STATUS_SHAPE_ERROR". Never fails.
MINIDNN_API const char* minidnnGetStatusName(minidnnStatus_t status);
// The message of the last call on this thread that failed, "" if none has. It names the function, what was found, and
// what would be accepted. The text is valid until the next call on this thread that fails. Never fails.
MINIDNN_API const char* minidnnGetLastErrorMessage(void);
// Sets the folder of the kernel sources, from which GPU kernels are compiled at first use. It contains `cpp` and
// `cuda`. Needed only if the library does not find it (docs/cpp.md). Must be called before the first call on a GPU.
// Errors: INVALID_ARGUMENT if the folder does not contain kernel sources.
MINIDNN_API minidnnStatus_t minidnnSetSourceFolder(const char* folder);
// The folder of the kernel sources, "" if the library has not found it. The text is valid until the next call of this
// function or of minidnnSetSourceFolder(). Never fails.
MINIDNN_API const char* minidnnGetSourceFolder(void);
// The number of GPUs that can be used. If it is 0, the call still succeeds, and `why_none` receives the reason as one
// sentence, valid until the next call of this function on this thread; "" if there are GPUs. Either may be NULL.
MINIDNN_API minidnnStatus_t minidnnGetDeviceCount(int32_t* count, const char** why_none);
// Returns all free memory of a device to the system or to the CUDA driver. The library keeps freed memory for reuse.
MINIDNN_API minidnnStatus_t minidnnEmptyCache(int32_t device);

// ---- Handles ----

typedef struct {
  size_t size;
  int32_t device;         // MINIDNN_CPU, or the index of a GPU
  int32_t threads;        // CPU only: the most threads of a call; 0: as OMP_NUM_THREADS says, else all cores
  void* stream;           // GPU only: a CUstream or cudaStream_t, which outlives the handle; NULL: the default stream
  size_t max_workspace;   // the most bytes that a call may use in addition to its tensors
  size_t max_plans;       // the most plans that are kept for each kind of problem; 1 or more
  int32_t deterministic;  // 1 excludes engines whose results vary between equal calls
  int32_t ieee;           // 0: float32 products may be rounded to TF32 on a GPU; 1: they never are
} minidnnHandleOptions_t;
#define MINIDNN_HANDLE_OPTIONS_INIT {sizeof(minidnnHandleOptions_t), MINIDNN_CPU, 0, NULL, SIZE_MAX, 4096, 0, 0}

// Makes a handle. Errors: DEVICE_ERROR if there is no such device; SHAPE_ERROR for a value out of its range.
MINIDNN_API minidnnStatus_t minidnnHandleCreate(const minidnnHandleOptions_t* options, minidnnHandle_t* handle);
// Destroys a handle. NULL is permitted. Work that was put on its stream still runs.
MINIDNN_API minidnnStatus_t minidnnHandleDestroy(minidnnHandle_t handle);
// Waits until all work on the handle's stream is done. Calls on the CPU have finished when they return.
MINIDNN_API minidnnStatus_t minidnnHandleSynchronize(minidnnHandle_t handle);

// ---- Tensors ----

typedef struct {
  size_t size;
  minidnnDType_t dtype;
  int32_t device;
  void* data;  // the address of the first element, at index (0, ..., 0)
  int64_t rank;
  int64_t shape[MINIDNN_MAX_RANK];
  int64_t strides[MINIDNN_MAX_RANK];  // strides in elements
  int32_t read_only;                  // 1: the tensor cannot receive a result
} minidnnTensorInfo_t;
#define MINIDNN_TENSOR_INFO_INIT {sizeof(minidnnTensorInfo_t), MINIDNN_FLOAT32, MINIDNN_CPU, NULL, 0, {0}, {0}, 0}

// Makes a tensor of uninitialised memory, on the device and stream of the handle; NULL: on the CPU. `shape` has `rank`
// sizes. `layout` is "NCHW", "NHWC", or their forms for rank 3 and 5 ("NCW", "NWC", "NCDHW", "NDHWC"); NULL: row-major.
// Errors: SHAPE_ERROR, OUT_OF_MEMORY.
MINIDNN_API minidnnStatus_t minidnnTensorCreate(minidnnHandle_t handle, minidnnDType_t dtype, int64_t rank,
                                                const int64_t* shape, const char* layout, minidnnTensor_t* tensor);
// Makes a tensor over memory of the caller, which `info` describes. When the last tensor over this memory is gone, the
// library calls release(context); until then the memory must remain valid. `release` may be NULL. On a GPU, the memory
// must be usable on the stream of each handle that uses the tensor. `info->strides` is read as it is: set all of them.
// Errors: SHAPE_ERROR for a null or misaligned address; DEVICE_ERROR if the device cannot read the address. After an
// error, release() is not called.
MINIDNN_API minidnnStatus_t minidnnTensorWrap(const minidnnTensorInfo_t* info, void (*release)(void*), void* context,
                                              minidnnTensor_t* tensor);
// Destroys a tensor. NULL is permitted. The memory stays valid as long as another tensor over it exists, and as long as
// work that was put on a stream uses it.
MINIDNN_API minidnnStatus_t minidnnTensorDestroy(minidnnTensor_t tensor);
// Describes a tensor. `info` must be initialised by MINIDNN_TENSOR_INFO_INIT.
MINIDNN_API minidnnStatus_t minidnnTensorGetInfo(minidnnTensor_t tensor, minidnnTensorInfo_t* info);
// Copies elements between a tensor and row-major host memory of the tensor's dtype. `bytes` is the size of that memory,
// which must be that of all elements. Both functions wait until the copy is done.
// Errors: SHAPE_ERROR for another number of bytes; for a read-only tensor in minidnnTensorCopyFromHost().
MINIDNN_API minidnnStatus_t minidnnTensorCopyFromHost(minidnnHandle_t handle, minidnnTensor_t tensor, const void* from,
                                                      size_t bytes);
MINIDNN_API minidnnStatus_t minidnnTensorCopyToHost(minidnnHandle_t handle, minidnnTensor_t tensor, void* to,
                                                    size_t bytes);
// Sets all elements of a tensor to a value, which is cast to the dtype.
MINIDNN_API minidnnStatus_t minidnnTensorFill(minidnnHandle_t handle, minidnnTensor_t tensor, double value);
// Makes a `new` tensor with another shape over the same memory. Where no strides describe this, it is a copy. One size
// may be -1: it is computed from the others.
MINIDNN_API minidnnStatus_t minidnnTensorReshape(minidnnHandle_t handle, minidnnTensor_t tensor, int64_t rank,
                                                 const int64_t* shape, minidnnTensor_t* reshaped);
// Makes a `new` tensor over a part of the same memory. It starts `offset` elements behind the first element of
// `tensor`. Errors: SHAPE_ERROR if it reaches an element outside `tensor`.
MINIDNN_API minidnnStatus_t minidnnTensorView(minidnnTensor_t tensor, int64_t rank, const int64_t* shape,
                                              const int64_t* strides, int64_t offset, minidnnTensor_t* view);
// Makes a `new` tensor on another device, which shares the memory if it already is there. To the CPU, the call waits
// until the copy is done.
MINIDNN_API minidnnStatus_t minidnnTensorToDevice(minidnnTensor_t tensor, int32_t device, minidnnTensor_t* moved);

// DLPack 1.x (minidnn/dlpack/dlpack.h is its header). An exported structure shares the memory; the consumer calls its
// deleter. An import takes ownership of the structure; after an error, the caller still owns it. On a GPU, the caller
// orders the streams of both sides.
// Errors: SHAPE_ERROR, DTYPE_ERROR or DEVICE_ERROR for what a tensor cannot hold.
struct DLManagedTensorVersioned;
MINIDNN_API minidnnStatus_t minidnnTensorToDLPack(minidnnTensor_t tensor, struct DLManagedTensorVersioned** managed);
MINIDNN_API minidnnStatus_t minidnnTensorFromDLPack(struct DLManagedTensorVersioned* managed, minidnnTensor_t* tensor);

// ---- The choice of an engine ----

// A function that calls functions of this library and returns their status.
typedef minidnnStatus_t (*minidnnCall_t)(void* context);
// Runs call(context) without writing any result, and says which engine each of its problems would use, and why not the
// others. minidnnFind() also measures all engines, and keeps the fastest for later calls and processes. The text is
// valid until the next call of either function on this thread. `report` may be NULL.
// Errors: those of the call.
MINIDNN_API minidnnStatus_t minidnnExplain(minidnnCall_t call, void* context, const char** report);
MINIDNN_API minidnnStatus_t minidnnFind(minidnnCall_t call, void* context, const char** report);

// Options of functions that have no others.
typedef struct {
  size_t size;
  const char* algo;
} minidnnOptions_t;
#define MINIDNN_OPTIONS_INIT {sizeof(minidnnOptions_t), NULL}

// ---- Convolution ----
// x [N, C, spatial...] with 1 to 3 spatial dimensions, w [K, C / groups, window...], y [N, K, spatial...]. All have one
// dtype: float32, float64, float16 or bfloat16. Where the operands have 16 bits, the result may be float32.

typedef struct {
  size_t size;
  const char* algo;
  int64_t stride[3], dilation[3];               // each is 1 or more
  int64_t padding_before[3], padding_after[3];  // zeros before and after x in each dimension; 0 or more
  int64_t groups;          // the number of groups, which divides C and K; C means a depthwise convolution
  int32_t flip;            // 1: the window is reversed (mathematical convolution); 0: cross-correlation
  const char* activation;  // forward only: a mode of minidnnActivationForward(), applied to y; NULL: none
} minidnnConvOptions_t;
#define MINIDNN_CONV_OPTIONS_INIT \
  {sizeof(minidnnConvOptions_t), NULL, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, 1, 0, NULL}

// y = activation(conv(x, w) + bias + residual). bias [K] and residual, of y's shape, may be NULL. y may be `residual`.
MINIDNN_API minidnnStatus_t minidnnConvForward(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t w,
                                               minidnnTensor_t bias, minidnnTensor_t residual,
                                               const minidnnConvOptions_t* options, minidnnTensor_t* y);
typedef struct {
  minidnnTensor_t y, sum, sum_of_squares;
} minidnnConvStatistics_t;
// minidnnConvForward(), and for each channel the sum of y and of y^2: `new` tensors [K], float32, or float64 for
// float64.
MINIDNN_API minidnnStatus_t minidnnConvForwardStatistics(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t w,
                                                         minidnnTensor_t bias, minidnnTensor_t residual,
                                                         const minidnnConvOptions_t* options,
                                                         minidnnConvStatistics_t* results);
// The gradient of x, which has the shape `x_shape` of `rank` sizes. dy is the gradient before the activation.
MINIDNN_API minidnnStatus_t minidnnConvBackwardData(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t w,
                                                    int64_t rank, const int64_t* x_shape,
                                                    const minidnnConvOptions_t* options, minidnnTensor_t* dx);
// The gradient of w, which has the shape `w_shape` of `rank` sizes.
MINIDNN_API minidnnStatus_t minidnnConvBackwardFilter(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                                      int64_t rank, const int64_t* w_shape,
                                                      const minidnnConvOptions_t* options, minidnnTensor_t* dw);
// The gradient of the bias: db [K], the sum of dy over all dimensions but the channels.
MINIDNN_API minidnnStatus_t minidnnConvBackwardBias(minidnnHandle_t handle, minidnnTensor_t dy,
                                                    const minidnnOptions_t* options, minidnnTensor_t* db);

// ---- Activation ----
// `mode` is "identity", "relu", "clipped_relu", "leaky_relu", "tanh", "sigmoid", "elu", "gelu", "gelu_tanh",
// "softplus", "silu", "hardswish" or another that docs/ops/activation.md lists. Any shape; floating dtypes.

typedef struct {
  size_t size;
  const char* algo;
  double alpha;  // the parameter of modes that have one; NaN: the default of the mode
} minidnnActivationOptions_t;
#define MINIDNN_ACTIVATION_OPTIONS_INIT {sizeof(minidnnActivationOptions_t), NULL, NAN}

// y = f(x). y may be x.
MINIDNN_API minidnnStatus_t minidnnActivationForward(minidnnHandle_t handle, const char* mode, minidnnTensor_t x,
                                                     const minidnnActivationOptions_t* options, minidnnTensor_t* y);
// dx = dy f'(x). All have one shape and dtype. The elements of y are not read. dx may be x or dy.
MINIDNN_API minidnnStatus_t minidnnActivationBackward(minidnnHandle_t handle, const char* mode, minidnnTensor_t dy,
                                                      minidnnTensor_t x, minidnnTensor_t y,
                                                      const minidnnActivationOptions_t* options, minidnnTensor_t* dx);

// ---- Pooling ----
// x [N, C, spatial...] with 1 to 3 spatial dimensions; floating dtypes.

typedef struct {
  size_t size;
  const char* algo;
  const char* mode;   // "max", "avg", "avg_exclude_padding", or "lp" with the exponent `norm`
  int64_t window[3];  // the sizes of the window; required unless adaptive_size is set
  int64_t stride[3];  // all 0: equal to the window
  int64_t dilation[3];
  int64_t padding_before[3], padding_after[3];
  int64_t adaptive_size[3];  // not 0: y has these spatial sizes, and the windows are as even as possible; {1, 1, 1} is
                             // global pooling. All 0: the window says the sizes
  int64_t norm;
  int32_t ceil_mode;  // 1: rounds the sizes of y up
} minidnnPoolOptions_t;
#define MINIDNN_POOL_OPTIONS_INIT \
  {sizeof(minidnnPoolOptions_t), NULL, "max", {0, 0, 0}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, 2, 0}

MINIDNN_API minidnnStatus_t minidnnPoolForward(minidnnHandle_t handle, minidnnTensor_t x,
                                               const minidnnPoolOptions_t* options, minidnnTensor_t* y);
// Max pooling, and the position of each maximum in its plane of x, row-major; -1 for a window of padding. `indices` is
// `new`, of the dtype MINIDNN_INT32 or MINIDNN_INT64.
MINIDNN_API minidnnStatus_t minidnnPoolForwardWithIndices(minidnnHandle_t handle, minidnnTensor_t x,
                                                          minidnnDType_t index_dtype,
                                                          const minidnnPoolOptions_t* options, minidnnTensor_t* y,
                                                          minidnnTensor_t* indices);
// The gradient of x. y is the result of the forward call. `indices` may be NULL: the maxima are searched again.
MINIDNN_API minidnnStatus_t minidnnPoolBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                                minidnnTensor_t y, minidnnTensor_t indices,
                                                const minidnnPoolOptions_t* options, minidnnTensor_t* dx);

// ---- Softmax and cross-entropy ----

typedef struct {
  size_t size;
  const char* algo;
  int64_t axis;  // a negative axis counts from the end
  int32_t log;   // 1: y is the logarithm of softmax
  double scale;  // x is multiplied by this factor
} minidnnSoftmaxOptions_t;
#define MINIDNN_SOFTMAX_OPTIONS_INIT {sizeof(minidnnSoftmaxOptions_t), NULL, 1, 0, 1.0}

// y = softmax(scale x + mask) along an axis. `mask` is broadcast to x; NULL: none. A bool mask excludes elements where
// it is false. y may be x.
MINIDNN_API minidnnStatus_t minidnnSoftmaxForward(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t mask,
                                                  const minidnnSoftmaxOptions_t* options, minidnnTensor_t* y);
// The gradient of x. y is the result of the forward call with equal options. dx may be dy or y.
MINIDNN_API minidnnStatus_t minidnnSoftmaxBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t y,
                                                   const minidnnSoftmaxOptions_t* options, minidnnTensor_t* dx);

typedef struct {
  size_t size;
  const char* algo;
  int64_t axis;            // the dimension of the classes
  int64_t ignore_index;    // rows with this target have no loss
  double label_smoothing;  // from 0 to 1
  const char* reduction;   // "mean", "sum" or "none"
} minidnnCrossEntropyOptions_t;
#define MINIDNN_CROSS_ENTROPY_OPTIONS_INIT {sizeof(minidnnCrossEntropyOptions_t), NULL, 1, -100, 0.0, "mean"}

// The cross-entropy of logits x and int32 or int64 targets, which have the shape of x without the axis. `loss` and
// `lse`, the logarithm of the sum of exponentials of each row, are `new`: float32, or float64 if x is float64.
MINIDNN_API minidnnStatus_t minidnnCrossEntropyForward(minidnnHandle_t handle, minidnnTensor_t x,
                                                       minidnnTensor_t target,
                                                       const minidnnCrossEntropyOptions_t* options,
                                                       minidnnTensor_t* loss, minidnnTensor_t* lse);
// The gradient of x. dy has the shape of the loss. dx may be x.
MINIDNN_API minidnnStatus_t minidnnCrossEntropyBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                                        minidnnTensor_t target, minidnnTensor_t lse,
                                                        const minidnnCrossEntropyOptions_t* options,
                                                        minidnnTensor_t* dx);

// ---- CTC loss ----

typedef struct {
  size_t size;
  const char* algo;
  int64_t blank;          // the class of the blank
  const char* reduction;  // "mean", "sum" or "none"
  int32_t zero_infinity;  // 1: infinite losses and their gradients become 0
  int32_t logits;         // 1: x are logits, else log-probabilities
} minidnnCtcOptions_t;
#define MINIDNN_CTC_OPTIONS_INIT {sizeof(minidnnCtcOptions_t), NULL, 0, "mean", 0, 0}

// int32 or int64: the labels of N sequences, [N, S] or one sequence after the other, and the numbers of steps and of
// labels of each sequence, [N].
typedef struct {
  minidnnTensor_t targets, input_lengths, target_lengths;
} minidnnCtcTargets_t;
// What the backward call needs of the forward call: float32, or float64 if x is float64.
typedef struct {
  minidnnTensor_t alpha, exponents;
  minidnnTensor_t lse;  // of logits; otherwise stays NULL
} minidnnCtcSaved_t;

// The CTC loss of x [T, N, C] or [T, C]. `loss` and `saved` are `new`. No element is read on the host.
MINIDNN_API minidnnStatus_t minidnnCtcLossForward(minidnnHandle_t handle, minidnnTensor_t x,
                                                  const minidnnCtcTargets_t* targets,
                                                  const minidnnCtcOptions_t* options, minidnnTensor_t* loss,
                                                  minidnnCtcSaved_t* saved);
// The gradient of x. dloss has the shape of the loss. dx must not be x.
MINIDNN_API minidnnStatus_t minidnnCtcLossBackward(minidnnHandle_t handle, minidnnTensor_t dloss, minidnnTensor_t x,
                                                   const minidnnCtcTargets_t* targets, const minidnnCtcSaved_t* saved,
                                                   const minidnnCtcOptions_t* options, minidnnTensor_t* dx);

// ---- Attention ----
// q is [B, H, Sq, D], k and v are [B, Hk, Sk, D or Dv]; H is a multiple of Hk. Statistics, slopes and sinks are float32,
// or float64 if q is float64. Lengths, ends of packed sequences and pages are int32.

typedef struct {
  size_t size;
  const char* algo;
  const double* scale;    // NULL: 1 / sqrt(D)
  int32_t causal;         // 1: `right` is 0
  int32_t bottom_right;   // 1: row i is aligned with column i + length of k - length of q, else with column i
  int64_t left, right;    // how many columns before and behind that column a row sees; -1: no limit
  double softcap;         // c > 0: c tanh(z / c) replaces the scaled product z
  double dropout;         // from 0 to below 1
  int64_t seed, offset;   // of the random numbers
  minidnnTensor_t bias;   // broadcast to [B, H, Sq, Sk]; of q's dtype or float32, or bool: false hides; NULL: none
  minidnnTensor_t alibi;  // [H] or [B, H]; NULL: none
  minidnnTensor_t sink;   // [H]; NULL: none
  minidnnTensor_t q_lengths, kv_lengths;  // [B]; NULL: all rows. Decode has a parameter for them
  // Packed sequences: q is [rows, H, D], k and v are [rows, Hk, D or Dv], and sequence b has the rows cu[b] to cu[b + 1]
  // - 1, of which at most max_q or max_kv are used. NULL: not packed.
  minidnnTensor_t cu_q, cu_kv;
  int64_t max_q, max_kv;
  minidnnTensor_t pages;  // decode: [B, n] with caches of [pages, page size, Hk, D or Dv]; NULL: no pages
  int32_t bshd;           // 1: dimensions are [B, S, H, D]
  int32_t bias_gradient;  // backward: 1 computes dbias
} minidnnAttentionOptions_t;
#define MINIDNN_ATTENTION_OPTIONS_INIT \
  {sizeof(minidnnAttentionOptions_t),  \
   NULL,                               \
   NULL,                               \
   0,                                  \
   0,                                  \
   -1,                                 \
   -1,                                 \
   0.0,                                \
   0.0,                                \
   0,                                  \
   0,                                  \
   NULL,                               \
   NULL,                               \
   NULL,                               \
   NULL,                               \
   NULL,                               \
   NULL,                               \
   NULL,                               \
   0,                                  \
   0,                                  \
   NULL,                               \
   0,                                  \
   0}

// o = softmax(scale q k^T + bias) v, and lse, the logarithm of the sum of exponentials of each row: [B, H, Sq], `new`.
MINIDNN_API minidnnStatus_t minidnnAttentionForward(minidnnHandle_t handle, minidnnTensor_t q, minidnnTensor_t k,
                                                    minidnnTensor_t v, const minidnnAttentionOptions_t* options,
                                                    minidnnTensor_t* o, minidnnTensor_t* lse);
// The newest rows of each sequence, at most 16, against caches of which the first `lengths` rows are valid.
MINIDNN_API minidnnStatus_t minidnnAttentionDecode(minidnnHandle_t handle, minidnnTensor_t q, minidnnTensor_t k_cache,
                                                   minidnnTensor_t v_cache, minidnnTensor_t lengths,
                                                   const minidnnAttentionOptions_t* options, minidnnTensor_t* o,
                                                   minidnnTensor_t* lse);

typedef struct {
  minidnnTensor_t q, k, v;
  minidnnTensor_t o, lse;  // the results of the forward call
} minidnnAttentionTensors_t;
typedef struct {
  minidnnTensor_t dq, dk, dv;
  minidnnTensor_t dbias;  // with `bias_gradient` in the options; otherwise stays NULL
  minidnnTensor_t dsink;  // with a sink; otherwise stays NULL
} minidnnAttentionGradients_t;
// Computes the gradients, all `new`, from that of o. The options are those of the forward call.
MINIDNN_API minidnnStatus_t minidnnAttentionBackward(minidnnHandle_t handle, minidnnTensor_t d_o,
                                                     const minidnnAttentionTensors_t* forward,
                                                     const minidnnAttentionOptions_t* options,
                                                     minidnnAttentionGradients_t* gradients);

// ---- Recurrent layers ----
// x [T, N, I], y [T, N, D H] with D = 2 for bidirectional layers, else 1. States are [layers D, N, H]. The weights are
// `count` tensors: w_ih, w_hh, b_ih and b_hh (without the last two if `no_bias` is 1) of each layer and direction; or one
// tensor with 1 dimension, which minidnnRnnPack() makes of them. Lengths and batch sizes are int32.

typedef struct {
  size_t size;
  const char* algo;
  const char* mode;     // "relu", "tanh", "lstm" or "gru"; must be set
  int64_t hidden_size;  // H; must be set
  int64_t layers;
  int32_t bidirectional;
  int32_t no_bias;
  minidnnTensor_t h0, c0;   // the first states; NULL: zeros
  minidnnTensor_t lengths;  // [N]: the steps of each sequence; NULL: T
  minidnnTensor_t
      batch_sizes;       // [T], packed: the sequences of each step; x is [rows, I], y [rows, D H]; NULL: not packed
  int64_t batch;         // packed: N; -1: that of h0
  int32_t reset_before;  // gru: 1 multiplies h by the reset gate before its product
  int32_t ntc;           // 1: x and y are [N, T, features]
  double dropout;        // between layers, from 0 to below 1
  int64_t seed, offset;  // of the random numbers
  double clip;           // lstm, above 0: c is cut to [-clip, clip]; 0: it is not
  int32_t training;      // forward: 1 makes the reserve
  int32_t accumulate;    // backward weights: 1 adds to the given tensors
} minidnnRnnOptions_t;
#define MINIDNN_RNN_OPTIONS_INIT \
  {sizeof(minidnnRnnOptions_t), NULL, NULL, 0, 1, 0, 0, NULL, NULL, NULL, NULL, -1, 0, 0, 0.0, 0, 0, 0.0, 0, 0}

typedef struct {
  minidnnTensor_t y;
  minidnnTensor_t hn, cn;   // the last states, `new`; cn stays NULL except for an lstm
  minidnnTensor_t reserve;  // what the gradients need, `new`; with `training` in the options; otherwise stays NULL
} minidnnRnnResults_t;
MINIDNN_API minidnnStatus_t minidnnRnnForward(minidnnHandle_t handle, minidnnTensor_t x, const minidnnTensor_t* weights,
                                              int64_t count, const minidnnRnnOptions_t* options,
                                              minidnnRnnResults_t* results);

typedef struct {
  minidnnTensor_t dy;
  minidnnTensor_t dhn, dcn;    // NULL: zeros
  minidnnTensor_t y, reserve;  // results of the forward call
} minidnnRnnOutputGradients_t;
typedef struct {
  minidnnTensor_t dx;
  minidnnTensor_t dh0, dc0;  // `new`; dc0 stays NULL except for an lstm
  minidnnTensor_t dgates;    // the gradients before activations, `new`
} minidnnRnnDataGradients_t;
// Computes the gradients of x, h0 and c0. The options are those of the forward call.
MINIDNN_API minidnnStatus_t minidnnRnnBackwardData(minidnnHandle_t handle, const minidnnRnnOutputGradients_t* of,
                                                   const minidnnTensor_t* weights, int64_t count,
                                                   const minidnnRnnOptions_t* options,
                                                   minidnnRnnDataGradients_t* gradients);
// Computes the gradients of the weights, of which `dweights` receives `count`: one for each weight, or 1 tensor with all
// of them. Either all elements of `dweights` point to tensors, or all are NULL.
MINIDNN_API minidnnStatus_t minidnnRnnBackwardWeights(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t y,
                                                      minidnnTensor_t dgates, minidnnTensor_t reserve,
                                                      const minidnnRnnOptions_t* options, minidnnTensor_t* dweights,
                                                      int64_t count);
// Copies weights to one tensor. Of the options, this function and the next use mode, hidden_size, layers, bidirectional
// and no_bias.
MINIDNN_API minidnnStatus_t minidnnRnnPack(minidnnHandle_t handle, const minidnnTensor_t* weights, int64_t count,
                                           const minidnnRnnOptions_t* options, minidnnTensor_t* packed);
// Stores `count` views, one of each weight in the tensor `packed`. All are `new`.
MINIDNN_API minidnnStatus_t minidnnRnnUnpack(minidnnTensor_t packed, const minidnnRnnOptions_t* options,
                                             minidnnTensor_t* weights, int64_t count);

// ---- Normalization ----
// Parameters and statistics are float32, or float64 if x is float64.

typedef struct {
  size_t size;
  const char* algo;
  double eps, momentum;                       // momentum: the weight of the new batch in the running statistics
  int32_t per_activation;                     // scale and bias have the shape [C] (0), or the shape of one sample (1)
  int32_t relu;                               // 1: relu is applied to y
  minidnnTensor_t running_mean, running_var;  // training: updated in place; set both or neither
  minidnnTensor_t residual;  // forward: a tensor of x's shape and dtype that is added before the relu, or NULL
  minidnnTensor_t y;         // backward with relu: y of the forward call
  int32_t dresidual;         // backward: 1 computes the gradient of the residual
} minidnnBatchNormOptions_t;
#define MINIDNN_BATCH_NORM_OPTIONS_INIT \
  {sizeof(minidnnBatchNormOptions_t), NULL, 1e-5, 0.1, 0, 0, NULL, NULL, NULL, NULL, 0}

// y = scale (x - mean) / sqrt(var + eps) + bias, with the statistics of the batch. x [N, C, spatial...], rank 2 to 5. y
// and the two statistics are `new`.
MINIDNN_API minidnnStatus_t minidnnBatchNormForwardTraining(minidnnHandle_t handle, minidnnTensor_t x,
                                                            minidnnTensor_t scale, minidnnTensor_t bias,
                                                            const minidnnBatchNormOptions_t* options,
                                                            minidnnTensor_t* y, minidnnTensor_t* saved_mean,
                                                            minidnnTensor_t* saved_inv_std);
// As minidnnBatchNormForwardTraining(), with given statistics. y may be x or the residual.
MINIDNN_API minidnnStatus_t minidnnBatchNormForwardInference(minidnnHandle_t handle, minidnnTensor_t x,
                                                             minidnnTensor_t scale, minidnnTensor_t bias,
                                                             minidnnTensor_t mean, minidnnTensor_t var,
                                                             const minidnnBatchNormOptions_t* options,
                                                             minidnnTensor_t* y);
typedef struct {
  minidnnTensor_t dx, dscale, dbias;
  minidnnTensor_t dresidual;  // batch norm with `dresidual` in its options only; otherwise stays NULL
} minidnnNormGradients_t;
// Computes the gradients of batch norm, all `new`.
MINIDNN_API minidnnStatus_t minidnnBatchNormBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                                     minidnnTensor_t scale, minidnnTensor_t saved_mean,
                                                     minidnnTensor_t saved_inv_std,
                                                     const minidnnBatchNormOptions_t* options,
                                                     minidnnNormGradients_t* gradients);

typedef int32_t minidnnNorm_t;
enum {
  MINIDNN_LAYER_NORM = 0,     // a row is the dimensions from `axis` on
  MINIDNN_RMS_NORM = 1,       // rows as in layer norm; no mean and no bias
  MINIDNN_GROUP_NORM = 2,     // a row is a group of C / groups channels of one sample
  MINIDNN_INSTANCE_NORM = 3,  // a row is one channel of one sample
};
typedef struct {
  size_t size;
  const char* algo;
  minidnnNorm_t norm;
  int64_t axis, groups;
  double eps;
} minidnnNormOptions_t;
#define MINIDNN_NORM_OPTIONS_INIT {sizeof(minidnnNormOptions_t), NULL, MINIDNN_LAYER_NORM, -1, 1, 1e-5}

// Layer, RMS, group or instance norm. scale and bias have the shape of a row, or [C] for group and instance norm; NULL:
// ones and zeros. y, mean and inv_std are `new`. RMS norm has no mean: `mean` may then be NULL and receives nothing.
MINIDNN_API minidnnStatus_t minidnnNormForward(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t scale,
                                               minidnnTensor_t bias, const minidnnNormOptions_t* options,
                                               minidnnTensor_t* y, minidnnTensor_t* mean, minidnnTensor_t* inv_std);
// Computes the gradients of layer, RMS, group or instance norm, all `new`. For RMS norm, mean is NULL and dbias stays
// NULL.
MINIDNN_API minidnnStatus_t minidnnNormBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                                minidnnTensor_t scale, minidnnTensor_t mean, minidnnTensor_t inv_std,
                                                const minidnnNormOptions_t* options, minidnnNormGradients_t* gradients);

typedef struct {
  size_t size;
  const char* algo;
  int64_t window;  // the number of elements of the window along each of its dimensions; must be set
  double alpha, beta, k;
} minidnnLrnOptions_t;
#define MINIDNN_LRN_OPTIONS_INIT {sizeof(minidnnLrnOptions_t), NULL, 0, 1e-4, 0.75, 1.0}

// Local response norm across channels, and local contrast norm in space. `means` has the shape of x; NULL: zeros.
MINIDNN_API minidnnStatus_t minidnnLrnForward(minidnnHandle_t handle, minidnnTensor_t x,
                                              const minidnnLrnOptions_t* options, minidnnTensor_t* y);
MINIDNN_API minidnnStatus_t minidnnLrnBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                               const minidnnLrnOptions_t* options, minidnnTensor_t* dx);
MINIDNN_API minidnnStatus_t minidnnLcnForward(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t means,
                                              const minidnnLrnOptions_t* options, minidnnTensor_t* y);
// `dmeans` is `new`. If `means` is NULL, `dmeans` may be NULL and receives nothing.
MINIDNN_API minidnnStatus_t minidnnLcnBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t x,
                                               minidnnTensor_t means, const minidnnLrnOptions_t* options,
                                               minidnnTensor_t* dx, minidnnTensor_t* dmeans);

// ---- Matrix product ----

typedef struct {
  size_t size;
  const char* algo;
  int32_t transpose_a, transpose_b;  // 1: the last two dimensions of the operand are exchanged
  double alpha, beta;
  const char* activation;  // a mode of minidnnActivationForward(); NULL: none
} minidnnMatmulOptions_t;
#define MINIDNN_MATMUL_OPTIONS_INIT {sizeof(minidnnMatmulOptions_t), NULL, 0, 0, 1.0, 0.0, NULL}

// y = activation(alpha a b + beta c + bias). a [..., M, K], b [..., K, N]; batch dimensions are broadcast. c is
// broadcast to y; bias [N]; both may be NULL. If beta is not 0 and c is NULL, c is y. y may be c.
MINIDNN_API minidnnStatus_t minidnnMatmul(minidnnHandle_t handle, minidnnTensor_t a, minidnnTensor_t b,
                                          minidnnTensor_t c, minidnnTensor_t bias,
                                          const minidnnMatmulOptions_t* options, minidnnTensor_t* y);

// ---- Elements, sums and copies ----

// y = op(a, b, c), broadcast as in NumPy. `op` is "add", "mul", "exp", "where" or another that docs/ops/pointwise.md
// lists. b and c are NULL for functions of one or two operands. y may be an operand of its shape.
MINIDNN_API minidnnStatus_t minidnnPointwise(minidnnHandle_t handle, const char* op, minidnnTensor_t a,
                                             minidnnTensor_t b, minidnnTensor_t c, const minidnnOptions_t* options,
                                             minidnnTensor_t* y);

typedef struct {
  size_t size;
  const char* algo;
  const int64_t* axes;  // `axis_count` dimensions to reduce; negative ones count from the end; NULL: all dimensions
  int64_t axis_count;
  int32_t keepdims;  // 1: reduced dimensions stay, with size 1
} minidnnReduceOptions_t;
#define MINIDNN_REDUCE_OPTIONS_INIT {sizeof(minidnnReduceOptions_t), NULL, NULL, 0, 0}

// `mode` is "sum", "mean", "max", "min", "prod", "argmax", "argmin", "any", "all" or another that docs/ops/reduce.md
// lists.
MINIDNN_API minidnnStatus_t minidnnReduce(minidnnHandle_t handle, const char* mode, minidnnTensor_t x,
                                          const minidnnReduceOptions_t* options, minidnnTensor_t* y);

typedef struct {
  size_t size;
  const char* algo;
  double alpha, beta;
  int32_t dtype;       // the dtype of a new y, a minidnnDType_t; -1: the dtype of x
  const char* layout;  // the layout of a new y, such as "NHWC"; NULL: the layout of x
} minidnnTransformOptions_t;
#define MINIDNN_TRANSFORM_OPTIONS_INIT {sizeof(minidnnTransformOptions_t), NULL, 1.0, 0.0, -1, NULL}

// y = alpha x + beta y, with x broadcast to y; also casts and changes the layout. If y points to NULL, beta must be 0.
MINIDNN_API minidnnStatus_t minidnnTransform(minidnnHandle_t handle, minidnnTensor_t x,
                                             const minidnnTransformOptions_t* options, minidnnTensor_t* y);
// Concatenates `count` tensors along a dimension; a negative axis counts from the end.
MINIDNN_API minidnnStatus_t minidnnConcat(minidnnHandle_t handle, const minidnnTensor_t* tensors, int64_t count,
                                          int64_t axis, minidnnTensor_t* y);

typedef struct {
  size_t size;
  const char* algo;
  const char* mode;  // "constant", or another that docs/ops/pad.md lists
  double value;      // the value of the padding in mode "constant"
} minidnnPadOptions_t;
#define MINIDNN_PAD_OPTIONS_INIT {sizeof(minidnnPadOptions_t), NULL, "constant", 0.0}

// Pads x by before[d] and after[d] elements in each of its dimensions d.
MINIDNN_API minidnnStatus_t minidnnPad(minidnnHandle_t handle, minidnnTensor_t x, const int64_t* before,
                                       const int64_t* after, const minidnnPadOptions_t* options, minidnnTensor_t* y);

// Slices of x along `axis`, which `index` (int32 or int64, any shape) names. y has the shape of x with the axis
// replaced by the shape of the index.
MINIDNN_API minidnnStatus_t minidnnGather(minidnnHandle_t handle, minidnnTensor_t x, minidnnTensor_t index,
                                          int64_t axis, const minidnnOptions_t* options, minidnnTensor_t* y);
MINIDNN_API minidnnStatus_t minidnnGatherBackward(minidnnHandle_t handle, minidnnTensor_t dy, minidnnTensor_t index,
                                                  int64_t rank, const int64_t* x_shape, int64_t axis,
                                                  const minidnnOptions_t* options, minidnnTensor_t* dx);

// ---- Random numbers ----
// Philox 4x32-10: a number depends on the seed, the offset and its position only, and not on the device. There is no
// state: a training loop increments `offset`. seed and offset are 0 or more.

// Fills a tensor with numbers in [low, high), or of a normal distribution.
MINIDNN_API minidnnStatus_t minidnnFillUniform(minidnnHandle_t handle, minidnnTensor_t out, int64_t seed,
                                               int64_t offset, double low, double high,
                                               const minidnnOptions_t* options);
MINIDNN_API minidnnStatus_t minidnnFillNormal(minidnnHandle_t handle, minidnnTensor_t out, int64_t seed, int64_t offset,
                                              double mean, double std, const minidnnOptions_t* options);
// y is 0 with probability p, else x / (1 - p). minidnnDropoutBackward() computes the gradient from dy, with the same p,
// seed and offset. y may be x.
MINIDNN_API minidnnStatus_t minidnnDropoutForward(minidnnHandle_t handle, minidnnTensor_t x, double p, int64_t seed,
                                                  int64_t offset, const minidnnOptions_t* options, minidnnTensor_t* y);
MINIDNN_API minidnnStatus_t minidnnDropoutBackward(minidnnHandle_t handle, minidnnTensor_t dy, double p, int64_t seed,
                                                   int64_t offset, const minidnnOptions_t* options,
                                                   minidnnTensor_t* dx);

#ifdef __cplusplus
}
#endif

#endif
