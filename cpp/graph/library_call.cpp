// SPDX-License-Identifier: Apache-2.0
// Implements library_call() and folded_conv() of library_op.h: they start with the call at the beginning of a region,
// and turn each node behind it into an option of that call.
#include <algorithm>
#include <cstddef>

#include "cpp/batch_norm/batch_norm.h"
#include "cpp/graph/absorbing.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/softmax/softmax.h"
#include "cpp/transform/transform.h"

namespace minidnn::graph {
namespace {

// The first words of a problem, without its sizes: "activation forward f32 gelu_tanh".
std::string head_of(const RegionNode& n) {
  const std::string text = n.text();
  const size_t size = text.find('=');
  return size == std::string::npos ? text : text.substr(0, text.rfind(' ', size));
}

// Returns "" if only node `reader` uses the elements of a value, and sees them as its writer does.
std::string passes_on(const Region& r, const RegionPort& from, size_t reader, const RegionPort& to) {
  const RegionValue& v = r.values[size_t(from.value)];
  if (!v.internal()) return cat(v.name, " is used outside of the region, too");
  for (int i : v.readers)
    if (size_t(i) != reader) return cat(v.name, " is read by ", v.readers.size(), " nodes; supports one");
  int reads = 0;
  for (const RegionPort& p : r.nodes[reader].ports) reads += p.reads && p.value == from.value;
  if (reads > 1) return cat(v.name, " is read twice by ", head_of(r.nodes[reader]));
  if (!same_elements(from.desc, to.desc))
    return cat(head_of(r.nodes[reader]), " reads ", v.name, " with another shape or other strides");
  return "";
}

bool is_inference(const RegionNode& n) {
  const auto* p = n.as<BatchNormProblem>();
  return p && p->direction == NormDirection::inference;
}

// Whether a node copies a tensor to float32 without loss, keeping its strides. An operand of such a cast can be read
// in its place.
const TransformProblem* widening(const RegionNode& n) {
  const auto* p = n.as<TransformProblem>();
  const bool widens = p && !p->scaled && p->y.dtype == DType::float32 && is_floating(p->x.dtype) &&
                      itemsize(p->x.dtype) == 2 && same_strides(p->x, p->y);
  return widens ? p : nullptr;
}

// The call that takes over nodes of a region, one after the other.
class Absorption {
 public:
  Absorption(const RegionProblem& p, bool folds) : problem_(p), region_(region_of(p)), folds_(folds) {}

  std::string run(LibraryCalls& result) {
    const std::vector<RegionNode>& nodes = region_.nodes;
    while (anchor_ < nodes.size() && !(call_ = absorbing(nodes[anchor_], folds_))) ++anchor_;
    if (!call_) return cat(head_of(nodes[0]), " has no options for the calls behind it");
    out_ = nodes[anchor_].port("y");
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (i == anchor_) continue;
      const bool follows = i > anchor_ && reads_result(nodes[i]);
      if (std::string why = follows ? absorb(i) : operand(i); !why.empty()) return why;
    }
    for (size_t i : casts_) return cat(head_of(nodes[i]), " is no option of ", call_->name());
    if (std::string why = keeps_operands(); !why.empty()) return why;
    return call_->finish(problem_.alignment, result);
  }

