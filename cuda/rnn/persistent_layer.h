// SPDX-License-Identifier: Apache-2.0
// What cuda.rnn.persistent and cuda.rnn.cluster share: a launch for each layer, in which all blocks keep their weights in
// registers. The products with the inputs of all steps come before it, and those for their gradients after it.
#pragma once
#include <string>
#include <vector>

#include "cuda/rnn/persistent_params.h"
#include "cuda/rnn/products.h"
#include "cuda/runtime/plan.h"

namespace minidnn::cuda::rnn {

// How the blocks of a group exchange what they compute: through the L2, or through the shared memory of a cluster.
enum class Exchange { l2, cluster };

// Why neither engine supports the problem, or "".
std::string persistent_why_not(const RnnProblem&, const Device&);
// The fastest shape. slices is 0 if there is none.
RnnPersistentShape persistent_shape(const RnnProblem&, const Device&, Exchange);
double persistent_estimate_us(const RnnProblem&, const Device&, Exchange);
size_t persistent_workspace_bytes(const RnnProblem&, const Device&, Exchange);
std::unique_ptr<Plan<RnnProblem>> persistent_plan(const RnnProblem&, const Device&, Exchange);
std::vector<KernelSpec> persistent_kernels(Exchange);

}  // namespace minidnn::cuda::rnn
