// SPDX-License-Identifier: Apache-2.0
// cuda.batch_norm.generic is the engine for batch norm of tensors with any strides. In config "team=block", a block of
// threads computes the sums of a channel. In config "team=thread", one thread does.
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/engine/engine_object.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::batch_norm {
namespace {

constexpr int64_t kBlockTeam = 1024;  // the maximum number of threads in a block

KernelSpec spec(const char* kernel, DType dtype, NormDirection direction) {
  return {"cuda/batch_norm/generic.cu",
          cat("minidnn::", kernel, "<", cuda_name(dtype), ", (minidnn::NormDirection)", int64_t(direction), ">")};
}

cuda::LaunchConfig block_launch(const NormSpaces& s) {
  // The largest number of blocks in a grid. If there are more channels, each block loops over several channels.
  constexpr int64_t kMostBlocks = 1 << 20;
  cuda::LaunchConfig config;
  config.block = {unsigned(min_of(ceil_div(max_of(s.members.size, int64_t(1)), int64_t(32)) * 32, kBlockTeam))};
  config.grid = {unsigned(min_of(s.groups.size, kMostBlocks))};
  return config;
}

// Whether one thread per group is faster than one block per group. A group is the set of elements that share a mean and
// a variance. Uncoalesced reads count as eight times slower: each fetches a 32-byte sector.
bool prefers_threads(const NormSpaces& s, const Device& d) {
  auto rate = [&](int64_t threads, const NormSpace& neighbours) {
    double running = double(min_of(threads, int64_t(d.sm_count) * 2048));
    return std::abs(neighbours.span_step().x) <= 1 ? running : running / 8;
  };
  return rate(s.groups.size, s.groups) > rate(s.groups.size * min_of(s.members.size, kBlockTeam), s.members);
}

}  // namespace

struct Generic final : Engine<BatchNormProblem> {
  std::string name() const override { return "cuda.batch_norm.generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const BatchNormProblem&, const Device&) const override { return ""; }
  double estimate_us(const BatchNormProblem& p, const Device& d) const override {
    // The kernels reach only 0.1 of the device's peak rates, because they compute 64-bit divisions for each element. In
    // forward, they read x three times.
    return roofline_us(norm_flop(p), norm_bytes(p), d, 0.1);
  }
  std::vector<Config> configs(const BatchNormProblem& p, const Device& d) const override {
    if (p.direction == NormDirection::inference) return {""};
    if (prefers_threads(norm_spaces(p), d)) return {"team=thread", "team=block"};
    return {"team=block", "team=thread"};
  }
  std::unique_ptr<Plan<BatchNormProblem>> build(const BatchNormProblem& p, const Device& d,
                                                const Config& config) const override {
    NormSpaces s = norm_spaces(p);
    bool by_thread = config == "team=thread";
    std::shared_ptr<const cuda::Kernel> sums,
        map = cuda::load_kernel(spec("norm_map", p.x.dtype, p.direction), d.place.index);
    if (p.direction != NormDirection::inference)
      sums = cuda::load_kernel(spec(by_thread ? "norm_thread_sums" : "norm_block_sums", p.x.dtype, p.direction),
                               d.place.index);
    cuda::LaunchConfig sums_launch = by_thread ? cuda::elementwise_launch(s.groups.size, d) : block_launch(s);
    cuda::LaunchConfig map_launch = cuda::elementwise_launch(s.all.size, d);
    return make_plan<BatchNormProblem>([=](const BatchNormArgs& a, void*, Stream stream) {
      cuda::LaunchConfig first = sums_launch, second = map_launch;
      if (sums) cuda::launch(*sums, first, stream, s, a);
      cuda::launch(*map, second, stream, s, a);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : kFloatingDTypes) {
      for (const char* sums : {"norm_block_sums", "norm_thread_sums"})
        for (auto direction : {NormDirection::training, NormDirection::backward})
          all.push_back(spec(sums, t, direction));
      for (auto direction : {NormDirection::training, NormDirection::inference, NormDirection::backward})
        all.push_back(spec("norm_map", t, direction));
    }
    return all;
  }
};

}  // namespace cuda::batch_norm

template const Engine<BatchNormProblem>& engine_object<BatchNormProblem, cuda::batch_norm::Generic>();

}  // namespace minidnn
