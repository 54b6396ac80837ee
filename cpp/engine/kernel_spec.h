// SPDX-License-Identifier: Apache-2.0
// Identifies a CUDA kernel to be compiled. Plain data: engines and the manifest name kernels by it, and
// cuda/runtime/kernel_cache compiles it to a cubin.
#pragma once
#include <string>
#include <vector>

namespace minidnn {

struct KernelSpec {
  std::string file;                    // "cuda/softmax/generic.cu", relative to the source root
  std::string kernel;                  // the instantiation, "minidnn::softmax_forward<minidnn::float16>"
  std::string generated{};             // source inserted after the #include of `file`; only for fused functors
  std::vector<std::string> options{};  // additional NVRTC options; usually none
  int min_arch = 80;                   // 90 means sm_90a only: no other generation has wgmma
  bool operator==(const KernelSpec&) const = default;
};

}  // namespace minidnn
