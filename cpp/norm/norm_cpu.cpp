// SPDX-License-Identifier: Apache-2.0
// cpu.norm.streamed: one pass that sums and one that writes. Channels are divided into tiles, and the elements of a
// tile into sections. The sections of sums depend on the shape alone, so results do not depend on the number of
// threads. One thread computes both passes of a tile, so the second pass reads from its cache. If there are fewer tiles
// than threads, threads share the sections of a tile. The moments of sections are combined in float64, in order (Chan,
// Golub and LeVeque 1979).
#include <numeric>

#include "cpp/core/thread_pool.h"
#include "cpp/core/work_size.h"
#include "cpp/norm/norm.h"
#include "cpp/norm/norm_kernels.h"

namespace minidnn {
namespace {

constexpr int64_t kGrain = 16384;              // elements that justify waking one more thread
constexpr int64_t kTileBytes = 256 << 10;      // fits a core's cache from one pass to the next
constexpr int64_t kSection = 64 << 10;         // elements of a section of rows
constexpr int64_t kInferenceBytes = 32 << 20;  // like kNormSummedBytes, for the direction without sums

constexpr int64_t kUneven = INT64_MIN;

// The constant step from each item to the next, or kUneven if there is none.
int64_t step_of(const NormSpace& s, int64_t NormOffsets::* tensor) {
  for (int64_t i = 0; i + 1 < s.rank; ++i)
    if (s.step[i].*tensor != s.step[i + 1].*tensor * s.shape[i + 1]) return kUneven;
  return s.run_step().*tensor;
}

// A problem as the loops of norm_kernels.h: [rows][channels][space], or [rows][columns] with `space` 1. In the second
// form, a column belongs to channel column / repeat % channels. Short contiguous spans become columns: a channel has
// `repeat` adjacent ones. `copies` rows are merged into one where a row would end within a vector.
struct Cut {
  int64_t channels = 0, members = 0;
  int64_t rows = 0, columns = 0, space = 1;
  int64_t repeat = 1, copies = 1;
  int64_t left_rows = 0;  // after the merge of rows: rows at the end that do not fill a merged one
  NormPart::Steps x{}, dy{}, out{};
  NormPart::Steps y{}, gated{};       // fused backward: steps of the forward result, and of the residual's gradient
  bool ordered = false;               // the order of parameters in memory is that of the channels
  int64_t tile = 0, tiles = 0;        // tile: channels per tile
  int64_t section = 0, sections = 0;  // section: rows, or with pieces > 1 elements of a row's space
  int64_t pieces = 1;
  bool tile_by_thread = false;

