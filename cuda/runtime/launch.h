// SPDX-License-Identifier: Apache-2.0
// Loads kernels and launches them. An engine calls load_kernel() in Engine::build: it may compile, and must not run
// while a CUDA graph is captured. A plan calls launch() in Plan::run: it does not allocate, look up or format anything.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <type_traits>

#include "cpp/core/device.h"
#include "cpp/engine/kernel_spec.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {

// A kernel that is ready to run on one device. It is never unloaded, because a stream may still use it. The driver
// frees everything at exit.
struct Kernel {
  std::string name;  // the C++ expression that names the kernel in its spec
  int device = 0;
  CUfunction function = nullptr;
  int registers = 0;    // registers per thread
  int static_smem = 0;  // bytes of static shared memory per block
  // The bytes of dynamic shared memory that the driver allows a launch so far. Only load_kernel() raises this limit.
  mutable std::atomic<int> smem_limit{0};

  static constexpr int kMaxParameters = 16;
  // The number of parameters, or -1 if the driver cannot list them. If it is -1, launch() does not check its arguments.
  int parameter_count = -1;
  size_t parameter_bytes[kMaxParameters]{};
};

// Loads a kernel. The result is cached by spec and device. `dynamic_smem_bytes` is the most dynamic shared memory that
// a launch will request. The driver must know it beforehand if a block needs more than 48 KB of static and dynamic
// shared memory. If the driver refuses a cubin, it is compiled again, once.
std::shared_ptr<const Kernel> load_kernel(const KernelSpec&, int device, int dynamic_smem_bytes = 0);

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct LaunchConfig {
  Dim3 grid{}, block{};
  Dim3 cluster{};           // the blocks of a cluster
  unsigned smem_bytes = 0;  // bytes of dynamic shared memory per block
  // The kernel may start before the preceding kernel of the stream ends, so it must call griddepcontrol.wait.
  bool programmatic = false;
};

// The most blocks of a cluster, or 1 if the device has no clusters. Every device with clusters allows eight blocks.
// Sixteen blocks must fit in one GPC. A Hopper GPU has eight GPCs. If it has more than 8 * 15 multiprocessors, at least
// one GPC has sixteen of them.
inline int usual_cluster(const Device& d) { return d.arch < 90 ? 1 : 8; }
inline int largest_cluster(const Device& d) { return d.arch < 90 ? 1 : d.arch == 90 && d.sm_count > 120 ? 16 : 8; }
// Must be called once before a kernel is launched with more than eight blocks per cluster.
void allow_cluster(const Kernel&, const LaunchConfig&);

// How many blocks of `config` the whole device runs at the same time, or how many clusters if `config` has a cluster.
// It is for persistent grids, where one more block would take a second wave. A cluster must fit in a GPC, so the number
// of clusters is less than the number of blocks suggests. All fields of `config` but the grid are used.
int fit_at_once(const Kernel&, const LaunchConfig&, const Device&);

void launch_raw(const Kernel&, const LaunchConfig&, Stream, void** parameters);
[[noreturn]] void fail_parameters(const Kernel&, int count, const size_t* bytes);

// Launches a kernel. The size of each argument must equal the size of the kernel's parameter: for an int64_t, pass
// int64_t(n), not a literal 0. The sizes are checked if the driver can list them (version 550 and later). If a
// dimension of the grid is zero, nothing is launched.
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
