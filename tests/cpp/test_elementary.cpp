// SPDX-License-Identifier: Apache-2.0
// Compares the elementary functions of CPU loops (exp, log, ...) with the C library's functions of double. The
// arguments are every 1009th float of all magnitudes and signs, and special values. Each function is tested with and
// without fused multiply-adds. Functions of double are compared with those of long double.
#include <bit>
#include <cmath>
#include <iostream>
#include <vector>

#include "cpp/core/host_device/elementary_double.h"

using namespace minidnn;

using Loop = void (*)(const float* x, float* y, int n);

struct Function {
  const char* name;
  double (*exact)(double);
  float least, most;  // the range of x in which the function is tested
  double ulps;        // allowed error of the result in ulp
  Loop plain, fused;
  bool takes(float v) const { return !(v < least || v > most || (least == 0 && std::signbit(v))); }
};

#define LOOP(suffix, target, f)                                   \
  target static void f##suffix(const float* x, float* y, int n) { \
    for (int i = 0; i < n; ++i) y[i] = elementary::f(x[i]);       \
  }
#ifdef __x86_64__
#define FUSED __attribute__((target("avx2,fma")))
static bool can_fuse() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
#define FUSED
static bool can_fuse() { return true; }
#endif
#define LOOPS(f) LOOP(_plain, , f) LOOP(_fused, FUSED, f)
LOOPS(exp)
LOOPS(exp_of_negative)
LOOPS(expm1)
LOOPS(log)
LOOPS(log1p)
LOOPS(log1p_of_fraction)
LOOPS(tanh)
LOOPS(erfc)

static int failures(const Function& f, Loop loop, const char* how) {
  constexpr int kBlock = 4096;
  std::vector<float> x, y(kBlock);
  double worst = 0;
  int wrong = 0;
  auto check = [&] {
    loop(x.data(), y.data(), int(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      double want = f.exact(x[i]), ulp = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
      float rounded = float(want);
      bool same = (want != want && y[i] != y[i]) || (rounded == y[i] && std::signbit(rounded) == std::signbit(y[i]));
      double error = same ? 0 : want == 0 ? INFINITY : std::abs(double(y[i]) - want) / ulp;
      if (std::isfinite(error)) worst = std::max(worst, error);
      if (!(error < f.ulps) && wrong++ < 5)
        std::cout << f.name << "(" << x[i] << ") is " << y[i] << ", not " << want << "\n";
    }
    x.clear();
  };
  for (float v : {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 0x1p-149f, -0x1p-149f, 0x1.fffffep+127f})
    if (f.takes(v)) x.push_back(v);
  check();
  for (uint64_t bits = 0; bits < (uint64_t(1) << 32); bits += 1009) {
    float v = std::bit_cast<float>(uint32_t(bits));
    if (f.takes(v)) x.push_back(v);
    if (x.size() == kBlock) check();
  }
  check();
  std::cout << f.name << ", " << how << ": at most " << worst << " ulp, " << wrong << " wrong\n";
  return wrong;
}

// ---- Functions of double

using DoubleLoop = void (*)(const double* x, double* y, int n);

struct DoubleFunction {
  const char* name;
  long double (*exact)(long double);
  double least, most;  // the range of x in which the function is tested
  double ulps;         // allowed error of the result in ulp
  DoubleLoop plain, fused;
};

#define DOUBLE_LOOP(suffix, target, f)                                       \
  target static void f##_double##suffix(const double* x, double* y, int n) { \
    for (int i = 0; i < n; ++i) y[i] = elementary::f(x[i]);                  \
  }
#define DOUBLE_LOOPS(f) DOUBLE_LOOP(_plain, , f) DOUBLE_LOOP(_fused, FUSED, f)
DOUBLE_LOOPS(exp)
DOUBLE_LOOPS(expm1)
DOUBLE_LOOPS(log)
DOUBLE_LOOPS(log1p)
DOUBLE_LOOPS(log1p_of_fraction)
DOUBLE_LOOPS(tanh)

