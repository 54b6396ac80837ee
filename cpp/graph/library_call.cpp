// SPDX-License-Identifier: Apache-2.0
// Implements library_call() and folded_conv() of library_op.h: they start with the call at the beginning of a region,
// and turn each node behind it into an option of that call.
#include <bit>
#include <cstddef>
#include <cstring>

#include "cpp/activation/activation.h"
#include "cpp/batch_norm/batch_norm.h"
#include "cpp/conv/conv.h"
#include "cpp/graph/arena.h"
#include "cpp/graph/library_op.h"
#include "cpp/matmul/matmul.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/softmax/softmax.h"
#include "cpp/transform/transform.h"

namespace minidnn::graph {
namespace {

using Word = LibraryCall::Word;

bool same_elements(const TensorDesc& a, const TensorDesc& b) {
  return a.dtype == b.dtype && same_shape(a, b) && same_strides(a, b);
}
// Whether elements of a broadcast tensor differ along dimension `dim` at most.
bool varies_only_along(const TensorDesc& d, int64_t dim) {
  for (int i = 0; i < d.rank; ++i)
    if (i != dim && d.shape[i] > 1 && d.stride[i] != 0) return false;
  return d.shape[dim] == 1 || d.stride[dim] != 0;
}

Word address_of(const RegionNode& n, const RegionPort& p) { return {int64_t(n.first_word) + p.word}; }

// An operand of an add: how the call sees it, its value, and where RegionArgs has its address.
struct Added {
  TensorDesc desc;
  int value;
  Word address;
};

// A call that takes over nodes as options. The functions return "", or the reason why the call has no such option.
class Absorbing {
 public:
  virtual ~Absorbing() = default;
  virtual std::string name() const = 0;
  virtual std::string add(const Added&) = 0;
  virtual std::string activation(Activation, Word alpha) = 0;
  // Sets the result.
  virtual void store(const TensorDesc&, Word address) = 0;
  // Multiplies by a number, which word number `number` of RegionArgs has.
  virtual std::string scale(int64_t) { return cat("pointwise mul is no option of ", name()); }
  // Normalizes the channels of the result with known statistics.
  virtual std::string normalize(const RegionNode&) { return cat("batch_norm is no option of ", name()); }
  // Whether the result may have another dtype than now.
  virtual std::string cast(DType) = 0;
  // Whether the result may have the memory of an operand: of one of the first node, or of one that an add reads.
  virtual bool may_overwrite(const RegionPort&, bool of_first_node) const = 0;
  virtual std::string finish(int64_t alignment, LibraryCalls&) = 0;
};

// A call with the Args that a node has.
template <class P> LibraryCall call_of(const P& p, std::vector<Word> words) {
  static_assert(sizeof(ArgsOf<P>) / 8 <= kMostWords);
  LibraryCall call{&node_kind<P>(), std::vector<uint64_t>(sizeof(P) / 8), std::move(words)};
  std::memcpy(call.problem.data(), &p, sizeof(P));
  return call;
}

template <class P> class AbsorbingCall : public Absorbing {
 public:
  explicit AbsorbingCall(const RegionNode& n) : problem_(*n.as<P>()), words_(sizeof(ArgsOf<P>) / 8) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i].from = int64_t(n.first_word + i);
  }
  std::string name() const override { return Family<P>::name; }
  std::string finish(int64_t alignment, LibraryCalls& to) override {
    problem_.alignment = std::min(problem_.alignment, alignment);
    to.calls.push_back(call_of(problem_, words_));
    return "";
  }

 protected:
  P& problem() { return problem_; }
  const P& problem() const { return problem_; }
  // The member of Args at `offset` bytes.
  Word& word(size_t offset) { return words_[offset / 8]; }
  void set(size_t offset, Word w) { word(offset) = w; }
  // The value that an add made a residual or c, or -1.
  int added_ = -1;
  static Word constant(double v) { return {-1, std::bit_cast<uint64_t>(v)}; }

 private:
  P problem_;
  std::vector<Word> words_;
};

std::string already_activated(Activation a, const char* what) {
  return cat("adds ", what, " before the activation; here add follows ", name(a));
}

