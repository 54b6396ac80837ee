// SPDX-License-Identifier: Apache-2.0
// cpu.graph.elementwise: a region whose results depend on single elements, in spans of 512 elements. A tape has a call
// for each node: of the loops of pointwise, activation, random and transform. Values between nodes are in buffers that
// fit the first-level cache.
#include <algorithm>
#include <bit>
#include <map>

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/graph/element_region.h"
#include "cpp/simd/non_temporal.h"

namespace minidnn {
namespace cpu::graph {
namespace {

constexpr int kMostBuffers = 24;
constexpr int64_t kBufferBytes = kPointwiseSpan * 8;
// Tensors whose elements are computed as they are stored need no buffer. Their spans have slots after the buffers.
constexpr int kMostSlots = kMostBuffers + int(kMostElementLoads + kMostElementStores);

// The elements [first, first + n) of all values, while they are computed.
struct Span {
  const RegionArgs& args;
  void* const* slot;
  int64_t first, n;
};
using Call = std::function<void(const Span&)>;

struct Tape {
  // A tensor whose elements are read or written in place.
  struct InPlace {
    int value;
    int64_t bytes;  // of an element
  };
  std::vector<Call> constants;  // fill buffers once on each thread, with n = kPointwiseSpan
  std::vector<Call> calls;
  std::vector<InPlace> in_place;  // tensor i has slot kMostBuffers + i
  bool non_temporal = false;
};

bool is_rounded(DType t) { return t != compute_dtype(t) && t != DType::boolean; }
bool is_short_float(DType t) { return t == DType::float16 || t == DType::bfloat16; }
bool is_number(const PointwiseAccess& x) { return x.kind == Access::periodic && x.length == 1; }

// Makes the tape of a region. Each value has a slot from the call that computes it to its last use.
class TapeMaker {
 public:
  TapeMaker(const Region& r, const ElementRegion& e, bool rounding_each, Tape& to)
      : r_(r), e_(e), each_(rounding_each), tape_(to), steps_(e.steps.size()), loads_(e.loads.size()) {}

  // Returns "", or why the engine does not support the region.
  std::string make() {
    for (size_t i = 0; i < e_.steps.size(); ++i)
      for (const ElementSource& s : e_.steps[i].sources)
        if (s.kind == ElementSource::Kind::step) steps_[size_t(s.index)].last = int(i);
        else if (s.kind == ElementSource::Kind::load) loads_[size_t(s.index)].last = int(i);
    add_constants();
    for (size_t i = 0; i < e_.steps.size(); ++i) add_step(int(i));
    if (buffers_ > kMostBuffers)
      return cat("holds ", buffers_, " spans of values at the same time; supported are at most ", kMostBuffers);
    return "";
  }

 private:
  // A value of a span. `last` is the last step that reads it.
  struct Value {
    int slot = -1, last = -1;
    bool constant = false;
    bool uncast = false;  // the result of a test, 0 or 1 in the type of its operands
  };

  int buffer() {
    if (free_.empty()) return buffers_++;
    const auto lowest = std::ranges::min_element(free_);
    const int slot = *lowest;
    free_.erase(lowest);
    return slot;
  }
  void release(int slot) {
    if (slot < kMostBuffers) free_.push_back(slot);
  }
  int in_place(int value, DType t) {
    tape_.in_place.push_back({value, int64_t(itemsize(t))});
    return kMostBuffers + int(tape_.in_place.size()) - 1;
  }
  void call(Call c) { tape_.calls.push_back(std::move(c)); }