  int64_t row_columns() const { return columns / copies; }
  int64_t tile_columns() const { return min_of(tile * repeat * copies, columns); }
};

// Returns the loops, or nothing if neither the members nor the channels are contiguous.
std::optional<Cut> loops_of(const NormProblem& p) {
  const NormSpaces s = norm_spaces(p);
  Cut c;
  c.channels = s.groups.size, c.members = s.members.size;
  c.ordered = c.channels == 1 || step_of(s.groups, &NormOffsets::parameter) == 1;
  const bool backward = p.direction == NormDirection::backward;
  struct Tensor {
    int64_t NormOffsets::* offset;
    NormPart::Steps& steps;
  } tensors[] = {{&NormOffsets::x, c.x},
                 {backward || !p.other.rank ? &NormOffsets::dy : &NormOffsets::other, c.dy},
                 {&NormOffsets::out, c.out},
                 {&NormOffsets::other, c.y},
                 {&NormOffsets::dresidual, c.gated}};
  auto all = [&](auto holds) { return std::ranges::all_of(tensors, holds); };

  NormSpace rows = s.members;
  const bool runs = rows.run() > 1 && all([&](Tensor& t) { return rows.run_step().*t.offset == 1; });
  if (runs) {
    c.space = rows.run();
    rows.size /= c.space;
    if (--rows.rank == 0) rows = {.shape = {1}};
  }
  for (Tensor& t : tensors) {
    t.steps = {step_of(rows, t.offset), c.channels == 1 ? c.space : step_of(s.groups, t.offset)};
    if (t.steps.row == kUneven || t.steps.column == kUneven) return {};
  }
  const bool packed = all([&](Tensor& t) { return t.steps.column == c.space; });
  if (!runs && !packed) return {};
  c.rows = rows.size, c.columns = c.channels;
  constexpr int64_t kShort = 16;
  if (packed && c.space < kShort) {
    c.repeat = std::exchange(c.space, 1);
    c.columns *= c.repeat;
    for (Tensor& t : tensors) t.steps.column = 1;
    // Enough copies that a merged row is a multiple of 16 floats and at least kRow long, while its sums fit a
    // first-level cache.
    constexpr int64_t kLanes = 16, kRow = 256;
    int64_t copies = kLanes / std::gcd(c.columns, kLanes);
    while (copies * c.columns < kRow) copies *= 2;
    if (copies * c.columns <= kNormColumns && copies <= c.rows &&
        all([&](Tensor& t) { return t.steps.row == c.columns; })) {
      c.copies = copies;
      c.columns *= copies;
      c.left_rows = c.rows % copies;
      c.rows /= copies;
      for (Tensor& t : tensors) t.steps.row = c.columns;
    }
  }
  return c;
}

Cut cut_of(const NormProblem& p, const Device& d) {
  Cut c = *loops_of(p);
  const int64_t bytes = int64_t(itemsize(p.x.dtype)) * (p.direction == NormDirection::backward ? 2 : 1);
  // Without sums, a tile need not stay in a cache: threads process whole rows in memory order.
  const bool in_memory_order = p.direction == NormDirection::inference && c.rows >= 4 * d.sm_count;
  bool stays = true;
  if (c.space > 1) {
    // Spans are long enough for the prefetcher, and short enough that all threads have work in one span.
    const int64_t row = cpu::work_size(2048), longest = cpu::work_size(16384);
    c.pieces = ceil_div(c.space, longest);
    const bool whole_rows = in_memory_order && c.pieces == 1;
    c.tile = whole_rows ? c.channels : std::clamp<int64_t>(row / c.space, 1, 64);
    if (c.pieces > 1) c.section = longest;
    else c.section = whole_rows ? 1 : std::clamp<int64_t>(longest / c.space, 1, 256);
    c.sections = c.pieces > 1 ? c.rows * c.pieces : ceil_div(c.rows, c.section);
  } else {
    // If the sums' inputs fit a cache, each thread gets a range of columns. Otherwise rows are long, and threads get
    // sections. Sums do not depend on this choice, because sections consist of the same rows.
    int64_t width = kNormColumns;
    const int64_t tile_bytes = cpu::work_size(kTileBytes), step = cpu::work_size(256, 16);
    if (!in_memory_order && c.rows * 2 * step * bytes <= tile_bytes)
      width = std::clamp<int64_t>(min_of(tile_bytes / (bytes * c.rows), c.columns / d.sm_count) / step * step, 2 * step,
                                  width);
    c.tile = c.copies > 1 ? c.channels : width / c.repeat;
    // Sections have enough rows that joining them costs little, and few enough that all threads have work.
    c.section = std::clamp<int64_t>(max_of(cpu::work_size(kSection) / min_of(c.columns, kNormColumns), c.rows / 16),
                                    cpu::work_size(64), 1024);
    c.sections = ceil_div(c.rows, c.section) + (c.left_rows > 0);
    stays = c.rows * c.tile_columns() * bytes <= tile_bytes;
  }
  c.tiles = ceil_div(c.channels, c.tile);
  c.tile_by_thread = stays && (c.tiles >= 4 * d.sm_count || c.tiles % d.sm_count == 0);
  return c;
}

// The workspace of one tile. Lines have one entry per column; the other arrays have one per channel.
struct Tile {
  int64_t channel, count;                 // channels of the tile
  double *first, *second;                 // joined results: mean and squares, or the two sums of gradients
  float *mean, *factor, *offset, *slope;  // lines
  float *var, *inv_std;
  float* results;  // results of sections
  Tile(const Cut& c, int64_t tile, void* workspace)
      : channel(tile * c.tile), count(min_of(c.tile, c.channels - channel)) {
    const int64_t line = channel * c.repeat;
    first = static_cast<double*>(workspace) + channel, second = first + c.channels;
    mean = static_cast<float*>(workspace) + 4 * c.channels + line;
    factor = mean + c.columns, offset = factor + c.columns, slope = offset + c.columns;
    var = slope + c.columns - line + channel, inv_std = var + c.channels;
    results = inv_std + c.channels - channel + (c.tile_by_thread ? kKinds * line : 0);
  }
  static size_t bytes(const Cut& c) {
    const int64_t results = kKinds * (c.tile_by_thread ? c.columns : c.sections * c.tile_columns());
    return size_t(4 * c.channels + 4 * c.columns + 2 * c.channels + results) * sizeof(float);
  }

