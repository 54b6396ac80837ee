// SPDX-License-Identifier: Apache-2.0
// cuda.random.philox4 is the engine for random numbers and dropout, with any strides. It writes row-major tensors by
// vectors.
#include "cpp/engine/engine_object.h"
#include "cpp/random/random.h"
#include "cuda/device/block_tile_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::random {
namespace {

KernelSpec spec(DType t, Random kind) {
  KernelSpec s{"cuda/random/philox4.cu",
               cat("minidnn::random_philox4<", cuda_name(t), ", (minidnn::Random)", int64_t(kind), ">")};
  // This compiler option allows square roots an error of one ulp of float32. The logarithms have an error of one ulp,
  // too.
  if (kind == Random::normal) s.options = {"--prec-sqrt=false"};
  return s;
}

}  // namespace

struct Philox4 final : Engine<RandomProblem> {
  std::string name() const override { return "cuda.random.philox4"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const RandomProblem&, const Device&) const override { return ""; }
  double estimate_us(const RandomProblem& p, const Device& d) const override {
    return roofline_us(random_flop(p), random_bytes(p), d, 0.8);
  }
  std::unique_ptr<Plan<RandomProblem>> build(const RandomProblem& p, const Device& d, const Config&) const override {
    auto kernel = cuda::load_kernel(spec(p.out.dtype, p.kind), d.place.index);
    const int64_t n = p.out.numel(), bytes = int64_t(itemsize(p.out.dtype)), items = bytes == 8 ? 4 : 16 / bytes;
    const int64_t dense = is_row_major(p.out) && (p.kind != Random::dropout || is_row_major(p.x));
    cuda::LaunchConfig config;
    config.block = {unsigned(kTileThreads)};
    config.grid = {unsigned(ceil_div(n, kTileThreads * kTileVectors * items))};
    return make_plan<RandomProblem>([=](const RandomArgs& a, void*, Stream stream) {
      const uintptr_t bits = reinterpret_cast<uintptr_t>(a.x) | reinterpret_cast<uintptr_t>(a.out);
      cuda::launch(*kernel, config, stream, p, a, n, dense, int64_t(dense && bits % 16 == 0));
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes)
      for (Random kind : {Random::uniform, Random::normal, Random::dropout}) all.push_back(spec(t, kind));
    return all;
  }
};

}  // namespace cuda::random

template const Engine<RandomProblem>& engine_object<RandomProblem, cuda::random::Philox4>();

}  // namespace minidnn