// Products of 16-bit operands give their dtype or float32.
std::string product_cast(DType operands, DType to) {
  if (to == operands || (to == DType::float32 && itemsize(operands) == 2)) return "";
  return cat("gives y in ", name(operands), itemsize(operands) == 2 ? " or float32" : "", "; here it is cast to ",
             name(to));
}

// A product, whose activation comes last.
template <class P> class AbsorbingProduct : public AbsorbingCall<P> {
 public:
  using AbsorbingCall<P>::AbsorbingCall;
  std::string activation(Activation mode, Word alpha) override {
    P& p = this->problem();
    if (p.activation != Activation::identity) return cat("has one activation, ", minidnn::name(p.activation));
    p.activation = mode;
    this->set(offsetof(ArgsOf<P>, activation_alpha), alpha);
    return "";
  }
};

class AbsorbingMatmul final : public AbsorbingProduct<MatmulProblem> {
 public:
  using AbsorbingProduct::AbsorbingProduct;
  std::string add(const Added& o) override {
    MatmulProblem& p = problem();
    const TensorDesc& d = o.desc;
    if (p.activation != Activation::identity) return already_activated(p.activation, "c and its bias");
    if (!p.has_bias && d.dtype == p.a.dtype && varies_only_along(d, d.rank - 1)) {
      p.has_bias = 1;
      p.bias_stride = d.stride[d.rank - 1];
      set(offsetof(MatmulArgs, bias), o.address);
      return "";
    }
    if (p.c.rank) return "adds one c and one bias; here another tensor is added";
    p.c = d;
    added_ = o.value;
    set(offsetof(MatmulArgs, c), o.address);
    set(offsetof(MatmulArgs, beta), constant(1));
    return "";
  }
  void store(const TensorDesc& d, Word address) override {
    problem().y = d;
    set(offsetof(MatmulArgs, y), address);
  }
  std::string scale(int64_t number) override {
    const MatmulProblem& p = problem();
    if (p.activation != Activation::identity || p.has_bias || p.c.rank)
      return "multiplies by alpha before it adds c and its bias; here the sum is scaled";
    Word& alpha = word(offsetof(MatmulArgs, alpha));
    if (alpha.factor >= 0) return "has one alpha; here the product is scaled twice";
    alpha.factor = number;
    return "";
  }
  std::string cast(DType to) override { return product_cast(problem().a.dtype, to); }
  std::string finish(int64_t alignment, LibraryCalls& to) override {
    const MatmulProblem& p = problem();
    if (p.c.rank && p.c.dtype != p.y.dtype)
      return cat("adds c in the dtype of y, ", minidnn::name(p.y.dtype), "; here it is ", minidnn::name(p.c.dtype));
    return AbsorbingCall::finish(alignment, to);
  }
  bool may_overwrite(const RegionPort& p, bool first) const override {
    return (first ? p.name == "c" : p.value == added_) && same_elements(problem().c, problem().y);
  }
};

class AbsorbingConv : public AbsorbingProduct<ConvProblem> {
 public:
  using AbsorbingProduct::AbsorbingProduct;
  std::string add(const Added& o) override {
    ConvProblem& p = problem();
    const TensorDesc& d = o.desc;
    if (p.activation != Activation::identity) return already_activated(p.activation, "its residual");
    if (!p.has_bias && d.dtype == p.x.dtype && varies_only_along(d, 1)) {
      p.has_bias = 1;
      p.bias_stride = d.stride[1];
      set(offsetof(ConvArgs, bias), o.address);
      return "";
    }
    if (p.residual.rank) return "adds one bias and one residual; here another tensor is added";
    if (is_broadcast(d)) return "supports a residual of the shape of y; here a smaller tensor is added";
    p.residual = d;
    added_ = o.value;
    set(offsetof(ConvArgs, residual), o.address);
    return "";
  }
  void store(const TensorDesc& d, Word address) override {
    problem().y = d;
    set(offsetof(ConvArgs, out), address);
  }
  std::string cast(DType to) override { return product_cast(problem().x.dtype, to); }
  std::string finish(int64_t alignment, LibraryCalls& to) override {
    const ConvProblem& p = problem();
    if (p.residual.rank && p.residual.dtype != p.y.dtype)
      return cat("adds its residual in the dtype of y, ", minidnn::name(p.y.dtype), "; here it is ",
                 minidnn::name(p.residual.dtype));
    return AbsorbingCall::finish(alignment, to);
  }
  bool may_overwrite(const RegionPort& p, bool first) const override {
    return (first ? p.name == "residual" : p.value == added_) && same_elements(problem().residual, problem().y);
  }
};

