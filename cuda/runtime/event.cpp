// SPDX-License-Identifier: Apache-2.0
// Measures with CUDA events how long the work on a stream takes.
#include "cpp/core/device/cuda_backend.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {
namespace {

struct Event {
  int device;
  CUevent event = nullptr;

  explicit Event(int d) : device(d) {
    check(driver().cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate on cuda:", device);
  }
  ~Event() { driver().cuEventDestroy(event); }
  Event(const Event&) = delete;
  void record(Stream stream) const {
    check(driver().cuEventRecord(event, static_cast<CUstream>(stream)), "cuEventRecord on cuda:", device);
  }
};

}  // namespace

double time_us(int device, Stream stream, const std::function<void()>& enqueue) {
  Current current(device);
  const Event start(device), stop(device);
  float milliseconds = 0;
  start.record(stream);
  enqueue();
  stop.record(stream);
  check(driver().cuEventSynchronize(stop.event), "waiting for timed work on cuda:", device);
  check(driver().cuEventElapsedTime(&milliseconds, start.event, stop.event), "cuEventElapsedTime on cuda:", device);
  return milliseconds * 1e3;
}

}  // namespace minidnn::cuda