  // Numbers of operators, tensors of one element, and factors of scalings have buffers of their own.
  void add_constants() {
    for (size_t i = 0; i < e_.loads.size(); ++i)
      if (const ElementOperand& o = e_.loads[i]; is_number(o.access)) {
        loads_[i].slot = buffer();
        loads_[i].constant = true;
        tape_.constants.push_back([this_region = &r_, value = o.value, read = element_spans(o.desc.dtype).read,
                                   to = loads_[i].slot](const Span& s) {
          read(this_region->address(value, s.args), 0, kPointwiseSpan, s.slot[to]);
        });
      }
    for (size_t i = 0; i < e_.steps.size(); ++i) {
      for (const ElementSource& s : e_.steps[i].sources)
        if (s.kind == ElementSource::Kind::number && !numbers_.contains(s.index))
          numbers_[s.index] = add_number(s.dtype, [word = r_.values[size_t(s.index)].number](const RegionArgs& a) {
            return std::bit_cast<double>(a.words[word]);
          });
      const RegionNode& n = r_.nodes[i];
      if (const auto* p = n.as<TransformProblem>(); p && p->scaled)
        factors_[int(i)] = add_number(compute_dtype(p->y.dtype),
                                      [&n](const RegionArgs& a) { return n.args<TransformProblem>(a).alpha; });
    }
  }
  template <class F> int add_number(DType type, F number) {
    const int slot = buffer();
    tape_.constants.push_back([number, slot, read = element_spans(DType::float64).read,
                               cast = cast_on_span(DType::float64, type)](const Span& s) {
      alignas(64) double numbers[kPointwiseSpan];
      const double v = number(s.args);
      read(&v, 0, kPointwiseSpan, numbers);
      cast(numbers, s.slot[slot], kPointwiseSpan);
    });
    return slot;
  }

  int slot_of(const ElementSource& s) {
    if (s.kind == ElementSource::Kind::step) return steps_[size_t(s.index)].slot;
    if (s.kind == ElementSource::Kind::number) return numbers_.at(s.index);
    Value& v = loads_[size_t(s.index)];
    if (v.slot >= 0) return v.slot;
    const ElementOperand& o = e_.loads[size_t(s.index)];
    const DType t = o.desc.dtype;
    if (o.access.kind == Access::dense && t == compute_dtype(t)) return v.slot = in_place(o.value, t);
    v.slot = buffer();
    call([r = &r_, w = e_.indexing, x = o.access, t, value = o.value, to = v.slot](const Span& s) {
      load_span({w, x, t}, r->address(value, s.args), s.first, s.n, s.slot[to]);
    });
    return v.slot;
  }
  // Releases the operands that no step after this one reads.
  void release_operands(int step) {
    for (auto* values : {&steps_, &loads_})
      for (Value& v : *values)
        if (v.last == step && v.slot >= 0 && !v.constant) release(v.slot);
  }

  void add_step(int i) {
    const ElementStep& step = e_.steps[size_t(i)];
    const RegionNode& n = r_.nodes[size_t(i)];
    std::vector<int> from;
    for (const ElementSource& s : step.sources) from.push_back(slot_of(s));
    const ElementOperand* store = step.store >= 0 ? &e_.stores[size_t(step.store)] : nullptr;
    const DType t = step.dtype;
    const bool streams = store && store->access.kind == Access::dense && t != DType::boolean &&
                         non_temporal(double(e_.indexing.n * int64_t(itemsize(t))));
    const bool stores_rounded = each_ && n.as<ActivationProblem>() && steps_[size_t(i)].last < 0;
    const bool direct = store && store->access.kind == Access::dense && !streams;
    target_ = direct && (t == compute_dtype(t) || stores_rounded) ? in_place(store->value, t) : -1;
    int slot;
    if (const auto* p = n.as<PointwiseProblem>()) slot = add_pointwise(*p, i, from);
    else if (const auto* a = n.as<ActivationProblem>()) slot = add_activation(*a, n, i, from);
    else if (const auto* c = n.as<TransformProblem>()) slot = add_transform(*c, i, from);
    else slot = add_dropout(n, t, i, from);
    if (store && slot != target_)
      call([r = &r_, w = e_.indexing, o = *store, t, slot, streams](const Span& s) {
        store_span({w, o.access, t}, t, s.slot[slot], s.first, s.n, r->address(o.value, s.args), streams);
      });
    tape_.non_temporal = tape_.non_temporal || streams;
    steps_[size_t(i)].slot = slot;
    if (steps_[size_t(i)].last < 0) release(slot);
  }
  // The slot for the result of a step. A loop may write it over an operand that is not used again.
  int result_slot(int step) {
    release_operands(step);
    return target_ >= 0 ? target_ : buffer();
  }
  // The slot for the result of a cast, whose elements may be wider than its operand.
  int cast_slot(int step) {
    const int slot = target_ >= 0 ? target_ : buffer();
    release_operands(step);
    return slot;
  }

