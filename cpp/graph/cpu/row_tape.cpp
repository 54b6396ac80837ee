// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/cpu/row_tape.h"

#include <algorithm>
#include <cmath>

#include "cpp/graph/cpu/row_statistics.h"
#include "cpp/simd/non_temporal.h"

namespace minidnn::cpu::graph {
namespace {

// The calls of a node: its function, or the parts of a statistic. Statistics and their elements are computed in
// different phases.
enum class Part {
  function,
  argument,   // the elements of softmax before the exponentials: scaled and masked
  statistic,  // numbers of the rows
  elements,   // the elements that are computed from these numbers
  store,      // a result that overwrites an operand is stored after all loads
};

class RowTapeMaker : TapeMaker {
 public:
  RowTapeMaker(const Region& r, const RowRegion& e, RowTape& to)
      : TapeMaker(r, false), e_(e), tape_(to), last_phase_(int(e.statistics.size())) {}

  std::string make() {
    tape_.cols = e_.cols;
    tape_.block_rows = std::max<int64_t>(1, std::min(e_.rows, kPointwiseSpan / e_.cols));
    tape_.statistics.resize(e_.statistics.size());
    short_rows_ = e_.cols <= kLongestShortRow;
    add_values();
    schedule();
    for (size_t i = 0; i < e_.steps.size(); ++i)
      if (!e_.steps[i].wide && e_.steps[i].statistic < 0) add_row_function(int(i));
    for (int phase = 0; phase <= last_phase_; ++phase) add_parts(phase);
    for (size_t i = 0; i < e_.steps.size(); ++i)
      if (e_.steps[i].store >= 0 && is_late(int(i))) add_part(Part::store, int(i), last_phase_, {int(i)}, -1);
    find_uses();
    for (size_t i = first_part_; i < steps_.size() && buffers_ <= kMostBuffers; ++i) emit(int(i));
    tape_.constants = std::move(constants_);
    tape_.buffers = buffers_;
    return why_no_buffers();
  }

 private:
  // ---- values: the wide result of step i is value i, tensors that are loaded follow, then all others

  int load_value(int load) const { return int(e_.steps.size()) + load; }
  int new_value(TapeValue v) {
    values_.push_back(v);
    return int(values_.size()) - 1;
  }
  int new_slot(RowSlot s) {
    tape_.slots.push_back(s);
    return kMostBuffers + int(tape_.slots.size()) - 1;
  }
  static int64_t compute_bytes(DType t) { return int64_t(itemsize(compute_dtype(t))); }

  // The step from the element of a row to that of the next row, in a tensor with one element for each row. Returns 0 if
  // the step is not the same for all rows.
  int64_t row_step(const PointwiseAccess& x) const {
    return x.kind == Access::periodic && x.inner == e_.cols && x.length == e_.rows ? x.stride : 0;
  }

  void add_values() {
    values_.resize(e_.steps.size() + e_.loads.size());
    for (int k = 0; k < e_.row_numbers; ++k) {
      const int slot = new_slot({RowSlot::Kind::row, sizeof(float)});
      row_numbers_.push_back({new_value({.slot = slot, .constant = true}), DType::float32});
    }
    for (const ElementOperand& o : e_.row_loads) {
      const DType t = o.desc.dtype;
      const int slot = new_slot({RowSlot::Kind::row, compute_bytes(t)});
      row_loads_.push_back({new_value({.slot = slot, .constant = true}), t});
      const int64_t step = row_step(o.access);
      tape_.rows[0].push_back([r = &r_, o, slot, step, cols = e_.cols, read = element_spans(t).read,
                               bytes = int64_t(itemsize(t)), to_bytes = compute_bytes(t),
                               w = e_.indexing](const Span& s) {
        const char* from = static_cast<const char*>(r->address(o.value, s.args));
        if (step) return read(from + s.first * step * bytes, step, s.n, s.slot[slot]);
        for (int64_t i = 0; i < s.n; ++i)
          read(from + w.offset(o.access, (s.first + i) * cols) * bytes, 1, 1,
               static_cast<char*>(s.slot[slot]) + i * to_bytes);
      });
    }
    phase_of_number_.resize(size_t(e_.row_numbers), 0);
    for (size_t i = 0; i < e_.steps.size(); ++i) {
      const RowStep& s = e_.steps[i];
      const int end = i + 1 < e_.steps.size() ? e_.steps[i + 1].first_number : e_.row_numbers;
      for (int k = s.first_number; k < end; ++k) phase_of_number_[size_t(k)] = s.phase;
      add_factor(r_.nodes[i]);
    }
  }

