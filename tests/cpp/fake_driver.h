// SPDX-License-Identifier: Apache-2.0
// Shared by the fake driver (fake_driver.cpp) and its tests: what the driver shall do, and what was called.
#pragma once

struct Fake {
  unsigned long free_bytes = 1 << 20;
  int refused_modules = 0;  // number of loads that fail
  int launch_result = 0;
  int shut_down = 0;
  int waits = 0, trims = 0, copies = 0, peer_copies = 0, modules = 0, launches = 0, attributes = 0, events = 0;
  int broken_captures = 0;     // number of calls that invalidate a capture
  int calls_of_callbacks = 0;  // number of driver calls made by callbacks, which run when a graph is destroyed
  unsigned grid_x = 0, smem_bytes = 0, allowed_smem = 0;
  void* allocated_in = nullptr;  // the context that was current at the last allocation
  // the contexts that were current when the last event was recorded and waited for
  void *recorded_in = nullptr, *waited_in = nullptr;
};

extern "C" {
typedef void FakeBegin(void* stream, unsigned long graph);  // captures the stream into a graph with that number, not 0
typedef void FakeEnd(void* stream);
typedef void FakeDestroy(unsigned long graph);  // destroys the graph and everything instantiated from it
}