  // Rounds a span to its dtype.
  void round(DType t, int slot) {
    call([spans = element_spans(t), slot](const Span& s) {
      alignas(64) char rounded[kPointwiseSpan * 2];
      spans.write(s.slot[slot], s.n, rounded, false);
      spans.read(rounded, 1, s.n, s.slot[slot]);
    });
  }
  // Rounds the result of a step, unless all that use it round it: stores and, if each value is rounded, activations.
  // Integers always wrap around. A value of a floating dtype is rounded if each is.
  void round_result(DType t, int step, int slot) {
    if (!is_rounded(t) || (is_floating(t) && !each_)) return;
    if (!all_uses(step, [](const RegionNode& n, size_t) { return n.as<ActivationProblem>() != nullptr; }))
      round(t, slot);
  }
  // Whether f(node, k) holds for each use of a step as operand k of a node.
  template <class F> bool all_uses(int step, F f) const {
    for (size_t i = size_t(step); i < e_.steps.size(); ++i)
      for (size_t k = 0; k < e_.steps[i].sources.size(); ++k)
        if (const ElementSource& s = e_.steps[i].sources[k]; s.kind == ElementSource::Kind::step && s.index == step)
          if (!f(r_.nodes[i], k)) return false;
    return true;
  }
  // Whether the result of a test is only the condition of `where` for elements that are computed in this type.
  bool is_condition_only(int step, DType type) const {
    return e_.steps[size_t(step)].store < 0 && all_uses(
                                                   step,
                                                   [&](const RegionNode& n, size_t k) {
                                                     const auto* p = n.as<PointwiseProblem>();
                                                     return p && k == 0 &&
                                                            info(p->op).group == PointwiseGroup::select &&
                                                            compute_dtype(pointwise_dtype(*p)) == type;
                                                   });
  }
  void cast(DType from, DType to, int x, int y) {
    call([cast = cast_on_span(compute_dtype(from), to), x, y](const Span& s) { cast(s.slot[x], s.slot[y], s.n); });
  }

