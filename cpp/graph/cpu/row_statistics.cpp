// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/cpu/row_statistics.h"

#include "cpp/core/host_device/maths.h"
#include "cpp/layer_norm/layer_norm.h"
#include "cpp/reduce/reduce.h"
#include "cpp/softmax/softmax.h"

namespace minidnn::cpu::graph {
namespace {

// Calls f(row, at, count) for each row of a span, or for the part of a row that the span has. `row` counts from the
// first row of the block, `at` is the position in the span.
template <class F> void each_row(const Span& s, int64_t cols, F f) {
  if (s.n <= cols) return f(int64_t(0), int64_t(0), s.n);
  for (int64_t row = 0; row * cols < s.n; ++row) f(row, row * cols, cols);
}

// The scale that the loops of softmax apply. If there is a mask, scaled elements are in the buffer already.
double scale_in_loops(const RegionNode& n, const Span& s) {
  const auto& p = *n.as<SoftmaxProblem>();
  return p.masked == SoftmaxMask::none ? n.args<SoftmaxProblem>(s.args).scale : 1;
}

}  // namespace

Call norm_statistics(const RegionNode& n, int64_t cols, int x, const NormSlots& to, int mean_result) {
  return [&n, cols, x, to, mean_result](const Span& s) {
    const double eps = n.args<LayerNormProblem>(s.args).eps;
    const bool centered = to.mean >= 0;
    for (int64_t i = 0; i * cols < s.n; ++i) {
      const NormStatistics of = row_statistics(floats(s, x) + i * cols, cols, eps, centered);
      if (centered) {
        floats(s, to.mean)[i] = of.mean;
        floats(s, to.rest)[i] = of.rest;
      }
      floats(s, to.inv_std)[i] = of.inv_std;
      if (mean_result >= 0) floats(s, mean_result)[i] = of.mean;
    }
  };
}
Call normalized_elements(int64_t cols, int x, const NormSlots& from, int scale, int bias, int y) {
  return [cols, x, from, scale, bias, y](const Span& s) {
    each_row(s, cols, [&](int64_t row, int64_t at, int64_t count) {
      NormStatistics of{.inv_std = floats(s, from.inv_std)[row]};
      if (from.mean >= 0) {
        of.mean = floats(s, from.mean)[row];
        of.rest = floats(s, from.rest)[row];
      }
      normalize_span(floats(s, x) + at, of, scale < 0 ? nullptr : floats(s, scale) + at,
                     bias < 0 ? nullptr : floats(s, bias) + at, floats(s, y) + at, count);
    });
  };
}

Call softmax_statistics(const RegionNode& n, int64_t cols, int x, int e, int largest, int sum) {
  return [&n, cols, x, e, largest, sum, log = n.as<SoftmaxProblem>()->log != 0](const Span& s) {
    const auto scale = float(scale_in_loops(n, s));
    for (int64_t i = 0; i * cols < s.n; ++i) {
      const SoftmaxSums sums =
          row_exponentials(floats(s, x) + i * cols, e < 0 ? nullptr : floats(s, e) + i * cols, cols, scale);
      floats(s, largest)[i] = sums.largest;
      floats(s, sum)[i] = log ? maths::log(sums.sum) : 1.0f / sums.sum;
    }
  };
}
Call softmax_gradient_statistics(const RegionNode& n, int64_t cols, int y, int dy, int sum) {
  return [cols, y, dy, sum, log = n.as<SoftmaxProblem>()->log != 0](const Span& s) {
    for (int64_t i = 0; i * cols < s.n; ++i)
      floats(s, sum)[i] = softmax_gradient_sum(floats(s, y) + i * cols, floats(s, dy) + i * cols, cols, log);
  };
}
Call softmax_gradient_elements(const RegionNode& n, int64_t cols, int y, int dy, int sum, int dx) {
  return [&n, cols, y, dy, sum, dx, log = n.as<SoftmaxProblem>()->log != 0](const Span& s) {
    const auto scale = float(n.args<SoftmaxProblem>(s.args).scale);
    each_row(s, cols, [&](int64_t row, int64_t at, int64_t count) {
      softmax_gradient_span(floats(s, y) + at, floats(s, dy) + at, floats(s, dx) + at, count, log, floats(s, sum)[row],
                            scale);
    });
  };
}
Call short_softmax(const RegionNode& n, int64_t cols, int in, int dy, int out) {
  const auto& p = *n.as<SoftmaxProblem>();
  return [&n, cols, in, dy, out, direction = p.direction, log = p.log != 0](const Span& s) {
    const SoftmaxArgs a{.in = s.slot[in], .dy = s.slot[dy], .out = s.slot[out], .scale = scale_in_loops(n, s)};
    softmax_short_rows(direction, log, a, s.n / cols, cols);
  };
}

Call reduced_rows(const RegionNode& n, int64_t cols, int x, int y) {
  return [cols, x, y, mode = n.as<ReduceProblem>()->mode](const Span& s) {
    reduce_rows(mode, floats(s, x), s.n / cols, cols, floats(s, y));
  };
}

}  // namespace minidnn::cpu::graph
