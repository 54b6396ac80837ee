// SPDX-License-Identifier: Apache-2.0
// Loads kernels and launches them. load_kernel() belongs in Engine::build: it may compile, and must not run while a
// CUDA graph is captured. launch() belongs in Plan::run: it allocates nothing, looks nothing up and formats no text.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <type_traits>

#include "cpp/core/device.h"
#include "cpp/engine/kernel_spec.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {

// A kernel that is ready to run on one device. It is never unloaded: a stream may still use it, and the driver frees
// everything at exit.
struct Kernel {
  std::string name;  // the spec's expression
  int device = 0;
  CUfunction function = nullptr;
  int registers = 0;                       // per thread
  int static_smem = 0;                     // bytes
  mutable std::atomic<int> smem_limit{0};  // dynamic shared memory allowed so far; only load_kernel() raises it

  static constexpr int kMaxParameters = 16;
  // -1 if the driver can not list the parameters. launch() then does not check them.
  int parameter_count = -1;
  size_t parameter_bytes[kMaxParameters]{};
};

// The result is cached by spec and device. `dynamic_smem_bytes` is the largest amount that a launch will request: the
// driver must be told beforehand if a block needs more than 48 KB, static shared memory included. A cubin that the
// driver refuses is compiled again, once.
std::shared_ptr<const Kernel> load_kernel(const KernelSpec&, int device, int dynamic_smem_bytes = 0);

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct LaunchConfig {
  Dim3 grid{}, block{};
  Dim3 cluster{};             // blocks per thread-block cluster
  unsigned smem_bytes = 0;    // dynamic
  bool programmatic = false;  // may start before its predecessor ends; the kernel calls griddepcontrol.wait
};

// Maximum blocks per cluster; 1 if the device has no clusters. Every device that has clusters supports eight blocks.
// Sixteen blocks must fit one part of the device (a GPC); if a Hopper device has more than 8 * 15 multiprocessors, at
// least one of its eight GPCs has sixteen.
inline int usual_cluster(const Device& d) { return d.arch < 90 ? 1 : 8; }
inline int largest_cluster(const Device& d) { return d.arch < 90 ? 1 : d.arch == 90 && d.sm_count > 120 ? 16 : 8; }
// Must be called before a launch with more than eight blocks per cluster.
void allow_cluster(const Kernel&, const LaunchConfig&);

// How many blocks of `config`, or clusters of blocks, a whole device runs at the same time. For persistent grids, where
// one block more would need a second wave. Clusters must fit within a GPC, so fewer of them fit than the number of
// blocks suggests. Uses every field of `config` except the grid.
int fit_at_once(const Kernel&, const LaunchConfig&, const Device&);

void launch_raw(const Kernel&, const LaunchConfig&, Stream, void** parameters);
[[noreturn]] void fail_parameters(const Kernel&, int count, const size_t* bytes);

// The sizes of the arguments must equal those of the kernel's parameters: int64_t(n) for an int64_t, never a literal 0.
// Sizes are compared if the driver knows them (550 and later). A grid with a zero dimension launches nothing.
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
