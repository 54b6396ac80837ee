// SPDX-License-Identifier: Apache-2.0
// cuda.transform.pad (results without gaps) and cuda.transform.pad_generic (any strides).
#include "cuda/transform/pad.h"

#include <bit>

#include "cuda/runtime/plan.h"
#include "cuda/transform/dimensions.h"
#include "cuda/transform/engines.h"

namespace minidnn {
namespace {

KernelSpec spec(const char* kernel, int64_t bytes) {
  return {"cuda/transform/pad.cu",
          cat("minidnn::", kernel, "<", bytes == 16 ? "uint4" : cat("uint", 8 * bytes, "_t"), ">")};
}

struct Lines final : Engine<PadProblem> {
  std::string name() const override { return "cuda.transform.pad"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const PadProblem& p, const Device&) const override {
    PadLines l;
    int64_t word;
    std::string why = pad_lines(p, p.alignment, l, word);
    if (!why.empty()) return why;
    if (ceil_div<int64_t>(l.words, kPadThreads * 16) > kMaxAttribute)
      return "supports at most 2^31 - 1 blocks; got more";
    return "";
  }
  // Fractions of the copy rate on an H100, measured for words of 2 and 4 bytes. A vector of more words takes more
  // instructions. Lines shorter than a vector are copied word by word.
  double estimate_us(const PadProblem& p, const Device& d) const override {
    PadLines l;
    int64_t word;
    pad_lines(p, p.alignment, l, word);
    const bool by_vectors = int64_t(l.width.divisor) * word >= 16;
    return roofline_us(0, pad_bytes(p), d, !by_vectors ? 0.2 : word >= 4 ? 0.85 : word == 2 ? 0.8 : 0.5);
  }
  std::unique_ptr<Plan<PadProblem>> build(const PadProblem& p, const Device& d, const Config&) const override {
    PadLines lines;
    int64_t word;
    pad_lines(p, p.alignment, lines, word);
    auto kernel = cuda::load_kernel(spec("transform_pad", word), d.place.index);
    const int64_t vector = 16 / word;
    cuda::LaunchConfig config;
    config.block = {kPadThreads};
    config.grid = {unsigned(ceil_div(lines.words + vector - 1, kPadThreads * pad_vectors(int(vector)) * vector))};
    return make_plan<PadProblem>([=, item = int64_t(itemsize(p.x.dtype))](const PadArgs& a, void*, Stream stream) {
      uint64_t value = a.value;
      for (int64_t bytes = item; bytes < 8; bytes *= 2) value |= value << 8 * bytes;
      const uint64_t values[2]{value, value};
      cuda::launch(*kernel, config, stream, lines, a.x, a.y, values);
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (int64_t word : {1, 2, 4, 8, 16}) all.push_back(spec("transform_pad", word));
    return all;
  }
};

struct Generic final : Engine<PadProblem> {
  std::string name() const override { return "cuda.transform.pad_generic"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const PadProblem&, const Device&) const override { return ""; }
  double estimate_us(const PadProblem& p, const Device& d) const override {
    return roofline_us(0, pad_bytes(p), d, 0.1);  // 64-bit divisions per dimension
  }
  std::unique_ptr<Plan<PadProblem>> build(const PadProblem& p, const Device& d, const Config&) const override {
    return cuda::kernel_plan(spec("transform_pad_generic", int64_t(itemsize(p.x.dtype))), p, d,
                             cuda::elementwise_launch(p.y.numel(), d));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (int64_t item : {1, 2, 4, 8}) all.push_back(spec("transform_pad_generic", item));
    return all;
  }
};

}  // namespace

const Engine<PadProblem>& pad_lines() {
  static const Lines engine;
  return engine;
}
const Engine<PadProblem>& pad_generic() {
  static const Generic engine;
  return engine;
}

}  // namespace minidnn
