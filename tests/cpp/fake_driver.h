// SPDX-License-Identifier: Apache-2.0
// The state that the fake driver (fake_driver.cpp) and its tests share: how the driver must behave, and which calls
// were made.
#pragma once

struct Fake {
  unsigned long free_bytes = 1 << 20;
  int refused_modules = 0;  // the number of module loads that will fail, beginning with the next one
  int launch_result = 0;
  int shut_down = 0;
  int waits = 0, trims = 0, copies = 0, peer_copies = 0, modules = 0, launches = 0, attributes = 0, events = 0;
  int broken_captures = 0;     // number of calls during a capture that invalidated the capture
  int calls_of_callbacks = 0;  // number of driver calls that were made by callbacks of destroyed graphs
  unsigned grid_x = 0, smem_bytes = 0, allowed_smem = 0;
  void* allocated_in = nullptr;  // the context that was current at the last memory allocation
  // The contexts that were current when an event was last recorded, and when a stream was last made to wait for an
  // event.
  void *recorded_in = nullptr, *waited_in = nullptr;
};

extern "C" {
// Starts the capture of a stream into graph number `graph`, which must not be 0.
typedef void FakeBegin(void* stream, unsigned long graph);
typedef void FakeEnd(void* stream);
typedef void FakeDestroy(unsigned long graph);  // destroys the graph and all executable graphs made from it
}
