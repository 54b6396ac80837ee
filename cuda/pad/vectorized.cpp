// SPDX-License-Identifier: Apache-2.0
// cuda.pad.vectorized: results without gaps, written in vectors of 16 bytes.
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

}  // namespace

struct Vectorized final : Engine<PadProblem> {
  std::string name() const override { return "cuda.pad.vectorized"; }
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
  // instructions. Vectorized shorter than a vector are copied word by word.
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
    auto kernel = cuda::load_kernel(spec(word), d.place.index);
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
    for (int64_t word : {1, 2, 4, 8, 16}) all.push_back(spec(word));
    return all;
  }
};

}  // namespace cuda::pad

template const Engine<PadProblem>& engine_object<PadProblem, cuda::pad::Vectorized>();

}  // namespace minidnn