  int add_pointwise(const PointwiseProblem& p, int step, std::vector<int> from) {
    const DType t = pointwise_dtype(p), type = compute_dtype(t);
    const PointwiseGroup group = info(p.op).group;
    int condition = -1;
    const ElementSource& first = e_.steps[size_t(step)].sources[0];
    const bool uncast = first.kind == ElementSource::Kind::step && steps_[size_t(first.index)].uncast;
    if (group == PointwiseGroup::select && type != DType::int32 && !uncast) {
      condition = buffer();
      cast(DType::boolean, type, from[0], condition);
      from[0] = condition;
    }
    from.resize(3, from[0]);
    steps_[size_t(step)].uncast = gives_bool(group) && is_condition_only(step, type);
    const bool casts = gives_bool(group) && type != DType::int32 && !steps_[size_t(step)].uncast;
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

  int add_activation(const ActivationProblem& p, const RegionNode& n, int step, const std::vector<int>& from) {
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

  int add_transform(const TransformProblem& p, int step, const std::vector<int>& from) {
    const DType x = p.x.dtype, y = p.y.dtype;
    const int slot = cast_slot(step);
    if (!p.scaled) {
      cast(x, x == y ? compute_dtype(y) : y, from[0], slot);
      return slot;
    }
    // y = T(A(alpha) * A(x)), where elements of y have the dtype T and are computed in A.
    cast(x, compute_dtype(y), from[0], slot);
    call([times = pointwise_function(Pointwise::mul, y), factor = factors_.at(step), slot](const Span& s) {
      times(s.slot[slot], s.slot[factor], s.slot[factor], s.slot[slot], s.n);
    });
    if (is_rounded(y) && (each_ || x != y)) round(y, slot);
    return slot;
  }

  int add_dropout(const RegionNode& n, DType t, int step, const std::vector<int>& from) {
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

  const Region& r_;
  const ElementRegion& e_;
  const bool each_;
  Tape& tape_;
  std::vector<Value> steps_, loads_;
  std::map<int, int> numbers_, factors_;  // slots of numbers, by value and by step
  std::vector<int> free_;
  int buffers_ = 0, target_ = -1;  // target_: the slot in which the result of the step is stored, or -1
};

// Whether neighbours in the result of a copy are not neighbours in its operand. cpu.transform.tiled transposes tiles of
// such tensors, which is faster than loads of single elements.
bool is_transposed(const TransformProblem& p) {
  for (int i = 0; i < p.y.rank; ++i)
    if (p.y.shape[i] > 1 && p.y.stride[i] == 1) return p.x.stride[i] > 1;
  return false;
}

// The time of a node for each element on one thread, in nanoseconds, with operands in the first-level cache (measured
// on 2 Xeon cores with AVX-512, 2026-11). Functions of maths take 0.2 to 7.
double node_ns(const RegionNode& n) {
  if (const auto* p = n.as<PointwiseProblem>()) {
    const PointwiseGroup group = info(p->op).group;
    if (group == PointwiseGroup::maths1 || group == PointwiseGroup::maths2) return 1;
    return gives_bool(group) || group == PointwiseGroup::select ? 0.1 : 0.06;
  }
  if (const auto* p = n.as<ActivationProblem>())
    return p->mode <= Activation::leaky_relu ? 0.06 : p->x.dtype == DType::float64 ? 4 : 0.4;
  if (const auto* p = n.as<TransformProblem>()) return is_transposed(*p) ? 3 : 0.06;
  return n.ports.front().desc.dtype == DType::float64 ? 3 : 0.4;
}
double nodes_ns(const Region& r) {
  double ns = 0;
  for (const RegionNode& n : r.nodes) ns += node_ns(n);
  return ns;
}
double elements_of(const Region& r) { return double(r.nodes.front().ports.front().desc.numel()); }

}  // namespace

struct Elementwise final : Engine<RegionProblem> {
  std::string name() const override { return "cpu.graph.elementwise"; }
  std::string why_not(const RegionProblem& p, const Device&) const override {
    ElementRegion e;
    const Region& r = region_of(p);
    if (std::string why = element_region(r, e); !why.empty()) return why;
    Tape tape;
    return TapeMaker(r, e, p.rounding_each, tape).make();
  }
  double estimate_us(const RegionProblem& p, const Device& d) const override {
    const Region& r = region_of(p);
    return roofline_us(0, r.bytes_together(), d, 1.5) + elements_of(r) * nodes_ns(r) / d.sm_count * 1e-3;
  }
  std::unique_ptr<Plan<RegionProblem>> build(const RegionProblem& p, const Device&, const Config&) const override {
    ElementRegion e;
    const Region& r = region_of(p);
    element_region(r, e);
    Tape tape;
    TapeMaker(r, e, p.rounding_each, tape).make();
    // A thread gets at least 2 us of arithmetic.
    const int64_t n = e.indexing.n;
    const int64_t grain = cpu::work_size(int64_t(2000 / (nodes_ns(r) * double(kPointwiseSpan))) + 1);
    return make_plan<RegionProblem>([&r, n, grain, tape = std::move(tape)](const RegionArgs& args, void*, Stream) {
      cpu::parallel_for(ceil_div(n, kPointwiseSpan), grain, [&](int64_t begin, int64_t end) {
        alignas(64) char buffers[kMostBuffers][kBufferBytes];
        void* slots[kMostSlots];
        for (int i = 0; i < kMostBuffers; ++i) slots[i] = buffers[i];
        for (const Call& call : tape.constants) call({args, slots, 0, kPointwiseSpan});
        for (int64_t span = begin; span < end; ++span) {
          const int64_t first = span * kPointwiseSpan;
          for (size_t i = 0; i < tape.in_place.size(); ++i)
            slots[size_t(kMostBuffers) + i] =
                static_cast<char*>(r.address(tape.in_place[i].value, args)) + first * tape.in_place[i].bytes;
          for (const Call& call : tape.calls) call({args, slots, first, min_of(kPointwiseSpan, n - first)});
        }
        if (tape.non_temporal) order_stores();
      });
    });
  }
};

}  // namespace cpu::graph

template const Engine<RegionProblem>& engine_object<RegionProblem, cpu::graph::Elementwise>();

}  // namespace minidnn
