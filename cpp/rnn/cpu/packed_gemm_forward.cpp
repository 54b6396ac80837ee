// SPDX-License-Identifier: Apache-2.0
// The forward pass of a layer in cpu.rnn.packed_gemm.
#include <cmath>
#include <cstring>

#include "cpp/rnn/cpu/packed_gemm.h"

namespace minidnn::cpu::rnn {
namespace {

// The most rows of a chunk of W x: a product of so many rows is worth packing W, and its sums take some 10 MB.
constexpr int64_t kChunkRows = 1536;
// Products of fewer rows are not worth a plan of their own.
constexpr int64_t kFewRows = 64;

struct Forward {
  const PackedCall& c;
  const ChunkProducts& chunks;
  const RnnProblem& p = c.p;
  const RnnLayer& l = c.l;
  const int64_t H = p.hidden, gates = p.gates();
  const bool in_place = chunks.in_place(l);
  const HiddenWeights hidden = hidden_weights_of(p);
  int64_t first = 0, last = 0;  // the first step of a chunk, and the step after its last one

  Unit unit(int64_t direction, int64_t i) const {
    const int64_t n = c.order[i];
    return {direction, n, 0, l.lengths[n]};
  }
  // h before a step, as floats.
  float* h(int64_t step, int64_t direction, int64_t i) const {
    return c.part<float>(c.at.states_at) + ((step % 2 * p.directions + direction) * p.batch + i) * H;
  }
  float* bias(int64_t direction) const { return c.part<float>(c.at.bias_at) + direction * 4 * H; }
  float* inputs(int64_t direction) const {
    return c.part<float>(c.at.inputs_at) + direction * chunks.rows() * chunks.pitch();
  }
  // The row of the i-th sequence in the products of the chunk.
  int64_t input_row(int64_t direction, int64_t step, int64_t i) const {
    if (!in_place) return c.before[step] - c.before[first] + i;
    return (direction ? last - 1 - step : step - first) * p.batch + i;
  }

  void pack_weights() const {
    const int64_t C = c.blocks.columns, panels = c.blocks.count * gates;
    if (hidden == HiddenWeights::packed)
      cpu::parallel_for(p.directions * panels, ceil_div(int64_t(20000), C * H), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t d = i / panels, panel = i % panels, u0 = panel / gates * C, gate = panel % gates;
          c.pack(l.weights[d][kHiddenWeight], (gate * H + u0) * H, false, std::min(C, H - u0), H,
                 c.weights(d) + panel * C * H);
        }
      });
    for (int64_t d = 0; d < p.directions; ++d) {
      float* const b = bias(d);
      std::fill_n(b, 4 * H, 0.0f);
      if (!p.has_bias) continue;
      c.spans.read(l.weights[d][kInputBias], 1, gates * H, b);
      // b_hh of n of a GRU stays apart.
      const int64_t added = p.mode == RnnMode::gru ? 2 * H : gates * H;
      for (int64_t i = 0; i < gates * H; i += kPointwiseSpan) {
        const int64_t n = std::min(kPointwiseSpan, gates * H - i);
        float some[kPointwiseSpan];
        c.spans.read(c.element(static_cast<const void*>(l.weights[d][kHiddenBias]), i), 1, n, some);
        for (int64_t j = 0; j < n; ++j) {
          if (i + j < added) b[i + j] += some[j];
          else b[i + j + H] = some[j];
        }
      }
    }
  }

  void begin_states() const {
    for (int64_t d = 0; d < p.directions; ++d)
      for (int64_t i = 0; i < p.batch; ++i) {
        const int64_t n = c.order[i], at = (d * p.batch + n) * H;
        if (p.has_h0) c.spans.read(c.element(l.h0, at), 1, H, h(0, d, i));
        else std::fill_n(h(0, d, i), H, 0.0f);
        if (p.mode != RnnMode::lstm) continue;
        if (p.has_c0) c.spans.read(c.element(l.c0, at), 1, H, c.state(d, n, 0));
        else std::fill_n(c.state(d, n, 0), H, 0.0f);
      }
  }

  // Zeros in the rows beyond the end of each sequence.
  void clear_beyond() const {
    const int64_t features = p.directions * H, stride = l.out.stride[l.out.rank - 1];
    cpu::parallel_for(p.batch, ceil_div(int64_t(20000), p.steps * features), [&](int64_t begin, int64_t end) {
      const float zeros[kPointwiseSpan] = {};
      for (int64_t n = begin; n < end; ++n)
        for (int64_t t = l.lengths[n]; t < p.steps; ++t)
          for (int64_t i = 0; i < features; i += kPointwiseSpan)
            c.write(zeros, std::min(kPointwiseSpan, features - i), l.out_data,
                    minidnn::rnn::offset_of(p, l, l.out, t, n) + i * stride, stride);
    });
  }

