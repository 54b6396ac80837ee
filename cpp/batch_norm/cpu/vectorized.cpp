// SPDX-License-Identifier: Apache-2.0
// cpu.batch_norm.vectorized: one loop computes sums for each channel, and a second loop writes the result. The channels
// are divided into tiles, such as 64 channels, and the elements of a tile into sections. If there are many tiles, one
// thread runs both loops over a tile, so that the second loop reads from the cache of its core. If there are few,
// threads share the sections of a tile. Sections depend on the shape alone, so results do not depend on the number of
// threads. The sums of sections are combined in float64, in a fixed order (Chan, Golub and LeVeque 1979).
#include "cpp/batch_norm/cpu/vectorized_tiling.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::batch_norm {
namespace {

constexpr int64_t kGrain = 16384;  // the least number of elements that one thread processes
// Larger results of inference are written with non-temporal stores. Calls that compute sums use kNormSummedBytes.
constexpr int64_t kInferenceBytes = 32 << 20;

// The workspace of some adjacent channels. mean, factor, offset and slope have one element per column, and a channel
// may have several columns. The other arrays have one element per channel.
template <class A> struct Tile {
  int64_t channel, count;  // the index of the first channel, and the number of channels
  // In training, the mean and sum((x - mean)^2) of each channel. In the backward pass, sum(dy) and sum(dy (x - mean)).
  double *first, *second;
  // The coefficients of norm_element(), one per column.
  A *mean, *factor, *offset, *slope;
  A *var, *inv_std;
  A* results;  // sums of parts of the channels, before they are combined
  Tile(const Tiling& c, int64_t tile, void* workspace)
      : channel(tile * c.tile), count(min_of(c.tile, c.channels - channel)) {
    const int64_t line = channel * c.repeat;
    first = static_cast<double*>(workspace) + channel;
    second = first + c.channels;
    mean = reinterpret_cast<A*>(static_cast<double*>(workspace) + 2 * c.channels) + line;
    factor = mean + c.columns;
    offset = factor + c.columns;
    slope = offset + c.columns;
    var = slope + c.columns - line + channel;
    inv_std = var + c.channels;
    results = inv_std + c.channels - channel + (c.tile_by_thread ? kKinds * line : 0);
  }
  static size_t bytes(const Tiling& c) {
    const int64_t results = kKinds * (c.tile_by_thread ? c.columns : c.sections * c.tile_columns());
    return size_t(2 * c.channels) * sizeof(double) + size_t(4 * c.columns + 2 * c.channels + results) * sizeof(A);
  }

 private:
  static constexpr int64_t kKinds = 3;  // the largest number of sums per column
};

// The computation of one call of batch norm, with the pointers of its tensors.
template <class T> class VectorizedCall {
  using A = Accumulator<T>;  // the type of sums and parameters
  using Tile = batch_norm::Tile<A>;

 public:
  VectorizedCall(const Tiling& tiling, const NormSpaces& s, NormDirection d, const BatchNormArgs& args, void* scratch)
      : c(tiling), spaces(s), direction(d), a(args), workspace(scratch) {
    const T *x = static_cast<const T*>(a.x), *dy = static_cast<const T*>(a.dy), *other = static_cast<const T*>(a.other);
    T* const out = static_cast<T*>(a.out);
    if (d != NormDirection::backward) {
      all = {x, other ? other : x, out, c.x, c.dy, c.out};
    } else if (!other && !a.dresidual) {
      all = {x, dy, out, c.x, c.dy, c.out};
    } else {
      gates = true;
      T* const gated = a.dresidual ? static_cast<T*>(a.dresidual) : out;
      const NormBlock::Steps& step = a.dresidual ? c.gated : c.out;
      gate = {other ? other : dy, dy, gated, other ? c.y : c.dy, c.dy, step};
      all = {x, gated, out, c.x, step, c.out};
    }
    const bool in_a_row = c.space == 1 || c.tile == 1 || c.out.column == c.space;
    const int64_t bytes = c.members * c.channels * int64_t(sizeof(T));
    non_temporal = in_a_row && a.out != a.x && a.out != a.other && a.out != all.dy &&
                   bytes > cpu::work_size(d == NormDirection::inference ? kInferenceBytes : kNormSummedBytes);
  }

  void run() const {
    auto tiles = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) run_tile(Tile(c, i, workspace));
    };
    if (c.tile_by_thread) cpu::parallel_for(c.tiles, cpu::work_size(kGrain) / (c.tile * c.members) + 1, tiles);
    else tiles(0, c.tiles);
  }

 private:
  void run_tile(const Tile& t) const {
    if (direction == NormDirection::training) training_lines(t);
    else if (direction == NormDirection::inference) inference_lines(t);
    else backward_lines(t);
    const bool backward = direction == NormDirection::backward;
    const NormLines<A> lines{t.mean, t.factor, t.offset, backward ? t.slope : nullptr};
    const auto map = backward ? kernels.backward : kernels.forward[a.other != nullptr][a.relu != 0];
    // After sums, the result is written in reverse order, because the cache still holds the elements that were summed
    // last.
    const bool summed = direction != NormDirection::inference;
    each_section(t, [&](int64_t i) { map(section(all, t, summed ? c.sections - 1 - i : i), lines, non_temporal); });
  }

  template <class Body> void each_section(const Tile& t, Body body) const {
    auto each = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i);
    };
    const int64_t elements = c.section * (c.chunks > 1 ? 1 : t.count * c.repeat * c.copies * c.space);
    if (c.tile_by_thread) each(0, c.sections);
    else cpu::parallel_for(c.sections, cpu::work_size(kGrain) / elements + 1, each);
  }

  // The pointers and strides of the tensors that one loop reads (x, dy) and writes (out).
  struct Tensors {
    const T *x, *dy;
    T* out;
    NormBlock::Steps x_step, dy_step, out_step;
  };
  NormBlock block(const Tensors& of, const Tile& t, int64_t columns, int64_t row, int64_t rows, int64_t at,
                  int64_t space) const {
    auto from = [&](auto* base, const NormBlock::Steps& s) {
      return base + row * s.row + t.channel * c.repeat * s.column + at;
    };
    return {from(of.x, of.x_step),
            from(of.dy, of.dy_step),
            from(of.out, of.out_step),
            rows,
            columns,
            space,
            of.x_step,
            of.dy_step,
            of.out_step};
  }
  NormBlock section(const Tensors& of, const Tile& t, int64_t i) const {
    const int64_t columns = t.count * c.repeat * c.copies;
    if (c.chunks > 1) {
      const int64_t at = i % c.chunks * c.section;
      return block(of, t, columns, i / c.chunks, 1, at, min_of(c.section, c.space - at));
    }
    const int64_t row = i * c.section;
    if (row < c.rows) return block(of, t, columns, row, min_of(c.section, c.rows - row), 0, c.space);
    NormBlock left = block(of, t, c.row_columns(), c.rows, c.remaining_rows, 0, 1);
    left.x_step.row = left.dy_step.row = left.out_step.row = c.row_columns();
    return left;
  }

  // Calls f(i, at) for each channel i of a tile, where `at` is its offset in the parameter tensors.
  template <class F> void each_channel(const Tile& t, F f) const {
    if (c.ordered)
      for (int64_t i = 0; i < t.count; ++i) f(i, t.channel + i);
    else
      for (int64_t i = 0; i < t.count; ++i) f(i, spaces.groups.offsets_of(t.channel + i).parameter);
  }
  // Copies the value of each channel to all of its columns. Before, `line` has one element per channel; afterwards, one
  // per column.
  void spread(const Tile& t, A* line) const {
    if (c.repeat > 1)
      for (int64_t i = t.count; i-- > 0;) std::fill_n(line + i * c.repeat, c.repeat, line[i]);
    for (int64_t k = 1; k < c.copies; ++k) std::copy_n(line, t.count * c.repeat, line + k * t.count * c.repeat);
  }
  static const A* parameters(const void* p) { return static_cast<const A*>(p); }
  static A* parameters(void* p) { return static_cast<A*>(p); }

  // Calls work(i, block, results) for each section i (some elements of each channel) on several threads, and
  // join(block, results) in the order of the sections. work() writes results[kinds][columns], and join() reads it.
  template <class Work, class Join> void each_section_joined(const Tile& t, int kinds, Work work, Join join) const {
    if (c.tile_by_thread)
      return each_section(t, [&](int64_t i) {
        const NormBlock p = section(all, t, i);
        work(i, p, t.results);
        join(p, t.results);
      });
    const int64_t step = kinds * c.tile_columns();
    each_section(t, [&](int64_t i) { work(i, section(all, t, i), t.results + i * step); });
    for (int64_t i = 0; i < c.sections; ++i) join(section(all, t, i), t.results + i * step);
  }
  // A channel may have several columns. Each call f(from, step) gets one column of every channel: from[i * step] for
  // channel i.
  template <class F> void each_channel_set(const Tile& t, const NormBlock& p, const A* results, F f) const {
    for (int64_t at = 0; at < p.columns; at += t.count * c.repeat)
      for (int64_t r = 0; r < c.repeat; ++r) f(results + at + r, c.repeat);
  }

  void training_lines(const Tile& t) const {
    double *mean = t.first, *squares = t.second, n = 0;
    std::fill_n(mean, t.count, 0.0);
    std::fill_n(squares, t.count, 0.0);
    auto moments = [&](int64_t, const NormBlock& p, A* results) { kernels.moments(p, results); };
    each_section_joined(t, 3, moments, [&](const NormBlock& p, const A* results) {
      const double more = double(p.rows * p.space);
      each_channel_set(t, p, results, [&](const A* from, int64_t step) {
        kernels.join_moments(t.count, from, p.columns, step, more, n, mean, squares);
        n += more;
      });
    });
    for (int64_t i = 0; i < t.count; ++i) t.var[i] = A(squares[i] / n);
    kernels.inverse_std(t.count, t.var, A(a.eps), t.inv_std);
    each_channel(t, [&](int64_t i, int64_t at) {
      parameters(a.mean)[at] = t.mean[i] = A(mean[i]);
      parameters(a.inv_std)[at] = t.inv_std[i];
      t.factor[i] = parameters(a.scale)[at] * t.inv_std[i];
      t.offset[i] = parameters(a.bias)[at];
    });
    for (A* line : {t.mean, t.factor, t.offset}) spread(t, line);
    if (!a.running_mean) return;
    const A momentum = A(a.momentum), keep = A(1 - a.momentum), unbiased = A(n / std::max(n - 1, 1.0));
    each_channel(t, [&](int64_t i, int64_t at) {
      A &running_mean = parameters(a.running_mean)[at], &running_var = parameters(a.running_var)[at];
      running_mean = keep * running_mean + momentum * A(mean[i]);
      running_var = keep * running_var + momentum * (t.var[i] * unbiased);
    });
  }

  void inference_lines(const Tile& t) const {
    each_channel(t, [&](int64_t i, int64_t at) { t.var[i] = parameters(a.var)[at]; });
    kernels.inverse_std(t.count, t.var, A(a.eps), t.inv_std);
    each_channel(t, [&](int64_t i, int64_t at) {
      t.mean[i] = parameters(a.mean)[at];
      t.factor[i] = parameters(a.scale)[at] * t.inv_std[i];
      t.offset[i] = parameters(a.bias)[at];
    });
    for (A* line : {t.mean, t.factor, t.offset}) spread(t, line);
  }

  void backward_lines(const Tile& t) const {
    each_channel(t, [&](int64_t i, int64_t at) { t.mean[i] = parameters(a.mean)[at]; });
    spread(t, t.mean);
    std::fill_n(t.first, t.count, 0.0);
    std::fill_n(t.second, t.count, 0.0);
    each_section_joined(
        t, 2,
        [&](int64_t i, const NormBlock& p, A* results) {
          if (gates) kernels.gate[a.other != nullptr](section(gate, t, i), {t.mean, nullptr, nullptr, nullptr}, false);
          kernels.gradients(p, t.mean, results);
        },
        [&](const NormBlock& p, const A* results) {
          each_channel_set(t, p, results, [&](const A* from, int64_t step) {
            kernels.join_gradients(t.count, from, p.columns, step, t.first, t.second);
          });
        });
    const double n = double(c.members);
    each_channel(t, [&](int64_t i, int64_t at) {
      const double inv_std = parameters(a.inv_std)[at], scale = t.second[i] * inv_std;
      parameters(a.dbias)[at] = A(t.first[i]);
      parameters(a.dscale)[at] = A(scale);
      t.factor[i] = parameters(a.scale)[at] * A(inv_std);
      t.offset[i] = A(t.first[i] / n);
      t.slope[i] = A(scale / n * inv_std);
    });
    for (A* line : {t.factor, t.offset, t.slope}) spread(t, line);
  }

  const Tiling& c;
  const NormSpaces& spaces;
  const NormDirection direction;
  const BatchNormArgs& a;
  void* const workspace;
  const ChannelNormLoops<A>& kernels = channel_norm_loops<T>();
  Tensors all{}, gate{};
  // True if an extra loop first applies the gradient of the fused relu to dy. It writes the gradient of the residual
  // or, if that is not wanted, uses dx as scratch memory.
  bool gates = false;
  bool non_temporal = false;
};

}  // namespace

