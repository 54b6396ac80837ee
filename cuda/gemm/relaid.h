// SPDX-License-Identifier: Apache-2.0
// The engine over the main loop of sm_90a (sm90_host.h), for a family's problem P. Operands that tensor maps can not
// bring as they lie are copied first, once, into the workspace. Host only.
#pragma once
#include "cpp/transform/transform.h"
#include "cuda/gemm/sm90_host.h"

namespace minidnn {

// A problem whose operands lie as the main loop wants them, and the copies that it takes.
template <class P> struct Relaid {
  struct Copy {
    const void* ArgsOf<P>::* data;
    TransformProblem transform;
    size_t offset;  // in the workspace
  };
  P problem;
  std::vector<Copy> copies;
  size_t bytes = 0;

  void copy(TensorDesc P::* tensor, const void* ArgsOf<P>::* data, const TensorDesc& to) {
    copies.push_back({data, {problem.*tensor, to}, bytes});
    const int64_t reach = (extent(to).end - extent(to).begin) * int64_t(itemsize(to.dtype));
    bytes += size_t(ceil_div(reach, int64_t(256)) * 256);
    problem.*tensor = to;
  }
  double copies_us(const Device& d) const {
    double us = 0;
    for (const Copy& c : copies) us += choose_on(d, c.transform).estimate_us;
    return us;
  }
};

// Makes the copies, then calls product(arguments with them, the workspace behind them, stream).
template <class P, class Product>
std::unique_ptr<Plan<P>> plan_after_copies(const Relaid<P>& r, const Device& d, Product product) {
  std::vector<std::shared_ptr<const Plan<TransformProblem>>> plans;
  for (const auto& c : r.copies) plans.push_back(plan_on(d, c.transform).plan);
  return make_plan<P>([=, copies = r.copies, bytes = r.bytes](const ArgsOf<P>& args, void* workspace, Stream stream) {
    ArgsOf<P> now = args;
    for (size_t i = 0; i < copies.size(); ++i) {
      void* to = static_cast<char*>(workspace) + copies[i].offset;
      plans[i]->run({args.*copies[i].data, to}, nullptr, stream);
      now.*copies[i].data = to;
    }
    product(now, static_cast<char*>(workspace) + bytes, stream);
  });
}

// Dense but for lines of 16 bytes; dimensions from the outermost to the contiguous one.
inline TensorDesc in_order(TensorDesc d, const std::vector<int>& order) {
  const int64_t line = 16 / int64_t(itemsize(d.dtype));
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    d.stride[order[i]] = step;
    step *= d.shape[order[i]];
    if (i + 1 == order.size()) step = ceil_div(step, line) * line;
  }
  return d;
}

// Whether a map can bring d, contiguous along `inner`.
inline bool in_lines(const TensorDesc& d, int inner) {
  const int64_t item = int64_t(itemsize(d.dtype));
  for (int i = 0; i < d.rank; ++i)
    if (d.shape[i] > 1 && (i == inner ? d.stride[i] != 1 : d.stride[i] <= 0 || d.stride[i] * item % 16)) return false;
  return true;
}

template <class P> struct RelaidEngine : Engine<P> {
  virtual std::string refusal(const P&) const = 0;  // of what no layout would change
  virtual Relaid<P> relaid(const P&) const = 0;
  virtual GemmArgs product_args(const P&, const ArgsOf<P>&) const = 0;

  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const P& p, const Device& d) const override {
    std::string why = refusal(p);
    return why.empty() ? sm90_why_not(gemm_task(relaid(p).problem), d) : why;
  }
  double estimate_us(const P& p, const Device& d) const override {
    const Relaid<P> r = relaid(p);
    return sm90_estimate_us(gemm_task(r.problem), d) + r.copies_us(d);
  }
  std::vector<Config> configs(const P& p, const Device& d) const override {
    return sm90_configs(gemm_task(relaid(p).problem), d);
  }
  size_t workspace_bytes(const P& p, const Device&, const Config& config) const override {
    const Relaid<P> r = relaid(p);
    return r.bytes + sm90_workspace_bytes(gemm_task(r.problem), config);
  }
  std::unique_ptr<Plan<P>> build(const P& p, const Device& d, const Config& config) const override {
    const Relaid<P> r = relaid(p);
    std::shared_ptr<const GemmPlan> product = sm90_plan(gemm_task(r.problem), d, config);
    return plan_after_copies(
        r, d, [this, product, problem = r.problem](const ArgsOf<P>& args, void* workspace, Stream stream) {
          product->run(product_args(problem, args), workspace, stream);
        });
  }
};

}  // namespace minidnn