static int failures(const DoubleFunction& f, DoubleLoop loop, const char* how) {
  std::vector<double> all{0.0,
                          -0.0,
                          1.0,
                          -1.0,
                          709.782712893384,
                          709.7827128933841,
                          -745.1332191019411,
                          -745.1332191019412,
                          0x1p-1074,
                          -0x1p-1074,
                          0x1.fffffffffffffp1023,
                          INFINITY,
                          -INFINITY,
                          NAN};
  for (double v = 0x1p-60; v < 800; v *= 1.0001) all.insert(all.end(), {v, -v});
  for (double v = 0x1p-1074; v < INFINITY; v *= v < 0x1p-1060 ? 2 : 1.003) all.insert(all.end(), {v, -v});
  for (double v = 0; v < 1; v += 0x1.23p-16) all.insert(all.end(), {v, v - 1, v + 0.5});
  std::vector<double> x;
  for (double v : all)
    if (!(v < f.least || v > f.most || (f.least == 0 && std::signbit(v)))) x.push_back(v);
  std::vector<double> y(x.size());
  loop(x.data(), y.data(), int(x.size()));
  double worst = 0;
  int wrong = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const long double want = f.exact(x[i]);
    const double rounded = double(want), ulp = std::ldexp(1.0, std::max(std::ilogb(rounded), -1022) - 52);
    const bool same =
        (want != want && y[i] != y[i]) || (rounded == y[i] && std::signbit(rounded) == std::signbit(y[i]));
    const double error = same                                     ? 0
                         : std::isfinite(rounded) && rounded != 0 ? double(std::abs(y[i] - want) / ulp)
                                                                  : INFINITY;
    if (std::isfinite(error)) worst = std::max(worst, error);
    if (!(error < f.ulps) && wrong++ < 5)
      std::cout << f.name << "(" << x[i] << ") of double is " << y[i] << ", not " << rounded << "\n";
  }
  std::cout << f.name << " of double, " << how << ": at most " << worst << " ulp, " << wrong << " wrong\n";
  return wrong;
}

int main() {
  const float inf = INFINITY;
  const Function all[] = {
      {"exp", std::exp, -inf, inf, 2, exp_plain, exp_fused},
      {"exp_of_negative", std::exp, -inf, 0, 2, exp_of_negative_plain, exp_of_negative_fused},
      {"expm1", std::expm1, -inf, inf, 2, expm1_plain, expm1_fused},
      {"log", std::log, -inf, inf, 2, log_plain, log_fused},
      {"log1p", std::log1p, -inf, inf, 2, log1p_plain, log1p_fused},
      {"log1p_of_fraction", std::log1p, 0, 1, 2, log1p_of_fraction_plain, log1p_of_fraction_fused},
      {"tanh", std::tanh, -inf, inf, 2, tanh_plain, tanh_fused},
      {"erfc", std::erfc, -inf, inf, 2, erfc_plain, erfc_fused},
  };
  int wrong = 0;
  for (const Function& f : all) {
    wrong += failures(f, f.plain, "plain");
    if (can_fuse()) wrong += failures(f, f.fused, "fused");
  }
  const DoubleFunction doubles[] = {
      {"exp", std::exp, -inf, inf, 1, exp_double_plain, exp_double_fused},
      {"expm1", std::expm1, -inf, inf, 2, expm1_double_plain, expm1_double_fused},
      {"log", std::log, -inf, inf, 1, log_double_plain, log_double_fused},
      {"log1p", std::log1p, -inf, inf, 2, log1p_double_plain, log1p_double_fused},
      {"log1p_of_fraction", std::log1p, 0, 1, 2, log1p_of_fraction_double_plain, log1p_of_fraction_double_fused},
      {"tanh", std::tanh, -inf, inf, 3, tanh_double_plain, tanh_double_fused},
  };
  for (const DoubleFunction& f : doubles) {
    wrong += failures(f, f.plain, "plain");
    if (can_fuse()) wrong += failures(f, f.fused, "fused");
  }
  std::cout << (wrong ? "failed" : "all checks passed") << std::endl;
  return wrong != 0;
}