  // A number of each row, and its copies for all elements of the row.
  struct RowValue {
    int value;
    DType dtype;
    int wide = -1;
  };
  // Returns the value that has a number of the row for each of its elements. It is filled once for each block.
  int wide(RowValue& v, int phase) {
    if (v.wide >= 0) return v.wide;
    const int slot = constant_buffer();
    v.wide = new_value({.slot = slot, .constant = true});
    const DType t = compute_dtype(v.dtype);
    tape_.rows[phase].push_back([from = values_[size_t(v.value)].slot, slot, cols = e_.cols,
                                 read = element_spans(t).read, bytes = int64_t(itemsize(t))](const Span& s) {
      for (int64_t i = 0; i < s.n; ++i)
        read(static_cast<const char*>(s.slot[from]) + i * bytes, 0, std::min(cols, kPointwiseSpan),
             static_cast<char*>(s.slot[slot]) + i * cols * bytes);
    });
    return v.wide;
  }
  int wide_number(int k) { return wide(row_numbers_[size_t(k)], phase_of_number_[size_t(k)]); }
  // The value that a step reads, for each element.
  int wide_value(const RowSource& s) {
    switch (s.kind) {
      case RowSource::Kind::step:
        return s.index;
      case RowSource::Kind::load:
        return load_value(s.index);
      case RowSource::Kind::number:
        return add_number_of_value(s.index, s.dtype);
      case RowSource::Kind::row_number:
        return wide_number(s.index);
      default:
        return wide(row_loads_[size_t(s.index)], 0);
    }
  }

  // ---- phases

  // Each step is computed in the phase in which its result is needed first, so that few values are kept for the row.
  void schedule() {
    phase_.assign(e_.steps.size(), last_phase_);
    for (size_t i = e_.steps.size(); i-- > 0;) {
      const RowStep& step = e_.steps[i];
      for (size_t k = 0; k < step.sources.size(); ++k) {
        if (step.sources[k].kind != RowSource::Kind::step) continue;
        const bool by_statistic = step.statistic >= 0 && (k == 0 || !r_.nodes[i].as<LayerNormProblem>());
        int& phase = phase_[size_t(step.sources[k].index)];
        phase = std::min(phase, by_statistic ? step.statistic : phase_[i]);
      }
    }
  }
  // Whether a result overwrites an operand that a later phase may load.
  bool is_late(int step) const {
    const int value = e_.stores[size_t(e_.steps[size_t(step)].store)].value;
    return r_.values[size_t(value)].input && phase_[size_t(step)] < last_phase_;
  }

