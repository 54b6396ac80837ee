// SPDX-License-Identifier: Apache-2.0
// Tapes: the calls by which engines of the CPU compute a region in spans of at most 512 elements. A node has one call
// or more: of the loops of pointwise, activation, random and transform. Values between nodes are in buffers that fit
// the first-level cache.
#pragma once
#include <functional>
#include <map>

#include "cpp/graph/element_region.h"

namespace minidnn::cpu::graph {

constexpr int kMostBuffers = 24;
constexpr int64_t kBufferBytes = kPointwiseSpan * 8;

// The elements [first, first + n) of all values, while they are computed. slot[i] is the memory of the value with that
// slot. Buffers have the slots below kMostBuffers.
struct Span {
  const RegionArgs& args;
  void* const* slot;
  int64_t first, n;
};
using Call = std::function<void(const Span&)>;

// A span of elements in the compute type of its dtype.
struct TapeValue {
  int slot = -1;          // -1 before the value is computed
  int last = -1;          // the last step that reads it, or -1
  bool constant = false;  // whether the value stays in its slot
  bool uncast = false;    // the result of a test, 0 or 1 in the type of its operands
};

// Computes a value from others. `operands` and `result` are indices into TapeMaker::values_.
struct TapeStep {
  const RegionNode* node;
  std::vector<int> operands;  // in the order of the node's ports
  int result;
  DType dtype;  // the dtype of the result
  bool stored;  // whether the result is stored
};

// Appends the calls of nodes to a tape. An engine derives its maker from this class: it fills steps_ and values_, and
// gives each operand a slot before the step.
class TapeMaker {
 public:
  TapeMaker(const Region& r, bool rounding_each) : r_(r), each_(rounding_each) {}
  virtual ~TapeMaker() = default;

 protected:
  // Adds a value for a number that is known when the region runs. Its buffer is filled by a call in constants_.
  int add_number(DType, std::function<double(const RegionArgs&)>);
  // Adds a value for a number of an operator, once.
  int add_number_of_value(int value, DType);
  // Adds the factor of a transform, if it scales.
  void add_factor(const RegionNode&);

  // Appends the calls of a step that is a function of single elements. `target` is the slot in which the result is
  // stored, or -1. Returns the slot of the result.
  int add_function(int step, int target);
  // Returns a slot for the result of a step: target_, or a buffer. A loop may write it over an operand that is not used
  // again, which result_slot() releases before. cast_slot() is for casts, whose results may be wider than their
  // operands.
  int result_slot(int step);
  int cast_slot(int step);

  int buffer();
  // A buffer that keeps its elements. No other value has it before or after.
  int constant_buffer() { return buffers_++; }
  virtual void release(int slot);
  // Releases the operands that no step after this one reads.
  void release_operands(int step);
  void call(Call c) { calls_->push_back(std::move(c)); }
  void cast(DType from, DType to, int x, int y);
  int slot(int value) const { return values_[size_t(value)].slot; }
  // Returns "", or why there are too few buffers.
  std::string why_no_buffers() const;

  const Region& r_;
  const bool each_;
  std::vector<TapeStep> steps_;
  std::vector<TapeValue> values_;
  std::vector<Call> constants_;         // fill buffers once on each thread, with n = kPointwiseSpan
  std::vector<Call>* calls_ = nullptr;  // where calls are appended
  int target_ = -1;                     // the slot in which the result of the current step is stored, or -1
  int buffers_ = 0;

 private:
  template <class F> bool all_uses(int step, F f) const;
  bool is_condition_only(int step, DType type) const;
  void round(DType, int slot);
  void round_result(DType, int step, int slot);
  int add_pointwise(const PointwiseProblem&, int step, std::vector<int> from);
  int add_activation(const ActivationProblem&, const RegionNode&, int step, const std::vector<int>& from);
  int add_transform(const TransformProblem&, int step, const std::vector<int>& from);
  int add_dropout(const RegionNode&, DType, int step, const std::vector<int>& from);

  std::vector<int> free_;
  std::map<int, int> numbers_;                // values of numbers, by the region's value
  std::map<const RegionNode*, int> factors_;  // slots of factors of transforms
};

bool is_number(const PointwiseAccess&);
// The time of a function of elements on one thread, in nanoseconds for each element.
double function_ns(const RegionNode&);

}  // namespace minidnn::cpu::graph
