// SPDX-License-Identifier: Apache-2.0
// cuda.pad.vectorized: an engine for a dense y (without gaps). It writes y in vectors of 16 bytes.
#include "cpp/engine/engine_object.h"
#include "cpp/pad/pad.h"
#include "cuda/pad/vectorized_params.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::pad {
namespace {

KernelSpec spec(int64_t word) {
  return {"cuda/pad/vectorized.cu",
          cat("minidnn::pad_vectorized<", word == 16 ? "uint4" : cat("uint", 8 * word, "_t"), ">")};
}

struct Tiling {
  PadLines lines;
  // The number of bytes of a word. A thread loads x one word at a time.
  int64_t word = 1;
  // Empty if the kernel can run the problem. If not, a sentence that names the limit.
  std::string why_not;
};

Tiling tiling_of(const PadProblem& p) {
  Tiling t;
  t.why_not = pad_lines(p, p.alignment, t.lines, t.word);
  if (t.why_not.empty() && ceil_div<int64_t>(t.lines.words, kPadThreads * 16) > kMaxAttribute)
    t.why_not = "supports at most 2^31 - 1 blocks; got more";
  return t;
}

}  // namespace

struct Vectorized final : Engine<PadProblem> {
  std::string name() const override { return "cuda.pad.vectorized"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const PadProblem& p, const Device&) const override { return tiling_of(p).why_not; }
  // Fractions of the rate of a copy. Those for words of 2 and 4 bytes were measured on an H100. If the lines of y
  // (along its innermost dimension) are shorter than a vector, y is written word by word.
  double estimate_us(const PadProblem& p, const Device& d) const override {
    const Tiling t = tiling_of(p);
    const bool by_vectors = int64_t(t.lines.width.divisor) * t.word >= 16;
    return roofline_us(0, pad_bytes(p), d, !by_vectors ? 0.2 : t.word >= 4 ? 0.85 : t.word == 2 ? 0.8 : 0.5);
  }
  std::unique_ptr<Plan<PadProblem>> build(const PadProblem& p, const Device& d, const Config&) const override {
    const Tiling t = tiling_of(p);
    auto kernel = cuda::load_kernel(spec(t.word), d.place.index);
    const int64_t vector = 16 / t.word;
    cuda::LaunchConfig config;
    config.block = {kPadThreads};
    config.grid = {unsigned(ceil_div(t.lines.words + vector - 1, kPadThreads * pad_vectors(int(vector)) * vector))};
    return make_plan<PadProblem>(
        [=, lines = t.lines, item = int64_t(itemsize(p.x.dtype))](const PadArgs& a, void*, Stream stream) {
          uint64_t value = a.value;
          for (int64_t bytes = item; bytes < 8; bytes *= 2) value |= value << 8 * bytes;
          const uint64_t values[2]{value, value};
          cuda::launch(*kernel, config, stream, lines, a.x, a.y, values);
        });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (int64_t word : {1, 2, 4, 8, 16}) all.push_back(spec(word));
    return all;
  }
};

}  // namespace cuda::pad

template const Engine<PadProblem>& engine_object<PadProblem, cuda::pad::Vectorized>();

}  // namespace minidnn
