// SPDX-License-Identifier: Apache-2.0
// Names of devices, and the properties and memory of the CPU.
#include "cpp/core/device/device.h"

#include <charconv>
#include <cstring>

#include "cpp/core/cpu/isa.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/device/cuda_backend.h"
#include "cpp/core/device/memory.h"
#include "cpp/core/device/nominal_rates.h"
#include "cpp/core/platform.h"

namespace minidnn {

std::string name(Place p) { return p.is_cuda ? cat("cuda:", p.index) : "cpu"; }

Place place_from(const std::string& text) {
  if (text == "cpu") return {};
  if (text == "cuda") return {true, 0};
  int index = -1;
  const char* end = text.data() + text.size();
  if (text.rfind("cuda:", 0) == 0) {
    auto [stop, error] = std::from_chars(text.data() + 5, end, index);
    if (error == std::errc() && stop == end && index >= 0) return {true, index};
  }
  throw DeviceError(cat("device must be 'cpu', 'cuda' or 'cuda:<index>'; got '", text, "'"));
}

namespace {

struct HostMemory final : Memory {
  // The alignment of allocations in bytes: the size of a cache line and of an AVX-512 vector.
  static constexpr size_t kAlignment = 64;
  void* allocate(size_t bytes, Stream) override {
    // malloc() accepts a request for more memory than the machine has, and using that memory fails later. Therefore,
    // such a request is refused here.
    if (bytes > size_t(platform::memory_bytes())) return nullptr;
    return platform::allocate_aligned(bytes, kAlignment);
  }
  void release(void* p, size_t, Stream) noexcept override { platform::free_aligned(p); }
  void release_idle(void* p, size_t) noexcept override { platform::free_aligned(p); }
  void copy(void* to, const void* from, size_t bytes, Stream) override { std::memcpy(to, from, bytes); }
  void fill(void* p, int byte, size_t bytes, Stream) override { std::memset(p, byte, bytes); }
  void synchronize(Stream) override {}
  void synchronize_all() override {}
  size_t free_bytes() override { return size_t(platform::free_memory_bytes()); }
  bool reaches(const void* p) override { return p != nullptr; }
  bool order(Stream, Place, Stream) override { return true; }
};

Device host_device() {
  Device d;
  d.sm_count = cpu::thread_count();
  d.model = cat(platform::processor_name(), " ", name(cpu::isa()), " x ", d.sm_count, " threads");
  d.memory_bytes = platform::memory_bytes();
  d.copy_gb_s = NominalRates::kCpuCopyGbS * d.sm_count;
  d.fp32_gflop_s = NominalRates::kCpuFp32GflopS * d.sm_count;
  return d;
}

}  // namespace

const Device& device_at(Place p) {
  if (p.is_cuda) return cuda::device(p.index);
  static const Device host = host_device();
  return host;
}

Memory& memory_of(Place p) {
  if (p.is_cuda) return cuda::memory(p.index);
  static HostMemory host;
  return host;
}

}  // namespace minidnn
