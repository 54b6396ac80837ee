// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/absorbing.h"

#include <bit>
#include <cstddef>

#include "cpp/batch_norm/batch_norm.h"
#include "cpp/conv/conv.h"
#include "cpp/graph/arena.h"
#include "cpp/matmul/matmul.h"

namespace minidnn::graph {
namespace {

// Whether elements of a broadcast tensor differ along dimension `dim` at most.
bool varies_only_along(const TensorDesc& d, int64_t dim) {
  for (int i = 0; i < d.rank; ++i)
    if (i != dim && d.shape[i] > 1 && d.stride[i] != 0) return false;
  return d.shape[dim] == 1 || d.stride[dim] != 0;
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
    const DType parameter = sum_dtype(w.dtype);
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

}  // namespace

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

}  // namespace minidnn::graph
