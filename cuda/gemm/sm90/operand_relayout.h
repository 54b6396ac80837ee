// SPDX-License-Identifier: Apache-2.0
// RelayoutEngine: the base class of the engines that use the main loop of sm_90a (plan.h). P describes a call, such as
// MatmulProblem. Operands whose layout tensor maps do not support are first copied to the workspace, for three TF32
// products as three terms (three_tf32.h). Only host code includes this file.
#pragma once
#include <functional>

#include "cpp/transform/transform.h"
#include "cuda/gemm/sm90/plan.h"
#include "cuda/gemm/sm90/tf32x3/tf32_split.h"
#include "cuda/gemm/view/tma_layout.h"

namespace minidnn {

// Copies an operand to another layout. Each type of copy has overloads of estimate_us() and loaded().
using OperandCopy = std::function<void(const void* from, void* to, Stream)>;

inline double estimate_us(const TransformProblem& t, const Device& d) { return choose_on(d, t).estimate_us; }
inline OperandCopy loaded(const TransformProblem& t, const Device& d) {
  return [plan = plan_on(d, t).plan](const void* from, void* to, Stream stream) {
    plan->run({from, to}, nullptr, stream);
  };
}

// A call whose operands have supported layouts, and the copies that create these operands.
template <class P> struct OperandRelayout {
  struct Copy {
    const void* ArgsOf<P>::* data;
    size_t offset;  // the byte offset of the copy in the workspace
    std::function<double(const Device&)> us;
    std::function<OperandCopy(const Device&)> load;
  };
  P problem;
  std::vector<Copy> copies;
  size_t bytes = 0;
  std::string why_not;

  void copy(TensorDesc P::* tensor, const void* ArgsOf<P>::* data, const TensorDesc& to) {
    TransformProblem t{problem.*tensor, to};
    t.alignment = problem.alignment;
    add(tensor, data, t, to);
  }
  void split(TensorDesc P::* tensor, const void* ArgsOf<P>::* data, const Tf32Split& s) {
    if (!s.why_not.empty()) why_not = s.why_not;
    add(tensor, data, s, s.to);
  }
  double copies_us(const Device& d) const {
    double us = 0;
    for (const Copy& c : copies) us += c.us(d);
    return us;
  }

 private:
  template <class How>
  void add(TensorDesc P::* tensor, const void* ArgsOf<P>::* data, const How& how, const TensorDesc& to) {
    copies.push_back({data, bytes, [how](const Device& d) { return estimate_us(how, d); },
                      [how](const Device& d) { return loaded(how, d); }});
    const int64_t reach = (extent(to).end - extent(to).begin) * int64_t(itemsize(to.dtype));
    bytes += size_t(ceil_div(reach, int64_t(256)) * 256);
    problem.*tensor = to;
  }
};

// Returns a plan that makes the copies in order, where a copy may read the output of an earlier copy, and then calls
// product(arguments, rest of the workspace, stream).
template <class P, class Product>
std::unique_ptr<Plan<P>> plan_after_copies(const OperandRelayout<P>& r, const Device& d, Product product) {
  std::vector<OperandCopy> runs;
  for (const auto& c : r.copies) runs.push_back(c.load(d));
  return make_plan<P>([=, copies = r.copies, bytes = r.bytes](const ArgsOf<P>& args, void* workspace, Stream stream) {
    ArgsOf<P> now = args;
    for (size_t i = 0; i < copies.size(); ++i) {
      void* to = static_cast<char*>(workspace) + copies[i].offset;
      runs[i](now.*copies[i].data, to, stream);
      now.*copies[i].data = to;
    }
    product(now, static_cast<char*>(workspace) + bytes, stream);
  });
}

template <class P> struct RelayoutEngine : Engine<P> {
  // Empty, or why a call is not supported in any layout.
  virtual std::string refusal(const P&) const = 0;
  virtual OperandRelayout<P> relayout(const P&) const = 0;
  virtual GemmArgs product_args(const P&, const ArgsOf<P>&) const = 0;
  // `p` is the call that relayout() returns.
  virtual GemmTask task_of(const P& p) const { return gemm_task(p); }

  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const P& p, const Device& d) const override {
    if (std::string why = refusal(p); !why.empty()) return why;
    const OperandRelayout<P> r = relayout(p);
    return r.why_not.empty() ? sm90_why_not(task_of(r.problem), d) : r.why_not;
  }
  double estimate_us(const P& p, const Device& d) const override {
    const OperandRelayout<P> r = relayout(p);
    return sm90_estimate_us(task_of(r.problem), d) + r.copies_us(d);
  }
  std::vector<Config> configs(const P& p, const Device& d) const override {
    return sm90_configs(task_of(relayout(p).problem), d);
  }
  size_t workspace_bytes(const P& p, const Device&, const Config& config) const override {
    const OperandRelayout<P> r = relayout(p);
    return r.bytes + sm90_workspace_bytes(task_of(r.problem), config);
  }
  std::unique_ptr<Plan<P>> build(const P& p, const Device& d, const Config& config) const override {
    const OperandRelayout<P> r = relayout(p);
    std::shared_ptr<const GemmPlan> product = sm90_plan(task_of(r.problem), d, config);
    return plan_after_copies(
        r, d, [this, product, problem = r.problem](const ArgsOf<P>& args, void* workspace, Stream stream) {
          product->run(product_args(problem, args), workspace, stream);
        });
  }
};

}  // namespace minidnn
