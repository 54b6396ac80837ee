// SPDX-License-Identifier: Apache-2.0
// Copies of tensors for engines that need dense ones (cpp/engine/dense_copies.h).
#include "cpp/engine/dense_copies.h"
#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

TransformProblem problem_of(const TensorDesc& from, const TensorDesc& to) { return {.x = from, .y = to}; }

const Engine<TransformProblem>& fastest(const TransformProblem& p, const Device& d) {
  const Engine<TransformProblem>* best = nullptr;
  for (const Engine<TransformProblem>* e : Family<TransformProblem>::cpu_engines())
    if (e->why_not(p, d).empty() && (!best || e->estimate_us(p, d) < best->estimate_us(p, d))) best = e;
  return *best;
}

}  // namespace

TensorCopy tensor_copy(const TensorDesc& from, const TensorDesc& to, const Device& d) {
  const TransformProblem p = problem_of(from, to);
  const Engine<TransformProblem>& engine = fastest(p, d);
  return [plan = std::shared_ptr<const Plan<TransformProblem>>(engine.build(p, d, engine.configs(p, d).front()))](
             const void* from, void* to) { plan->run({.x = from, .y = to}, nullptr, {}); };
}
double tensor_copy_us(const TensorDesc& from, const TensorDesc& to, const Device& d) {
  const TransformProblem p = problem_of(from, to);
  return fastest(p, d).estimate_us(p, d);
}

}  // namespace minidnn
