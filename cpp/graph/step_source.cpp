// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/step_source.h"

#include <cstddef>

namespace minidnn {

const char* register_type(DType t) {
  if (t == DType::float64) return "double";
  if (is_floating(t)) return "float";
  return t == DType::int64 ? "int64_t" : "int32_t";
}

std::string cuda_types(const std::vector<ElementOperand>& operands) {
  std::string text;
  for (const ElementOperand& o : operands) text += cat(text.empty() ? "" : ", ", cuda_name(o.desc.dtype));
  return text;
}

OwnNumbers own_numbers(const Region& r) {
  OwnNumbers own;
  for (const RegionNode& n : r.nodes) {
    const auto* transform = n.as<TransformProblem>();
    const auto* softmax = n.as<SoftmaxProblem>();
    const bool dropout = n.as<RandomProblem>();
    own.dropouts += dropout;
    own.numbers += dropout || n.as<ActivationProblem>() || n.as<LayerNormProblem>() ||
                   (transform && transform->scaled) ||
                   (softmax && (softmax->scaled || softmax->direction == SoftmaxDirection::backward));
  }
  return own;
}

std::string StepSource::number(size_t word, DType t) {
  source_.numbers.push_back(word);
  const size_t i = source_.numbers.size() - 1;
  const char* type = register_type(t);
  return std::string_view(type) == "float" ? cat("a.single[", i, "]") : cat(type, "(a.number[", i, "])");
}
std::string StepSource::word(size_t index) {
  source_.words.push_back(index);
  return cat("a.word[", source_.words.size() - 1, "]");
}

std::string StepSource::function(const RegionNode& n, const std::vector<std::string>& operands) {
  const DType result = element_result(n).desc.dtype;
  std::string text;
  bool casts = false;
  if (const auto* p = n.as<PointwiseProblem>()) text = pointwise(*p, operands);
  else if (const auto* a = n.as<ActivationProblem>()) text = activation(*a, n, operands);
  else if (const auto* t = n.as<TransformProblem>()) {
    casts = t->x.dtype != t->y.dtype;
    text = transform(*t, n, operands.front());
  } else text = dropout(n, operands.front());
  // int8 and uint8 wrap as when they are stored, in every mode.
  const bool narrow = result == DType::int8 || result == DType::uint8;
  if (each_ || casts || narrow) text = cat("rounded<", cuda_name(result), ">(", text, ", a.zero)");
  return text;
}

std::string StepSource::random_function(const char* args_type) const {
  return cat("  template <int k> __device__ __forceinline__ static Four random(const ", args_type,
             "& a, uint64_t group) {\n", random_texts_, "    return {};\n  }\n");
}

std::string StepSource::pointwise(const PointwiseProblem& p, const std::vector<std::string>& operands) const {
  const char* type = register_type(pointwise_dtype(p));
  std::string texts;
  for (size_t k = 0; k < 3; ++k)
    texts += cat(k ? ", " : "", type, "(", k < operands.size() ? operands[k] : std::string("0"), ")");
  return cat("PointwiseOp<Pointwise::", pointwise_names()[size_t(p.op)], ">::of(", texts, ")");
}

std::string StepSource::activation(const ActivationProblem& p, const RegionNode& n,
                                   const std::vector<std::string>& operands) {
  const bool fast = itemsize(p.x.dtype) == 2, backward = p.direction == ActivationDirection::backward;
  const std::string alpha = number(n.first_word + offsetof(ActivationArgs, alpha) / 8, p.x.dtype);
  std::string x, dy;
  size_t k = 0;
  for (const RegionPort& port : n.ports)
    if (port.reads) (port.name == "dy" ? dy : x) = operands[k++];
  const std::string mode =
      cat("Activation::", name(p.mode), ", Formula::", fast ? fast_formula_ : "accurate", ">(", x, ", ", alpha, ")");
  return backward ? cat(dy, " * activate_gradient<", mode) : cat("activate<", mode);
}

std::string StepSource::transform(const TransformProblem& p, const RegionNode& n, const std::string& x) {
  if (p.scaled)
    return cat(number(n.first_word + offsetof(TransformArgs, alpha) / 8, p.y.dtype), " * ", register_type(p.y.dtype),
               "(", x, ")");
  if (p.x.dtype == p.y.dtype) return x;
  return cat(register_type(p.y.dtype), "(cast<", cuda_name(p.y.dtype), ">(", x, "))");
}

std::string StepSource::dropout(const RegionNode& n, const std::string& x) {
  auto at = [&](size_t offset) { return word(n.first_word + offset / 8); };
  const int k = randoms();
  source_.seeds.push_back(n.first_word + offsetof(RandomArgs, seed) / 8);
  random_texts_ += cat("    if constexpr (k == ", k, ") return random_words_of(a.keys[", k, "], ",
                       at(offsetof(RandomArgs, offset)), ", group);\n");
  return cat("dropout(", x, ", x.template random<", k, ">(), ", at(offsetof(RandomArgs, threshold)), ", ",
             number(n.first_word + offsetof(RandomArgs, width) / 8, element_result(n).desc.dtype), ")");
}

}  // namespace minidnn
