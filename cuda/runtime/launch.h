// SPDX-License-Identifier: Apache-2.0
// Loads kernels and launches them. An engine calls load_kernel() in Engine::build. load_kernel() may compile, so it
// must not be called while a CUDA graph is captured. A plan calls launch() in Plan::run. launch() does not allocate
// memory, look up names or format text.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <type_traits>

#include "cpp/core/device/device.h"
#include "cpp/engine/kernel_spec.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {

// A kernel that is ready to run on one device. A kernel is never unloaded, because a stream may still use it. The
// driver frees all kernels at exit.
struct Kernel {
  std::string name;  // the C++ expression that names the kernel in its KernelSpec
  int device = 0;
  CUfunction function = nullptr;
  int registers = 0;    // the number of registers per thread
  int static_smem = 0;  // the number of bytes of static shared memory per block
  // The number of bytes of dynamic shared memory that a launch may use at present. Only load_kernel() raises this
  // limit.
  mutable std::atomic<int> smem_limit{0};

  static constexpr int kMaxParameters = 16;
  // The number of parameters of the kernel, or -1 if the driver cannot list them. If it is -1, launch() does not check
  // its arguments.
  int parameter_count = -1;
  size_t parameter_bytes[kMaxParameters]{};
};

// Loads a kernel on a device. The loaded kernel is cached by its KernelSpec and the device. `dynamic_smem_bytes` is the
// most dynamic shared memory that any launch of the kernel will request. If a block needs more than 48 KB of static and
// dynamic shared memory, the driver must know this size before the launch. If the driver refuses a cubin, the kernel is
// compiled again, but only once.
std::shared_ptr<const Kernel> load_kernel(const KernelSpec&, int device, int dynamic_smem_bytes = 0);

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct LaunchConfig {
  Dim3 grid{}, block{};
  Dim3 cluster{};           // the number of blocks in a cluster, in each dimension
  unsigned smem_bytes = 0;  // the number of bytes of dynamic shared memory per block
  // Whether the kernel may start before the preceding kernel of the stream ends. Such a kernel must call
  // griddepcontrol.wait.
  bool programmatic = false;
  // Whether all blocks must run at the same time, because they wait for each other. If they do not fit on the device, the
  // launch fails, and its error names the engine `instead`.
  bool cooperative = false;
  const char* instead = "";
};

// usual_cluster() is the number of blocks in a cluster that every device with clusters allows: eight. largest_cluster()
// is sixteen on a Hopper GPU with more than 8 * 15 SMs, because one of its eight GPCs then has sixteen; else eight.
// Both are 1 if the device has no clusters.
inline int usual_cluster(const Device& d) { return d.arch < 90 ? 1 : 8; }
inline int largest_cluster(const Device& d) { return d.arch < 90 ? 1 : d.arch == 90 && d.sm_count > 120 ? 16 : 8; }
// allow_cluster() must be called once before a kernel is launched with more than eight blocks per cluster.
void allow_cluster(const Kernel&, const LaunchConfig&);

// The number of blocks that the whole device runs at the same time or, if the LaunchConfig has clusters, the number of
// clusters. Persistent grids have this size. The function ignores the grid of the LaunchConfig.
int fit_at_once(const Kernel&, const LaunchConfig&, const Device&);

void launch_raw(const Kernel&, const LaunchConfig&, Stream, void** parameters);
[[noreturn]] void fail_parameters(const Kernel&, int count, const size_t* bytes);

// Launches a kernel. The size of each argument must equal the size of the corresponding parameter of the kernel: for an
// int64_t, pass int64_t(n), not the literal 0. launch() checks the sizes if the driver can list them (release 550 and
// later). If a dimension of the grid is zero, nothing is launched.
template <class... Args>
void launch(const Kernel& kernel, const LaunchConfig& config, Stream stream, const Args&... args) {
  static_assert((std::is_trivially_copyable_v<Args> && ...), "kernel arguments are copied as bytes");
  constexpr int count = sizeof...(Args);
  const size_t bytes[] = {sizeof(Args)..., 0};
  void* parameters[] = {const_cast<void*>(static_cast<const void*>(&args))..., nullptr};
  if (kernel.parameter_count >= 0) {
    bool same = kernel.parameter_count == count;
    for (int i = 0; same && i < count; ++i) same = kernel.parameter_bytes[i] == bytes[i];
    if (!same) [[unlikely]]
      fail_parameters(kernel, count, bytes);
  }
  launch_raw(kernel, config, stream, parameters);
}

}  // namespace minidnn::cuda
