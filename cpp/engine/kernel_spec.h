// SPDX-License-Identifier: Apache-2.0
// The specification of a CUDA kernel to be compiled. It is plain data: engines and the manifest (the list of all
// kernels) name a kernel by it, and cuda/runtime/kernel_cache compiles it to a cubin.
#pragma once
#include <string>
#include <vector>

namespace minidnn {

struct KernelSpec {
  // The source file of the kernel, such as "cuda/softmax/generic.cu", relative to the source root.
  std::string file;
  // The instantiation of the kernel, such as "minidnn::softmax_forward<minidnn::float16>".
  std::string kernel;
  // Source code that is inserted after the #include of `file`. Usually empty.
  std::string generated{};
  std::vector<std::string> options{};  // additional compiler options for NVRTC; usually none
  // The lowest architecture, such as 80 for sm_80. 90 means sm_90a only, because no other generation has wgmma.
  int min_arch = 80;
  bool operator==(const KernelSpec&) const = default;
};

}  // namespace minidnn
