// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory of a GPU, from one memory pool for each device. This library owns the pools. The pools keep
// freed memory, so a repeated allocation takes about a microsecond and never synchronises. The default pool of CUDA
// stays unchanged, because torch and CuPy use its settings. A stream that is being captured is not used for
// allocations. An allocation on such a stream would become a node of the CUDA graph. Its memory would belong to the
// graph, so a tensor could not keep it.
#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "cpp/core/device/cuda_backend.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {
namespace {

CUdeviceptr address(const void* p) { return reinterpret_cast<CUdeviceptr>(p); }
CUstream queue(Stream s) { return static_cast<CUstream>(s); }

struct Origin {
  unsigned kind = 0;  // a CUmemorytype, or 0 for memory that the driver does not know, such as memory from malloc
  unsigned managed = 0;
  int device = -1;
};

// Asks the driver where the memory at p is. For unknown memory, cuPointerGetAttributes (plural) leaves the values
// unchanged, and cuPointerGetAttribute would return an error.
Origin origin_of(const void* p) {
  Origin o;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* values[] = {&o.kind, &o.managed, &o.device};
  check(driver().cuPointerGetAttributes(3, wanted, values, address(p)), "cuPointerGetAttributes of ",
        static_cast<const void*>(p));
  return o;
}

// While a Relaxed object exists, this thread may make driver calls that a stream capture of any thread would otherwise
// forbid.
class Relaxed {
 public:
  Relaxed() { exchange(); }
  ~Relaxed() { exchange(); }
  Relaxed(const Relaxed&) = delete;

 private:
  void exchange() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

class GpuMemory final : public Memory {
 public:
  explicit GpuMemory(int device) : device_(device) {}

  void* allocate(size_t bytes, Stream stream) override {
    Current current(device_);
    CUdeviceptr p = 0;
    CUresult result = take(&p, bytes, stream);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && pool()) {
      // Waits for all streams. Then memory that was freed on other streams, and unused memory of the pool, is
      // available.
      driver().cuCtxSynchronize();
      driver().cuMemPoolTrimTo(pool(), 0);
      result = take(&p, bytes, stream);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
    check(result, "allocating ", bytes_text(double(bytes)), " on cuda:", device_);
    return reinterpret_cast<void*>(p);
  }

  void* allocate_idle(size_t bytes) override {
    Current current(device_);
    const Relaxed relaxed;
    CUdeviceptr p = 0;
    CUresult result = CUDA_SUCCESS;
    std::lock_guard lock(idle_mutex_);
    if (!idle_stream_) result = driver().cuStreamCreate(&idle_stream_, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) result = take(&p, bytes, idle_stream_);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return nullptr;
    if (result == CUDA_SUCCESS) result = driver().cuStreamSynchronize(idle_stream_);
    check(result, "allocating ", bytes_text(double(bytes)), " on cuda:", device_, " for a CUDA graph");
    return reinterpret_cast<void*>(p);
  }

  void release(void* p, size_t, Stream stream) noexcept override {
    // Errors are ignored. After the driver has shut down, the memory is gone, and in a forked child process, it belongs
    // to the parent process. In both cases, there is nothing to free.
    try {
      Current current(device_);
      if (pool()) driver().cuMemFreeAsync(address(p), queue(stream));
      else driver().cuMemFree(address(p));
    } catch (const Error&) {}
  }

  void release_idle(void* p, size_t) noexcept override {
    try {
      Current current(device_);
      // cuMemFree can free memory of a pool, too. For memory of a pool, it does not synchronise.
      driver().cuMemFree(address(p));
    } catch (const Error&) {}
  }

  void copy(void* to, const void* from, size_t bytes, Stream stream) override {
    if (bytes == 0) return;
    Current current(device_);
    const Origin target = origin_of(to), source = origin_of(from);
    const bool on_gpus = target.kind == CU_MEMORYTYPE_DEVICE && source.kind == CU_MEMORYTYPE_DEVICE;
    // The memory of a pool is not mapped into other devices. A copy between two devices therefore names the contexts of
    // both devices.
    const bool peers = on_gpus && target.device != source.device;
    check(peers ? driver().cuMemcpyPeerAsync(address(to), context(target.device), address(from), context(source.device),
                                             bytes, queue(stream))
                : driver().cuMemcpyAsync(address(to), address(from), bytes, queue(stream)),
          "copying ", bytes_text(double(bytes)), " on cuda:", device_);
    // Waits until a copy from or to host memory is complete, even if the host memory is pinned. When copy() returns,
    // the caller may therefore overwrite the source and read the destination.
    if (!on_gpus) synchronize(stream);
  }

  void fill(void* p, int byte, size_t bytes, Stream stream) override {
    if (bytes == 0) return;
    Current current(device_);
    check(driver().cuMemsetD8Async(address(p), static_cast<unsigned char>(byte), bytes, queue(stream)), "filling ",
          bytes_text(double(bytes)), " on cuda:", device_);
  }

  void synchronize(Stream stream) override {
    Current current(device_);
    check(driver().cuStreamSynchronize(queue(stream)), "waiting for a stream of cuda:", device_);
  }

