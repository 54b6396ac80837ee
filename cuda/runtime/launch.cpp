// SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime/launch.h"

#include <mutex>
#include <unordered_map>
#include <vector>

#include "cpp/core/device/cuda_backend.h"
#include "cuda/runtime/kernel_cache.h"

namespace minidnn::cuda {
namespace {

std::string text(const Dim3& d) { return cat('[', d.x, ", ", d.y, ", ", d.z, ']'); }

CUresult load_module(const Cubin& cubin, CUfunction& function) {
  CUmodule module = nullptr;
  CUresult result = driver().cuModuleLoadData(&module, cubin.code.data());
  if (result != CUDA_SUCCESS) return result;
  return driver().cuModuleGetFunction(&function, module, cubin.kernel_name.c_str());
}

CUfunction load(const KernelSpec& spec, const std::string& arch, int device, const Cubin& cubin) {
  CUfunction function = nullptr;
  CUresult result = load_module(cubin, function);
  if (result == CUDA_SUCCESS) return function;
  auto what = [&](const Cubin& c) {
    return cat("loading kernel ", spec.kernel, " (", arch, ", ", c.origin, ") on cuda:", device);
  };
  // The driver refused a cubin from the package or the disk cache. The cubin was made for another driver, so the kernel
  // is compiled again.
  if (cubin.origin == "nvrtc" || result == CUDA_ERROR_OUT_OF_MEMORY) fail(result, what(cubin));
  std::shared_ptr<const Cubin> fresh;
  try {
    fresh = recompile(spec, arch);
  } catch (const Error& e) {
    throw DeviceError(cat(what(cubin), ": the driver rejects the cubin (error ", int(result), "), and ", e.what()));
  }
  check(load_module(*fresh, function), what(*fresh));
  return function;
}

void read_parameters(Kernel& kernel) {
  const Driver& d = driver();
  if (!d.cuFuncGetParamInfo) return;
  for (int i = 0; i <= Kernel::kMaxParameters; ++i) {
    size_t offset = 0, bytes = 0;
    if (d.cuFuncGetParamInfo(kernel.function, size_t(i), &offset, &bytes) != CUDA_SUCCESS) {
      kernel.parameter_count = i;
      return;
    }
    if (i < Kernel::kMaxParameters) kernel.parameter_bytes[i] = bytes;
  }
}

void allow_smem(const Kernel& kernel, int bytes) {
  // The most shared memory (static plus dynamic) that a block may have without opt-in, in bytes.
  constexpr int kWithoutAsking = 48 << 10;
  if (bytes <= kernel.smem_limit) return;
  if (kernel.static_smem + bytes > kWithoutAsking)
    check(driver().cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes),
          "setting for kernel ", kernel.name, ' ', bytes, " bytes of dynamic and ", kernel.static_smem,
          " of static shared memory on cuda:", kernel.device, ", where a block may have ",
          device(kernel.device).max_smem_bytes);
  kernel.smem_limit = bytes;
}

struct Loaded {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<Kernel>> kernels;
};

}  // namespace

std::shared_ptr<const Kernel> load_kernel(const KernelSpec& spec, int device_index, int dynamic_smem_bytes) {
  static auto* const loaded = new Loaded;
  const std::string arch = arch_for(spec, device(device_index).arch);
  // cubin() is called before the mutex is locked, so that different kernels compile in parallel.
  std::shared_ptr<const Cubin> code = cubin(spec, arch);
  Current current(device_index);
  std::lock_guard lock(loaded->mutex);
  std::shared_ptr<Kernel>& slot = loaded->kernels[cat("cuda:", device_index, ' ', identity(spec))];
  if (!slot) {
    auto kernel = std::make_shared<Kernel>();
    kernel->name = spec.kernel;
    kernel->device = device_index;
    kernel->function = load(spec, arch, device_index, *code);
    check(driver().cuFuncGetAttribute(&kernel->registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel->function), "kernel ",
          spec.kernel);
    check(driver().cuFuncGetAttribute(&kernel->static_smem, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, kernel->function),
          "kernel ", spec.kernel);
    read_parameters(*kernel);
    slot = kernel;
  }
  allow_smem(*slot, dynamic_smem_bytes);
  return slot;
}