struct Vectorized final : Engine<BatchNormProblem> {
  std::string name() const override { return "cpu.batch_norm.vectorized"; }
  std::string why_not(const BatchNormProblem& p, const Device&) const override {
    if (p.x.numel() == 0) return "x is empty";
    if (!loops_of(p))
      return "needs evenly strided tensors in which the elements of a channel, or the channels, are contiguous";
    // The variance is the mean square of x - x[0], less the square of its mean. With few elements, that difference may
    // be several times smaller than its terms, and has their rounding errors. In float32, it is computed in float64.
    constexpr int64_t kFewElements = 16;
    const int64_t elements = norm_spaces(p).members.size;
    if (p.x.dtype == DType::float64 && p.direction == NormDirection::training && elements < kFewElements)
      return cat("float64 needs at least ", kFewElements, " elements for each mean; got ", elements);
    return "";
  }
  double estimate_us(const BatchNormProblem& p, const Device& d) const override {
    return roofline_us(norm_flop(p) / 8, norm_bytes(p), d, 0.8);
  }
  size_t workspace_bytes(const BatchNormProblem& p, const Device& d, const Config&) const override {
    return p.x.dtype == DType::float64 ? Tile<double>::bytes(tiling_of(p, d)) : Tile<float>::bytes(tiling_of(p, d));
  }
  std::unique_ptr<Plan<BatchNormProblem>> build(const BatchNormProblem& p, const Device& d,
                                                const Config&) const override {
    return make_plan<BatchNormProblem>([c = tiling_of(p, d), s = norm_spaces(p), dtype = p.x.dtype,
                                        direction = p.direction](const BatchNormArgs& a, void* workspace, Stream) {
      with_floating(dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        VectorizedCall<T>(c, s, direction, a, workspace).run();
      });
    });
  }
};

}  // namespace cpu::batch_norm

template const Engine<BatchNormProblem>& engine_object<BatchNormProblem, cpu::batch_norm::Vectorized>();

}  // namespace minidnn
