// SPDX-License-Identifier: Apache-2.0
// What the families ask of the tensor-core main loops, and get. Host only.
#pragma once
#include <vector>

#include "cpp/engine/engine.h"
#include "cuda/gemm/lower.h"

namespace minidnn {

struct GemmTask {
  std::vector<GemmView> views;  // of one shape but for phases
  DType type{}, y{};            // of the operands, of the result
  Activation activation{};
  bool has_bias = false, has_c = false;
  int64_t alignment = 16;  // of every pointer, in bytes
  double bytes = 0;        // read and written, for estimates
  bool promote = false;    // sums of tensor cores are kept short
  bool sums = false;       // of y's columns and of their squares are wanted, too: GemmArgs::sums
};

// What a kernel does with its sums: compiled in, since code that is not used takes its time, too (measured_facts.md).
struct EpilogueTraits {
  Activation activation = Activation::identity;
  bool bias = false, c = false;
  GemmStore store = GemmStore::lines;

  std::string text() const;  // as template arguments
};

GemmTask gemm_task(const MatmulProblem&);
GemmTask gemm_task(const ConvProblem&);

// Enqueues the product; immutable.
struct GemmPlan {
  virtual ~GemmPlan() = default;
  virtual void run(const GemmArgs&, void* workspace, Stream) const = 0;
};

}  // namespace minidnn