  void add_part(Part part, int node, int phase, std::vector<int> operands, int result) {
    steps_.push_back({&r_.nodes[size_t(node)], std::move(operands), result, e_.steps[size_t(node)].dtype, false});
    parts_.push_back({part, node, phase});
  }
  void add_parts(int phase) {
    for (size_t i = 0; i < e_.steps.size(); ++i) {
      const RowStep& step = e_.steps[i];
      const auto* softmax = r_.nodes[i].as<SoftmaxProblem>();
      if (softmax && step.statistic == phase && softmax->masked != SoftmaxMask::none) {
        argument_[int(i)] = new_value({});
        add_part(Part::argument, int(i), phase, {wide_value(step.sources[0]), wide_value(step.sources[1])},
                 argument_[int(i)]);
      }
      if (!step.wide || phase_[i] != phase) continue;
      std::vector<int> operands;
      if (exponentials_.contains(int(i))) operands = {exponentials_[int(i)]};
      else
        for (const RowSource& s : step.sources) operands.push_back(wide_value(s));
      add_part(step.statistic < 0 ? Part::function : Part::elements, int(i), phase, std::move(operands), int(i));
    }
    if (phase == last_phase_) return;
    const int node = e_.statistics[size_t(phase)];
    const auto* softmax = r_.nodes[size_t(node)].as<SoftmaxProblem>();
    const RowStep& step = e_.steps[size_t(node)];
    std::vector<int> operands{argument_.contains(node) ? argument_[node] : wide_value(step.sources[0])};
    int result = -1;
    const bool backward = softmax && softmax->direction == SoftmaxDirection::backward;
    if (backward) operands.push_back(wide_value(step.sources[1]));
    if (softmax && (short_rows_ || !(backward || softmax->log))) exponentials_[node] = result = new_value({});
    else if (softmax && !backward) exponentials_[node] = operands[0];
    add_part(Part::statistic, node, phase, std::move(operands), result);
  }

  // Finds the last use of each value, and which values are kept for a block.
  void find_uses() {
    std::vector<int> first(values_.size(), -1);
    kept_.assign(values_.size(), false);
    for (size_t i = first_part_; i < steps_.size(); ++i) {
      const PartOfNode& part = parts_[i - first_part_];
      if (const int result = steps_[i].result; result >= 0) {
        first[size_t(result)] = part.phase;
        if (part.part == Part::statistic) kept_[size_t(result)] = true;
      }
      for (int value : steps_[i].operands) {
        int& phase = first[size_t(value)];
        if (phase < 0) phase = part.phase;
        values_[size_t(value)].last = int(i);
        if (part.phase > phase || part.part == Part::statistic) kept_[size_t(value)] = true;
      }
    }
    for (size_t i = first_part_; i < steps_.size(); ++i)
      if (const PartOfNode& part = parts_[i - first_part_]; part.part == Part::function)
        steps_[i].stored = e_.steps[size_t(part.node)].store >= 0 || kept_[size_t(steps_[i].result)];
  }

  // ---- calls

  void release(int slot) override {
    if (is(slot, RowSlot::Kind::block)) free_blocks_[tape_.slots[size_t(slot - kMostBuffers)].bytes].push_back(slot);
    else TapeMaker::release(slot);
  }
  int block_slot(DType t) {
    std::vector<int>& free = free_blocks_[compute_bytes(t)];
    if (free.empty()) return new_slot({RowSlot::Kind::block, compute_bytes(t)});
    const int slot = free.back();
    free.pop_back();
    return slot;
  }

  void load(int index) {
    const auto at = size_t(load_value(index));
    if (values_[at].slot >= 0) return;
    const ElementOperand& o = e_.loads[size_t(index)];
    const DType t = o.desc.dtype;
    const PointwiseAccess& x = o.access;
    const bool by_column = x.kind == Access::periodic && x.inner == 1 && x.length == e_.cols;
    if (is_number(x) || (by_column && tape_.block() <= kPointwiseSpan)) {  // has the same elements in each block
      const int slot = constant_buffer();
      constants_.push_back([r = &r_, w = e_.indexing, x, t, value = o.value, slot, n = tape_.block()](const Span& s) {
        load_span({w, x, t}, r->address(value, s.args), 0, std::min(n, kPointwiseSpan), s.slot[slot]);
      });
      values_[at].slot = slot;
      values_[at].constant = true;
      return;
    }
    const bool in_place = t == compute_dtype(t);
    if (in_place && x.kind == Access::dense)
      values_[at].slot = new_slot({RowSlot::Kind::tensor, int64_t(itemsize(t)), o.value});
    else if (in_place && by_column && x.stride == 1)
      values_[at].slot = new_slot({RowSlot::Kind::column, int64_t(itemsize(t)), o.value});
    else {
      const int slot = kept_[at] ? block_slot(t) : buffer();
      call([r = &r_, w = e_.indexing, x, t, value = o.value, slot](const Span& s) {
        load_span({w, x, t}, r->address(value, s.args), s.first, s.n, s.slot[slot]);
      });
      values_[at].slot = slot;
    }
  }

