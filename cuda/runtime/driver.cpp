// SPDX-License-Identifier: Apache-2.0
// Opens libcuda once, and explains every way in which this can fail. No object of this file is ever destroyed: arrays
// may outlive static destructors, and freeing the memory of an array needs the table of driver functions.
#include "cuda/runtime/driver.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "cpp/core/device/cuda_backend.h"
#include "cpp/core/platform.h"

namespace minidnn::cuda {
namespace {

struct State {
  Driver table{};
  int cuda_version = 0;
  int devices = 0;
  std::string why;  // the reason why CUDA is not usable, or "" if it is
  std::unique_ptr<std::atomic<CUcontext>[]> contexts;
};

std::atomic<bool> forked{false};
constexpr const char* kForked =
    "CUDA was initialised in the process that this one was forked from, and does not survive a fork; "
    "start workers with multiprocessing's 'spawn' or 'forkserver'";

std::string version_text(int v) { return cat(v / 1000, '.', v % 1000 / 10); }

std::string init(State& s) {
  std::string ignored;
  void* library = platform::load_library("libcuda.so.1", ignored);
  if (!library) return "there is no NVIDIA driver (libcuda.so.1 is not found)";
  auto get_version =
      reinterpret_cast<PFN_cuDriverGetVersion_v2020>(platform::find_symbol(library, "cuDriverGetVersion"));
  if (!get_version || get_version(&s.cuda_version) != CUDA_SUCCESS)
    return "libcuda.so.1 does not report the CUDA version of the driver";
  auto look_up = reinterpret_cast<PFN_cuGetProcAddress_v12000>(platform::find_symbol(library, "cuGetProcAddress_v2"));
  s.table = Driver{EntryPoints(look_up)};
  if (!look_up || s.table.get.missing)
    return cat("the NVIDIA driver is of CUDA ", version_text(s.cuda_version), " and lacks ",
               look_up ? s.table.get.missing : "cuGetProcAddress_v2", "; pyminidnn needs CUDA ",
               version_text(EntryPoints::kCudaVersion), " (driver 525) or later");

  CUresult result = s.table.cuInit(0);
  if (result == CUDA_SUCCESS) result = s.table.cuDeviceGetCount(&s.devices);
  // The driver returns CUDA_ERROR_NOT_INITIALIZED if CUDA was initialised before this process was forked, for example
  // by torch or CuPy.
  if (result == CUDA_ERROR_NOT_INITIALIZED) return kForked;
  if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && s.devices == 0)) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return cat("the NVIDIA driver (CUDA ", version_text(s.cuda_version), ") sees no GPU",
               visible ? cat("; CUDA_VISIBLE_DEVICES is '", visible, "'") : "");
  }
  if (result != CUDA_SUCCESS) {
    const char* name = nullptr;
    s.table.cuGetErrorName(result, &name);
    return cat("the NVIDIA driver (CUDA ", version_text(s.cuda_version), ") does not start: ", name ? name : "error ",
               " (", int(result), ")");
  }
  s.contexts = std::make_unique<std::atomic<CUcontext>[]>(size_t(s.devices));
  platform::at_fork(nullptr, nullptr, [] { forked = true; });
  return "";
}

State& state() {
  static State* const s = [] {
    auto* fresh = new State;
    fresh->why = init(*fresh);
    if (!fresh->why.empty()) fresh->devices = 0;
    return fresh;
  }();
  return *s;
}

bool usable(const State& s) { return s.why.empty() && !forked.load(std::memory_order_relaxed); }

}  // namespace

std::string why_unavailable() {
  const State& s = state();
  return forked ? kForked : s.why;
}

int device_count() {
  const State& s = state();
  return usable(s) ? s.devices : 0;
}

int driver_cuda_version() {
  const State& s = state();
  return usable(s) ? s.cuda_version : 0;
}

const Driver& driver() {
  const State& s = state();
  if (!usable(s)) [[unlikely]]
    throw DeviceError(why_unavailable());
  return s.table;
}

void fail(CUresult result, const std::string& what) {
  const char *name = nullptr, *text = nullptr;
  const Driver& d = state().table;
  if (d.cuGetErrorName) d.cuGetErrorName(result, &name);
  if (d.cuGetErrorString) d.cuGetErrorString(result, &text);
  std::string message =
      cat(what, ": ", name ? name : "CUDA error", " (", int(result), ")", text ? ": " : "", text ? text : "");
  if (result == CUDA_ERROR_OUT_OF_MEMORY) throw OutOfMemory(message);
  throw DeviceError(message);
}

CUcontext context(int index) {
  State& s = state();
  if (index < 0 || index >= s.devices) [[unlikely]]
    device(index);  // throws DeviceError, because the driver has no device with this index
  std::atomic<CUcontext>& slot = s.contexts[size_t(index)];
  if (CUcontext found = slot.load(std::memory_order_acquire)) return found;
  static auto* const mutex = new std::mutex;
  std::lock_guard lock(*mutex);
  if (!slot.load()) {
    CUdevice handle = 0;
    CUcontext fresh = nullptr;
    check(s.table.cuDeviceGet(&handle, index), "cuDeviceGet of cuda:", index);
    check(s.table.cuDevicePrimaryCtxRetain(&fresh, handle), "cuDevicePrimaryCtxRetain of cuda:", index);
    slot.store(fresh, std::memory_order_release);
  }
  return slot.load();
}

bool in_use(int index) { return state().contexts[size_t(index)].load(std::memory_order_acquire) != nullptr; }

CUcontext use(int index) {
  const Driver& d = driver();
  CUcontext wanted = context(index), now = nullptr;
  check(d.cuCtxGetCurrent(&now), "cuCtxGetCurrent");
  if (now == wanted) return nullptr;
  check(d.cuCtxSetCurrent(wanted), "cuCtxSetCurrent to cuda:", index);
  return now;
}

void Current::restore(CUcontext before) noexcept { state().table.cuCtxSetCurrent(before); }

}  // namespace minidnn::cuda
