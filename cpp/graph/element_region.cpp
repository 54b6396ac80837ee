// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/element_region.h"

#include "cpp/core/text.h"

namespace minidnn {

std::string why_not_element(const RegionNode& n) {
  if (n.as<PointwiseProblem>() || n.as<ActivationProblem>()) return "";
  if (const auto* p = n.as<TransformProblem>()) return p->reads_y ? "beta of transform reads the former result" : "";
  if (const auto* p = n.as<RandomProblem>())
    return p->kind == Random::dropout ? "" : "random numbers have no operand; supported is dropout";
  return cat(n.kind->family, " is no function of single elements");
}

const RegionPort& element_result(const RegionNode& n) {
  for (const RegionPort& p : n.ports)
    if (p.writes) return p;
  throw Error(cat(n.kind->family, " has no result"));
}

namespace {

class Builder {
 public:
  Builder(const Region& r, ElementRegion& to) : r_(r), to_(to) {}

  std::string build() {
    for (const RegionNode& n : r_.nodes)
      if (std::string why = why_not_element(n); !why.empty()) return why;
    for (const RegionNode& n : r_.nodes)
      if (r_.values[size_t(element_result(n).value)].output) {
        shape_ = &element_result(n).desc;
        break;
      }
    if (!shape_) return "the region has no result";
    for (size_t i = 0; i < r_.nodes.size(); ++i)
      if (std::string why = add(int(i)); !why.empty()) return why;
    if (to_.loads.size() > size_t(kMostElementLoads))
      return cat(to_.loads.size(), " tensors are read; supported are at most ", kMostElementLoads);
    if (to_.stores.size() > size_t(kMostElementStores))
      return cat(to_.stores.size(), " tensors are written; supported are at most ", kMostElementStores);
    number_elements();
    for (const RegionNode& n : r_.nodes)
      if (n.as<RandomProblem>() && !to_.row_major)
        return "dropout numbers elements in row-major order, in which the first result is not stored";
    return "";
  }

 private:
  const std::string& name(int value) const { return r_.values[size_t(value)].name; }

  std::string add(int node) {
    const RegionNode& n = r_.nodes[size_t(node)];
    ElementStep step{{}, element_result(n).desc.dtype};
    for (const RegionPort& p : n.ports) {
      if (!same_shape(p.desc, *shape_))
        return cat(name(p.value), " has the shape ", shape_text(p.desc), ", results have ", shape_text(*shape_));
      if (!p.reads) continue;
      std::string why;
      step.sources.push_back(source(p, node, why));
      if (!why.empty()) return why;
    }
    const RegionPort& out = element_result(n);
    const RegionValue& v = r_.values[size_t(out.value)];
    if (v.output) {
      // Elements that were loaded are overwritten by the thread that has loaded them.
      for (const ElementOperand& load : to_.loads)
        if (load.value == out.value && !same_strides(load.desc, out.desc))
          return cat(name(out.value), " is overwritten, and read at other elements");
      step.store = int(to_.stores.size());
      to_.stores.push_back({out.value, out.desc});
    }
    to_.steps.push_back(std::move(step));
    return "";
  }

  ElementSource source(const RegionPort& p, int node, std::string& why) {
    const RegionValue& v = r_.values[size_t(p.value)];
    if (v.number >= 0) return {ElementSource::Kind::number, p.value, p.desc.dtype};
    if (v.writer >= 0 && v.writer < node) {
      if (!same_strides(element_result(r_.nodes[size_t(v.writer)]).desc, p.desc))
        why = cat(name(p.value), " is read at other elements than it is written");
      return {ElementSource::Kind::step, v.writer, p.desc.dtype};
    }
    for (size_t i = 0; i < to_.loads.size(); ++i)
      if (to_.loads[i].value == p.value && same_strides(to_.loads[i].desc, p.desc))
        return {ElementSource::Kind::load, int(i), p.desc.dtype};
    if (v.output && v.writer > node && !same_strides(element_result(r_.nodes[size_t(v.writer)]).desc, p.desc))
      why = cat(name(p.value), " is overwritten, and read at other elements");
    to_.loads.push_back({p.value, p.desc});
    return {ElementSource::Kind::load, int(to_.loads.size()) - 1, p.desc.dtype};
  }

  void number_elements() {
    std::vector<TensorDesc> all;
    for (const auto* operands : {&to_.stores, &to_.loads})
      for (const ElementOperand& o : *operands) all.push_back(o.desc);
    const JointIndexing joint = joint_indexing(all);
    to_.indexing = joint.elements;
    size_t i = 0;
    for (auto* operands : {&to_.stores, &to_.loads})
      for (ElementOperand& o : *operands) o.access = joint.access[i++];
    to_.row_major = is_row_major(to_.stores.front().desc);
  }

  const Region& r_;
  ElementRegion& to_;
  const TensorDesc* shape_ = nullptr;  // the description of the first result
};

}  // namespace

std::string element_region(const Region& r, ElementRegion& to) {
  to = {};
  return Builder(r, to).build();
}

bool only_16_bit(const Region& r) {
  for (const RegionNode& n : r.nodes)
    for (const RegionPort& p : n.ports)
      if (is_floating(p.desc.dtype) && itemsize(p.desc.dtype) != 2) return false;
  return true;
}

double element_flop(const RegionNode& n) {
  if (const auto* p = n.as<PointwiseProblem>()) return pointwise_flop(*p);
  if (const auto* a = n.as<ActivationProblem>()) return activation_flop(*a);
  return 2 * double(n.ports.front().desc.numel());
}
double element_flop(const Region& r) {
  double flop = 0;
  for (const RegionNode& n : r.nodes) flop += element_flop(n);
  return flop;
}

}  // namespace minidnn