 private:
  bool reads_result(const RegionNode& n) const {
    for (const RegionPort& p : n.ports)
      if (p.reads && p.value == out_->value) return true;
    return false;
  }
  // A node that the result does not pass through must be a cast of an operand.
  std::string operand(size_t i) {
    if (!widening(region_.nodes[i])) return cat(head_of(region_.nodes[i]), " is no option of ", call_->name());
    casts_.push_back(i);
    return "";
  }
  // Makes node `i`, which reads the result so far, an option of the call.
  std::string absorb(size_t i) {
    const RegionNode& n = region_.nodes[i];
    const auto* activation = n.as<ActivationProblem>();
    const auto* pointwise = n.as<PointwiseProblem>();
    const auto* transform = n.as<TransformProblem>();
    const bool activates = activation && activation->direction == ActivationDirection::forward;
    const bool adds = pointwise && pointwise->op == Pointwise::add;
    const bool scales = pointwise && pointwise->op == Pointwise::mul;
    const bool casts = transform && !transform->scaled;
    const bool normalizes = folds_ && is_inference(n);
    if (!activates && !adds && !scales && !casts && !normalizes)
      return cat(head_of(n), " is no option of ", call_->name());
    if (narrowed_) return cat(head_of(n), " follows a cast, which rounds");
    const RegionPort *from = nullptr, *other = nullptr;
    for (const RegionPort& p : n.ports)
      if (p.reads) (p.value == out_->value && !from ? from : other) = &p;
    if (normalizes && from->name != "x") return cat(head_of(n), " adds ", region_.values[size_t(from->value)].name);
    std::string why = passes_on(region_, *out_, i, *from);
    const RegionPort& y = *n.port("y");
    if (!why.empty()) return why;
    if (activates)
      why = call_->activation(activation->mode, {int64_t(n.first_word + offsetof(ActivationArgs, alpha) / 8)});
    else if (adds) why = add(n, *other);
    else if (scales) why = scale(n, *other);
    else if (normalizes) why = call_->normalize(n);
    else why = call_->cast(y.desc.dtype);
    if (!why.empty()) return why;
    narrowed_ = itemsize(y.desc.dtype) < itemsize(out_->desc.dtype);
    out_ = &y;
    call_->store(y.desc, address_of(n, y));
    return "";
  }
  std::string scale(const RegionNode& n, const RegionPort& factor) {
    const int64_t number = region_.values[size_t(factor.value)].number;
    return number < 0 ? cat(head_of(n), " is no option of ", call_->name()) : call_->scale(number);
  }
  // Adds an operand, or the tensor that a cast made the operand from.
  std::string add(const RegionNode& n, const RegionPort& other) {
    const RegionValue& v = region_.values[size_t(other.value)];
    const auto cast = std::ranges::find(casts_, size_t(v.writer));
    if (cast == casts_.end()) return call_->add({other.desc, other.value, address_of(n, other)});
    if (!v.internal() || v.readers.size() != 1) return cat(v.name, " is used by other calls, too");
    const RegionNode& from = region_.nodes[*cast];
    casts_.erase(cast);
    const RegionPort& x = *from.port("x");
    TensorDesc d = other.desc;
    d.dtype = x.desc.dtype;
    return call_->add({d, x.value, address_of(from, x)});
  }
  // Returns "" if no operand is overwritten by the result before its last use.
  std::string keeps_operands() const {
    const RegionValue& v = region_.values[size_t(out_->value)];
    if (!v.input) return "";
    for (const RegionNode& n : region_.nodes)
      for (const RegionPort& p : n.ports)
        if (p.reads && p.value == out_->value && !call_->may_overwrite(p, &n == &region_.nodes[anchor_]))
          return cat("the result overwrites ", v.name, ", which ", call_->name(), " still reads");
    return "";
  }

  const RegionProblem& problem_;
  const Region& region_;
  const bool folds_;   // whether the call is a convolution that takes over a batch norm
  size_t anchor_ = 0;  // the index of the node whose call takes over the others
  std::unique_ptr<Absorbing> call_;
  const RegionPort* out_ = nullptr;  // the result so far
  bool narrowed_ = false;            // whether the result was cast to a narrower dtype
  std::vector<size_t> casts_;        // casts of operands that no node has used so far
};

// softmax(n * x + mask), where n is a number: the product and the sum become the options scale and mask.
class SoftmaxOptions {
 public:
  explicit SoftmaxOptions(const RegionProblem& p)
      : problem_(p), region_(region_of(p)), softmax_(region_.nodes.back()), p_(*softmax_.as<SoftmaxProblem>()) {
    for (size_t i = 0; i < sizeof(SoftmaxArgs) / 8; ++i) words_.push_back({int64_t(softmax_.first_word + i)});
    in_ = softmax_.port("x");
  }

