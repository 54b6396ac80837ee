// SPDX-License-Identifier: Apache-2.0
// The public functions of random.h: checks of the arguments, time estimates, and the text that names a call in tuning
// files and tests.
#include "cpp/random/random.h"

#include <limits>

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

void Family<RandomProblem>::ports(const RandomProblem& p, RandomArgs& a, Ports& v) {
  if (p.kind == Random::dropout) v.in("x", p.x, a.x);
  v.out("y", p.out, a.out);
  v.seed("seed", a.seed);
  v.seed("offset", a.offset);
  v.number("low", a.low, 0);
  v.number("width", a.width, 1);
  v.bits(a.threshold, uint64_t(1) << 31);
  v.number("most", a.most, INFINITY);
}

namespace {

void fill(const char* call, Random kind, const Tensor& out, int64_t seed, int64_t offset, RandomArgs args,
          const Call& options) {
  MINIDNN_CHECK(DTypeError, is_floating(out.desc.dtype), call,
                ": dtype must be float32, float64, float16 or bfloat16; got ", name(out.desc.dtype));
  Handle& h = check_operands(call, options, {{"out", out}});
  check_stream(call, seed, offset);
  output(call, "out", out, out.desc, h, {});
  if (out.desc.numel() == 0) return;
  args.out = out.data;
  args.seed = uint64_t(seed);
  args.offset = uint64_t(offset);
  run(h, RandomProblem{kind, {}, out.desc}, args, options.algo);
}

// Returns the largest number of type T that is less than `high`. Returns `low` if `low` is larger than this number.
template <class T> double largest_below(double low, double high) {
  T most = T(high);
  if (double(most) >= high) most = std::nextafter(most, -std::numeric_limits<T>::infinity());
  return double(std::max(most, T(low)));
}

}  // namespace

void fill_uniform(const Tensor& out, int64_t seed, int64_t offset, double low, double high, const Call& options) {
  const char* call = "random_uniform";
  const bool is_double = out.desc.dtype == DType::float64;
  const double width = high - low;
  const bool finite = std::isfinite(is_double ? width : double(float(width))) && std::isfinite(low);
  MINIDNN_CHECK(ShapeError, finite && low <= high, call,
                ": low must not be above high, and high - low must be finite in ", is_double ? "float64" : "float32",
                "; got low=", low, " and high=", high);
  const double most = is_double ? largest_below<double>(low, high) : largest_below<float>(low, high);
  fill(call, Random::uniform, out, seed, offset, {.low = low, .width = width, .most = most}, options);
}

void fill_normal(const Tensor& out, int64_t seed, int64_t offset, double mean, double std, const Call& options) {
  const char* call = "random_normal";
  MINIDNN_CHECK(ShapeError, std::isfinite(mean) && std::isfinite(std) && std >= 0, call,
                ": mean must be finite, and std finite and not negative; got mean=", mean, " and std=", std);
  fill(call, Random::normal, out, seed, offset, {.low = mean, .width = std}, options);
}

Tensor dropout(const char* call, const char* label, const Tensor& x, double p, int64_t seed, int64_t offset,
               const Call& options) {
  Handle& h = check_operands(call, options, {{label, x}});
  check_stream(call, seed, offset);
  MINIDNN_CHECK(ShapeError, 0 <= p && p <= 1, call, ": p must be from 0 to 1; got ", p);
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
