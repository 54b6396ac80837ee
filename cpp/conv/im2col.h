// SPDX-License-Identifier: Apache-2.0
// Convolution as a matrix product (im2col), for CPU and GPU. The batch is divided into chunks of images. `columns` is
// the im2col matrix of a chunk, which is stored in the workspace. For each chunk:
//   forward          y       = columns(x) @ w^T    with bias, residual and activation in the product's epilogue
//   backward_data    columns = dy @ w              then columns are summed into dx
//   backward_filter  dw     += dy^T @ columns(x)   the sum over all images
// Sums are float32, or float64 for float64 operands. A pointwise convolution needs no im2col matrix: it reads x or
// writes dx directly. The CPU engine and the GPU engine each supply two loops. One copies x to the im2col matrix, and
// one sums the matrix into dx.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/im2col_math.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {

struct ColumnsMover {
  virtual ~ColumnsMover() = default;
  // Copies x to the im2col matrix `columns`. The matrix has the dtype of x.
  virtual void gather(const ConvColumns&, const void* x, void* columns, Stream) const = 0;
  // Sums the im2col matrix `columns` into dx. The elements of `columns` are float64 if dx is float64, else float32.
  virtual void sum(const ConvColumns&, const void* columns, void* dx, Stream) const = 0;
};

struct Im2colEngine : Engine<ConvProblem> {
  std::string why_not(const ConvProblem&, const Device&) const override;
  double estimate_us(const ConvProblem&, const Device&) const override;
  // Returns the configs (variants) of the engine: "images=N" processes N images at a time. The first N is the largest
  // useful number. Each further N is half of the N before it, rounded down.
  std::vector<Config> configs(const ConvProblem&, const Device&) const override;
  size_t workspace_bytes(const ConvProblem&, const Device&, const Config&) const override;
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem&, const Device&, const Config&) const override;

 protected:
  virtual std::shared_ptr<const ColumnsMover> mover(DType operands, DType dx, const Device&) const = 0;
};

}  // namespace minidnn