  std::string run(LibraryCalls& to) {
    for (size_t i = region_.nodes.size() - 1; i-- > 0;) {
      const RegionNode& n = region_.nodes[i];
      const auto* pointwise = n.as<PointwiseProblem>();
      const RegionPort* y = n.port("y");
      if (!pointwise || y->value != in_->value) return cat(head_of(n), " is no option of softmax");
      if (std::string why = passes_on(region_, *y, i + 1, *in_); !why.empty()) return why;
      const RegionPort *x = n.port("a"), *other = n.port("b");
      // x is the operand of the shape of the result, and the one that another node of the region writes.
      if (is_broadcast(x->desc) || (other && region_.values[size_t(other->value)].writer >= 0)) std::swap(x, other);
      if (!other || is_broadcast(x->desc)) return cat(head_of(n), " is no option of softmax");
      std::string why = pointwise->op == Pointwise::add   ? add(address_of(n, *other), *other)
                        : pointwise->op == Pointwise::mul ? scale(*other)
                                                          : cat(head_of(n), " is no option of softmax");
      if (!why.empty()) return why;
      in_ = x;
      words_[offsetof(SoftmaxArgs, in) / 8] = address_of(n, *x);
    }
    const int y = softmax_.port("y")->value;
    if (region_.values[size_t(y)].input && (y != in_->value || y == mask_ || !same_elements(in_->desc, p_.out)))
      return cat("the result overwrites ", region_.values[size_t(y)].name, ", which softmax still reads");
    p_.in = in_->desc;
    p_.alignment = std::min(p_.alignment, problem_.alignment);
    to.calls.push_back(call_of(p_, words_));
    return "";
  }

 private:
  std::string add(Word address, const RegionPort& mask) {
    if (p_.scaled) return "multiplies x by its scale before it adds the mask; here the sum is scaled";
    if (p_.masked != SoftmaxMask::none) return "has one mask; here another tensor is added";
    p_.mask = mask.desc;
    p_.masked = SoftmaxMask::add;
    mask_ = mask.value;
    words_[offsetof(SoftmaxArgs, mask) / 8] = address;
    return "";
  }
  std::string scale(const RegionPort& factor) {
    Word& w = words_[offsetof(SoftmaxArgs, scale) / 8];
    const int64_t number = region_.values[size_t(factor.value)].number;
    if (number < 0) return "supports a scale that is a number; here it is a tensor";
    if (w.factor >= 0) return "has one scale; here x is scaled twice";
    w.factor = number;
    p_.scaled = 1;
    return "";
  }

  const RegionProblem& problem_;
  const Region& region_;
  const RegionNode& softmax_;
  SoftmaxProblem p_;
  std::vector<Word> words_;
  const RegionPort* in_;  // what softmax reads so far
  int mask_ = -1;         // the value that an add made the mask
};

}  // namespace

std::string library_call(const RegionProblem& problem, LibraryCalls& result) {
  const Region& r = region_of(problem);
  if (problem.rounding_each) return "may round otherwise than separate calls, which rounding='each' excludes";
  const auto* softmax = r.nodes.back().as<SoftmaxProblem>();
  if (softmax && softmax->direction == SoftmaxDirection::forward) return SoftmaxOptions(problem).run(result);
  return Absorption(problem, false).run(result);
}

std::string folded_conv(const RegionProblem& problem, LibraryCalls& result) {
  if (std::ranges::none_of(region_of(problem).nodes, is_inference))
    return "no batch_norm_forward_inference follows a convolution";
  if (problem.rounding_each) return "rounds the folded weights, which rounding='each' excludes";
  return Absorption(problem, true).run(result);
}

}  // namespace minidnn::graph