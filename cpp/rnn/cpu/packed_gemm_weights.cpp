// SPDX-License-Identifier: Apache-2.0
// The gradients of weights in cpu.rnn.packed_gemm: matrix products over all steps, dgates^T x and dgates^T h, where h is
// the state before each step.
#include <cstring>

#include "cpp/rnn/cpu/packed_gemm.h"

namespace minidnn::cpu::rnn {
namespace {

// Copies the rows of an operand in the order of x's rows, with zeros for rows that belong to no sequence: what they hold
// would be multiplied by zeros, but may be NaN. row(n, t) is the address and the stride of the elements of a row. The
// address is null for zeros.
struct OperandRow {
  const void* data;
  int64_t stride;
};
template <class Row> void copy_rows(const RnnProblem& p, const RnnLayer& l, int64_t width, void* to, const Row& row) {
  const auto size = int64_t(itemsize(p.x.dtype));
  char* const bytes = static_cast<char*>(to);
  cpu::parallel_for(p.steps, ceil_div(int64_t(20000), p.batch * width), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t n = 0; n < p.batch; ++n) {
        const bool is_valid = t < l.lengths[n];
        if (!is_valid && p.packed) continue;
        char* const at = bytes + minidnn::rnn::row_of(p, l, t, n) * width * size;
        const OperandRow from = is_valid ? row(n, t) : OperandRow{nullptr, 1};
        if (from.data) copy_elements(from.data, from.stride, width, size, at);
        else std::memset(at, 0, size_t(width * size));
      }
  });
  if (!p.packed) return;
  const int64_t first = l.first_rows[p.steps] * width * size;
  std::memset(bytes + first, 0, size_t(p.rows() * width * size - first));
}

}  // namespace

WeightGradients::WeightGradients(const RnnProblem& p, const Device& d) : p_(p) {
  first_ = of_layer(0, d);
  if (p.layers > 1) others_ = of_layer(1, d);
}

WeightGradients::OfLayer WeightGradients::of_layer(int64_t layer, const Device& d) const {
  const int64_t rows = p_.rows(), H = p_.hidden, gates = p_.gates() * H, inputs = p_.input_size(layer);
  const DType type = p_.x.dtype;
  const MatrixRows x(p_, p_.x);
  OfLayer of;
  of.copies_input = p_.packed || p_.has_lengths || (layer == 0 && (!x.exist || x.by_sequence));
  const auto product = [&](int64_t m, int64_t n, int64_t pitch) {
    Product made(p_, d, matrix(type, m, rows, 1, p_.gate_gradients() * H), matrix(type, rows, n, pitch),
                 matrix(type, m, n, n));
    made.build(d);
    return made;
  };
  const bool gru = p_.mode == RnnMode::gru;
  of.input = product(gates, inputs, of.copies_input || layer ? inputs : x.pitch);
  of.state = product(gru ? 2 * H : gates, H, H);
  if (gru) of.state_n = product(H, H, H);
  return of;
}

size_t WeightGradients::scratch_bytes() const {
  size_t most = 0;
  for (const OfLayer* of : {&first_, &others_})
    for (const Product* p : {&of->input, &of->state, &of->state_n}) most = std::max(most, p->choice.workspace_bytes);
  return most;
}

size_t WeightGradients::operand_bytes() const {
  int64_t width = p_.hidden;
  if (first_.copies_input) width = std::max(width, p_.input_size(0));
  if (others_.copies_input) width = std::max(width, p_.input_size(1));
  return size_t(p_.rows() * width) * itemsize(p_.x.dtype);
}

double WeightGradients::estimate_us() const {
  const auto of_layer = [](const OfLayer& of) {
    return of.input.choice.estimate_us + of.state.choice.estimate_us + of.state_n.choice.estimate_us;
  };
  return double(p_.directions) * (of_layer(first_) + double(p_.layers - 1) * of_layer(others_));
}

