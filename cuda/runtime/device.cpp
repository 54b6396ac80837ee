// SPDX-License-Identifier: Apache-2.0
// Describes a GPU by the attributes that the driver reports, without creating a context.
#include "cpp/core/device/cuda_backend.h"

#include <algorithm>
#include <vector>

#include "cuda/runtime/driver.h"

namespace minidnn::cuda {
namespace {

// The number of float32 lanes of an SM: 64 up to compute capability 8.0, and 128 above 8.0.
int lanes_per_sm(int arch) { return arch <= 80 ? 64 : 128; }

Device describe(int index) {
  const Driver& d = driver();
  CUdevice handle = 0;
  check(d.cuDeviceGet(&handle, index), "cuDeviceGet of cuda:", index);
  auto get = [&](CUdevice_attribute which) {
    int value = 0;
    check(d.cuDeviceGetAttribute(&value, which, handle), "cuDeviceGetAttribute ", int(which), " of cuda:", index);
    return value;
  };
  char model[256] = "";
  size_t bytes = 0;
  check(d.cuDeviceGetName(model, sizeof model, handle), "cuDeviceGetName of cuda:", index);
  check(d.cuDeviceTotalMem(&bytes, handle), "cuDeviceTotalMem of cuda:", index);

  Device gpu;
  gpu.place = {true, index};
  gpu.model = model;
  gpu.arch = 10 * get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  gpu.arch += get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  gpu.sm_count = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  gpu.max_smem_bytes = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  gpu.l2_bytes = get(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  gpu.memory_bytes = int64_t(bytes);
  // The driver reports clock rates in kHz. GPU memory transfers data on both edges of the clock. A copy reaches 0.9 of
  // the peak bandwidth of memory: for the 3352 GB/s of an H100, this is 3017 GB/s, and 3.0 TB/s was measured. Virtual
  // GPUs report no clock rates, so a lower bound keeps estimated times finite.
  double bus_bytes = get(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8.0;
  gpu.copy_gb_s = std::max(100.0, 0.9 * 2 * bus_bytes * get(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) / 1e6);
  double flop_per_clock = 2.0 * lanes_per_sm(gpu.arch) * gpu.sm_count;
  gpu.fp32_gflop_s = std::max(1000.0, flop_per_clock * get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1e6);
  return gpu;
}

}  // namespace

const Device& device(int index) {
  driver();  // throws if there is no usable driver or no GPU
  static const auto* const all = [] {
    auto* gpus = new std::vector<Device>;
    for (int i = 0; i < device_count(); ++i) gpus->push_back(describe(i));
    return gpus;
  }();
  MINIDNN_CHECK(DeviceError, index >= 0 && size_t(index) < all->size(), "there is no cuda:", index, "; there is ",
                all->size() == 1 ? "cuda:0 only" : cat("cuda:0 to cuda:", all->size() - 1));
  return (*all)[size_t(index)];
}

}  // namespace minidnn::cuda
