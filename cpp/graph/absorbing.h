// SPDX-License-Identifier: Apache-2.0
// A call of a library function that takes over the calls behind it as its options. library_call.cpp decides which.
#pragma once
#include <cstring>
#include <memory>

#include "cpp/activation/activation.h"
#include "cpp/graph/library_op.h"

namespace minidnn::graph {

using Word = LibraryCall::Word;

inline Word address_of(const RegionNode& n, const RegionPort& p) { return {int64_t(n.first_word) + p.word}; }

inline bool same_elements(const TensorDesc& a, const TensorDesc& b) {
  return a.dtype == b.dtype && same_shape(a, b) && same_strides(a, b);
}

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

// Returns what runs a node and takes over later ones, or null. If `folds` is set, that is a convolution that takes over
// one batch norm.
std::unique_ptr<Absorbing> absorbing(const RegionNode&, bool folds);

}  // namespace minidnn::graph