class AbsorbingBatchNorm final : public AbsorbingCall<BatchNormProblem> {
 public:
  using AbsorbingCall::AbsorbingCall;
  std::string add(const Added& o) override {
    BatchNormProblem& p = problem();
    if (p.relu) return already_activated(Activation::relu, "its residual");
    if (p.other.rank) return "adds one residual; here another tensor is added";
    if (is_broadcast(o.desc)) return "supports a residual of the shape of x; here a smaller tensor is added";
    p.other = o.desc;
    added_ = o.value;
    set(offsetof(BatchNormArgs, other), o.address);
    return "";
  }
  std::string activation(Activation mode, Word) override {
    BatchNormProblem& p = problem();
    if (mode != Activation::relu) return cat("supports the activation relu; here it is ", minidnn::name(mode));
    p.relu = 1;
    set(offsetof(BatchNormArgs, relu), {-1, 1});
    return "";
  }
  void store(const TensorDesc& d, Word address) override {
    problem().out = d;
    set(offsetof(BatchNormArgs, out), address);
  }
  std::string cast(DType to) override {
    return cat("gives y in the dtype of x; here it is cast to ", minidnn::name(to));
  }
  bool may_overwrite(const RegionPort& p, bool first) const override {
    if (problem().direction != NormDirection::inference) return false;
    if (first && p.name == "x") return same_elements(problem().x, problem().out);
    return (first ? p.name == "residual" : p.value == added_) && same_elements(problem().other, problem().out);
  }
};

// A convolution that takes over one batch norm. Its weights and its bias are those of the user, normalized.
class AbsorbingFoldedConv final : public AbsorbingConv {
 public:
  using AbsorbingConv::AbsorbingConv;
  std::string normalize(const RegionNode& n) override {
    ConvProblem& p = problem();
    const BatchNormProblem& norm = *n.as<BatchNormProblem>();
    if (norm_) return "folds one batch norm; here another one follows";
    if (norm.kept_end != 2) return "folds one mean for each channel; here each activation has a mean";
    if (p.activation != Activation::identity)
      return cat("normalizes before the activation; here batch_norm follows ", minidnn::name(p.activation));
    if (p.residual.rank) return "adds its residual behind the batch norm; here it is added before";
    norm_ = &n;
    if (p.has_bias) bias_ = word(offsetof(ConvArgs, bias));
    bias_stride_ = p.bias_stride;
    p.has_bias = p.bias_stride = 1;  // a vector that is added behind the batch norm does not become the bias
    if (const RegionPort* residual = n.port("residual")) {
      p.residual = residual->desc;
      added_ = residual->value;
      set(offsetof(ConvArgs, residual), address_of(n, *residual));
    }
    return norm.relu ? activation(Activation::relu, constant(0)) : "";
  }
  std::string finish(int64_t alignment, LibraryCalls& to) override {
    if (!norm_) return "no batch norm follows the convolution";
    ConvProblem& p = problem();
    const int64_t filters = p.w.shape[0];
    const TensorDesc w = p.w, folded = dense_like(w, w.dtype, "graph: folded weights");
    const bool rows = has_rows(w) && same_strides(w, folded);
    const DType parameter = w.dtype == DType::float64 ? DType::float64 : DType::float32;
    to.zeros = in_arena_units(size_t(filters) * itemsize(parameter));
    const size_t bias_at = to.zeros, weights_at = bias_at + in_arena_units(size_t(filters) * itemsize(w.dtype));
    to.bytes = weights_at + in_arena_units(size_t(w.numel()) * itemsize(w.dtype));
    // Weights are normalized with a mean and a bias of zero, which multiplies them.
    std::vector<Word> words = norm_words({"scale", "var"});
    words[offsetof(BatchNormArgs, x) / 8] = word(offsetof(ConvArgs, w));
    words[offsetof(BatchNormArgs, out) / 8] = stored(weights_at);
    words[offsetof(BatchNormArgs, mean) / 8] = words[offsetof(BatchNormArgs, bias) / 8] = stored(0);
    to.calls.push_back(call_of(norm_of(filters_of(w, rows), filters_of(folded, rows), alignment), words));
    words = norm_words({"scale", "bias", "mean", "var"});
    words[offsetof(BatchNormArgs, x) / 8] = bias_.value_or(stored(0));
    words[offsetof(BatchNormArgs, out) / 8] = stored(bias_at);
    to.calls.push_back(call_of(
        norm_of(vector_of(w.dtype, filters, bias_ ? bias_stride_ : 1), vector_of(w.dtype, filters, 1), alignment),
        words));
    p.w = folded;
    set(offsetof(ConvArgs, w), stored(weights_at));
    set(offsetof(ConvArgs, bias), stored(bias_at));
    return AbsorbingConv::finish(alignment, to);
  }

