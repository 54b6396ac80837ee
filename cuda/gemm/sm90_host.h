// SPDX-License-Identifier: Apache-2.0
// The engines cuda.matmul.wgmma and cuda.conv.wgmma but for their problems: from views to tensor maps, tiles and launches
// of the main loop in sm90.cuh.
#pragma once
#include <optional>
#include <vector>

#include "cpp/engine/engine.h"
#include "cuda/gemm/lower.h"
#include "cuda/runtime/launch.h"

namespace minidnn {

// What a family asks of the main loop.
struct Sm90Task {
  std::vector<GemmView> views;  // of one shape but for phases
  DType type{}, y{};            // of the operands, of the result
  Activation activation{};
  bool has_bias = false, has_c = false;
  int64_t alignment = 16;  // of every pointer, in bytes
  double bytes = 0;        // read and written, for estimates
};

std::string sm90_why_not(const Sm90Task&, const Device&);
double sm90_estimate_us(const Sm90Task&, const Device&);
std::vector<std::string> sm90_configs(const Sm90Task&, const Device&);  // best first
size_t sm90_workspace_bytes(const Sm90Task&, const std::string& config);
std::vector<KernelSpec> sm90_kernels(bool convolutions);

// Enqueues the product; immutable.
struct Sm90Plan {
  virtual ~Sm90Plan() = default;
  virtual void run(const GemmArgs&, void* workspace, Stream) const = 0;
};
std::unique_ptr<Sm90Plan> sm90_plan(const Sm90Task&, const Device&, const std::string& config);

}  // namespace minidnn
