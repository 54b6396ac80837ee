// SPDX-License-Identifier: Apache-2.0
// The launch of filter_reduce.cu. Engines that write partial sums of dw launch it after their own kernel. Host only.
#pragma once
#include <functional>

#include "cpp/conv/conv.h"
#include "cpp/engine/kernel_spec.h"

namespace minidnn::cuda::conv {

// Returns a function that adds `count` partial sums of dw, always in the same order. The partial sums are stored as
// [partial sum][filter][channel][window].
std::function<void(const void* partial_sums, void* dw, Stream)> filter_reduce(const ConvProblem&, int64_t count,
                                                                              const Device&);
KernelSpec filter_reduce_kernel(DType out);

}  // namespace minidnn::cuda::conv