  // W x of the chunk for a direction.
  void multiply_inputs(int64_t direction) const {
    void* const scratch = c.workspace + c.at.scratch_at;
    if (in_place) {
      const int64_t time = direction ? p.steps - last : first;
      return chunks.run(l, direction, (last - first) * p.batch, nullptr, time * p.batch, inputs(direction), scratch);
    }
    char* const operand = c.workspace + c.at.operand_at;
    const int64_t width = p.input_size(l.index), stride = l.in.stride[l.in.rank - 1];
    cpu::parallel_for(last - first, ceil_div(int64_t(20000), p.batch * width), [&](int64_t begin, int64_t end) {
      for (int64_t step = first + begin; step < first + end; ++step)
        for (int64_t i = 0; i < c.active[step]; ++i) {
          const Unit u = unit(direction, i);
          const int64_t from = minidnn::rnn::offset_of(p, l, l.in, u.time(step), u.n);
          copy_elements(c.element(l.in_data, from), stride, width, c.size,
                        operand + input_row(direction, step, i) * width * c.size);
        }
    });
    chunks.run(l, direction, c.before[last] - c.before[first], operand, 0, inputs(direction), scratch);
  }

  void step(int64_t direction, int64_t step, int64_t begin, int64_t end) const {
    const int64_t C = c.blocks.columns, rows = c.active[step], u0 = begin * C, width = (end - begin) * C;
    const int64_t units = std::min(width, H - u0), pitch = gates * width + kPadding;
    if (rows == 0) return;
    float *const sums = c.sums(direction, u0), *const temporary = c.temporaries(direction, u0);
    if (step == 0 && !p.has_h0) {
      std::fill_n(sums, rows * pitch, 0.0f);
    } else if (hidden == HiddenWeights::in_place) {
      const auto* const w = static_cast<const float*>(l.weights[direction][kHiddenWeight]) + u0 * H;
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t gate = 0; gate < gates; ++gate)
          c.gemm.row_f32.dots(h(step, direction, i), w + gate * H * H, H, units, H, sums + i * pitch + gate * width);
    } else {
      const float** const row = c.pointers(direction, begin);
      for (int64_t i = 0; i < rows; ++i) row[i] = h(step, direction, i);
      const float* panel = c.weights(direction) + begin * gates * C * H;
      for (int64_t b = 0; b < end - begin; ++b)
        for (int64_t gate = 0; gate < gates; ++gate, panel += C * H)
          c.multiply({row, size_t(rows)}, 0, panel, sums + gate * width + b * C, pitch, false);
    }
    for (int64_t i = 0; i < rows; ++i)
      run_units(unit(direction, i), i, step, u0, units, sums + i * pitch, width, temporary);
  }

  // The units [u0, u0 + units) of the i-th sequence.
  void run_units(const Unit& u, int64_t i, int64_t step, int64_t u0, int64_t units, const float* sums, int64_t width,
                 float* temporary) const {
    const int64_t t = u.time(step), row = u.direction * p.rows() + minidnn::rnn::row_of(p, l, t, u.n);
    RnnForwardUnits f{};
    f.units = units;
    f.input = inputs(u.direction) + input_row(u.direction, step, i) * chunks.pitch() + u0;
    f.next_input = f.input + (i + 1 < c.active[step] ? chunks.pitch() : 0);
    f.hidden = sums;
    f.bias = bias(u.direction) + u0;
    f.input_pitch = f.bias_pitch = f.saved_pitch = H;
    f.hidden_pitch = width;
    f.h = h(step, u.direction, i) + u0;
    f.to = h(step + 1, u.direction, i) + u0;
    f.clip = p.has_clip ? float(l.clip) : NAN;
    if (p.mode == RnnMode::lstm) f.c = c.state(u.direction, u.n, u0);
    const int64_t saved = row * p.saved_gates() * H + u0;
    if (p.training) {
      if (p.mode == RnnMode::lstm) f.cells = static_cast<float*>(l.cells) + row * H + u0;
      f.saved = c.is_float ? static_cast<float*>(l.gates) + saved : temporary;
      if (!c.is_float) f.saved_pitch = width;
    }
    c.loops.forward[int64_t(p.mode)](f);
    const int64_t stride = l.out.stride[l.out.rank - 1];
    c.write_rounded(f.to, units, l.out_data,
                    minidnn::rnn::offset_of(p, l, l.out, t, u.n) + (u.direction * H + u0) * stride, stride);
    if (p.training && !c.is_float)
      for (int64_t k = 0; k < p.saved_gates(); ++k) c.write(temporary + k * width, units, l.gates, saved + k * H, 1);
  }

  void run(int64_t threads) {
    pack_weights();
    begin_states();
    if (p.has_lengths) clear_beyond();
    for (; first < p.steps && c.active[first]; first = last) {
      last = std::min(p.steps, first + chunks.steps());
      for (int64_t d = 0; d < p.directions; ++d) multiply_inputs(d);
      c.run_steps(last - first, threads, [&](int64_t direction, int64_t i, int64_t begin, int64_t end) {
        step(direction, first + i, begin, end);
      });
    }
  }
};

}  // namespace

