// SPDX-License-Identifier: Apache-2.0
// cuda.activation.vectorized is the engine for activations of dense tensors. It processes elements in the order of
// memory, with 16-byte loads and stores.
#include "cpp/activation/activation.h"
#include "cpp/engine/engine_object.h"
#include "cuda/device/block_tile_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::activation {
namespace {

KernelSpec spec(DType dtype, bool backward) {
  KernelSpec s{"cuda/activation/vectorized.cu",
               cat("minidnn::activation_vectorized<", cuda_name(dtype), ", ", backward, ">")};
  // --prec-div=false allows divisions an error of two ulp of float32, which is negligible in a 16-bit result. Divisions
  // that round correctly take twice as long.
  if (itemsize(dtype) == 2) s.options = {"--prec-div=false"};
  return s;
}

}  // namespace

struct Vectorized final : Engine<ActivationProblem> {
  std::string name() const override { return "cuda.activation.vectorized"; }
  int revision() const override { return 3; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ActivationProblem& p, const Device&) const override {
    bool backward = p.direction == ActivationDirection::backward;
    bool dense = is_dense(p.x) && same_strides(p.x, p.out) && (!backward || same_strides(p.x, p.dy));
    return dense ? "" : "needs dense tensors with equal strides";
  }
  double estimate_us(const ActivationProblem& p, const Device& d) const override {
    return roofline_us(activation_flop(p), activation_bytes(p), d, 0.9);
  }
  std::unique_ptr<Plan<ActivationProblem>> build(const ActivationProblem& p, const Device& d,
                                                 const Config&) const override {
    auto kernel = cuda::load_kernel(spec(p.x.dtype, p.direction == ActivationDirection::backward), d.place.index);
    const int64_t n = p.x.numel(), mode = int64_t(p.mode);
    cuda::LaunchConfig config;
    config.block = {unsigned(kTileThreads)};
    config.grid = {unsigned(ceil_div(n, kTileThreads * kTileVectors * 16 / int64_t(itemsize(p.x.dtype))))};
    return make_plan<ActivationProblem>([=](const ActivationArgs& a, void*, Stream stream) {
      const uintptr_t bits = uintptr_t(a.x) | uintptr_t(a.dy) | uintptr_t(a.out);
      cuda::launch(*kernel, config, stream, a, n, mode, int64_t(bits % 16 == 0));
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (bool backward : {false, true}) all.push_back(spec(t, backward));
    return all;
  }
};

}  // namespace cuda::activation

template const Engine<ActivationProblem>& engine_object<ActivationProblem, cuda::activation::Vectorized>();

}  // namespace minidnn
