// SPDX-License-Identifier: Apache-2.0
// Implements recording.h: the active recorder of a thread, and the check that a tensor has memory.
#include "cpp/core/recording.h"

namespace minidnn {

constinit thread_local TensorRecorder* TensorRecorder::active = nullptr;

void check_computed(const Tensor& t, const char* what) {
  if (auto* recorded = dynamic_cast<const StandIn*>(t.storage.get())) throw DeviceError(recorded->refusal(what));
}

}  // namespace minidnn
