// SPDX-License-Identifier: Apache-2.0
// Copies of tensors for engines that need dense ones (cpp/engine/dense_copies.h), by the first CPU engine of transform,
// which supports all strides.
#include "cpp/engine/dense_copies.h"
#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

TransformProblem problem_of(const TensorDesc& from, const TensorDesc& to) { return {.x = from, .y = to}; }
const Engine<TransformProblem>& engine() { return *Family<TransformProblem>::cpu_engines().front(); }

}  // namespace

TensorCopy tensor_copy(const TensorDesc& from, const TensorDesc& to, const Device& d) {
  const TransformProblem p = problem_of(from, to);
  return [plan = std::shared_ptr<const Plan<TransformProblem>>(engine().build(p, d, engine().configs(p, d).front()))](
             const void* from, void* to) { plan->run({.x = from, .y = to}, nullptr, {}); };
}
double tensor_copy_us(const TensorDesc& from, const TensorDesc& to, const Device& d) {
  return expected_us(engine(), problem_of(from, to), d);
}

}  // namespace minidnn