ChunkProducts::ChunkProducts(const RnnProblem& p, const Device& d) : p_(p) {
  const int64_t most = cpu::work_size(kChunkRows);
  steps_ = std::max<int64_t>(ceil_div(p.steps, ceil_div(p.steps * p.batch, most)), 1);
  first_ = of_layer(0, d);
  if (p.layers > 1) others_ = of_layer(1, d);
}

ChunkProducts::OfLayer ChunkProducts::of_layer(int64_t layer, const Device& d) const {
  const int64_t inputs = p_.input_size(layer), gates = p_.gates() * p_.hidden;
  const bool varies = p_.has_lengths || p_.packed;  // the number of rows
  const DType type = p_.x.dtype;
  const MatrixRows x(p_, p_.x);
  OfLayer of;
  of.in_place = !varies && (layer || (x.exist && !x.by_sequence));
  of.pitch = of.in_place && layer == 0 ? x.pitch : inputs;
  const auto add = [&](int64_t rows) {
    of.products.emplace_back(p_, d, matrix(type, rows, inputs, of.pitch), matrix(type, inputs, gates, 1, inputs),
                             matrix(DType::float32, rows, gates, pitch()));
    of.products.back().build(d);
  };
  add(rows());
  if (varies)
    for (int64_t n = rows() / 2; n >= kFewRows; n /= 2) add(n);
  else if (p_.steps % steps_) add(p_.steps % steps_ * p_.batch);
  return of;
}

size_t ChunkProducts::scratch_bytes() const {
  size_t most = 0;
  for (const OfLayer* of : {&first_, &others_})
    for (const Product& p : of->products) most = std::max(most, p.choice.workspace_bytes);
  return most;
}

size_t ChunkProducts::operand_bytes() const {
  int64_t inputs = 0;
  if (!first_.products.empty() && !first_.in_place) inputs = p_.input_size(0);
  if (!others_.products.empty() && !others_.in_place) inputs = std::max(inputs, p_.input_size(1));
  return size_t(rows() * inputs) * itemsize(p_.x.dtype);
}

double ChunkProducts::estimate_us() const {
  double us = first_.products[0].choice.estimate_us;
  if (p_.layers > 1) us += double(p_.layers - 1) * others_.products[0].choice.estimate_us;
  return double(p_.directions) * us * double(p_.steps) / double(steps_);
}

void ChunkProducts::run(const RnnLayer& l, int64_t direction, int64_t rows, const void* operand, int64_t first,
                        float* sums, void* scratch) const {
  const OfLayer& of = l.index ? others_ : first_;
  const auto size = int64_t(itemsize(p_.x.dtype));
  const char* from = static_cast<const char*>(of.in_place ? l.in_data : operand) + first * of.pitch * size;
  for (int64_t done = 0, some; done < rows; done += some) {
    // The product of the most rows that remain, or that of the fewest rows, which then computes more.
    const auto fits = [&](const Product& p) { return p.problem.y.shape[0] <= rows - done; };
    const auto found = std::ranges::find_if(of.products, fits);
    const Product& product = found == of.products.end() ? of.products.back() : *found;
    some = product.problem.y.shape[0];
    product.run(from + done * of.pitch * size, l.weights[direction][kInputWeight], sums + done * pitch(), false,
                scratch, nullptr);
  }
}

void forward_layer(const PackedCall& call, const ChunkProducts& chunks, int64_t threads) {
  Forward{call, chunks}.run(threads);
}

}  // namespace minidnn::cpu::rnn
