// SPDX-License-Identifier: Apache-2.0
// Devices, on which tensors are stored and engines run. This header is independent of CUDA; cuda/runtime fills in the
// properties of GPUs.
#pragma once
#include <string>

#include "cpp/core/error.h"

namespace minidnn {

// Identifies a device, such as "cpu" or "cuda:1".
struct Place {
  bool is_cuda = false;
  int index = 0;
  bool operator==(const Place&) const = default;
};
std::string name(Place);
// Accepts "cpu", "cuda" (which means index 0) and "cuda:1". Throws DeviceError for any other name.
Place place_from(const std::string& name);

// A device, and the properties on which engines base their decisions. The rates (GB/s and GFLOP/s) affect estimates of
// time (engine/roofline.h), not results.
struct Device {
  Place place;
  // The model, for example "NVIDIA H100 80GB HBM3" or "AMD EPYC 9R14 x86-64-v4 x 2 threads". Each line of a tuning file
  // begins with the model.
  std::string model;
  int arch = 0;            // architecture of a GPU: 90 for compute capability 9.0; 0 for the CPU
  int sm_count = 0;        // number of SMs of a GPU; number of threads of the CPU
  int max_smem_bytes = 0;  // largest shared memory of a block in bytes (the opt-in limit)
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  double copy_gb_s = 0;     // rate of memory copies in GB/s, counting bytes read plus bytes written
  double fp32_gflop_s = 0;  // rate of float32 arithmetic in GFLOP/s, without tensor cores
};
// Throws DeviceError if the machine does not have the device. The result is cached and never invalidated.
const Device& device_at(Place);

// The address of a CUDA stream. On a GPU, null means the default stream. The CPU has no streams, and uses null.
using Stream = void*;

}  // namespace minidnn
