// SPDX-License-Identifier: Apache-2.0
// ThreeTf32Engine: the base class of the engines that compute a float32 product as three TF32 products on the main loop
// of sm_90a. Operand a is the sum a' + a" of two TF32 numbers, and operand b is b' + b". The three products a'b' + a"b'
// + a'b" are computed as one product with three times the k. tf32_split.cu writes the operands in this form, in layouts
// that tensor maps support. Only host code includes this file.
#pragma once
#include <array>

#include "cuda/gemm/mma/plan.h"
#include "cuda/gemm/sm90/operand_relayout.h"

namespace minidnn {

template <class P> struct ThreeTf32Engine : RelayoutEngine<P> {
  // An operand: its layout (`tensor`), its data, and the dimension that the product sums over (`summed`).
  struct Operand {
    TensorDesc P::* tensor;
    const void* ArgsOf<P>::* data;
    int summed;
  };
  virtual const RelayoutEngine<P>& plain() const = 0;
  virtual std::array<Operand, 2> operands(const P&) const = 0;
  virtual bool convolves() const = 0;

  unsigned traits() const override { return kNeedsJit | kReducedPrecision; }
  std::string refusal(const P& p) const override {
    if (p.ieee) return mma_why_not_ieee(MmaProducts::three);
    if (std::string why = plain().refusal(p); !why.empty()) return why;
    const DType type = gemm_task(p).type;
    if (type == DType::float32) return "";
    return cat("supports float32 only; got ", minidnn::name(type));
  }
  OperandRelayout<P> relayout(const P& p) const override {
    OperandRelayout<P> r = plain().relayout(p);
    bool second = false;
    for (const Operand& o : operands(p)) {
      r.split(o.tensor, o.data, Tf32Split(r.problem.*o.tensor, o.summed, second, p.alignment));
      second = true;
    }
    return r;
  }
  GemmArgs product_args(const P& p, const ArgsOf<P>& a) const override { return plain().product_args(p, a); }
  GemmTask task_of(const P& p) const override {
    GemmTask task = gemm_task(p);
    task.promote = true;
    return task;
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all = sm90_kernels(convolves(), true);
    for (int width : {1, 4}) all.push_back(tf32_split_kernel(width));
    return all;
  }
};

}  // namespace minidnn