 private:
  static constexpr int64_t kKinds = 3;  // results per column of a section, at most
};

template <class T> const NormKernels::Typed& kernels_of() {
  const NormKernels& k = norm_kernels();
  if constexpr (std::is_same_v<T, float>) return k.f32;
  else if constexpr (std::is_same_v<T, bfloat16>) return k.bf16;
  else return k.f16;
}

// One call of the plan.
template <class T> class StreamedCall {
 public:
  StreamedCall(const Cut& cut, const NormSpaces& s, NormDirection d, const NormArgs& args, void* room)
      : c(cut), spaces(s), direction(d), a(args), workspace(room) {
    const T *x = static_cast<const T*>(a.x), *dy = static_cast<const T*>(a.dy), *other = static_cast<const T*>(a.other);
    T* const out = static_cast<T*>(a.out);
    if (d != NormDirection::backward) {
      all = {x, other ? other : x, out, c.x, c.dy, c.out};
    } else if (!other && !a.dresidual) {
      all = {x, dy, out, c.x, c.dy, c.out};
    } else {
      gates = true;
      T* const gated = a.dresidual ? static_cast<T*>(a.dresidual) : out;
      const NormPart::Steps& step = a.dresidual ? c.gated : c.out;
      gate = {other ? other : dy, dy, gated, other ? c.y : c.dy, c.dy, step};
      all = {x, gated, out, c.x, step, c.out};
    }
    const bool in_a_row = c.space == 1 || c.tile == 1 || c.out.column == c.space;
    const int64_t bytes = c.members * c.channels * int64_t(sizeof(T));
    stream = in_a_row && a.out != a.x && a.out != a.other && a.out != all.dy &&
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
    const NormLines lines{t.mean, t.factor, t.offset, backward ? t.slope : nullptr};
    const auto map = backward ? kernels.backward : kernels.forward[a.other != nullptr][a.relu != 0];
    // From the last section to the first: the cache still holds the sections that were summed last.
    const bool summed = direction != NormDirection::inference;
    each_section(t, [&](int64_t i) { map(section(all, t, summed ? c.sections - 1 - i : i), lines, stream); });
  }

  template <class Body> void each_section(const Tile& t, Body body) const {
    auto each = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i);
    };
    const int64_t elements = c.section * (c.pieces > 1 ? 1 : t.count * c.repeat * c.copies * c.space);
    if (c.tile_by_thread) each(0, c.sections);
    else cpu::parallel_for(c.sections, cpu::work_size(kGrain) / elements + 1, each);
  }