  void emit(int step) {
    const PartOfNode& part = parts_[size_t(step) - first_part_];
    calls_ = &tape_.phases[part.phase];
    for (int value : steps_[size_t(step)].operands)
      if (value >= load_value(0) && value < load_value(int(e_.loads.size()))) load(value - load_value(0));
    if (part.part == Part::statistic) return add_statistic(step, part.node);
    if (part.part == Part::store) {
      add_store(part.node, slot(part.node), false);
      return release_operands(step);
    }
    const int result = steps_[size_t(step)].result;
    const DType t = part.part == Part::argument ? DType::float32 : steps_[size_t(step)].dtype;
    const int store = part.part == Part::argument ? -1 : e_.steps[size_t(part.node)].store;
    const bool stores = store >= 0 && !is_late(part.node);
    const bool streams = stores && t != DType::boolean && non_temporal(double(e_.indexing.n) * double(itemsize(t)));
    int target = -1;
    if (stores && !streams && t == compute_dtype(t))
      target = new_slot({RowSlot::Kind::tensor, int64_t(itemsize(t)), e_.stores[size_t(store)].value});
    else if (kept_[size_t(result)]) target = block_slot(t);
    target_ = target;
    int slot = -1;
    if (part.part == Part::function) slot = add_function(step, target);
    else if (part.part == Part::argument) slot = add_argument(step, *r_.nodes[size_t(part.node)].as<SoftmaxProblem>());
    else slot = add_elements(step, part.node);
    values_[size_t(result)].slot = slot;
    if (stores && !is(target, RowSlot::Kind::tensor)) add_store(part.node, slot, streams);
    if (values_[size_t(result)].last < 0) release(slot);
  }
  bool is(int slot, RowSlot::Kind kind) const {
    const auto i = size_t(slot - kMostBuffers);
    return slot >= kMostBuffers && i < tape_.slots.size() && tape_.slots[i].kind == kind;
  }

  void add_store(int node, int slot, bool streams) {
    const ElementOperand& o = e_.stores[size_t(e_.steps[size_t(node)].store)];
    call([r = &r_, w = e_.indexing, o, t = o.desc.dtype, slot, streams](const Span& s) {
      store_span({w, o.access, t}, t, s.slot[slot], s.first, s.n, r->address(o.value, s.args), streams);
    });
    tape_.non_temporal = tape_.non_temporal || streams;
  }

  void add_row_function(int node) {
    const RowStep& step = e_.steps[size_t(node)];
    TapeStep s{&r_.nodes[size_t(node)], {}, row_numbers_[size_t(step.first_number)].value, step.dtype, true};
    for (const RowSource& from : step.sources)
      s.operands.push_back(from.kind == RowSource::Kind::row_number ? row_numbers_[size_t(from.index)].value
                           : from.kind == RowSource::Kind::row_load ? row_loads_[size_t(from.index)].value
                                                                    : add_number_of_value(from.index, from.dtype));
    steps_.push_back(std::move(s));
    first_part_ = steps_.size();
    calls_ = &tape_.rows[step.phase];
    add_function(int(steps_.size()) - 1, slot(row_numbers_[size_t(step.first_number)].value));
    store_rows(step);
  }
  // Stores the results of a step that have one number for each row.
  void store_rows(const RowStep& step) {
    for (const RowResult& result : step.results) {
      if (result.store < 0) continue;
      const ElementOperand& o = e_.row_stores[size_t(result.store)];
      const DType t = o.desc.dtype;
      const bool contiguous = row_step(o.access) == 1;
      tape_.rows[step.phase].push_back([r = &r_, w = e_.indexing, o, contiguous, cols = e_.cols,
                                        write = element_spans(t).write, bytes = int64_t(itemsize(t)),
                                        from = slot(row_numbers_[size_t(result.row_number)].value)](const Span& s) {
        char* const to = static_cast<char*>(r->address(o.value, s.args));
        if (contiguous) return write(floats(s, from), s.n, to + s.first * bytes, false);
        for (int64_t i = 0; i < s.n; ++i)
          write(floats(s, from) + i, 1, to + w.offset(o.access, (s.first + i) * cols) * bytes, false);
      });
    }
  }

