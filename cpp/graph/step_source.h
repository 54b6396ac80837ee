// SPDX-License-Identifier: Apache-2.0
// Writes functions of single elements as expressions of C++, for generated kernels. An expression calls functions of
// the headers of maths and has no formula of its own.
#pragma once
#include <bit>

#include "cpp/core/text.h"
#include "cpp/graph/row_region.h"

namespace minidnn {

// The C++ type of a value in a register: PointwiseType.
const char* register_type(DType);
// The C++ types of operands in memory, separated by commas.
std::string cuda_types(const std::vector<ElementOperand>&);

struct GeneratedSource {
  std::string text;
  // Where the arguments of the kernel take their numbers, words and seeds from: indices into RegionArgs::words.
  std::vector<size_t> numbers, words, seeds;

  // Sets the numbers, words and keys of random numbers in the arguments of a kernel.
  template <class Args> void set_numbers(const RegionArgs& a, Args& args) const {
    for (size_t i = 0; i < numbers.size(); ++i) {
      args.number[i] = std::bit_cast<double>(a.words[numbers[i]]);
      args.single[i] = float(args.number[i]);
    }
    for (size_t i = 0; i < words.size(); ++i) args.word[i] = a.words[words[i]];
    for (size_t i = 0; i < seeds.size(); ++i) args.keys[i] = PhiloxKeys(a.words[seeds[i]]);
  }
};

// The numbers that functions of a region need beside those that are operands. This is faster than making the source.
struct OwnNumbers {
  size_t numbers = 0, dropouts = 0;
};
OwnNumbers own_numbers(const Region&);
// Returns "", or why the arguments of a kernel do not hold the numbers of a region. `Step` is ElementStep or RowStep.
template <class Step> std::string too_many_numbers(const Region& r, const std::vector<Step>& steps) {
  OwnNumbers own = own_numbers(r);
  for (const Step& step : steps)
    for (const auto& s : step.sources) own.numbers += s.kind == decltype(s.kind)::number;
  if (own.numbers <= size_t(kMostElementNumbers) && own.dropouts <= size_t(kMostElementSeeds)) return "";
  return cat("has ", own.numbers, " numbers and ", own.dropouts, " dropouts; supported are at most ",
             kMostElementNumbers, " and ", kMostElementSeeds);
}

class StepSource {
 public:
  // `rounding_each`: whether each function rounds its result to its dtype. `fast_formula` is the Formula of activations
  // of 16-bit tensors (cuda/device/fast_activation.cuh).
  StepSource(const Region& r, bool rounding_each, const char* fast_formula)
      : r_(r), each_(rounding_each), fast_formula_(fast_formula) {}

  // Returns the result of a node. `operands` has an expression for each tensor that the node reads, in the order of its
  // ports.
  std::string function(const RegionNode&, const std::vector<std::string>& operands);
  // Returns a double of RegionArgs in the type of a register.
  std::string number(size_t word, DType);
  // Returns the number of a region's value that is known when the region runs.
  std::string number_of_value(int value, DType t) { return number(size_t(r_.values[size_t(value)].number), t); }

  const GeneratedSource& source() const { return source_; }
  // The function that returns random words, and the number of dropouts. They are complete after all calls of
  // function().
  int randoms() const { return int(source_.seeds.size()); }
  std::string random_function(const char* args_type) const;

 private:
  std::string word(size_t index);
  std::string pointwise(const PointwiseProblem&, const std::vector<std::string>& operands) const;
  std::string activation(const ActivationProblem&, const RegionNode&, const std::vector<std::string>& operands);
  std::string transform(const TransformProblem&, const RegionNode&, const std::string& x);
  std::string dropout(const RegionNode&, const std::string& x);

  const Region& r_;
  const bool each_;
  const char* const fast_formula_;
  GeneratedSource source_;
  std::string random_texts_;
};

}  // namespace minidnn
