// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/element_source.h"

#include "cpp/core/text.h"

namespace minidnn {
namespace {

class Writer {
 public:
  Writer(const Region& r, const ElementRegion& e, bool each) : r_(r), e_(e), steps_(r, each, "fast") {}

  GeneratedSource write() {
    std::string lines;
    for (size_t i = 0; i < e_.steps.size(); ++i) {
      const ElementStep& step = e_.steps[i];
      std::vector<std::string> operands;
      for (const ElementSource& s : step.sources) operands.push_back(source(s));
      lines +=
          cat("    const ", register_type(step.dtype), " v", i, " = ", steps_.function(r_.nodes[i], operands), ";\n");
      if (step.store >= 0) lines += cat("    x.template store<", step.store, ">(v", i, ");\n");
    }
    const ElementVectors vectors = element_vectors(r_, e_);
    // Random words of a whole vector are in registers.
    const bool few = e_.loads.size() + e_.stores.size() <= 5 && steps_.randoms() == 0;
    GeneratedSource to = steps_.source();
    to.text = cat("namespace minidnn {\nstruct Region {\n  using Loads = Types<", cuda_types(e_.loads),
                  ">;\n  using Stores = Types<", cuda_types(e_.stores),
                  ">;\n  static constexpr int kVectors = ", vectors.vectors, ", kWidth = ", vectors.width,
                  ", kRandoms = ", steps_.randoms(), ", kMinBlocks = ", few ? 4 : 2, ";\n",
                  steps_.random_function("ElementwiseArgs"),
                  "  template <class Lane> __device__ __forceinline__ static void of(const Lane& x, const "
                  "ElementwiseArgs& a) {\n",
                  lines, "  }\n};\n}  // namespace minidnn\n");
    return to;
  }

 private:
  std::string source(const ElementSource& s) {
    if (s.kind == ElementSource::Kind::step) return cat("v", s.index);
    if (s.kind == ElementSource::Kind::load) return cat("x.template load<", s.index, ">()");
    return steps_.number_of_value(s.index, s.dtype);
  }

  const Region& r_;
  const ElementRegion& e_;
  StepSource steps_;
};

}  // namespace

ElementVectors element_vectors(const Region& r, const ElementRegion& e) {
  size_t widest = 1;
  for (const auto* operands : {&e.loads, &e.stores})
    for (const ElementOperand& o : *operands) widest = std::max(widest, itemsize(o.desc.dtype));
  bool long_code = false;  // whether the code of an element has tens of instructions
  for (const RegionNode& n : r.nodes)
    if (const auto* p = n.as<PointwiseProblem>()) {
      const PointwiseGroup group = info(p->op).group;
      long_code = long_code || group == PointwiseGroup::maths1 || group == PointwiseGroup::maths2;
    } else if (n.as<RandomProblem>()) {
      long_code = true;
    }
  const int width = std::max(4, 16 / int(widest));
  const size_t tensors = e.loads.size();
  const int vectors = long_code || width > 8 || tensors > 4 ? 1 : tensors > 2 ? 2 : widest == 8 ? 2 : 4;
  return {vectors, width};
}

GeneratedSource element_source(const Region& r, const ElementRegion& e, bool rounding_each) {
  return Writer(r, e, rounding_each).write();
}

}  // namespace minidnn
