// SPDX-License-Identifier: Apache-2.0
// The ports of a call: the tensors and numbers in its Args, each with a name. Every family lists its ports once, in
// Family<P>::ports(). A visitor derived from Ports then does one thing with all of them: it allocates memory to time
// engines on (ScratchPorts), or records the call in a graph (cpp/engine/recorder.h).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cpp/engine/timer.h"

namespace minidnn {

// A family calls one of these functions for each tensor and each number in Args. Inputs come before outputs.
class Ports {
 public:
  virtual ~Ports() = default;
  // An input of the call, an output, or a tensor that the call updates in place. `slot` is the member of Args that
  // holds the address. It is null if the caller did not pass an optional tensor.
  void in(const char* name, const TensorDesc& d, const void*& slot) {
    tensor(Access::read, name, d, const_cast<void*&>(slot));
  }
  void in(const char* name, const TensorDesc& d, void*& slot) { tensor(Access::read, name, d, slot); }
  // A contiguous input of int32 or int64 that says where other tensors are read, such as lengths. find() times engines
  // with `usual(i)` as element i, because other contents could make a call do no work.
  virtual void integers(const char* name, const TensorDesc& d, const void*& slot,
                        const std::function<int64_t(int64_t)>&) {
    in(name, d, slot);
  }
  void out(const char* name, const TensorDesc& d, void*& slot) { tensor(Access::write, name, d, slot); }
  void in_out(const char* name, const TensorDesc& d, void*& slot) { tensor(Access::update, name, d, slot); }
  // An address that this problem does not use, whatever the caller has stored there.
  void unused(const void*& slot) { slot = nullptr; }
  void unused(void*& slot) { slot = nullptr; }
  // A number. `usual` is the value with which find() times engines.
  virtual void number(const char* name, double& slot, double usual) = 0;
  // A number that is no double. `usual` is the value with which find() times engines.
  virtual void bits(uint64_t& slot, uint64_t usual) = 0;
  // A seed or an offset of random numbers.
  virtual void seed(const char* name, uint64_t& slot) = 0;
  // Returns `count` words of host memory, which are zero and live as long as this object. A family whose Args have no
  // fixed size keeps its tensors and numbers there.
  uint64_t* words(size_t count) { return words_.emplace_back(std::make_unique<uint64_t[]>(count)).get(); }

 protected:
  enum class Access { read, write, update };
  virtual void tensor(Access, const char* name, const TensorDesc&, void*& slot) = 0;

 private:
  std::vector<std::unique_ptr<uint64_t[]>> words_;
};

// Allocates every tensor of a call, and sets the numbers to usual values.
class ScratchPorts final : public Ports {
 public:
  explicit ScratchPorts(Scratch& scratch) : scratch_(scratch) {}
  void number(const char*, double& slot, double usual) override { slot = usual; }
  void bits(uint64_t& slot, uint64_t usual) override { slot = usual; }
  void seed(const char*, uint64_t& slot) override { slot = 1; }
  void integers(const char*, const TensorDesc& d, const void*& slot,
                const std::function<int64_t(int64_t)>& usual) override {
    slot = scratch_.integers(d, usual);
  }

 private:
  void tensor(Access, const char*, const TensorDesc& d, void*& slot) override { slot = scratch_.tensor(d); }
  Scratch& scratch_;
};

}  // namespace minidnn
