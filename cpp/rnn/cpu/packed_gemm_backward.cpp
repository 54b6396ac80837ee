// SPDX-License-Identifier: Apache-2.0
// The gradients of gates, states and inputs of a layer in cpu.rnn.packed_gemm.
#include <cmath>
#include <cstring>

#include "cpp/rnn/cpu/packed_gemm.h"

namespace minidnn::cpu::rnn {
namespace {

struct Backward {
  const PackedCall& c;
  const RnnProblem& p = c.p;
  const RnnLayer& l = c.l;
  const int64_t H = p.hidden, gates = p.gates(), K = p.gate_gradients();
  const bool lstm = p.mode == RnnMode::lstm, gru = p.mode == RnnMode::gru;

  Unit unit(int64_t direction, int64_t i) const {
    const int64_t n = c.order[i];
    return {direction, n, 0, l.lengths[n]};
  }
  // The row of a step among those of both directions.
  int64_t row_of(const Unit& u, int64_t step) const {
    return u.direction * p.rows() + minidnn::rnn::row_of(p, l, u.time(step), u.n);
  }
  int64_t state_at(const Unit& u) const { return (u.direction * p.batch + u.n) * H; }
  // dgates of a step as floats: those of the tensor, or a copy.
  float* dgates(const Unit& u, int64_t i, int64_t step) const {
    if (c.is_float) return static_cast<float*>(l.dgates) + row_of(u, step) * K * H;
    return c.part<float>(c.at.states_at) + ((step % 2 * p.directions + u.direction) * p.batch + i) * K * H;
  }

  void pack_weights() const {
    const int64_t C = c.blocks.columns;
    cpu::parallel_for(p.directions * c.blocks.count, ceil_div(int64_t(20000), C * gates * H),
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i) {
                          const int64_t d = i / c.blocks.count, block = i % c.blocks.count;
                          c.pack(l.weights[d][kHiddenWeight], block * C, true, std::min(C, H - block * C), gates * H,
                                 c.weights(d) + block * C * gates * H);
                        }
                      });
    if (p.has_c0) c.spans.read(l.c0, 1, p.directions * p.batch * H, c.part<float>(c.at.cells_at));
  }

  // Zeros in dgates beyond the end of each sequence.
  void clear_beyond() const {
    const size_t bytes = size_t(K * H * c.size);
    cpu::parallel_for(p.batch, ceil_div(int64_t(20000), p.steps * K * H), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n)
        for (int64_t d = 0; d < p.directions; ++d)
          for (int64_t t = l.lengths[n]; t < p.steps; ++t)
            std::memset(c.element(l.dgates, (d * p.rows() + minidnn::rnn::row_of(p, l, t, n)) * K * H), 0, bytes);
    });
  }

  // Computes a step, or the gradients of h0 and c0 if it is -1.
  void step(int64_t direction, int64_t step, int64_t begin, int64_t end) const {
    const int64_t C = c.blocks.columns, u0 = begin * C, width = (end - begin) * C, units = std::min(width, H - u0);
    const int64_t pitch = width + kPadding;
    const int64_t before = step + 1 < p.steps ? c.active[step + 1] : 0, rows = step < 0 ? p.batch : c.active[step];
    float *const sums = c.sums(direction, u0), *const temporary = c.temporaries(direction, u0);
    const float** const row = c.pointers(direction, begin);
    for (int64_t i = 0; i < before; ++i) row[i] = dgates(unit(direction, i), i, step + 1);
    const float* panel = c.weights(direction) + begin * C * gates * H;
    for (int64_t b = 0; b < end - begin && before; ++b)
      for (int64_t gate = 0; gate < gates; ++gate, panel += C * H)
        c.multiply({row, size_t(before)}, (gru && gate == 2 ? 3 : gate) * H, panel, sums + b * C, pitch, gate > 0);
    for (int64_t i = 0; i < rows; ++i) {
      const Unit u = unit(direction, i);
      float* const dh = sums + i * pitch;
      if (i >= before) begin_units(u, u0, units, dh);
      if (step >= 0) run_units(u, i, step, u0, units, width, dh, temporary);
      else finish_units(u, u0, units, dh);
    }
  }

  // Before the last step of a sequence: the gradients are those of hn and cn.
  void begin_units(const Unit& u, int64_t u0, int64_t units, float* dh) const {
    const int64_t at = state_at(u) + u0;
    if (p.has_dhn) c.spans.read(c.element(l.dhn, at), 1, units, dh);
    else std::fill_n(dh, units, 0.0f);
    float* const state = c.state(u.direction, u.n, u0);
    if (p.has_dcn) c.spans.read(c.element(l.dcn, at), 1, units, state);
    else std::fill_n(state, units, 0.0f);
  }
  void finish_units(const Unit& u, int64_t u0, int64_t units, float* dh) const {
    const int64_t at = state_at(u) + u0;
    const float* const state = c.state(u.direction, u.n, u0);
    if (gru) c.loops.add(state, dh, units);
    c.write(dh, units, l.dh0, at, 1);
    if (lstm) c.write(state, units, l.dc0, at, 1);
  }

  void run_units(const Unit& u, int64_t i, int64_t step, int64_t u0, int64_t units, int64_t width, const float* dh,
                 float* temporary) const {
    const int64_t t = u.time(step), row = row_of(u, step);
    RnnBackwardUnits b{};
    b.units = units;
    b.dh = dh;
    const int64_t of_dy = l.dy.stride[l.dy.rank - 1];
    const int64_t dy = minidnn::rnn::offset_of(p, l, l.dy, t, u.n) + (u.direction * H + u0) * of_dy;
    b.dy = l.dy_is_sum ? static_cast<const float*>(l.dy_data) + dy : c.read(l.dy_data, dy, of_dy, units, temporary);
    temporary += width;
    if (gru) {
      const int64_t stride = l.out.stride[l.out.rank - 1];
      if (step)
        b.h_before = c.read(
            l.out_data, minidnn::rnn::offset_of(p, l, l.out, u.time(step - 1), u.n) + (u.direction * H + u0) * stride,
            stride, units, temporary);
      else if (p.has_h0) b.h_before = c.read(l.h0, state_at(u) + u0, 1, units, temporary);
      temporary += width;
    }
    const int64_t saved = row * p.saved_gates() * H + u0;
    b.saved = c.read(l.gates, saved, 1, units, temporary);
    b.saved_pitch = c.is_float ? H : width;
    b.next_saved = b.saved;
    if (c.is_float && i + 1 < c.active[step])
      b.next_saved += (row_of(unit(u.direction, i + 1), step) - row) * p.saved_gates() * H;
    for (int64_t k = 1; k < p.saved_gates() && !c.is_float; ++k)
      c.read(l.gates, saved + k * H, 1, units, temporary + k * width);
    if (lstm) {
      const float* const cells = static_cast<const float*>(l.cells) + u0;
      b.c = cells + row * H;
      if (step) b.c_before = cells + row_of(u, step - 1) * H;
      else if (p.has_c0) b.c_before = c.part<float>(c.at.cells_at) + state_at(u) + u0;
      b.clip = p.has_clip ? float(l.clip) : NAN;
    }
    b.state = c.state(u.direction, u.n, u0);
    b.dgates = dgates(u, i, step) + u0;
    b.dgates_pitch = H;
    c.loops.backward[int64_t(p.mode)](b);
    if (c.is_float) return;
    for (int64_t k = 0; k < K; ++k) c.write_rounded(b.dgates + k * H, units, l.dgates, row * K * H + k * H + u0, 1);
  }

  void run(int64_t threads) const {
    pack_weights();
    if (p.has_lengths) clear_beyond();
    int64_t steps = p.steps;
    while (steps > 0 && c.active[steps - 1] == 0) --steps;
    c.run_steps(steps + 1, threads, [&](int64_t direction, int64_t i, int64_t begin, int64_t end) {
      step(direction, steps - 1 - i, begin, end);
    });
  }
};

}  // namespace