  // ---- statistics

  int number(int k) const { return slot(row_numbers_[size_t(k)].value); }

  void add_statistic(int step, int node) {
    const RegionNode& n = r_.nodes[size_t(node)];
    const RowStep& rows = e_.steps[size_t(node)];
    Call& to = tape_.statistics[size_t(rows.statistic)];
    const int x = row_of(steps_[size_t(step)].operands[0]);
    const int64_t cols = e_.cols;
    if (n.as<LayerNormProblem>()) {
      const NormSlots slots = norm_slots(node);
      int mean_result = -1;
      for (const RowResult& result : rows.results)
        if (const int k = number(result.row_number); k != slots.inv_std) mean_result = k;
      to = norm_statistics(n, cols, x, slots, mean_result);
    } else if (const auto* p = n.as<SoftmaxProblem>()) {
      const bool backward = p->direction == SoftmaxDirection::backward;
      const int dy = backward ? row_of(steps_[size_t(step)].operands[1]) : x, first = rows.first_number;
      const int e = steps_[size_t(step)].result >= 0 ? slot_of_exponentials(step, x) : -1;
      if (short_rows_) to = short_softmax(n, cols, x, dy, e);
      else if (backward) to = softmax_gradient_statistics(n, cols, x, dy, number(first));
      else to = softmax_statistics(n, cols, x, e, number(first), number(first + 1));
    } else {
      to = reduced_rows(n, cols, x, number(rows.results[0].row_number));
    }
    release_operands(step);
    store_rows(rows);
  }
  // The slot for the exponentials or results of softmax. They may overwrite an operand that no later step reads.
  int slot_of_exponentials(int step, int x) {
    const TapeStep& s = steps_[size_t(step)];
    TapeValue& from = values_[size_t(s.operands[0])];
    const bool overwrites = from.last == step && from.slot == x && is(x, RowSlot::Kind::block);
    if (overwrites) from.last = -1;
    return values_[size_t(s.result)].slot = overwrites ? x : block_slot(DType::float32);
  }
  // The slot of a statistic's operand, which has all elements of the row.
  int row_of(int value) {
    const int from = slot(value);
    if (!values_[size_t(value)].constant || tape_.block() <= kPointwiseSpan) return from;
    const int to = block_slot(DType::float32);
    call([from, to](const Span& s) { std::copy_n(floats(s, from), s.n, floats(s, to)); });
    return to;
  }
  NormSlots norm_slots(int node) const {
    const int first = e_.steps[size_t(node)].first_number;
    if (r_.nodes[size_t(node)].as<LayerNormProblem>()->kind == RowNorm::rms) return {-1, -1, number(first)};
    return {number(first), number(first + 1), number(first + 2)};
  }

  // The elements of softmax before the exponentials.
  int add_argument(int step, const SoftmaxProblem& p) {
    const RegionNode& n = *steps_[size_t(step)].node;
    int x = slot(steps_[size_t(step)].operands[0]);
    const int mask = slot(steps_[size_t(step)].operands[1]);
    const int condition = p.masked == SoftmaxMask::keep ? buffer() : -1, y = result_slot(step);
    if (p.scaled) {
      pointwise(Pointwise::mul, x, scale_of(n), x, y);
      x = y;
    }
    if (p.masked == SoftmaxMask::add) {
      pointwise(Pointwise::add, x, mask, x, y);
    } else {
      cast(DType::boolean, DType::float32, mask, condition);
      const int nothing = slot(add_number(DType::float32, [](const RegionArgs&) { return -INFINITY; }));
      pointwise(Pointwise::where, condition, x, nothing, y);
      release(condition);
    }
    return y;
  }
  int scale_of(const RegionNode& n) {
    return slot(add_number(DType::float32, [&n](const RegionArgs& a) { return n.args<SoftmaxProblem>(a).scale; }));
  }
  void pointwise(Pointwise op, int a, int b, int c, int y) {
    call([f = pointwise_function(op, DType::float32), a, b, c, y](const Span& s) {
      f(s.slot[a], s.slot[b], s.slot[c], s.slot[y], s.n);
    });
  }

