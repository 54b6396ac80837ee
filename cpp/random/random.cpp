// SPDX-License-Identifier: Apache-2.0
#include "cpp/random/random.h"

namespace minidnn {
namespace {

const char* kind_text(Random kind) {
  return kind == Random::uniform ? "uniform" : kind == Random::normal ? "normal" : "dropout";
}
void check_stream(const char* call, int64_t seed, int64_t offset) {
  MINIDNN_CHECK(ShapeError, seed >= 0 && offset >= 0, call, ": seed and offset must not be negative; got ", seed,
                " and ", offset);
}

}  // namespace

std::string Family<RandomProblem>::text(const RandomProblem& p) {
  std::string text = head_text("random", kind_text(p.kind), p.out.dtype);
  if (p.kind != Random::dropout) return cat(text, " y=", problem_text(p.out));
  return cat(text, " x=", problem_text(p.x), out_text(p.out, dense_like(p.x, p.x.dtype, name)));
}

RandomArgs Family<RandomProblem>::scratch(const RandomProblem& p, Scratch& s) {
  return {p.kind == Random::dropout ? s.tensor(p.x) : nullptr, s.tensor(p.out), 1, 0, 0, 1, uint64_t(1) << 31};
}

void fill_random(const char* call, Random kind, const Tensor& out, int64_t seed, int64_t offset, double low,
                 double width, const Call& options) {
  Handle& h = check_operands(call, options, {{"out", out}});
  check_stream(call, seed, offset);
  output(call, "out", out, out.desc, h, {});
  if (out.desc.numel() == 0) return;
  run(h, RandomProblem{kind, {}, out.desc}, RandomArgs{nullptr, out.data, uint64_t(seed), uint64_t(offset), low, width},
      options.algo);
}

Tensor dropout(const char* call, const char* label, const Tensor& x, double p, int64_t seed, int64_t offset,
               const Call& options) {
  Handle& h = check_operands(call, options, {{label, x}});
  check_stream(call, seed, offset);
  MINIDNN_CHECK(ShapeError, 0 <= p && p <= 1, call, ": p must be a probability; got ", p);
  Tensor y = output(call, "out", options.out, dense_like(x.desc, x.desc.dtype, call), h, {}, {{label, x}});
  if (y.desc.numel() == 0) return y;
  RandomArgs args{x.data, y.data, uint64_t(seed), uint64_t(offset), 0, p < 1 ? 1 / (1 - p) : 0};
  args.threshold = uint64_t(p * 0x1p32);
  run(h, RandomProblem{Random::dropout, x.desc, y.desc}, args, options.algo);
  return y;
}

double random_bytes(const RandomProblem& p) {
  return double(p.out.numel()) * double(itemsize(p.out.dtype)) * (p.kind == Random::dropout ? 2 : 1);
}
double random_flop(const RandomProblem& p) { return double(p.out.numel()) * (p.kind == Random::normal ? 40 : 16); }

}  // namespace minidnn
