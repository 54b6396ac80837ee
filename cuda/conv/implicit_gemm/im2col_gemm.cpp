// SPDX-License-Identifier: Apache-2.0
// cuda.conv.im2col_gemm: an engine that runs a convolution as the matrix product of im2col.h. im2col_gemm.cu has two
// kernels: conv_columns_gather copies x to an im2col matrix, and conv_columns_sum adds the elements of an im2col matrix
// to dx.
#include "cpp/conv/im2col.h"
#include "cpp/engine/engine_object.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::conv {
namespace {

KernelSpec spec(const char* kernel, DType dtype) {
  return {"cuda/conv/implicit_gemm/im2col_gemm.cu", cat("minidnn::", kernel, "<", cuda_name(dtype), ">")};
}

struct Mover final : ColumnsMover {
  const Device& device;
  const std::shared_ptr<const cuda::Kernel> gather_kernel, sum_kernel;
  Mover(DType operands, DType dx, const Device& d)
      : device(d),
        gather_kernel(cuda::load_kernel(spec("conv_columns_gather", operands), d.place.index)),
        sum_kernel(cuda::load_kernel(spec("conv_columns_sum", dx), d.place.index)) {}

  void gather(const ConvColumns& m, const void* x, void* columns, Stream stream) const override {
    cuda::LaunchConfig config = cuda::elementwise_launch(columns_points(m), device);
    cuda::launch(*gather_kernel, config, stream, m, x, columns);
  }
  void sum(const ConvColumns& m, const void* columns, void* dx, Stream stream) const override {
    cuda::LaunchConfig config = cuda::elementwise_launch(conv_out_numel(m.g), device);
    cuda::launch(*sum_kernel, config, stream, m, columns, dx);
  }
};

}  // namespace

struct Im2colGemm final : Im2colEngine {
  std::string name() const override { return "cuda.conv.im2col_gemm"; }
  unsigned traits() const override { return kNeedsJit; }
  std::shared_ptr<const ColumnsMover> mover(DType operands, DType dx, const Device& d) const override {
    return std::make_shared<Mover>(operands, dx, d);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (const char* kernel : {"conv_columns_gather", "conv_columns_sum"}) all.push_back(spec(kernel, t));
    return all;
  }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::Im2colGemm>();

}  // namespace minidnn