  // The tensors that one loop reads and writes.
  struct Tensors {
    const T *x, *dy;
    T* out;
    NormPart::Steps x_step, dy_step, out_step;
  };
  NormPart part(const Tensors& of, const Tile& t, int64_t columns, int64_t row, int64_t rows, int64_t at,
                int64_t space) const {
    auto from = [&](auto* base, const NormPart::Steps& s) {
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
  NormPart section(const Tensors& of, const Tile& t, int64_t i) const {
    const int64_t columns = t.count * c.repeat * c.copies;
    if (c.pieces > 1) {
      const int64_t at = i % c.pieces * c.section;
      return part(of, t, columns, i / c.pieces, 1, at, min_of(c.section, c.space - at));
    }
    const int64_t row = i * c.section;
    if (row < c.rows) return part(of, t, columns, row, min_of(c.section, c.rows - row), 0, c.space);
    NormPart left = part(of, t, c.row_columns(), c.rows, c.left_rows, 0, 1);
    left.x_step.row = left.dy_step.row = left.out_step.row = c.row_columns();
    return left;
  }

  // Calls f(i, at) for each channel of the tile; `at` is the offset of its parameters.
  template <class F> void each_channel(const Tile& t, F f) const {
    if (c.ordered)
      for (int64_t i = 0; i < t.count; ++i) f(i, t.channel + i);
    else
      for (int64_t i = 0; i < t.count; ++i) f(i, spaces.groups.offsets_of(t.channel + i).parameter);
  }
  // Expands the entries per channel at the start of the line to entries per column.
  void spread(const Tile& t, float* line) const {
    if (c.repeat > 1)
      for (int64_t i = t.count; i-- > 0;) std::fill_n(line + i * c.repeat, c.repeat, line[i]);
    for (int64_t k = 1; k < c.copies; ++k) std::copy_n(line, t.count * c.repeat, line + k * t.count * c.repeat);
  }
  static const float* parameters(const void* p) { return static_cast<const float*>(p); }
  static float* parameters(void* p) { return static_cast<float*>(p); }

  // Calls work(i, part, results) for all sections, with `kinds` results per column, and then join(part, results) in
  // order.
  template <class Work, class Join> void each_section_joined(const Tile& t, int kinds, Work work, Join join) const {
    if (c.tile_by_thread)
      return each_section(t, [&](int64_t i) {
        const NormPart p = section(all, t, i);
        work(i, p, t.results);
        join(p, t.results);
      });
    const int64_t step = kinds * c.tile_columns();
    each_section(t, [&](int64_t i) { work(i, section(all, t, i), t.results + i * step); });
    for (int64_t i = 0; i < c.sections; ++i) join(section(all, t, i), t.results + i * step);
  }
  // Calls f(results, step) for all columns of a section, one set of the tile's channels at a time.
  template <class F> void each_channels(const Tile& t, const NormPart& p, const float* results, F f) const {
    for (int64_t at = 0; at < p.columns; at += t.count * c.repeat)
      for (int64_t r = 0; r < c.repeat; ++r) f(results + at + r, c.repeat);
  }

  void training_lines(const Tile& t) const {
    double *mean = t.first, *squares = t.second, n = 0;
    std::fill_n(mean, t.count, 0.0);
    std::fill_n(squares, t.count, 0.0);
    auto moments = [&](int64_t, const NormPart& p, float* results) { kernels.moments(p, results); };
    each_section_joined(t, 3, moments, [&](const NormPart& p, const float* results) {
      const double more = double(p.rows * p.space);
      each_channels(t, p, results, [&](const float* from, int64_t step) {
        norm_kernels().join_moments(t.count, from, p.columns, step, more, n, mean, squares);
        n += more;
      });
    });
    for (int64_t i = 0; i < t.count; ++i) t.var[i] = float(squares[i] / n);
    norm_kernels().inverse_std(t.count, t.var, float(a.eps), t.inv_std);
    each_channel(t, [&](int64_t i, int64_t at) {
      parameters(a.mean)[at] = t.mean[i] = float(mean[i]);
      parameters(a.inv_std)[at] = t.inv_std[i];
      t.factor[i] = parameters(a.scale)[at] * t.inv_std[i];
      t.offset[i] = parameters(a.bias)[at];
    });
    for (float* line : {t.mean, t.factor, t.offset}) spread(t, line);
    if (!a.running_mean) return;
    const float momentum = float(a.momentum), keep = float(1 - a.momentum), unbiased = float(n / std::max(n - 1, 1.0));
    each_channel(t, [&](int64_t i, int64_t at) {
      float &running_mean = parameters(a.running_mean)[at], &running_var = parameters(a.running_var)[at];
      running_mean = keep * running_mean + momentum * float(mean[i]);
      running_var = keep * running_var + momentum * (t.var[i] * unbiased);
    });
  }

  void inference_lines(const Tile& t) const {
    each_channel(t, [&](int64_t i, int64_t at) { t.var[i] = parameters(a.var)[at]; });
    norm_kernels().inverse_std(t.count, t.var, float(a.eps), t.inv_std);
    each_channel(t, [&](int64_t i, int64_t at) {
      t.mean[i] = parameters(a.mean)[at];
      t.factor[i] = parameters(a.scale)[at] * t.inv_std[i];
      t.offset[i] = parameters(a.bias)[at];
    });
    for (float* line : {t.mean, t.factor, t.offset}) spread(t, line);
  }

  void backward_lines(const Tile& t) const {
    each_channel(t, [&](int64_t i, int64_t at) { t.mean[i] = parameters(a.mean)[at]; });
    spread(t, t.mean);
    std::fill_n(t.first, t.count, 0.0);
    std::fill_n(t.second, t.count, 0.0);
    each_section_joined(
        t, 2,
        [&](int64_t i, const NormPart& p, float* results) {
          if (gates) kernels.gate[a.other != nullptr](section(gate, t, i), {t.mean, nullptr, nullptr, nullptr}, false);
          kernels.gradients(p, t.mean, results);
        },
        [&](const NormPart& p, const float* results) {
          each_channels(t, p, results, [&](const float* from, int64_t step) {
            norm_kernels().join_gradients(t.count, from, p.columns, step, t.first, t.second);
          });
        });
    const double n = double(c.members);
    each_channel(t, [&](int64_t i, int64_t at) {
      const double inv_std = parameters(a.inv_std)[at], scale = t.second[i] * inv_std;
      parameters(a.dbias)[at] = float(t.first[i]);
      parameters(a.dscale)[at] = float(scale);
      t.factor[i] = parameters(a.scale)[at] * float(inv_std);
      t.offset[i] = float(t.first[i] / n);
      t.slope[i] = float(scale / n * inv_std);
    });
    for (float* line : {t.factor, t.offset, t.slope}) spread(t, line);
  }

  const Cut& c;
  const NormSpaces& spaces;
  const NormDirection direction;
  const NormArgs& a;
  void* const workspace;
  const NormKernels::Typed& kernels = kernels_of<T>();
  Tensors all{}, gate{};
  // dy is masked by the sign of y before it is summed. The masked dy is written to the residual's gradient, or to dx.
  bool gates = false;
  bool stream = false;
};

struct Streamed final : Engine<NormProblem> {
  std::string name() const override { return "cpu.norm.streamed"; }
  std::string why_not(const NormProblem& p, const Device&) const override {
    if (p.x.dtype == DType::float64) return "float64 is not supported";
    if (p.x.numel() == 0) return "x is empty";
    if (!loops_of(p))
      return "needs evenly strided tensors in which the elements of a channel, or the channels, are contiguous";
    return "";
  }
  double estimate_us(const NormProblem& p, const Device& d) const override {
    return roofline_us(norm_flop(p) / 8, norm_bytes(p), d, 0.8);
  }
  size_t workspace_bytes(const NormProblem& p, const Device& d, const Config&) const override {
    return Tile::bytes(cut_of(p, d));
  }
  std::unique_ptr<Plan<NormProblem>> build(const NormProblem& p, const Device& d, const Config&) const override {
    return make_plan<NormProblem>([c = cut_of(p, d), s = norm_spaces(p), dtype = p.x.dtype, direction = p.direction](
                                      const NormArgs& a, void* workspace, Stream) {
      if (dtype == DType::float32) StreamedCall<float>(c, s, direction, a, workspace).run();
      else if (dtype == DType::bfloat16) StreamedCall<bfloat16>(c, s, direction, a, workspace).run();
      else StreamedCall<float16>(c, s, direction, a, workspace).run();
    });
  }
};

}  // namespace

const Engine<NormProblem>& norm_streamed() {
  static const Streamed engine;
  return engine;
}

}  // namespace minidnn
