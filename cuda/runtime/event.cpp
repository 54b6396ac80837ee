// SPDX-License-Identifier: Apache-2.0
#include "cuda/runtime/event.h"

namespace minidnn::cuda {

EventTimer::EventTimer(int device, Stream stream) : device_(device), stream_(stream) {
  Current current(device_);
  check(driver().cuEventCreate(&start_, CU_EVENT_DEFAULT), "cuEventCreate on cuda:", device_);
  check(driver().cuEventCreate(&stop_, CU_EVENT_DEFAULT), "cuEventCreate on cuda:", device_);
}

EventTimer::~EventTimer() {
  try {
    Current current(device_);
    driver().cuEventDestroy(start_);
    driver().cuEventDestroy(stop_);
  } catch (const Error&) {  // the driver has shut down and destroyed the events
  }
}

void EventTimer::start() {
  Current current(device_);
  check(driver().cuEventRecord(start_, static_cast<CUstream>(stream_)), "cuEventRecord on cuda:", device_);
}

double EventTimer::stop_us() {
  Current current(device_);
  float milliseconds = 0;
  check(driver().cuEventRecord(stop_, static_cast<CUstream>(stream_)), "cuEventRecord on cuda:", device_);
  check(driver().cuEventSynchronize(stop_), "waiting for timed work on cuda:", device_);
  check(driver().cuEventElapsedTime(&milliseconds, start_, stop_), "cuEventElapsedTime on cuda:", device_);
  return milliseconds * 1e3;
}

}  // namespace minidnn::cuda
