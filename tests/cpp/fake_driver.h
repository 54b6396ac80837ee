// SPDX-License-Identifier: Apache-2.0
// What the fake driver (fake_driver.cpp) and its tests share: what it is to do, and what was done.
#pragma once

struct Fake {
  unsigned long free_bytes = 1 << 20;
  int refused_modules = 0;  // so many loads fail
  int launch_result = 0;
  int shut_down = 0;
  int waits = 0, trims = 0, copies = 0, peer_copies = 0, modules = 0, launches = 0, attributes = 0, events = 0;
  int broken_captures = 0;     // calls that a capture does not survive
  int calls_of_callbacks = 0;  // into the driver, by what it calls when a graph is gone
  unsigned grid_x = 0, smem_bytes = 0, allowed_smem = 0;
  void* allocated_in = nullptr;                       // the context current then
  void *recorded_in = nullptr, *waited_in = nullptr;  // likewise, of the last event
};

extern "C" {
typedef void FakeBegin(void* stream, unsigned long graph);  // captures the stream into a graph, of any number but 0
typedef void FakeEnd(void* stream);
typedef void FakeDestroy(unsigned long graph);  // and all that was made of it
}
