// SPDX-License-Identifier: Apache-2.0
// Where tensors are stored and engines run. Independent of CUDA: cuda/runtime fills in the properties of GPUs.
#pragma once
#include <string>

#include "cpp/core/error.h"

namespace minidnn {

// A place: "cpu" or "cuda:1".
struct Place {
  bool is_cuda = false;
  int index = 0;
  bool operator==(const Place&) const = default;
};
std::string name(Place);
Place place_from(const std::string& name);  // "cpu", "cuda" (index 0), "cuda:1"; DeviceError otherwise

// A place and the properties on which engines base decisions. Rates affect estimates (engine/roofline.h), not results.
struct Device {
  Place place;
  std::string model;       // "NVIDIA H100 80GB HBM3", "AMD EPYC 9R14 x86-64-v4 x 2 threads"; part of a tuning line
  int arch = 0;            // 90 for compute capability 9.0; 0 on the CPU
  int sm_count = 0;        // on the CPU: the number of threads
  int max_smem_bytes = 0;  // the opt-in limit of a block
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  double copy_gb_s = 0;     // bytes read plus bytes written
  double fp32_gflop_s = 0;  // on ordinary cores, not tensor cores
};
const Device& device_at(Place);  // DeviceError when there is no such device; cached, never invalidated

// An opaque queue of work. Null means the CPU, or a GPU's default stream.
using Stream = void*;

}  // namespace minidnn
