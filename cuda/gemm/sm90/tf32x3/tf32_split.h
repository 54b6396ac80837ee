// SPDX-License-Identifier: Apache-2.0
// The host side of tf32_split.cu, which writes an operand as three terms (three_tf32.h). Only host code includes this
// file.
#pragma once
#include <algorithm>
#include <functional>

#include "cpp/engine/engine.h"
#include "cuda/gemm/sm90/tf32x3/tf32_split_params.h"
#include "cuda/gemm/view/tma_layout.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

inline KernelSpec tf32_split_kernel(int width) {
  return {"cuda/gemm/sm90/tf32x3/tf32_split.cu", cat("minidnn::gemm_tf32_split<", width, ">")};
}

// The layout of the three terms: one after the other along the summed dimension.
struct Tf32Split {
  // the terms; the summed dimension is three times as long as in the operand
  TensorDesc to;
  Tf32SplitParams params;
  int width = 1;
  std::string why_not;

  Tf32Split(const TensorDesc& from, int summed, bool second, int64_t alignment) : to(from) {
    to.shape[summed] *= 3;
    std::vector<int> order;
    for (int i = 0; i < from.rank; ++i)
      if (from.stride[i] != 0 || i == summed) order.push_back(i);
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](int i) { return from.stride[i]; });
    to = tma_layout(to, order);
    std::erase_if(order, [&](int i) { return from.shape[i] == 1; });
    if (order.size() > kTf32Dimensions) {
      why_not = cat("supports operands of at most ", kTf32Dimensions, " dimensions; got ", order.size());
      return;
    }
    params.term_stride = from.shape[summed] * to.stride[summed];
    params.rest_term = second ? 2 : 1;
    int64_t strides = params.term_stride, items = 1;
    for (size_t j = 0; j < order.size(); ++j) {
      const int i = order[order.size() - 1 - j];
      params.size[j] = FastDivmod(from.shape[i]);
      params.x[j] = from.stride[i];
      params.y[j] = to.stride[i];
      if (j > 0) strides |= from.stride[i] | to.stride[i];
      items *= from.shape[i];
    }
    const bool lines = !order.empty() && params.x[0] == 1 && params.y[0] == 1;
    if (lines && alignment >= 16 && (strides | from.shape[order.back()]) % 4 == 0) {
      width = 4;
      items /= 4;
      params.size[0] = FastDivmod(from.shape[order.back()] / 4);
    }
    if (items >= int64_t(1) << 31)
      why_not = cat("supports operands of fewer than 2^31 vectors of ", width, " elements; got ", items);
    params.items = uint32_t(items);
  }
};

inline double estimate_us(const Tf32Split& s, const Device& d) {
  return roofline_us(0, double(s.to.numel()) * 4 * sizeof(float) / 3, d, 0.85);
}
inline std::function<void(const void* from, void* to, Stream)> loaded(const Tf32Split& s, const Device& d) {
  cuda::LaunchConfig config;
  config.block = {256};
  config.grid = {unsigned(ceil_div<int64_t>(s.params.items, 256))};
  config.programmatic = d.arch >= 90;
  return [config, params = s.params, kernel = cuda::load_kernel(tf32_split_kernel(s.width), d.place.index)](
             const void* from, void* to, Stream stream) { cuda::launch(*kernel, config, stream, params, from, to); };
}

}  // namespace minidnn