void backward_steps(const PackedCall& call, int64_t threads) { Backward{call}.run(threads); }

InputGradients::InputGradients(const RnnProblem& p, const Device& d) : p_(p) {
  const int64_t rows = p.rows(), gates = p.gates() * p.hidden;
  const DType type = p.x.dtype;
  const MatrixRows x(p, p.x);
  has_sums_ = !x.exist || x.by_sequence || (p.directions == 2 && type != DType::float32);
  const auto product = [&](int64_t layer) {
    const int64_t inputs = p.input_size(layer);
    const bool as_sums = layer || has_sums_;
    return Product(p, d, matrix(type, rows, gates, p.gate_gradients() * p.hidden), matrix(type, gates, inputs, inputs),
                   matrix(as_sums ? DType::float32 : type, rows, inputs, as_sums ? inputs : x.pitch));
  };
  first_ = product(0);
  first_.build(d);
  if (p.layers > 1) {
    others_ = product(1);
    others_.build(d);
  }
}

double InputGradients::estimate_us() const {
  return double(p_.directions) * (first_.choice.estimate_us + double(p_.layers - 1) * others_.choice.estimate_us);
}

void InputGradients::run(const PackedCall& c, void* sums, void* scratch) const {
  const RnnLayer& l = c.l;
  const bool in_sums = l.index == 0 && has_sums_;
  float* const to = static_cast<float*>(in_sums ? sums : l.din_data);
  for (int64_t d = 0; d < p_.directions; ++d)
    (l.index ? others_ : first_)
        .run(c.element(static_cast<const void*>(l.dgates), d * p_.rows() * p_.gate_gradients() * p_.hidden),
             l.weights[d][kInputWeight], to, d > 0, scratch, nullptr);
  const int64_t width = p_.input_size(l.index);
  if (l.index && p_.has_dropout)
    cpu::parallel_for(p_.rows() * width, 2000, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] *= minidnn::rnn::is_kept(l, i) ? float(l.keep) : 0.0f;
    });
  if (!in_sums) return;
  const int64_t stride = l.in.stride[l.in.rank - 1];
  cpu::parallel_for(p_.steps, ceil_div(int64_t(20000), p_.batch * width), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t n = 0; n < p_.batch; ++n)
        if (!p_.packed || t < l.lengths[n])
          c.write(to + minidnn::rnn::row_of(p_, l, t, n) * width, width, l.din_data,
                  minidnn::rnn::offset_of(p_, l, l.in, t, n), stride);
  });
}

}  // namespace minidnn::cpu::rnn
