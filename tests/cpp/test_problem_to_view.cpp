// SPDX-License-Identifier: Apache-2.0
// Tests the conversion of random problems to GemmViews, which describe matrix products by strides. Plain loops over the
// GemmViews compute the results. They are compared with the results of the direct engines' functions.
#include "cuda/gemm/view/problem_to_view.h"
#include "tests/cpp/random_problems.h"

using namespace minidnn;

// Adds a @ b to y. All indices and offsets come from the GemmView.
static void multiply(const GemmView& v, const double* a, const double* b, double* y) {
  for (int64_t g = 0; g < v.batch.size; ++g)
    for (int64_t m = 0; m < v.m.size; ++m)
      for (int64_t n = 0; n < v.n.size; ++n) {
        GemmCoordinates at_g = coordinates_of(v.batch, g), at_m = coordinates_of(v.m, m), at_n = coordinates_of(v.n, n);
        double sum = 0;
        for (int64_t k = 0; k < v.k.size; ++k) {
          GemmCoordinates at_k = coordinates_of(v.k, k);
          if (!inside(v.a.window, at_m, at_k) || !inside(v.b.window, at_n, at_k)) continue;
          auto element = [&](const GemmOperand& o, const GemmCoordinates& row) {
            return o.offset + offset_of(o.row, row) + offset_of(o.k, at_k) + offset_of(o.batch, at_g);
          };
          sum += a[element(v.a, at_m)] * b[element(v.b, at_n)];
        }
        y[v.y_offset + offset_of(v.y_m, at_m) + offset_of(v.y_n, at_n) + offset_of(v.y_batch, at_g)] += sum;
      }
}

static void check_conv() {
  const int64_t groups = pick(1, 3), channels = groups * pick(1, 3), filters = groups * pick(1, 3);
  const ConvProblem p = random_conv(DType::float64, {groups, channels, filters, pick(1, 3), 9});
  const ConvNumbers<double> n(p, 8);
  std::vector<double> got(n.want.size());
  const GemmArgs gemm = gemm_args(p, n.args);
  for (const GemmView& v : gemm_views(p))
    multiply(v, static_cast<const double*>(gemm.a), static_cast<const double*>(gemm.b), got.data());
  check(Family<ConvProblem>::text(p), got, n.want);
  std::fill(got.begin(), got.end(), 0);
  for (const GemmView& v : gemm_views(p))
    multiply(transposed(v), static_cast<const double*>(gemm.b), static_cast<const double*>(gemm.a), got.data());
  check("transposed " + Family<ConvProblem>::text(p), got, n.want);
}

static void check_matmul() {
  Shape batch;
  for (int64_t i = pick(0, 3); i > 0; --i) batch.push_back(pick(1, 3));
  int64_t m = pick(1, 5), n = pick(1, 5), k = pick(0, 5);
  auto with = [&](int64_t rows, int64_t columns) {
    Shape shape = batch;
    shape.push_back(rows);
    shape.push_back(columns);
    return described(DType::float64, shape, false);
  };
  MatmulProblem p{with(m, k), with(k, n)};
  p.y = with(m, n);
  std::vector<double> a = numbers<double>(p.a.numel(), 8), b = numbers<double>(p.b.numel(), 8),
                      got(size_t(p.y.numel())), want = got;
  MatmulArgs args{a.data(), b.data(), nullptr, nullptr, want.data()};
  for (int64_t i = 0; i < p.y.numel(); ++i) matmul_element<double, double>(p, args, i);
  multiply(gemm_view(p), a.data(), b.data(), got.data());
  check(Family<MatmulProblem>::text(p), got, want);
}

int main() {
  for (int i = 0; i < 3000; ++i) check_conv();
  for (int i = 0; i < 300; ++i) check_matmul();
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
