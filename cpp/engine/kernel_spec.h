// SPDX-License-Identifier: Apache-2.0
// The name of a CUDA kernel before it is machine code. Plain data: the engine pattern and the manifest speak of
// kernels through it; cuda/runtime/kernel_cache turns one into a cubin.
#pragma once
#include <string>
#include <vector>

namespace minidnn {

struct KernelSpec {
  std::string file;                    // "cuda/softmax/generic.cu", relative to the source root
  std::string kernel;                  // the instantiation, "minidnn::softmax_forward<minidnn::float16>"
  std::string generated{};             // source put after the #include of `file`; empty but for fused functors
  std::vector<std::string> options{};  // further NVRTC options; mostly none
  int min_arch = 80;                   // 90 means sm_90a alone: wgmma is of no other generation
  bool operator==(const KernelSpec&) const = default;
};

}  // namespace minidnn
