// SPDX-License-Identifier: Apache-2.0
// Recording: while a recorder is active on a thread, functions on this thread are not computed. They are written down
// as the nodes of a graph (cpp/engine/recorder.h). Their results are stand-ins: tensors that have a description and a
// reserved address, but no memory.
#pragma once
#include "cpp/core/tensor.h"

namespace minidnn {

// What tensors need from a recorder.
class TensorRecorder {
 public:
  virtual ~TensorRecorder() = default;
  // Returns a stand-in for a tensor that a call makes. `call` and `label` name it, such as "conv_forward" and "y".
  virtual Tensor stand_in(const TensorDesc&, Place, const char* call, const char* label) = 0;
  // A call uses this tensor. The recorder keeps the memory of tensors that are no stand-ins.
  virtual void note(const Tensor&) = 0;
  // The recorder that is active on this thread, or null.
  static TensorRecorder* current() { return active; }

 protected:
  static constinit thread_local TensorRecorder* active;
  friend class RecordingPause;
};

// While an object of this class exists, functions on its thread run at once, although a recorder is active.
class RecordingPause {
 public:
  RecordingPause() : paused_(TensorRecorder::active) { TensorRecorder::active = nullptr; }
  ~RecordingPause() { TensorRecorder::active = paused_; }
  RecordingPause(const RecordingPause&) = delete;

 private:
  TensorRecorder* const paused_;
};

// The storage of a stand-in. Its address is reserved: no memory is ever mapped there.
struct StandIn : Storage {
  // Returns an error text, such as "numpy: %3 (matmul y, line 12 of model.py) is recorded, not computed; ...". `what`
  // is the operation that needs memory.
  virtual std::string refusal(const char* what) const = 0;
};
inline bool is_stand_in(const Tensor& t) { return dynamic_cast<const StandIn*>(t.storage.get()); }
// Throws DeviceError if the tensor is a stand-in. `what` is the operation that needs its memory, such as "numpy".
void check_computed(const Tensor&, const char* what);

}  // namespace minidnn
