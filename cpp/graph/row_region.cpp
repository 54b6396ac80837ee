// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/row_region.h"

#include <algorithm>
#include <map>

#include "cpp/core/text.h"

namespace minidnn {
namespace {

// The elements that a statistic combines: a tensor, and the dimensions of a row.
struct Rows {
  TensorDesc x;
  uint64_t axes;  // bit i is 1 if dimension i belongs to a row
  bool in_row(int i) const { return axes >> i & 1; }
};

uint64_t trailing(const TensorDesc& x, int64_t first) {
  return (uint64_t(1) << x.rank) - (uint64_t(1) << std::min(first, x.rank));
}

// Fills `to`. Returns "", or why a node computes no statistic of rows.
std::string statistic_of(const RegionNode& n, Rows& to) {
  if (const auto* p = n.as<LayerNormProblem>()) {
    if (p->backward) return "the gradient of a norm has sums over rows";
    if (p->kind == RowNorm::group && p->groups != p->x.shape[1]) return "a row of group norm is a part of dimension 1";
    to = {p->x, trailing(p->x, p->kind == RowNorm::group ? 2 : p->axis)};
    return "";
  }
  if (const auto* p = n.as<SoftmaxProblem>()) {
    to = {p->in, uint64_t(1) << p->axis};
    return "";
  }
  if (const auto* p = n.as<ReduceProblem>()) {
    if (p->mode == ReduceMode::any || p->mode == ReduceMode::all || kind_of(p->mode) == ReduceKind::arg)
      return "reduce has a result of another dtype";
    to = {p->x, uint64_t(p->axes)};
    return "";
  }
  return cat(n.kind->family, " is no function of single rows");
}
bool is_statistic(const RegionNode& n) {
  return n.as<LayerNormProblem>() || n.as<SoftmaxProblem>() || n.as<ReduceProblem>();
}

// The numbers of a row that a statistic computes beside its results.
int numbers_of(const RegionNode& n) {
  if (const auto* p = n.as<LayerNormProblem>()) return p->kind == RowNorm::rms ? 1 : 3;  // mean in two parts, inv_std
  if (const auto* p = n.as<SoftmaxProblem>()) return p->direction == SoftmaxDirection::forward ? 2 : 1;
  return 0;
}

class Builder {
 public:
  Builder(const Region& r, RowRegion& to) : r_(r), to_(to) {}

  std::string build() {
    if (std::string why = find_rows(); !why.empty()) return why;
    for (size_t i = 0; i < r_.nodes.size(); ++i) {
      const RegionNode& n = r_.nodes[i];
      if (std::string why = is_statistic(n) ? add_statistic(n) : add_function(n); !why.empty()) return why;
    }
    if (to_.statistics.size() > size_t(kMostStatistics))
      return cat("has ", to_.statistics.size(), " statistics of rows; supported are at most ", kMostStatistics);
    if (std::string why = check_counts(); !why.empty()) return why;
    return number_elements();
  }

 private:
  const std::string& name(int value) const { return r_.values[size_t(value)].name; }

  // Finds the dimensions of a row, and checks that all statistics have the same.
  std::string find_rows() {
    bool found = false;
    for (const RegionNode& n : r_.nodes) {
      if (!is_statistic(n)) {
        const std::string why = why_not_element(n);
        if (why.empty()) continue;
        Rows none;
        return n.as<TransformProblem>() || n.as<RandomProblem>() ? why : statistic_of(n, none);
      }
      Rows rows;
      if (std::string why = statistic_of(n, rows); !why.empty()) return why;
      for (int i = 0; i < rows.x.rank; ++i)
        if (rows.x.shape[i] == 1) rows.axes &= ~(uint64_t(1) << i);
      if (found && (!same_shape(rows.x, all_.x) || rows.axes != all_.axes))
        return cat(n.kind->family, " has rows in other dimensions than an earlier node");
      if (!found) all_ = rows;
      found = true;
    }
    if (!found) return "no node computes a statistic of rows";
    to_.cols = 1;
    for (int i = 0; i < all_.x.rank; ++i)
      if (all_.in_row(i)) to_.cols *= all_.x.shape[i];
    if (to_.cols == 1) return "rows have one element";
    to_.rows = all_.x.numel() / to_.cols;
    return "";
  }

  bool is_wide(const TensorDesc& d) const { return same_shape(d, all_.x); }
  // Returns a tensor with one element for each row as one of the shape of all elements, with stride 0 in the dimensions
  // of a row. Such a tensor lacks these dimensions, or has size 1 there.
  std::optional<TensorDesc> widened(const TensorDesc& d) const {
    TensorDesc wide = all_.x;
    wide.dtype = d.dtype;
    const bool keeps = d.rank == wide.rank;
    int from = 0;
    for (int i = 0; i < wide.rank; ++i) {
      wide.stride[i] = 0;
      if (!keeps && (all_.in_row(i) || (wide.shape[i] == 1 && (from >= d.rank || d.shape[from] != 1)))) continue;
      if (from >= d.rank || d.shape[from] != (all_.in_row(i) ? 1 : wide.shape[i])) return {};
      if (!all_.in_row(i)) wide.stride[i] = d.stride[from];
      ++from;
    }
    return from == d.rank ? std::optional(wide) : std::nullopt;
  }
  bool constant_in_rows(const TensorDesc& wide) const {
    for (int i = 0; i < wide.rank; ++i)
      if (all_.in_row(i) && wide.stride[i] != 0) return false;
    return true;
  }

