// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/cpu/tape.h"

#include <algorithm>
#include <bit>

#include "cpp/core/text.h"

namespace minidnn::cpu::graph {
namespace {

bool is_rounded(DType t) { return t != compute_dtype(t) && t != DType::boolean; }

// Whether neighbours in the result of a copy are not neighbours in its operand. cpu.transform.tiled transposes tiles of
// such tensors, which is faster than loads of single elements.
bool is_transposed(const TransformProblem& p) {
  for (int i = 0; i < p.y.rank; ++i)
    if (p.y.shape[i] > 1 && p.y.stride[i] == 1) return p.x.stride[i] > 1;
  return false;
}

}  // namespace

bool is_number(const PointwiseAccess& x) { return x.kind == Access::periodic && x.length == 1; }

// The time of a node for each element on one thread, in nanoseconds, with operands in the first-level cache (measured
// on 2 Xeon cores with AVX-512, 2026-11). Functions of maths take 0.2 to 7.
double function_ns(const RegionNode& n) {
  if (const auto* p = n.as<PointwiseProblem>()) {
    const PointwiseGroup group = info(p->op).group;
    if (group == PointwiseGroup::maths1 || group == PointwiseGroup::maths2) return 1;
    return gives_bool(group) || group == PointwiseGroup::select ? 0.1 : 0.06;
  }
  if (const auto* p = n.as<ActivationProblem>())
    // In float64, erfc of gelu is a function of libm. The others are vectors, of half as many elements as in float32.
    return p->mode <= Activation::leaky_relu ? 0.06
           : p->x.dtype != DType::float64    ? 0.4
           : p->mode == Activation::gelu     ? 4
                                             : 0.8;
  if (const auto* p = n.as<TransformProblem>()) return is_transposed(*p) ? 3 : 0.06;
  return n.ports.front().desc.dtype == DType::float64 ? 0.8 : 0.4;
}
int TapeMaker::buffer() {
  if (free_.empty()) return buffers_++;
  const auto lowest = std::ranges::min_element(free_);
  const int slot = *lowest;
  free_.erase(lowest);
  return slot;
}
void TapeMaker::release(int slot) {
  if (slot < kMostBuffers) free_.push_back(slot);
}
void TapeMaker::release_operands(int step) {
  for (TapeValue& v : values_)
    if (v.last == step && v.slot >= 0 && !v.constant) release(v.slot);
}
std::string TapeMaker::why_no_buffers() const {
  if (buffers_ <= kMostBuffers) return "";
  return cat("holds ", buffers_, " spans of values at the same time; supported are at most ", kMostBuffers);
}

int TapeMaker::add_number(DType type, std::function<double(const RegionArgs&)> number) {
  const int slot = constant_buffer();
  constants_.push_back([number = std::move(number), slot, read = element_spans(DType::float64).read,
                        cast = cast_on_span(DType::float64, type)](const Span& s) {
    alignas(64) double numbers[kPointwiseSpan];
    const double v = number(s.args);
    read(&v, 0, kPointwiseSpan, numbers);
    cast(numbers, s.slot[slot], kPointwiseSpan);
  });
  values_.push_back({.slot = slot, .constant = true});
  return int(values_.size()) - 1;
}
int TapeMaker::add_number_of_value(int value, DType type) {
  const auto it = numbers_.find(value);
  if (it != numbers_.end()) return it->second;
  return numbers_[value] = add_number(type, [word = r_.values[size_t(value)].number](const RegionArgs& a) {
           return std::bit_cast<double>(a.words[word]);
         });
}
void TapeMaker::add_factor(const RegionNode& n) {
  if (const auto* p = n.as<TransformProblem>(); p && p->scaled)
    factors_[&n] = slot(
        add_number(compute_dtype(p->y.dtype), [&n](const RegionArgs& a) { return n.args<TransformProblem>(a).alpha; }));
}

int TapeMaker::result_slot(int step) {
  release_operands(step);
  return target_ >= 0 ? target_ : buffer();
}
int TapeMaker::cast_slot(int step) {
  const int slot = target_ >= 0 ? target_ : buffer();
  release_operands(step);
  return slot;
}

int TapeMaker::add_function(int step, int target) {
  const RegionNode& n = *steps_[size_t(step)].node;
  std::vector<int> from;
  for (int value : steps_[size_t(step)].operands) from.push_back(slot(value));
  target_ = target;
  if (const auto* p = n.as<PointwiseProblem>()) return add_pointwise(*p, step, from);
  if (const auto* a = n.as<ActivationProblem>()) return add_activation(*a, n, step, from);
  if (const auto* t = n.as<TransformProblem>()) return add_transform(*t, step, from);
  return add_dropout(n, steps_[size_t(step)].dtype, step, from);
}

// Rounds a span to its dtype.
void TapeMaker::round(DType t, int slot) {
  call([spans = element_spans(t), slot](const Span& s) {
    alignas(64) char rounded[kPointwiseSpan * 2];
    spans.write(s.slot[slot], s.n, rounded, false);
    spans.read(rounded, 1, s.n, s.slot[slot]);
  });
}
// Rounds the result of a step, unless all that use it round it: stores and, if each value is rounded, activations.
// Integers always wrap around. A value of a floating dtype is rounded if each is.
void TapeMaker::round_result(DType t, int step, int slot) {
  if (!is_rounded(t) || (is_floating(t) && !each_)) return;
  if (!all_uses(step, [](const RegionNode& n, size_t) { return n.as<ActivationProblem>() != nullptr; })) round(t, slot);
}
// Whether f(node, k) holds for each use of a step as operand k of a node.
template <class F> bool TapeMaker::all_uses(int step, F f) const {
  const int result = steps_[size_t(step)].result;
  for (size_t i = size_t(step); i < steps_.size(); ++i)
    for (size_t k = 0; k < steps_[i].operands.size(); ++k)
      if (steps_[i].operands[k] == result && !f(*steps_[i].node, k)) return false;
  return true;
}
// Whether the result of a test is only the condition of `where` for elements that are computed in this type.
bool TapeMaker::is_condition_only(int step, DType type) const {
  return !steps_[size_t(step)].stored && all_uses(step, [&](const RegionNode& n, size_t k) {
    const auto* p = n.as<PointwiseProblem>();
    return p && k == 0 && info(p->op).group == PointwiseGroup::select && compute_dtype(pointwise_dtype(*p)) == type;
  });
}
void TapeMaker::cast(DType from, DType to, int x, int y) {
  call([cast = cast_on_span(compute_dtype(from), to), x, y](const Span& s) { cast(s.slot[x], s.slot[y], s.n); });
}

int TapeMaker::add_pointwise(const PointwiseProblem& p, int step, std::vector<int> from) {
  const DType t = pointwise_dtype(p), type = compute_dtype(t);
  const PointwiseGroup group = info(p.op).group;
  int condition = -1;
  const bool uncast = values_[size_t(steps_[size_t(step)].operands[0])].uncast;
  if (group == PointwiseGroup::select && type != DType::int32 && !uncast) {
    condition = buffer();
    cast(DType::boolean, type, from[0], condition);
    from[0] = condition;
  }
  from.resize(3, from[0]);
  const bool stays_uncast = gives_bool(group) && is_condition_only(step, type);
  const bool casts = gives_bool(group) && type != DType::int32 && !stays_uncast;
  values_[size_t(steps_[size_t(step)].result)].uncast = stays_uncast;
  if (condition >= 0) release(condition);
  int y = casts ? buffer() : result_slot(step);
  call([f = pointwise_function(p.op, t), a = from[0], b = from[1], c = from[2], y](const Span& s) {
    f(s.slot[a], s.slot[b], s.slot[c], s.slot[y], s.n);
  });
  if (casts) {
    const int numbers = y;
    y = cast_slot(step);
    cast(type, DType::boolean, numbers, y);
    release(numbers);
  }
  round_result(p.out.dtype, step, y);
  return y;
}

int TapeMaker::add_activation(const ActivationProblem& p, const RegionNode& n, int step, const std::vector<int>& from) {
  const DType t = p.x.dtype;
  const int x = from[0], dy = from.back(), y = result_slot(step);
  if (each_) {
    call([f = activation_on_span(p), spans = element_spans(t), &n, x, dy, y, rounds = is_rounded(t),
          stores = target_ >= 0](const Span& s) {
      const double alpha = n.args<ActivationProblem>(s.args).alpha;
      if (!rounds) return f(s.slot[x], s.slot[dy], s.slot[y], s.n, alpha);
      alignas(64) char xs[kPointwiseSpan * 2], dys[kPointwiseSpan * 2];
      spans.write(s.slot[x], s.n, xs, false);
      if (dy != x) spans.write(s.slot[dy], s.n, dys, false);
      f(xs, dy != x ? dys : xs, stores ? s.slot[y] : xs, s.n, alpha);
      if (!stores) spans.read(xs, 1, s.n, s.slot[y]);
    });
    return y;
  }
  ActivationProblem floats = p;
  const int64_t size[] = {kPointwiseSpan};
  floats.x = floats.dy = floats.out = dense(compute_dtype(t), size, Layout::channels_first, "span");
  call([f = activation_on_span(floats), &n, x, dy, y](const Span& s) {
    f(s.slot[x], s.slot[dy], s.slot[y], s.n, n.args<ActivationProblem>(s.args).alpha);
  });
  return y;
}

int TapeMaker::add_transform(const TransformProblem& p, int step, const std::vector<int>& from) {
  const DType x = p.x.dtype, y = p.y.dtype;
  const int slot = cast_slot(step);
  if (!p.scaled) {
    cast(x, x == y ? compute_dtype(y) : y, from[0], slot);
    return slot;
  }
  // y = T(A(alpha) * A(x)), where elements of y have the dtype T and are computed in A.
  cast(x, compute_dtype(y), from[0], slot);
  call([times = pointwise_function(Pointwise::mul, y), factor = factors_.at(steps_[size_t(step)].node),
        slot](const Span& s) { times(s.slot[slot], s.slot[factor], s.slot[factor], s.slot[slot], s.n); });
  if (is_rounded(y) && (each_ || x != y)) round(y, slot);
  return slot;
}

int TapeMaker::add_dropout(const RegionNode& n, DType t, int step, const std::vector<int>& from) {
  const int x = from[0], y = result_slot(step);
  call([&n, type = compute_dtype(t), x, y](const Span& s) {
    RandomArgs a = n.args<RandomProblem>(s.args);
    a.x = s.slot[x];
    a.out = s.slot[y];
    dropout_on_span(a, type, s.first, s.n);
  });
  round_result(t, step, y);
  return y;
}

}  // namespace minidnn::cpu::graph
