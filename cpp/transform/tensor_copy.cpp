// SPDX-License-Identifier: Apache-2.0
// Copies of tensors for engines that need dense ones (cpp/engine/dense_copies.h): by the first engine of transform, or
// span by span if that engine does not support the strides.
#include "cpp/engine/dense_copies.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/simd/element_spans.h"
#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

constexpr int64_t kGrain = 16;  // the least number of spans that one thread copies

TransformProblem problem_of(const TensorDesc& from, const TensorDesc& to) { return {.x = from, .y = to}; }

// The first engine of transform, or null if it does not support the strides.
const Engine<TransformProblem>* engine_for(const TransformProblem& p, const Device& d) {
  const Engine<TransformProblem>* first = Family<TransformProblem>::cpu_engines().front();
  return first->why_not(p, d).empty() ? first : nullptr;
}

}  // namespace

TensorCopy tensor_copy(const TensorDesc& from, const TensorDesc& to, const Device& d) {
  const TransformProblem p = problem_of(from, to);
  if (const Engine<TransformProblem>* engine = engine_for(p, d))
    return [plan = std::shared_ptr<const Plan<TransformProblem>>(engine->build(p, d, engine->configs(p, d).front()))](
               const void* from, void* to) { plan->run({.x = from, .y = to}, nullptr, {}); };
  return [all = joint_indexing({to, from}), n = from.numel(), dtype = from.dtype](const void* from, void* to) {
    cpu::parallel_for(ceil_div(n, kPointwiseSpan), kGrain, [&](int64_t begin, int64_t end) {
      alignas(64) char buffer[kPointwiseSpan * sizeof(double)];
      for (int64_t i = begin * kPointwiseSpan; i < min_of(end * kPointwiseSpan, n); i += kPointwiseSpan) {
        const int64_t count = min_of(kPointwiseSpan, n - i);
        gather_span({all.elements, all.access[1], dtype}, from, i, count, buffer);
        scatter_span({all.elements, all.access[0], dtype}, buffer, i, count, to);
      }
    });
  };
}
double tensor_copy_us(const TensorDesc& from, const TensorDesc& to, const Device& d) {
  const TransformProblem p = problem_of(from, to);
  const Engine<TransformProblem>* engine = engine_for(p, d);
  return engine ? engine->estimate_us(p, d) : roofline_us(0, transform_bytes(p), d, 1);
}

}  // namespace minidnn