  void synchronize_all() override {
    Current current(device_);
    check(driver().cuCtxSynchronize(), "waiting for cuda:", device_);
  }

  size_t free_bytes() override {
    Current current(device_);
    size_t free = 0, total = 0;
    check(driver().cuMemGetInfo(&free, &total), "cuMemGetInfo of cuda:", device_);
    if (!pool()) return free;
    // Memory that the pool has reserved but does not use counts as free.
    cuuint64_t reserved = 0, used = 0;
    check(driver().cuMemPoolGetAttribute(pool(), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved), "memory pool");
    check(driver().cuMemPoolGetAttribute(pool(), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), "memory pool");
    return free + size_t(reserved - std::min(used, reserved));
  }

  bool reaches(const void* p) override {
    Current current(device_);
    Origin o = origin_of(p);
    return o.kind == CU_MEMORYTYPE_HOST || o.managed || (o.kind == CU_MEMORYTYPE_DEVICE && o.device == device_);
  }

  bool order(Stream earlier, Place of_later, Stream later) override {
    if (earlier == later && of_later.index == device_) return true;
    if (capture(earlier).id != memory(of_later.index).capture(later).id) return false;
    Current current(device_);
    CUevent event = take_event();
    CUresult result = driver().cuEventRecord(event, queue(earlier));
    if (result == CUDA_SUCCESS) {
      Current there(of_later.index);
      result = driver().cuStreamWaitEvent(queue(later), event, 0);
    }
    {
      // The event can be used again at once, because cuStreamWaitEvent has copied its state.
      std::lock_guard lock(mutex_);
      idle_events_.push_back(event);
    }
    check(result, "making a stream of cuda:", device_, " wait for one of ", name(of_later));
    return true;
  }

  Capture capture(Stream stream) noexcept override {
    if (!stream) return {};  // the legacy default stream (null) cannot be captured
    try {
      Current current(device_);
      CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
      cuuint64_t id = 0;
      CUgraph graph = nullptr;
      CUresult result = driver().cuStreamGetCaptureInfo(queue(stream), &status, &id, &graph, nullptr, nullptr);
      if (result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE) return {id, graph};
    } catch (const Error&) {}  // the driver has shut down, so there is no capture
    return {};
  }

  void give(void* graph, void* object, void (*drop)(void*)) override {
    Current current(device_);
    CUuserObject owned = nullptr;
    CUresult result = driver().cuUserObjectCreate(&owned, object, drop, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result != CUDA_SUCCESS) {
      drop(object);
    } else {
      result = driver().cuGraphRetainUserObject(static_cast<CUgraph>(graph), owned, 1, CU_GRAPH_USER_OBJECT_MOVE);
      // This call releases the last reference to the user object `owned`. The driver then calls drop(object).
      if (result != CUDA_SUCCESS) driver().cuUserObjectRelease(owned, 1);
    }
    check(result, "assigning memory of cuda:", device_, " to a CUDA graph");
  }

 private:
  CUmemoryPool pool() {
    std::call_once(pool_made_, [this] {
      const Driver& d = driver();
      CUdevice handle = 0;
      int supported = 0;
      check(d.cuDeviceGet(&handle, device_), "cuDeviceGet of cuda:", device_);
      check(d.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, handle), "memory pools");
      // Some virtual GPUs have no memory pools. The library then uses cuMemAlloc, which is slower.
      if (!supported) return;
      CUmemPoolProps properties{};
      properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
      properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      properties.location.id = device_;
      CUmemoryPool fresh = nullptr;
      check(d.cuMemPoolCreate(&fresh, &properties), "cuMemPoolCreate on cuda:", device_);
      cuuint64_t keep = UINT64_MAX;
      check(d.cuMemPoolSetAttribute(fresh, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), "cuMemPoolSetAttribute");
      pool_ = fresh;
    });
    return pool_;
  }

  CUresult take(CUdeviceptr* p, size_t bytes, Stream stream) {
    bytes = std::max<size_t>(bytes, 1);  // an empty tensor gets one byte, so that it has an address, too
    if (pool()) return driver().cuMemAllocFromPoolAsync(p, bytes, pool(), queue(stream));
    return driver().cuMemAlloc(p, bytes);
  }

  CUevent take_event() {
    {
      std::lock_guard lock(mutex_);
      if (!idle_events_.empty()) {
        CUevent event = idle_events_.back();
        idle_events_.pop_back();
        return event;
      }
    }
    CUevent event = nullptr;
    check(driver().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate on cuda:", device_);
    return event;
  }

  int device_;
  std::once_flag pool_made_;
  CUmemoryPool pool_ = nullptr;
  std::mutex mutex_, idle_mutex_;
  std::vector<CUevent> idle_events_;
  CUstream idle_stream_ = nullptr;  // the stream on which memory is allocated for streams that are being captured
};

}  // namespace

Memory& memory(int index) {
  device(index);  // throws DeviceError if there is no device `index`
  static auto* const all = [] {
    auto* memories = new std::deque<GpuMemory>;
    for (int i = 0; i < device_count(); ++i) memories->emplace_back(i);
    return memories;
  }();
  return (*all)[size_t(index)];
}

}  // namespace minidnn::cuda