 private:
  static Word stored(size_t at) { return {.constant = at, .in_workspace = true}; }
  // Args of batch norm: zeros, but for eps and the named parameters.
  std::vector<Word> norm_words(std::initializer_list<const char*> parameters) const {
    std::vector<Word> words(sizeof(BatchNormArgs) / 8);
    for (const char* name : parameters) {
      const RegionPort& port = *norm_->port(name);
      words[size_t(port.word)] = address_of(*norm_, port);
    }
    constexpr size_t kEps = offsetof(BatchNormArgs, eps) / 8;
    words[kEps].from = int64_t(norm_->first_word + kEps);
    return words;
  }
  static BatchNormProblem norm_of(const TensorDesc& x, const TensorDesc& out, int64_t alignment) {
    return {.direction = NormDirection::inference,
            .x = x,
            .out = out,
            .kept_begin = 1,
            .kept_end = 2,
            .alignment = alignment};
  }
  // Whether each filter is a contiguous row, and the rows follow each other.
  static bool has_rows(const TensorDesc& w) { return is_dense(w) && w.stride[0] * w.shape[0] == w.numel(); }
  // Weights as a tensor whose channels are the filters.
  static TensorDesc filters_of(const TensorDesc& w, bool as_rows) {
    if (as_rows) {
      const int64_t shape[] = {1, w.shape[0], w.stride[0]};
      return dense(w.dtype, shape, Layout::channels_first, "graph: weights");
    }
    TensorDesc d = w;
    std::swap(d.shape[0], d.shape[1]);
    std::swap(d.stride[0], d.stride[1]);
    return d;
  }
  static TensorDesc vector_of(DType t, int64_t n, int64_t stride) {
    TensorDesc d;
    d.dtype = t;
    d.rank = 2;
    d.shape[0] = 1;
    d.shape[1] = n;
    d.stride[0] = n * stride;
    d.stride[1] = stride;
    return d;
  }

  const RegionNode* norm_ = nullptr;
  std::optional<Word> bias_;
  int64_t bias_stride_ = 0;
};

// Returns what runs a node and takes over later ones, or null.
std::unique_ptr<Absorbing> absorbing(const RegionNode& n, bool folds) {
  if (folds) {
    const auto* p = n.as<ConvProblem>();
    return p && p->direction == ConvDirection::forward ? std::make_unique<AbsorbingFoldedConv>(n) : nullptr;
  }
  if (n.as<MatmulProblem>()) return std::make_unique<AbsorbingMatmul>(n);
  if (const auto* p = n.as<ConvProblem>(); p && p->direction == ConvDirection::forward)
    return std::make_unique<AbsorbingConv>(n);
  if (const auto* p = n.as<BatchNormProblem>(); p && p->direction != NormDirection::backward)
    return std::make_unique<AbsorbingBatchNorm>(n);
  return nullptr;
}

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
