// SPDX-License-Identifier: Apache-2.0
// Loading kernels and launching them. load_kernel() belongs in Engine::build: it may compile, and it may not run while
// a CUDA graph is captured. launch() belongs in Plan::run: no allocation, no look-up, no text.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <type_traits>

#include "cpp/core/device.h"
#include "cpp/engine/kernel_spec.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {

// A kernel ready to run on one device. Never unloaded: a stream may still hold it, and the driver frees all at exit.
struct Kernel {
  std::string name;  // the spec's expression
  int device = 0;
  CUfunction function = nullptr;
  int registers = 0;                       // a thread's
  int static_smem = 0;                     // bytes
  mutable std::atomic<int> smem_limit{0};  // dynamic shared memory allowed so far; only load_kernel() raises it

  static constexpr int kMaxParameters = 16;
  int parameter_count = -1;  // -1: the driver can not tell, and launch() trusts its caller
  size_t parameter_bytes[kMaxParameters]{};
};

// Cached by spec and device. `dynamic_smem_bytes` is the most that a launch will ask for; where a block has more than
// 48 KB, its static shared memory included, the driver must be told beforehand. A cubin that the driver refuses is compiled again, once.
std::shared_ptr<const Kernel> load_kernel(const KernelSpec&, int device, int dynamic_smem_bytes = 0);

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};
struct LaunchConfig {
  Dim3 grid{}, block{};
  Dim3 cluster{};           // blocks of a thread-block cluster
  unsigned smem_bytes = 0;  // dynamic
  Stream stream = nullptr;
  bool programmatic = false;  // may start before its predecessor ends; the kernel calls griddepcontrol.wait
};

// Blocks of a cluster, at most; 1 where there are none. Eight fit every device that has clusters. Sixteen must lie in one
// part of it (GPC), and one of Hopper's eight has as many multiprocessors, if all together have more than 8 * 15.
inline int usual_cluster(const Device& d) { return d.arch < 90 ? 1 : 8; }
inline int largest_cluster(const Device& d) { return d.arch < 90 ? 1 : d.arch == 90 && d.sm_count > 120 ? 16 : 8; }
void allow_cluster(const Kernel&, const LaunchConfig&);  // more than eight must be, before a launch

// Blocks of `config`, or clusters of them, that a whole device runs at once: for grids that stay, where one more would be
// a second turn. Clusters lie within a part of the device, so there are fewer than blocks would make. Of `config` all but
// its grid.
int fit_at_once(const Kernel&, const LaunchConfig&, const Device&);

void launch_raw(const Kernel&, const LaunchConfig&, void** parameters);
[[noreturn]] void fail_parameters(const Kernel&, int count, const size_t* bytes);

// The arguments must be the kernel's parameters to the byte: int64_t(n) for an int64_t, never a literal 0. Sizes are
// compared where the driver knows them (550 and later). A grid with a zero in it launches nothing.
template <class... Args> void launch(const Kernel& kernel, const LaunchConfig& config, const Args&... args) {
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
  launch_raw(kernel, config, parameters);
}

}  // namespace minidnn::cuda
