// SPDX-License-Identifier: Apache-2.0
// Measures the time between two points of a stream with events. Below about 100 us the host's gaps between launches
// distort the time: put many launches between start and stop.
#pragma once
#include "cpp/core/device.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {

class EventTimer {
 public:
  EventTimer(int device, Stream);
  ~EventTimer();
  EventTimer(const EventTimer&) = delete;

  void start();
  double stop_us();  // waits for all work enqueued before the call; returns microseconds since start()

 private:
  int device_;
  Stream stream_;
  CUevent start_ = nullptr, stop_ = nullptr;
};

}  // namespace minidnn::cuda
