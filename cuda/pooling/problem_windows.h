// SPDX-License-Identifier: Apache-2.0
// Host code of cuda.pooling.nchw and cuda.pooling.nhwc: the windows of a problem, the check whether the problem is
// supported, and the choice of kernels.
#pragma once
#include "cpp/engine/kernel_spec.h"
#include "cpp/pooling/pooling.h"
#include "cuda/pooling/window_params.h"

namespace minidnn::cuda::pooling {

// Window sizes and strides for which kernels are compiled: those of VGG and DenseNet, ResNet, Inception, and YOLO. {}
// stands for all other windows.
struct StaticStep {
  int window = 0, stride = 0;
};
inline constexpr StaticStep kStaticSteps[] = {{}, {2, 2}, {3, 2}, {3, 1}, {5, 1}};

// Averages over windows of 5 x 5 elements are rare, so kernels for this size are compiled for maxima only.
inline bool is_compiled(StaticStep s, bool is_max) { return is_max || s.window < 5; }

inline Windows windows_of(const PoolingProblem& p, int i) {
  Windows w;
  w.size = int32_t(spatial_size(p.x, i));
  w.count = int32_t(detail::windows_along(p, i));
  w.window = int32_t(p.window[i]);
  w.stride = int32_t(p.spatial.stride[i]);
  w.before = int32_t(p.spatial.before[i]);
  w.after = int32_t(p.spatial.after[i]);
  w.dilation = int32_t(p.spatial.dilation[i]);
  w.by_stride = FastDivmod(w.stride);
  return w;
}

// Returns 1 / divisor if all windows have the same divisor, else 0.
inline float common_mean_factor(const Windows& h, const Windows& w, bool exclude_padding) {
  for (const Windows& axis : {h, w})
    for (int at : {0, axis.count - 1})
      if (axis.counted(at, exclude_padding) != axis.window) return 0;
  return 1.f / (float(h.window) * float(w.window));
}

// Returns the window size and stride if kernels with this compile-time size support the problem, else {}. The problem
// must have two spatial dimensions, and each window must contain an element of x.
inline StaticStep static_step(const PoolingProblem& p) {
  for (StaticStep s : kStaticSteps) {
    bool same = s.window > 0;
    for (int i = 0; i < 2; ++i)
      same = same && p.window[i] == s.window && p.spatial.stride[i] == s.stride && p.spatial.dilation[i] == 1 &&
             p.spatial.before[i] < s.window &&
             (detail::windows_along(p, i) - 1) * s.stride - p.spatial.before[i] < spatial_size(p.x, i);
    if (same && is_compiled(s, p.mode == PoolingMode::max)) return s;
  }
  return {};
}

inline std::string why_not_windows(const PoolingProblem& p) {
  if (p.x.dtype == DType::float64) return "float64 is not supported";
  if (p.mode == PoolingMode::lp) return "mode 'lp' is not supported";
  if (p.adaptive) return "adaptive windows of unequal sizes are not supported";
  if (p.x.rank == 5) return "supports one or two spatial dimensions only; got 3";
  if (p.x.numel() == 0) return "x is empty";
  int64_t plane = 1;
  for (int i = 0; i + 2 < p.x.rank; ++i) {
    for (int64_t n : {spatial_size(p.x, i), detail::windows_along(p, i), p.window[i] * p.spatial.dilation[i],
                      p.spatial.stride[i], p.spatial.before[i], p.spatial.after[i]})
      if (n >= kMostSize) return cat("supports sizes, windows, strides and padding below ", kMostSize, "; got ", n);
    plane *= max_of(spatial_size(p.x, i), detail::windows_along(p, i));
  }
  if (plane >= int64_t(1) << 30) return cat("supports planes of fewer than 2^30 elements; got ", plane);
  return "";
}

// Returns the factor by which cuda.pooling.nhwc saves work, because threads share the elements that several windows
// contain.
inline double less_work(const PoolingProblem& p) {
  return p.mode == PoolingMode::max && p.direction == PoolingDirection::backward ? 30 : 6;
}

// Calls f(dtype, is_max, step) for all arguments for which kernels are compiled.
template <class F> void each_compiled(F&& f) {
  for (DType t : {DType::float32, DType::float16, DType::bfloat16})
    for (StaticStep step : kStaticSteps)
      for (bool is_max : {false, true})
        if (is_compiled(step, is_max)) f(t, is_max, step);
}
// Returns the specification of the kernel minidnn::cuda::pooling::LAYOUT_KIND<ARGUMENTS> in
// "cuda/pooling/LAYOUT/LAYOUT.cu".
inline KernelSpec spec(const char* layout, const char* kind, const std::string& arguments) {
  return {cat("cuda/pooling/", layout, "/", layout, ".cu"),
          cat("minidnn::cuda::pooling::", layout, "_", kind, "<", arguments, ">")};
}
inline KernelSpec spec(const char* layout, const char* kind, DType dtype, bool is_max, StaticStep step) {
  return spec(layout, kind,
              cat(cuda_name(dtype), ", ", is_max ? "true" : "false", ", ", step.window, ", ", step.stride));
}
// Returns the specification of the kernel for gradients of maxima. `index_bytes` is the number of bytes of a given
// index, or 0 if the kernel finds the maxima.
inline KernelSpec max_backward_spec(const char* layout, DType dtype, StaticStep step, int index_bytes) {
  return spec(layout, "max_backward", cat(cuda_name(dtype), ", ", step.window, ", ", step.stride, ", ", index_bytes));
}

}  // namespace minidnn::cuda::pooling