  static int find(std::vector<ElementOperand>& operands, int value, const TensorDesc& d) {
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i].value == value && same_strides(operands[i].desc, d)) return int(i);
    operands.push_back({value, d});
    return int(operands.size()) - 1;
  }
  // The description of a result with one number for each row, for each value that the region has written.
  struct Written {
    int row_number = -1, phase = 0, step = -1;
    TensorDesc desc{};
  };

  // Adds what a step reads: `wide` is the tensor with the shape of all elements.
  std::string add_source(RowStep& step, int value, const TensorDesc& wide, DType dtype) {
    const RegionValue& v = r_.values[size_t(value)];
    if (v.number >= 0) {
      step.sources.push_back({RowSource::Kind::number, value, dtype});
      return "";
    }
    if (const auto it = written_.find(value); it != written_.end()) {
      const Written& w = it->second;
      if (!same_strides(w.desc, wide)) return cat(name(value), " is read at other elements than it is written");
      step.phase = std::max(step.phase, w.phase);
      if (w.row_number >= 0) step.sources.push_back({RowSource::Kind::row_number, w.row_number, dtype});
      else step.sources.push_back({RowSource::Kind::step, w.step, dtype});
      return "";
    }
    const bool for_row = constant_in_rows(wide);
    if (v.output && for_row) return cat(name(value), " has one number for each row, and is overwritten");
    const int index = find(for_row ? to_.row_loads : to_.loads, value, wide);
    step.sources.push_back({for_row ? RowSource::Kind::row_load : RowSource::Kind::load, index, dtype});
    return "";
  }
  std::string add_source(RowStep& step, const RegionPort& p) {
    if (is_wide(p.desc)) return add_source(step, p.value, p.desc, p.desc.dtype);
    const std::optional<TensorDesc> wide = widened(p.desc);
    if (!wide || step.wide)
      return cat(name(p.value), " has the shape ", shape_text(p.desc), ", rows are those of ", shape_text(all_.x));
    return add_source(step, p.value, *wide, p.desc.dtype);
  }

  std::string add_wide_result(RowStep& step, const RegionPort& p) {
    const RegionValue& v = r_.values[size_t(p.value)];
    if (v.output) {
      for (const ElementOperand& load : to_.loads)
        if (load.value == p.value && !same_strides(load.desc, p.desc))
          return cat(name(p.value), " is overwritten, and read at other elements");
      step.store = int(to_.stores.size());
      to_.stores.push_back({p.value, p.desc});
    }
    written_[p.value] = {-1, step.phase, int(to_.steps.size()), p.desc};
    return "";
  }
  std::string add_row_result(RowStep& step, const RegionPort& p, int row_number) {
    const std::optional<TensorDesc> wide = widened(p.desc);
    if (!wide) return cat(name(p.value), " has no element for each row");
    if (!is_floating(p.desc.dtype)) return cat(name(p.value), " has the dtype ", short_name(p.desc.dtype));
    RowResult result{p.value, row_number};
    if (const RegionValue& v = r_.values[size_t(p.value)]; v.output) {
      if (v.input) return cat(name(p.value), " has one number for each row, and is overwritten");
      result.store = int(to_.row_stores.size());
      to_.row_stores.push_back({p.value, *wide});
    }
    step.results.push_back(result);
    written_[p.value] = {row_number, step.phase, -1, *wide};
    return "";
  }

  std::string add_function(const RegionNode& n) {
    const RegionPort& out = element_result(n);
    RowStep step{{}, out.desc.dtype};
    step.wide = is_wide(out.desc);
    if (!step.wide && n.as<RandomProblem>()) return "dropout of one number for each row";
    for (const RegionPort& p : n.ports) {
      if (p.desc.dtype == DType::float64) return "float64 is not supported";
      if (!p.reads) continue;
      if (std::string why = add_source(step, p); !why.empty()) return why;
    }
    step.first_number = to_.row_numbers;
    if (std::string why = step.wide ? add_wide_result(step, out) : add_row_result(step, out, to_.row_numbers++);
        !why.empty())
      return why;
    to_.steps.push_back(std::move(step));
    return "";
  }

