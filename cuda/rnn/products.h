// SPDX-License-Identifier: Apache-2.0
// The products of the input of each layer.
#pragma once
#include <span>

#include "cpp/rnn/products.h"
#include "cuda/runtime/launch.h"

namespace minidnn::cuda::rnn {

using minidnn::rnn::matrix;
using minidnn::rnn::MatrixRows;
using minidnn::rnn::Product;
using minidnn::rnn::WorkspaceParts;

// The products of the input of each layer by its weights: W x of all steps forward, and dgates W backward.
class InputProducts {
 public:
  InputProducts(const RnnProblem&, const Device&);
  void build();
  static std::vector<KernelSpec> kernels(std::span<const DType>);

  size_t workspace_bytes() const;  // `scratch` of the functions below
  // `sums` of the functions below. Forward they are [rows, directions, gates H]. Backward they are the gradient of x
  // [rows, I], if it has two directions or rows in the order of sequences.
  size_t sums_bytes() const;
  double estimate_us() const;  // of all layers

  void run_forward(const RnnLayer&, void* sums, void* scratch, Stream) const;
  void run_backward(const RnnLayer&, void* sums, void* scratch, Stream) const;
  // The row of step t of sequence n in the sums of a layer is t `step` + n `row`, unless rows are packed.
  struct Rows {
    int64_t step, row;
  };
  Rows rows_of(const RnnLayer&) const;

 private:
  RnnProblem p_;
  Device device_;
  Product first_, others_;  // of layer 0, and of the others
  bool has_sums_ = false;
  std::shared_ptr<const Kernel> finish_;
};

}  // namespace minidnn::cuda::rnn
