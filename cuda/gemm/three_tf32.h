// SPDX-License-Identifier: Apache-2.0
// The engine that computes float32 as three TF32 products on the main loop of sm_90a: of a = a' + a" and b = b' + b",
// each TF32, the sum of a'b' + a"b' + a'b" is one product with three times the terms. Operands are written so by
// tf32_parts.cu, in the layouts that the engine for TF32 takes. Host only.
#pragma once
#include <array>

#include "cuda/gemm/mma_host.h"
#include "cuda/gemm/relaid.h"
#include "cuda/gemm/tf32_parts.h"
#include "cuda/runtime/plan.h"

namespace minidnn {

inline KernelSpec tf32_parts_kernel(int width) {
  return {"cuda/gemm/tf32_parts.cu", cat("minidnn::gemm_tf32_parts<", width, ">")};
}

// How one operand is written in parts, along the dimension that is summed.
struct Tf32Split {
  TensorDesc to;  // three times as long
  Tf32Parts parts;
  int width = 1;
  std::string why_not;

  Tf32Split(const TensorDesc& from, int summed, bool second, int64_t alignment) : to(from) {
    to.shape[summed] *= 3;
    std::vector<int> order;
    for (int i = 0; i < from.rank; ++i)
      if (from.stride[i] != 0 || i == summed) order.push_back(i);
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](int i) { return from.stride[i]; });
    to = in_order(to, order);
    std::erase_if(order, [&](int i) { return from.shape[i] == 1; });
    if (order.size() > kTf32Dimensions) {
      why_not = cat("splits operands of ", kTf32Dimensions, " dimensions at most; one has ", order.size());
      return;
    }
    parts.part = from.shape[summed] * to.stride[summed], parts.small_at = second ? 2 : 1;
    int64_t strides = parts.part, items = 1;
    for (size_t j = 0; j < order.size(); ++j) {
      const int i = order[order.size() - 1 - j];
      parts.size[j] = Divisor(from.shape[i]), parts.x[j] = from.stride[i], parts.y[j] = to.stride[i];
      if (j > 0) strides |= from.stride[i] | to.stride[i];
      items *= from.shape[i];
    }
    const bool lines = !order.empty() && parts.x[0] == 1 && parts.y[0] == 1;
    if (lines && alignment >= 16 && (strides | from.shape[order.back()]) % 4 == 0) {
      width = 4, items /= 4;
      parts.size[0] = Divisor(from.shape[order.back()] / 4);
    }
    if (items >= int64_t(1) << 31) why_not = cat("splits 2^31 elements at most; an operand has ", from.numel());
    parts.items = uint32_t(items);
  }
  size_t bytes() const {
    const int64_t reach = (extent(to).end - extent(to).begin) * int64_t(sizeof(float));
    return size_t(ceil_div(reach, int64_t(256)) * 256);
  }
};

template <class P> struct ThreeTf32Engine : Engine<P> {
  // An operand, and which of its dimensions is summed.
  struct Operand {
    TensorDesc P::* tensor;
    const void* ArgsOf<P>::* data;
    int summed;
  };
  virtual const RelaidEngine<P>& plain() const = 0;
  virtual std::array<Operand, 2> operands(const P&) const = 0;
  virtual bool convolves() const = 0;

  struct Split {
    Relaid<P> relaid;  // with operands in parts
    std::vector<Tf32Split> parts;
    size_t bytes = 0;  // of these
    std::string why_not;
  };
  Split split(const P& p) const {
    Split s{plain().relaid(p), {}};
    P& q = s.relaid.problem;
    for (const Operand& o : operands(p)) {
      const Tf32Split& part = s.parts.emplace_back(q.*o.tensor, o.summed, !s.parts.empty(), q.alignment);
      if (!part.why_not.empty()) s.why_not = part.why_not;
      q.*o.tensor = part.to;
      s.bytes += part.bytes();
    }
    return s;
  }

  static GemmTask task_of(const Split& s) {
    GemmTask task = gemm_task(s.relaid.problem);
    task.careful = true;
    return task;
  }

  unsigned traits() const override { return kNeedsJit | kReducedPrecision; }
  std::string why_not(const P& p, const Device& d) const override {
    P q = p;
    q.ieee = 0;
    if (std::string why = plain().refusal(q); !why.empty()) return why;
    const DType type = gemm_task(p).type;
    if (type != DType::float32) return cat("splits float32 operands in two; these are ", minidnn::name(type));
    if (p.ieee) return mma_why_not_ieee(MmaProducts::three);
    const Split s = split(p);
    return s.why_not.empty() ? sm90_why_not(task_of(s), d) : s.why_not;
  }
  double estimate_us(const P& p, const Device& d) const override {
    const Split s = split(p);
    double us = sm90_estimate_us(task_of(s), d) + s.relaid.copies_us(d);
    for (const Tf32Split& part : s.parts) us += roofline_us(0, double(part.bytes()) * 4 / 3, d, 0.85);
    return us;
  }
  std::vector<Config> configs(const P& p, const Device& d) const override { return sm90_configs(task_of(split(p)), d); }
  // Copies, parts, then what the product wants.
  size_t workspace_bytes(const P& p, const Device&, const Config& config) const override {
    const Split s = split(p);
    return s.relaid.bytes + s.bytes + sm90_workspace_bytes(task_of(s), config);
  }
  std::unique_ptr<Plan<P>> build(const P& p, const Device& d, const Config& config) const override {
    const Split s = split(p);
    std::shared_ptr<const GemmPlan> product = sm90_plan(task_of(s), d, config);
    std::vector<std::shared_ptr<const cuda::Kernel>> kernels;
    for (const Tf32Split& part : s.parts)
      kernels.push_back(cuda::load_kernel(tf32_parts_kernel(part.width), d.place.index));
    return plan_after_copies(s.relaid, d,
                             [this, product, kernels, parts = s.parts, problem = s.relaid.problem,
                              programmatic = d.arch >= 90](const ArgsOf<P>& args, void* workspace, Stream stream) {
                               ArgsOf<P> now = args;
                               char* to = static_cast<char*>(workspace);
                               const std::array<Operand, 2> all = operands(problem);
                               for (size_t i = 0; i < parts.size(); to += parts[i++].bytes()) {
                                 cuda::LaunchConfig launch;
                                 launch.block = {256},
                                 launch.grid = {unsigned(ceil_div<int64_t>(parts[i].parts.items, 256))};
                                 launch.stream = stream, launch.programmatic = programmatic;
                                 cuda::launch(*kernels[i], launch, parts[i].parts, now.*all[i].data, to);
                                 now.*all[i].data = to;
                               }
                               product->run(plain().product_args(problem, now), to, stream);
                             });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all = sm90_kernels(convolves(), true);
    for (int width : {1, 4}) all.push_back(tf32_parts_kernel(width));
    return all;
  }
};

}  // namespace minidnn
