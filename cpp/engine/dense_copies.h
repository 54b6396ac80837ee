// SPDX-License-Identifier: Apache-2.0
// The CPU engines named dense_copies. Such an engine copies tensors that have gaps, or that have another order of
// dimensions than their family's fast engines read, to dense tensors in the workspace. Then it runs the fastest engine
// that stands before it in the family's list.
#pragma once
#include <functional>
#include <span>

#include "cpp/engine/op.h"

namespace minidnn {

// Copies of a tensor to other strides on the CPU. cpp/transform/tensor_copy.cpp defines both functions.
using TensorCopy = std::function<void(const void* from, void* to)>;
TensorCopy tensor_copy(const TensorDesc& from, const TensorDesc& to, const Device&);
double tensor_copy_us(const TensorDesc& from, const TensorDesc& to, const Device&);

// A tensor in a problem of type P that may be copied. It is an input or an output of a call. Rank 0 means that a tensor
// is absent.
template <class P> struct CopiedTensor {
  TensorDesc P::* desc;
  const void* ArgsOf<P>::* input = nullptr;
  void* ArgsOf<P>::* output = nullptr;
};

template <class P> class DenseCopiesEngine : public Engine<P> {
 public:
  std::string why_not(const P& p, const Device& d) const override {
    return choose(p, d).engine ? "" : "no engine computes dense copies of the tensors faster";
  }
  double estimate_us(const P& p, const Device& d) const override { return choose(p, d).us; }
  size_t workspace_bytes(const P& p, const Device& d, const Config&) const override {
    const Choice c = choose(p, d);
    return copied_bytes(p, c.dense) + c.engine->workspace_bytes(c.dense, d, c.config);
  }
  std::unique_ptr<Plan<P>> build(const P& p, const Device& d, const Config&) const override {
    const Choice c = choose(p, d);
    struct Step {
      CopiedTensor<P> tensor;
      size_t offset;  // from the start of the workspace to the copy, in bytes
      TensorCopy copy;
    };
    std::vector<Step> inputs, outputs;
    size_t offset = 0;
    for (const CopiedTensor<P>& t : tensors()) {
      const TensorDesc &given = p.*t.desc, &dense = c.dense.*t.desc;
      if (same_strides(given, dense)) continue;
      if (t.input) inputs.push_back({t, offset, tensor_copy(given, dense, d)});
      else outputs.push_back({t, offset, tensor_copy(dense, given, d)});
      offset += bytes_of(dense);
    }
    return make_plan<P>([inputs, outputs, offset, plan = std::shared_ptr(c.engine->build(c.dense, d, c.config))](
                            const ArgsOf<P>& args, void* workspace, Stream stream) {
      char* const memory = static_cast<char*>(workspace);
      ArgsOf<P> dense = args;
      for (const Step& s : inputs) {
        s.copy(args.*s.tensor.input, memory + s.offset);
        dense.*s.tensor.input = memory + s.offset;
      }
      for (const Step& s : outputs) dense.*s.tensor.output = memory + s.offset;
      plan->run(dense, memory + offset, stream);
      for (const Step& s : outputs) s.copy(memory + s.offset, args.*s.tensor.output);
    });
  }

 protected:
  virtual std::span<const CopiedTensor<P>> tensors() const = 0;
  // The layouts of the copies. The engine tries each.
  virtual std::vector<Layout> layouts(const P&) const = 0;

 private:
  struct Choice {
    const Engine<P>* engine = nullptr;
    P dense;
    Config config;
    double us = 0;
  };
  static size_t bytes_of(const TensorDesc& t) {
    constexpr size_t kLine = 64;
    return (size_t(t.numel()) * itemsize(t.dtype) + kLine - 1) / kLine * kLine;
  }
  size_t copied_bytes(const P& p, const P& dense) const {
    size_t bytes = 0;
    for (const CopiedTensor<P>& t : tensors())
      if (!same_strides(p.*t.desc, dense.*t.desc)) bytes += bytes_of(dense.*t.desc);
    return bytes;
  }
  // Returns the fastest combination of a layout and an engine. Choice::engine is null if there is none, or if no tensor
  // needs a copy.
  Choice choose(const P& p, const Device& d) const {
    Choice best;
    for (const Layout layout : layouts(p)) {
      Choice c{nullptr, p};
      double copies_us = 0;
      for (const CopiedTensor<P>& t : tensors()) {
        TensorDesc& desc = c.dense.*t.desc;
        if (desc.rank == 0) continue;
        const TensorDesc given = desc, dense = minidnn::dense(desc.dtype, shape_of(desc), layout, this->name().c_str());
        if (same_strides(given, dense)) continue;
        desc = dense;
        copies_us += t.input ? tensor_copy_us(given, dense, d) : tensor_copy_us(dense, given, d);
      }
      if (copies_us == 0) continue;
      for (const Engine<P>* e : Family<P>::cpu_engines()) {
        if (e == this) break;
        if (!e->why_not(c.dense, d).empty()) continue;
        const double us = copies_us + expected_us(*e, c.dense, d);
        if (!best.engine || us < best.us) best = {e, c.dense, e->configs(c.dense, d).front(), us};
      }
    }
    return best;
  }
};

}  // namespace minidnn
