// SPDX-License-Identifier: Apache-2.0
// cpu.graph.elementwise: a region whose results depend on single elements, in spans of 512 elements. A tape has a call
// for each node: of the loops of pointwise, activation, random and transform. Values between nodes are in buffers that
// fit the first-level cache.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/graph/cpu/tape.h"
#include "cpp/simd/non_temporal.h"

namespace minidnn {
namespace cpu::graph {
namespace {

// Tensors whose elements are computed as they are stored need no buffer. Their spans have slots after the buffers.
constexpr int kMostSlots = kMostBuffers + int(kMostElementLoads + kMostElementStores);

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

// Makes the tape of a region. The result of step i is value i, tensors that are loaded follow, then numbers.
class ElementTape : TapeMaker {
 public:
  ElementTape(const Region& r, const ElementRegion& e, bool rounding_each, Tape& to)
      : TapeMaker(r, rounding_each), e_(e), tape_(to) {}

  // Returns "", or why the engine does not support the region.
  std::string make() {
    add_values();
    calls_ = &tape_.calls;
    for (size_t i = 0; i < e_.steps.size(); ++i) add_step(int(i));
    tape_.constants = std::move(constants_);
    return why_no_buffers();
  }

 private:
  int load_value(int load) const { return int(e_.steps.size()) + load; }
  int in_place(int value, DType t) {
    tape_.in_place.push_back({value, int64_t(itemsize(t))});
    return kMostBuffers + int(tape_.in_place.size()) - 1;
  }

  // Numbers of operators, tensors of one element, and factors of scalings have buffers of their own.
  void add_values() {
    values_.resize(e_.steps.size() + e_.loads.size());
    for (size_t i = 0; i < e_.loads.size(); ++i)
      if (const ElementOperand& o = e_.loads[i]; is_number(o.access)) {
        const int slot = constant_buffer();
        values_[size_t(load_value(int(i)))] = {.slot = slot, .constant = true};
        constants_.push_back([r = &r_, value = o.value, read = element_spans(o.desc.dtype).read, slot](const Span& s) {
          read(r->address(value, s.args), 0, kPointwiseSpan, s.slot[slot]);
        });
      }
    for (size_t i = 0; i < e_.steps.size(); ++i) {
      const ElementStep& from = e_.steps[i];
      TapeStep step{&r_.nodes[i], {}, int(i), from.dtype, from.store >= 0};
      for (const ElementSource& s : from.sources) {
        int value = s.index;
        if (s.kind == ElementSource::Kind::load) value = load_value(s.index);
        else if (s.kind == ElementSource::Kind::number) value = add_number_of_value(s.index, s.dtype);
        values_[size_t(value)].last = int(i);
        step.operands.push_back(value);
      }
      add_factor(r_.nodes[i]);
      steps_.push_back(std::move(step));
    }
  }

  // Loads a tensor, unless its elements are read in place.
  void load(int index) {
    TapeValue& v = values_[size_t(load_value(index))];
    if (v.slot >= 0) return;
    const ElementOperand& o = e_.loads[size_t(index)];
    const DType t = o.desc.dtype;
    if (o.access.kind == Access::dense && t == compute_dtype(t)) {
      v.slot = in_place(o.value, t);
      return;
    }
    v.slot = buffer();
    call([r = &r_, w = e_.indexing, x = o.access, t, value = o.value, to = v.slot](const Span& s) {
      load_span({w, x, t}, r->address(value, s.args), s.first, s.n, s.slot[to]);
    });
  }

  void add_step(int i) {
    const ElementStep& step = e_.steps[size_t(i)];
    const RegionNode& n = r_.nodes[size_t(i)];
    for (const ElementSource& s : step.sources)
      if (s.kind == ElementSource::Kind::load) load(s.index);
    TapeValue& result = values_[size_t(i)];
    const ElementOperand* store = step.store >= 0 ? &e_.stores[size_t(step.store)] : nullptr;
    const DType t = step.dtype;
    const bool streams = store && store->access.kind == Access::dense && t != DType::boolean &&
                         non_temporal(double(e_.indexing.n * int64_t(itemsize(t))));
    const bool stores_rounded = each_ && n.as<ActivationProblem>() && result.last < 0;
    const bool direct = store && store->access.kind == Access::dense && !streams;
    const int target = direct && (t == compute_dtype(t) || stores_rounded) ? in_place(store->value, t) : -1;
    const int slot = add_function(i, target);
    if (store && slot != target)
      call([r = &r_, w = e_.indexing, o = *store, t, slot, streams](const Span& s) {
        store_span({w, o.access, t}, t, s.slot[slot], s.first, s.n, r->address(o.value, s.args), streams);
      });
    tape_.non_temporal = tape_.non_temporal || streams;
    result.slot = slot;
    if (result.last < 0) release(slot);
  }

  const ElementRegion& e_;
  Tape& tape_;
};

double nodes_ns(const Region& r) {
  double ns = 0;
  for (const RegionNode& n : r.nodes) ns += function_ns(n);
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
    return ElementTape(r, e, p.rounding_each, tape).make();
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
    ElementTape(r, e, p.rounding_each, tape).make();
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
