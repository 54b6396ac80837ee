// SPDX-License-Identifier: Apache-2.0
// Convolution as a matrix product (im2col), written once for both devices. The batch is split into chunks of images.
// For each chunk:
//   forward          y       = columns(x) @ w^T    with bias, residual and activation in the product's epilogue
//   backward_data    columns = dy @ w              summed back into dx, in float32 (float64)
//   backward_filter  dw      = dy^T @ columns(x)   over all images of the chunk; chunks add up in float32 (float64)
// The columns are stored in the workspace. A pointwise convolution has no columns: it reads x or writes dx directly. A
// device supplies the two loops that copy data into columns and sum columns into dx.
#pragma once
#include "cpp/conv/conv.h"
#include "cpp/conv/im2col_math.h"
#include "cpp/matmul/matmul.h"

namespace minidnn {

struct ColumnsMover {
  virtual ~ColumnsMover() = default;
  virtual void gather(const ConvColumns&, const void* x, void* columns, Stream) const = 0;  // columns of x's dtype
  virtual void sum(const ConvColumns&, const void* columns, void* dx, Stream) const = 0;  // columns of dx's accumulator
};

struct Im2colEngine : Engine<ConvProblem> {
  std::string why_not(const ConvProblem&, const Device&) const override;
  double estimate_us(const ConvProblem&, const Device&) const override;
  std::vector<Config> configs(const ConvProblem&, const Device&) const override;  // "images=16", then halves
  size_t workspace_bytes(const ConvProblem&, const Device&, const Config&) const override;
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem&, const Device&, const Config&) const override;

 protected:
  virtual std::shared_ptr<const ColumnsMover> mover(DType operands, DType dx, const Device&) const = 0;
};

}  // namespace minidnn