void allow_cluster(const Kernel& kernel, const LaunchConfig& c) {
  if (c.cluster.x <= 8) return;
  Current current(kernel.device);
  check(driver().cuFuncSetAttribute(kernel.function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
        "clusters of ", kernel.name);
}

int fit_at_once(const Kernel& kernel, const LaunchConfig& c, const Device& device) {
  Current current(kernel.device);
  int count = 0;
  if (c.cluster.x > 1) {
    allow_cluster(kernel, c);
    CUlaunchAttribute cluster;
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {c.cluster.x, c.cluster.y, c.cluster.z};
    CUlaunchConfig config{c.cluster.x, c.cluster.y,  c.cluster.z, c.block.x, c.block.y,
                          c.block.z,   c.smem_bytes, nullptr,     &cluster,  1};
    check(driver().cuOccupancyMaxActiveClusters(&count, kernel.function, &config), "clusters of ", kernel.name);
    return count;
  }
  const int threads = int(c.block.x * c.block.y * c.block.z);
  check(driver().cuOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel.function, threads, c.smem_bytes),
        "blocks of ", kernel.name);
  return count * device.sm_count;
}

void launch_raw(const Kernel& kernel, const LaunchConfig& c, Stream on, void** parameters) {
  if (c.grid.x == 0 || c.grid.y == 0 || c.grid.z == 0) return;
  Current current(kernel.device);
  const Driver& d = driver();
  auto stream = static_cast<CUstream>(on);
  bool clustered = c.cluster.x * c.cluster.y * c.cluster.z > 1;
  CUresult result;
  if (!clustered && !c.programmatic && !c.cooperative) {
    result = d.cuLaunchKernel(kernel.function, c.grid.x, c.grid.y, c.grid.z, c.block.x, c.block.y, c.block.z,
                              c.smem_bytes, stream, parameters, nullptr);
  } else {
    CUlaunchAttribute attributes[3];
    CUlaunchConfig config{c.grid.x,  c.grid.y,     c.grid.z, c.block.x,  c.block.y,
                          c.block.z, c.smem_bytes, stream,   attributes, 0};
    if (clustered) {
      CUlaunchAttribute& a = attributes[config.numAttrs++];
      a.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
      a.value.clusterDim.x = c.cluster.x;
      a.value.clusterDim.y = c.cluster.y;
      a.value.clusterDim.z = c.cluster.z;
    }
    if (c.programmatic) {
      CUlaunchAttribute& a = attributes[config.numAttrs++];
      a.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      a.value.programmaticStreamSerializationAllowed = 1;
    }
    if (c.cooperative) {
      CUlaunchAttribute& a = attributes[config.numAttrs++];
      a.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
      a.value.cooperative = 1;
    }
    result = d.cuLaunchKernelEx(&config, kernel.function, parameters, nullptr);
  }
  if (result != CUDA_SUCCESS) [[unlikely]] {
    std::string advice;
    if (result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)
      advice = cat("; all its blocks must run at once, which ", c.instead, " does not need (algo)");
    fail(result, cat("launching ", kernel.name, " on cuda:", kernel.device, " with grid ", text(c.grid), ", block ",
                     text(c.block), ", cluster ", text(c.cluster), ", ", c.smem_bytes,
                     " bytes of dynamic shared memory (loaded for ", kernel.smem_limit.load(), "), ", kernel.registers,
                     " registers a thread", advice));
  }
}

void fail_parameters(const Kernel& kernel, int count, const size_t* bytes) {
  std::vector<size_t> found(bytes, bytes + count);
  std::vector<size_t> wanted(kernel.parameter_bytes, kernel.parameter_bytes + kernel.parameter_count);
  throw DeviceError(cat("launching ", kernel.name, ": its parameters have [", join(wanted), "] bytes, the arguments [",
                        join(found), "]"));
}

}  // namespace minidnn::cuda
