// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/element_source.h"

#include <cstddef>

#include "cpp/core/text.h"

namespace minidnn {
namespace {

// The C++ type of a value in a register: PointwiseType.
const char* register_type(DType t) {
  if (t == DType::float64) return "double";
  if (is_floating(t)) return "float";
  return t == DType::int64 ? "int64_t" : "int32_t";
}

class Writer {
 public:
  Writer(const Region& r, const ElementRegion& e, bool each) : r_(r), e_(e), each_(each) {}

  ElementSourceText write() {
    std::string lines;
    for (size_t i = 0; i < e_.steps.size(); ++i) {
      const ElementStep& step = e_.steps[i];
      lines += cat("    const ", register_type(step.dtype), " v", i, " = ", step_text(i), ";\n");
      if (step.store >= 0) lines += cat("    x.template store<", step.store, ">(v", i, ");\n");
    }
    const ElementVectors vectors = element_vectors(r_, e_);
    // Random words of a whole vector are in registers.
    const bool few = e_.loads.size() + e_.stores.size() <= 5 && randoms_ == 0;
    to_.text =
        cat("namespace minidnn {\nstruct Region {\n  using Loads = Types<", types(e_.loads),
            ">;\n  using Stores = Types<", types(e_.stores), ">;\n  static constexpr int kVectors = ", vectors.vectors,
            ", kWidth = ", vectors.width, ", kRandoms = ", randoms_, ", kMinBlocks = ", few ? 4 : 2, ";\n",
            "  template <int k> __device__ __forceinline__ static Four random(const ElementwiseArgs& a, uint64_t "
            "group) {\n",
            random_texts_, "    return {};\n  }\n",
            "  template <class Lane> __device__ __forceinline__ static void of(const Lane& x, const "
            "ElementwiseArgs& a) {\n",
            lines, "  }\n};\n}  // namespace minidnn\n");
    const ElementCounts counts = element_counts(r_, e_);
    MINIDNN_CHECK(Error, to_.numbers.size() == counts.numbers && to_.words.size() == counts.words,
                  "graph: the generated source has ", to_.numbers.size(), " numbers and ", to_.words.size(),
                  " words instead of ", counts.numbers, " and ", counts.words);
    return std::move(to_);
  }

 private:
  std::string types(const std::vector<ElementOperand>& operands) const {
    std::string text;
    for (const ElementOperand& o : operands) text += cat(text.empty() ? "" : ", ", cuda_name(o.desc.dtype));
    return text;
  }

  // A number of RegionArgs in the type of a register.
  std::string number(size_t word, DType t) {
    to_.numbers.push_back(word);
    return cat(register_type(t), "(a.number[", to_.numbers.size() - 1, "])");
  }
  std::string word(size_t index) {
    to_.words.push_back(index);
    return cat("a.word[", to_.words.size() - 1, "]");
  }

  std::string source(const ElementSource& s) {
    if (s.kind == ElementSource::Kind::step) return cat("v", s.index);
    if (s.kind == ElementSource::Kind::load) return cat("x.template load<", s.index, ">()");
    return number(size_t(r_.values[size_t(s.index)].number), s.dtype);
  }

  std::string step_text(size_t i) {
    const RegionNode& n = r_.nodes[i];
    const ElementStep& step = e_.steps[i];
    std::string text;
    bool casts = false;
    if (const auto* p = n.as<PointwiseProblem>()) text = pointwise(*p, step);
    else if (const auto* a = n.as<ActivationProblem>()) text = activation(*a, n, step);
    else if (const auto* t = n.as<TransformProblem>()) {
      casts = t->x.dtype != t->y.dtype;
      text = transform(*t, n, step);
    } else text = dropout(n, step);
    // int8 and uint8 wrap as when they are stored, in every mode.
    const bool narrow = step.dtype == DType::int8 || step.dtype == DType::uint8;
    if (each_ || casts || narrow) text = cat("rounded<", cuda_name(step.dtype), ">(", text, ", a.zero)");
    return text;
  }

  std::string pointwise(const PointwiseProblem& p, const ElementStep& step) {
    const char* type = register_type(pointwise_dtype(p));
    std::string operands;
    for (size_t k = 0; k < 3; ++k) {
      const bool exists = k < step.sources.size();
      operands += cat(k ? ", " : "", type, "(", exists ? source(step.sources[k]) : std::string("0"), ")");
    }
    return cat("PointwiseOp<Pointwise::", pointwise_names()[size_t(p.op)], ">::of(", operands, ")");
  }

  std::string activation(const ActivationProblem& p, const RegionNode& n, const ElementStep& step) {
    const bool fast = itemsize(p.x.dtype) == 2, backward = p.direction == ActivationDirection::backward;
    const std::string alpha = number(n.first_word + offsetof(ActivationArgs, alpha) / 8, p.x.dtype);
    std::string x, dy;
    size_t k = 0;
    for (const RegionPort& port : n.ports)
      if (port.reads) (port.name == "dy" ? dy : x) = source(step.sources[k++]);
    const std::string mode =
        cat("Activation::", name(p.mode), ", Formula::", fast ? "fast" : "accurate", ">(", x, ", ", alpha, ")");
    return backward ? cat(dy, " * activate_gradient<", mode) : cat("activate<", mode);
  }

  std::string transform(const TransformProblem& p, const RegionNode& n, const ElementStep& step) {
    const std::string x = source(step.sources.front());
    if (p.scaled)
      return cat(number(n.first_word + offsetof(TransformArgs, alpha) / 8, p.y.dtype), " * ", register_type(p.y.dtype),
                 "(", x, ")");
    if (p.x.dtype == p.y.dtype) return x;
    return cat(register_type(p.y.dtype), "(cast<", cuda_name(p.y.dtype), ">(", x, "))");
  }

  std::string dropout(const RegionNode& n, const ElementStep& step) {
    auto at = [&](size_t offset) { return word(n.first_word + offset / 8); };
    const std::string seed = at(offsetof(RandomArgs, seed)), offset = at(offsetof(RandomArgs, offset));
    random_texts_ +=
        cat("    if constexpr (k == ", randoms_, ") return random_words_of(", seed, ", ", offset, ", group);\n");
    return cat("dropout(", source(step.sources.front()), ", x.template random<", randoms_++, ">(), ",
               at(offsetof(RandomArgs, threshold)), ", ",
               number(n.first_word + offsetof(RandomArgs, width) / 8, step.dtype), ")");
  }

  const Region& r_;
  const ElementRegion& e_;
  const bool each_;
  ElementSourceText to_;
  int randoms_ = 0;
  std::string random_texts_;
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

ElementCounts element_counts(const Region& r, const ElementRegion& e) {
  ElementCounts counts;
  for (size_t i = 0; i < r.nodes.size(); ++i) {
    for (const ElementSource& s : e.steps[i].sources) counts.numbers += s.kind == ElementSource::Kind::number;
    const auto* transform = r.nodes[i].as<TransformProblem>();
    const bool dropout = r.nodes[i].as<RandomProblem>();
    counts.numbers += r.nodes[i].as<ActivationProblem>() || (transform && transform->scaled) || dropout;
    counts.words += dropout ? 3 : 0;
  }
  return counts;
}

ElementSourceText element_source(const Region& r, const ElementRegion& e, bool rounding_each) {
  return Writer(r, e, rounding_each).write();
}

}  // namespace minidnn