  std::string add_statistic(const RegionNode& n) {
    RowStep step;
    step.statistic = int(to_.statistics.size());
    step.wide = !n.as<ReduceProblem>();
    for (const RegionPort& p : n.ports) {
      if (!is_floating(p.desc.dtype) && p.name != "mask") return cat("rows of ", short_name(p.desc.dtype));
      if (p.desc.dtype == DType::float64) return "float64 is not supported";
      if (!p.reads) continue;
      std::string why;
      if (is_wide(p.desc)) why = add_source(step, p.value, p.desc, p.desc.dtype);
      else why = add_source(step, p.value, parameter(n, p.desc), p.desc.dtype);
      if (!why.empty()) return why;
    }
    step.phase = step.statistic + 1;
    step.first_number = to_.row_numbers;
    to_.row_numbers += numbers_of(n);
    bool first = true;
    for (const RegionPort& p : n.ports) {
      if (!p.writes) continue;
      if (first) step.dtype = p.desc.dtype;
      first = false;
      // The last number of a norm is inv_std.
      const bool is_last = n.as<LayerNormProblem>() && p.name == "inv_std";
      std::string why;
      if (step.wide && is_wide(p.desc)) why = add_wide_result(step, p);
      else why = add_row_result(step, p, is_last ? step.first_number + numbers_of(n) - 1 : to_.row_numbers++);
      if (!why.empty()) return why;
    }
    to_.statistics.push_back(int(to_.steps.size()));
    to_.steps.push_back(std::move(step));
    return "";
  }
  // Returns a scale or bias of a norm with the shape of all elements: its dimensions are those of a row, or dimension
  // 1.
  TensorDesc parameter(const RegionNode& n, const TensorDesc& d) const {
    TensorDesc wide = all_.x;
    wide.dtype = d.dtype;
    const int at = n.as<LayerNormProblem>()->kind == RowNorm::group ? 1 : int(wide.rank - d.rank);
    for (int i = 0; i < wide.rank; ++i) wide.stride[i] = i >= at && i < at + d.rank ? d.stride[i - at] : 0;
    return wide;
  }

  std::string check_counts() const {
    const auto check = [](size_t count, int most, const char* what) {
      return count <= size_t(most) ? std::string() : cat(count, " ", what, "; supported are at most ", most);
    };
    for (std::string why : {check(to_.loads.size(), kMostElementLoads, "tensors are read"),
                            check(to_.stores.size(), kMostElementStores, "tensors are written"),
                            check(to_.row_loads.size(), kMostRowLoads, "tensors with a number for each row are read"),
                            check(to_.row_stores.size(), kMostRowStores, "results have a number for each row"),
                            check(size_t(to_.row_numbers), kMostRowNumbers, "numbers of a row are in use")})
      if (!why.empty()) return why;
    return "";
  }

  // Numbers elements in the memory order of the first result or, if there is none, of an operand.
  std::string number_elements() {
    const ElementOperand* first = to_.stores.empty() ? nullptr : &to_.stores.front();
    for (const ElementOperand& o : to_.loads)
      if (!first && is_dense(o.desc)) first = &o;
    if (!first || !is_dense(first->desc)) return "no tensor has all elements without gaps";
    const TensorDesc& order = first->desc;
    int64_t reach = 1;  // the number of elements from the first of a row to its last
    for (int i = 0; i < order.rank; ++i)
      if (all_.in_row(i)) reach += (order.shape[i] - 1) * order.stride[i];
    if (reach != to_.cols) return cat("rows are not contiguous in ", name(first->value));
    std::vector<TensorDesc> all{order};
    for (const auto* operands : {&to_.loads, &to_.stores, &to_.row_loads, &to_.row_stores})
      for (const ElementOperand& o : *operands) all.push_back(o.desc);
    const JointIndexing joint = joint_indexing(all);
    to_.indexing = joint.elements;
    size_t i = 1;
    for (auto* operands : {&to_.loads, &to_.stores, &to_.row_loads, &to_.row_stores})
      for (ElementOperand& o : *operands) o.access = joint.access[i++];
    for (const ElementOperand& o : to_.stores)
      if (o.access.kind != Access::dense) return cat(name(o.value), " is stored in another order than other results");
    to_.row_major = is_row_major(order);
    for (const RegionNode& n : r_.nodes)
      if (n.as<RandomProblem>() && !to_.row_major)
        return "dropout numbers elements in row-major order, in which the rows are not stored";
    return "";
  }

  const Region& r_;
  RowRegion& to_;
  Rows all_{};
  std::map<int, Written> written_;  // for each value that a node has written
};

}  // namespace

std::string row_region(const Region& r, RowRegion& to) {
  to = {};
  return Builder(r, to).build();
}

double row_region_flop(const Region& r) {
  double flop = 0;
  for (const RegionNode& n : r.nodes)
    if (const auto* p = n.as<LayerNormProblem>()) flop += row_norm_flop(*p);
    else if (const auto* s = n.as<SoftmaxProblem>()) flop += softmax_flop(*s);
    else if (const auto* e = n.as<ReduceProblem>()) flop += 2 * double(e->x.numel());
    else flop += element_flop(n);
  return flop;
}

}  // namespace minidnn
