// SPDX-License-Identifier: Apache-2.0
// Time between two points of a stream, by events. Below some 100 us the host's gaps between launches count too: put
// many launches between start and stop.
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
  double stop_us();  // waits for all work enqueued before it; microseconds since start()

 private:
  int device_;
  Stream stream_;
  CUevent start_ = nullptr, stop_ = nullptr;
};

}  // namespace minidnn::cuda
