// SPDX-License-Identifier: Apache-2.0
// cuda.matmul.generic: an engine in which each thread computes elements of y. It uses the functions that the CPU also
// uses (matmul_math.h).
#include "cpp/engine/engine_object.h"
#include "cpp/matmul/matmul.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::matmul {

struct Generic final : Engine<MatmulProblem> {
  std::string name() const override { return "cuda.matmul.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const MatmulProblem& p, const Device&) const override { return matmul_why_not(p); }
  double estimate_us(const MatmulProblem& p, const Device& d) const override {
    // The two loads per k take a thread about 0.04 us. The rate is 0.05 of the peak, because each operand is loaded
    // anew.
    return roofline_us(matmul_flop(p), matmul_bytes(p), d, 0.05) + 0.04 * double(sizes_of(p).k);
  }
  std::unique_ptr<Plan<MatmulProblem>> build(const MatmulProblem& p, const Device& d, const Config&) const override {
    return cuda::kernel_plan(spec(p.a.dtype, p.y.dtype), p, d, cuda::elementwise_launch(p.y.numel(), d));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes) {
      all.push_back(spec(t, t));
      if (itemsize(t) == 2) all.push_back(spec(t, DType::float32));
    }
    return all;
  }

 private:
  static KernelSpec spec(DType t, DType y) {
    return {"cuda/matmul/generic.cu", cat("minidnn::matmul_generic<", cuda_name(t), ", ", cuda_name(y), ">")};
  }
};

}  // namespace cuda::matmul

template const Engine<MatmulProblem>& engine_object<MatmulProblem, cuda::matmul::Generic>();

}  // namespace minidnn