void WeightGradients::run(const RnnLayer& l, void* operand, void* scratch) const {
  const OfLayer& of = l.index ? others_ : first_;
  const int64_t H = p_.hidden, K = p_.gate_gradients() * H, size = int64_t(itemsize(p_.x.dtype));
  const bool gru = p_.mode == RnnMode::gru;
  const auto at = [&](const void* data, int64_t i) { return static_cast<const char*>(data) + i * size; };
  const void* input = l.in_data;
  if (of.copies_input) {
    copy_rows(p_, l, p_.input_size(l.index), operand, [&](int64_t n, int64_t t) {
      return OperandRow{at(l.in_data, minidnn::rnn::offset_of(p_, l, l.in, t, n)), l.in.stride[l.in.rank - 1]};
    });
    input = operand;
  }
  const auto dgates = [&](int64_t direction) { return at(l.dgates, direction * p_.rows() * K); };
  for (int64_t d = 0; d < p_.directions; ++d)
    of.input.run(dgates(d), input, l.weights[d][kInputWeight], p_.accumulate, scratch, nullptr);
  for (int64_t d = 0; d < p_.directions; ++d) {
    const int64_t out_stride = l.out.stride[l.out.rank - 1];
    copy_rows(p_, l, H, operand, [&](int64_t n, int64_t t) -> OperandRow {
      const int64_t step = d ? l.lengths[n] - 1 - t : t, earlier = d ? t + 1 : t - 1;
      if (step == 0) return {l.h0 ? at(l.h0, (d * p_.batch + n) * H) : nullptr, 1};
      return {at(l.out_data, minidnn::rnn::offset_of(p_, l, l.out, earlier, n) + d * H * out_stride), out_stride};
    });
    char* const to = static_cast<char*>(l.weights[d][kHiddenWeight]);
    of.state.run(dgates(d), operand, to, p_.accumulate, scratch, nullptr);
    // n of a GRU: U sees r dn, the last gradient, or with reset_before multiplies q.
    if (gru && p_.reset_before)
      copy_rows(p_, l, H, operand, [&](int64_t n, int64_t t) {
        return OperandRow{at(l.gates, ((d * p_.rows() + minidnn::rnn::row_of(p_, l, t, n)) * 4 + 3) * H), 1};
      });
    if (gru)
      of.state_n.run(dgates(d) + (p_.reset_before ? 2 : 3) * H * size, operand, to + 2 * H * H * size, p_.accumulate,
                     scratch, nullptr);
    if (p_.has_bias) add_up_biases(l, d);
  }
}

void WeightGradients::add_up_biases(const RnnLayer& l, int64_t direction) const {
  // Sums of kRows rows are float32, and their sums float64.
  constexpr int64_t kColumns = 256, kRows = 64;
  const int64_t H = p_.hidden, width = p_.gate_gradients() * H, gates = p_.gates() * H;
  const int64_t used = p_.packed ? l.first_rows[p_.steps] : p_.rows(), size = int64_t(itemsize(p_.x.dtype));
  const ElementSpans& spans = element_spans(p_.x.dtype);
  const bool is_float = p_.x.dtype == DType::float32;
  cpu::parallel_for(
      ceil_div(width, kColumns), ceil_div(int64_t(20000), (used + 1) * kColumns), [&](int64_t begin, int64_t end) {
        for (int64_t block = begin; block < end; ++block) {
          const int64_t first = block * kColumns, n = std::min(kColumns, width - first);
          double sums[kColumns] = {};
          float some[kColumns], part[kColumns];
          for (int64_t row = 0; row < used; row += kRows) {
            std::fill_n(part, n, 0.0f);
            for (int64_t i = row; i < std::min(used, row + kRows); ++i) {
              const void* const from =
                  static_cast<const char*>(l.dgates) + ((direction * p_.rows() + i) * width + first) * size;
              if (!is_float) spans.read(from, 1, n, some);
              rnn_kernels().add(is_float ? static_cast<const float*>(from) : some, part, n);
            }
            for (int64_t j = 0; j < n; ++j) sums[j] += double(part[j]);
          }
          // The gates of x come first. The last part of a GRU with reset_after is what n sees of U h + b_hh.
          const auto store = [&](RnnWeight which, int64_t to, double sum) {
            char* const at = static_cast<char*>(l.weights[direction][which]) + to * size;
            float value = 0;
            if (p_.accumulate) spans.read(at, 1, 1, &value);
            value = float(sum + double(value));
            spans.write(&value, 1, at, false);
          };
          for (int64_t j = 0; j < n; ++j) {
            const int64_t column = first + j;
            if (column < gates) store(kInputBias, column, sums[j]);
            if (width == gates || column < 2 * H) store(kHiddenBias, column, sums[j]);
            else if (column >= gates) store(kHiddenBias, column - H, sums[j]);
          }
        }
      });
}

}  // namespace minidnn::cpu::rnn
