// SPDX-License-Identifier: Apache-2.0
#include "cuda/conv/filter_reduce/filter_reduce.h"
#include "cuda/conv/filter_reduce/filter_reduce_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::conv {

KernelSpec filter_reduce_kernel(DType out) {
  return {"cuda/conv/filter_reduce/filter_reduce.cu", cat("minidnn::conv_filter_reduce<", cuda_name(out), ">")};
}

std::function<void(const void*, void*, Stream)> filter_reduce(const ConvProblem& p, int64_t count, const Device& d) {
  const ConvGeometry g = conv_geometry(p);
  FilterReduce f;
  f.size[0] = g.groups * g.y.channels;
  f.size[1] = g.x.channels;
  f.stride[0] = g.w_filter;
  f.stride[1] = g.w_channel;
  f.origin = g.w_origin;
  for (int j = 0; j < kMaxSpatial; ++j) {
    f.size[2 + j] = g.window[j];
    f.stride[2 + j] = g.w_space[j];
  }
  f.count = 1;
  for (int64_t size : f.size) f.count *= size;
  f.splits = int32_t(count);
  LaunchConfig config;
  config.block = {32, 8};
  config.grid = {unsigned(ceil_div<int64_t>(f.count, 32))};
  config.programmatic = d.arch >= 90;
  return [f, config, kernel = load_kernel(filter_reduce_kernel(out_dtype(p)), d.place.index)](
             const void* all, void* dw, Stream stream) { launch(*kernel, config, stream, f, all, dw); };
}

}  // namespace minidnn::cuda::conv