  int add_elements(int step, int node) {
    const RegionNode& n = r_.nodes[size_t(node)];
    const int first = e_.steps[size_t(node)].first_number;
    const std::vector<int> operands = steps_[size_t(step)].operands;
    const int x = slot(operands[0]);
    if (n.as<LayerNormProblem>()) return add_normalized(step, node);
    if (short_rows_) return take_over(step);
    const auto& p = *n.as<SoftmaxProblem>();
    if (p.direction == SoftmaxDirection::backward) {
      const int dy = slot(operands[1]), y = result_slot(step);
      call(softmax_gradient_elements(n, e_.cols, x, dy, number(first), y));
      return y;
    }
    int from = x;
    const int largest = p.log ? slot(wide_number(first)) : -1, last = slot(wide_number(first + 1));
    const int scale = p.log && p.scaled && p.masked == SoftmaxMask::none ? scale_of(n) : -1, y = result_slot(step);
    if (!p.log) {
      pointwise(Pointwise::mul, x, last, x, y);
      return y;
    }
    if (scale >= 0) {
      pointwise(Pointwise::mul, x, scale, x, y);
      from = y;
    }
    pointwise(Pointwise::sub, from, largest, from, y);
    pointwise(Pointwise::sub, y, last, y, y);
    return y;
  }
  // The result of a step is its operand.
  int take_over(int step) {
    TapeValue& from = values_[size_t(steps_[size_t(step)].operands[0])];
    const int x = from.slot;
    if (target_ < 0 && from.last == step) {
      from.last = -1;
      return x;
    }
    const int y = result_slot(step);
    call([x, y](const Span& s) { std::copy_n(floats(s, x), s.n, floats(s, y)); });
    return y;
  }
  int add_normalized(int step, int node) {
    const std::vector<int> operands = steps_[size_t(step)].operands;
    int scale = -1, bias = -1;
    size_t k = 0;
    for (const RegionPort& port : r_.nodes[size_t(node)].ports) {
      if (!port.reads) continue;
      if (port.name == "scale") scale = slot(operands[k]);
      if (port.name == "bias") bias = slot(operands[k]);
      ++k;
    }
    const int x = slot(operands[0]), y = result_slot(step);
    call(normalized_elements(e_.cols, x, norm_slots(node), scale, bias, y));
    return y;
  }

  const RowRegion& e_;
  RowTape& tape_;
  const int last_phase_;
  bool short_rows_ = false;  // softmax is computed as a whole, in the place of its statistic
  std::vector<RowValue> row_numbers_, row_loads_;
  std::vector<int> phase_of_number_;
  std::vector<int> phase_;  // the phase in which each step is computed
  std::map<int, int> argument_;
  std::map<int, int> exponentials_;  // values of softmax, by node
  struct PartOfNode {
    Part part;
    int node, phase;
  };
  std::vector<PartOfNode> parts_;  // of steps_, without the functions of numbers of rows, which are first
  size_t first_part_ = 0;
  std::vector<bool> kept_;  // for each value, whether it is kept for a block
  std::map<int64_t, std::vector<int>> free_blocks_;
};

}  // namespace

std::string row_tape(const Region& r, const RowRegion& e, RowTape& to) {
  to = {};
  return RowTapeMaker(r, e, to).make();
}

}  // namespace minidnn::cpu::graph
