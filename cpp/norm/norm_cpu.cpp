// SPDX-License-Identifier: Apache-2.0
// cpu.norm.streamed: one pass that sums and one that writes. Channels are cut into tiles, and their members into
// sections, by the shape alone. A tile stays with one thread, so that the second pass finds what the first left in its
// cache; where tiles are few, threads share out the sections of one. A section's sums join a total in float64, in order.
//
// Moments are of x - center, the center being the mean of a small part of the channel. Where that turns out to lie
// further from the mean than a standard deviation, as in data that drift, the channel is summed again around its mean:
// so the subtraction of squares takes no more than a bit.
#include <numeric>

#include "cpp/cpu/threads.h"
#include "cpp/norm/norm.h"
#include "cpp/norm/norm_kernels.h"

namespace minidnn {
namespace {

constexpr int64_t kGrain = 16384;           // elements a thread is worth waking for
constexpr int64_t kTileBytes = 256 << 10;   // stays in a core's cache from one pass to the next
constexpr int64_t kSubset = 2048;           // members that find a center
constexpr int64_t kStreamBytes = 24 << 20;  // a larger result is written past the caches

constexpr int64_t kUneven = INT64_MIN;

// The step from each item to the next, or kUneven.
int64_t step_of(const NormSpace& s, int64_t NormOffsets::* tensor) {
  for (int64_t i = 0; i + 1 < s.rank; ++i)
    if (s.step[i].*tensor != s.step[i + 1].*tensor * s.shape[i + 1]) return kUneven;
  return s.run_step().*tensor;
}

// A problem as the loops of norm_kernels.h: [rows][channels][space], or [rows][columns]. A column is of channel
// column / repeat % channels: short runs are better seen as columns, and so are some rows as one, where a row would end
// amid a vector.
struct Cut {
  int64_t channels = 0, members = 0;
  int64_t rows = 0, columns = 0, space = 1;
  int64_t repeat = 1, copies = 1;
  int64_t left_rows = 0;  // that fill no row of `copies`; they lie behind the others
  NormPart::Steps x{}, dy{}, out{};
  bool ordered = false;               // parameters lie in the channels' order in memory
  int64_t tile = 0, tiles = 0;        // channels of a tile
  int64_t section = 0, sections = 0;  // a section's rows, or where pieces > 1, of a run
  int64_t pieces = 1;
  bool tile_by_thread = false;

  int64_t row_columns() const { return columns / copies; }
  int64_t tile_columns() const { return min_of(tile * repeat * copies, columns); }
};

// The loops, or nothing where neither the members nor the channels lie beside each other.
std::optional<Cut> loops_of(const NormProblem& p) {
  const NormSpaces s = norm_spaces(p);
  Cut c;
  c.channels = s.groups.size, c.members = s.members.size;
  c.ordered = c.channels == 1 || step_of(s.groups, &NormOffsets::parameter) == 1;
  struct Tensor {
    int64_t NormOffsets::* offset;
    NormPart::Steps& steps;
  } tensors[] = {{&NormOffsets::x, c.x}, {&NormOffsets::dy, c.dy}, {&NormOffsets::out, c.out}};
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
    // Whole vectors of 16, and rows that are worth a loop, as long as their sums stay in a first-level cache.
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
  if (c.space > 1) {
    // A tile of a row has some pages for the prefetcher.
    c.tile = std::clamp<int64_t>(2048 / c.space, 1, 64);
    constexpr int64_t kLongest = 16384;
    c.pieces = ceil_div(c.space, kLongest);
    c.section = c.pieces > 1 ? kLongest : std::clamp<int64_t>(kLongest / c.space, 1, 256);
    c.sections = c.pieces > 1 ? c.rows * c.pieces : ceil_div(c.rows, c.section);
  } else {
    int64_t width = std::clamp<int64_t>(kTileBytes / (bytes * c.rows + 1) / 256 * 256, 256, 2048);
    if (c.rows * 256 * bytes > 2 * kTileBytes) width = 2048;  // no tile stays in a cache: then long rows
    c.tile = c.copies > 1 ? c.channels : ceil_div(width, c.repeat);
    c.section = std::clamp<int64_t>((128 << 10) / c.tile_columns(), 64, 1024);
    c.sections = ceil_div(c.rows, c.section) + (c.left_rows > 0);
  }
  c.tiles = ceil_div(c.channels, c.tile);
  c.tile_by_thread = c.tiles >= 4 * d.sm_count || c.tiles % d.sm_count == 0;
  return c;
}

// Lines have an entry per column, the others one per channel.
struct Room {
  double *first, *second;                 // a channel's sums
  float *mean, *factor, *offset, *slope;  // lines; mean is the center while moments are summed
  float *var, *inv_std, *sums;
  Room(const Cut& c, void* workspace) {
    first = static_cast<double*>(workspace), second = first + c.channels;
    mean = reinterpret_cast<float*>(second + c.channels);
    factor = mean + c.columns, offset = factor + c.columns, slope = offset + c.columns;
    var = slope + c.columns, inv_std = var + c.channels, sums = inv_std + c.channels;
  }
  static size_t bytes(const Cut& c) {
    const int64_t sums = 2 * (c.tile_by_thread ? c.columns : c.sections * c.tile_columns());
    return size_t(2 * c.channels) * sizeof(double) + size_t(4 * c.columns + 2 * c.channels + sums) * sizeof(float);
  }
};

template <class T> const NormKernels::Typed& kernels_of() {
  const NormKernels& k = norm_kernels();
  if constexpr (std::is_same_v<T, float>) return k.f32;
  else if constexpr (std::is_same_v<T, bfloat16>) return k.bf16;
  else return k.f16;
}

// One call. A tile is `count` channels from `channel`.
template <class T> class StreamedCall {
 public:
  StreamedCall(const Cut& cut, const NormSpaces& s, NormDirection d, const NormArgs& args, void* workspace)
      : c(cut), spaces(s), direction(d), a(args), room(cut, workspace) {
    const bool in_a_row = c.space == 1 || c.tile == 1 || c.out.column == c.space;
    stream = in_a_row && a.out != a.x && c.members * c.channels * int64_t(sizeof(T)) > kStreamBytes;
  }

  void run() const {
    cpu::parallel_for(c.tiles, c.tile_by_thread ? kGrain / (c.tile * c.members) + 1 : c.tiles + 1,
                      [&](int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i)
                          run_tile(i * c.tile, min_of(c.tile, c.channels - i * c.tile));
                      });
  }

 private:
  void run_tile(int64_t channel, int64_t count) const {
    switch (direction) {
      case NormDirection::training:
        training_lines(channel, count);
        break;
      case NormDirection::inference:
        inference_lines(channel, count);
        break;
      case NormDirection::backward:
        backward_lines(channel, count);
        break;
    }
    const int64_t line = channel * c.repeat;
    const NormLines lines{room.mean + line, room.factor + line, room.offset + line, room.slope + line};
    const auto map = direction == NormDirection::backward ? kernels.backward : kernels.forward;
    // Backwards: a cache still holds the sections that were summed last.
    each_section(count, [&](int64_t i) { map(section(channel, count, c.sections - 1 - i), lines, stream); });
  }

  template <class Body> void each_section(int64_t count, Body body) const {
    auto each = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i);
    };
    const int64_t elements = c.section * (c.pieces > 1 ? 1 : count * c.repeat * c.copies * c.space);
    if (c.tile_by_thread) each(0, c.sections);
    else cpu::parallel_for(c.sections, kGrain / elements + 1, each);
  }

  NormPart part(int64_t channel, int64_t columns, int64_t row, int64_t rows, int64_t at, int64_t space) const {
    auto from = [&](auto* base, const NormPart::Steps& s) {
      return base + row * s.row + channel * c.repeat * s.column + at;
    };
    const void* dy = direction == NormDirection::backward ? a.dy : a.x;
    return {from(static_cast<const T*>(a.x), c.x),
            from(static_cast<const T*>(dy), c.dy),
            from(static_cast<T*>(a.out), c.out),
            rows,
            columns,
            space,
            c.x,
            c.dy,
            c.out};
  }
  NormPart section(int64_t channel, int64_t count, int64_t i) const {
    const int64_t columns = count * c.repeat * c.copies;
    if (c.pieces > 1) {
      const int64_t at = i % c.pieces * c.section;
      return part(channel, columns, i / c.pieces, 1, at, min_of(c.section, c.space - at));
    }
    const int64_t row = i * c.section;
    if (row < c.rows) return part(channel, columns, row, min_of(c.section, c.rows - row), 0, c.space);
    NormPart left = part(channel, c.row_columns(), c.rows, c.left_rows, 0, 1);
    left.x_step.row = left.dy_step.row = left.out_step.row = c.row_columns();
    return left;
  }

  int64_t parameter_of(int64_t channel) const {
    return c.ordered ? channel : spaces.groups.offsets_of(channel).parameter;
  }
  float given(const void* parameters, int64_t channel) const {
    return norm::parameter<float>(parameters, parameter_of(channel));
  }
  void set(float* line, int64_t channel, float value) const {
    for (int64_t k = 0; k < c.copies; ++k)
      for (int64_t r = 0; r < c.repeat; ++r) line[(k * c.channels + channel) * c.repeat + r] = value;
  }

  // The tile's sums over all sections, or over one part.
  using Sum = void (*)(const NormPart&, const float*, float*);
  void start(int64_t channel, int64_t count) const {
    std::fill_n(room.first + channel, count, 0.0);
    std::fill_n(room.second + channel, count, 0.0);
  }
  void join(int64_t channel, int64_t count, int64_t columns, const float* sums) const {
    for (int64_t at = 0; at < columns; at += count * c.repeat)
      for (int64_t i = 0; i < count; ++i)
        for (int64_t r = 0; r < c.repeat; ++r) {
          room.first[channel + i] += sums[at + i * c.repeat + r];
          room.second[channel + i] += sums[columns + at + i * c.repeat + r];
        }
  }
  void sum(int64_t channel, int64_t count, const NormPart& p, Sum kernel) const {
    float* sums = room.sums + (c.tile_by_thread ? 2 * channel * c.repeat : 0);
    start(channel, count);
    kernel(p, room.mean + channel * c.repeat, sums);
    join(channel, count, p.columns, sums);
  }
  void sum(int64_t channel, int64_t count, Sum kernel) const {
    const int64_t step = c.tile_by_thread ? 0 : 2 * c.tile_columns();
    float* sums = room.sums + (c.tile_by_thread ? 2 * channel * c.repeat : 0);
    start(channel, count);
    each_section(count, [&](int64_t i) {
      const NormPart p = section(channel, count, i);
      kernel(p, room.mean + channel * c.repeat, sums + i * step);
      if (c.tile_by_thread) join(channel, count, p.columns, sums);
    });
    if (c.tile_by_thread) return;
    for (int64_t i = 0; i < c.sections; ++i) join(channel, count, section(channel, count, i).columns, sums + i * step);
  }

  void find_centers(int64_t channel, int64_t count) const {
    const T* x = static_cast<const T*>(a.x);
    for (int64_t i = channel; i < channel + count; ++i) {
      const float first = float(x[i * c.repeat * c.x.column]);
      set(room.mean, i, std::isfinite(first) ? first : 0);
    }
    int64_t rows = c.rows, space = c.space;
    if (c.members > kSubset) {
      rows = min_of<int64_t>(rows, c.space > 1 ? 16 : 32);
      space = min_of(space, kSubset / rows);
    }
    NormPart subset = part(channel, count * c.repeat * c.copies, 0, rows, 0, space);
    subset.x_step.row *= c.rows / rows;
    sum(channel, count, subset, kernels.moments);
    const double n = double(rows * space * c.repeat * c.copies);
    for (int64_t i = channel; i < channel + count; ++i)
      if (const float center = float(room.mean[i * c.repeat] + room.first[i] / n); std::isfinite(center))
        set(room.mean, i, center);
  }

  void training_lines(int64_t channel, int64_t count) const {
    const double n = double(c.members);
    const int64_t end = channel + count;
    auto mean_of = [&](int64_t i) -> float& { return norm::parameter<float>(a.mean, parameter_of(i)); };
    // Whether the center was too far away.
    auto settle = [&](int64_t i) {
      const double away = room.first[i] / n, var = room.second[i] / n - away * away;
      mean_of(i) = float(room.mean[i * c.repeat] + away);
      room.var[i] = float(var < 0 ? 0 : var);
      return away * away > var;
    };
    find_centers(channel, count);
    sum(channel, count, kernels.moments);
    bool any = false;
    float* is_far = room.inv_std;  // not in use yet
    for (int64_t i = channel; i < end; ++i) any |= (is_far[i] = settle(i)) != 0;
    if (any) {
      for (int64_t i = channel; i < end; ++i)
        if (is_far[i] != 0) set(room.mean, i, mean_of(i));
      sum(channel, count, kernels.moments);
      for (int64_t i = channel; i < end; ++i)
        if (is_far[i] != 0) settle(i);
    }
    norm_kernels().inverse_std(count, room.var + channel, float(a.eps), room.inv_std + channel);
    for (int64_t i = channel; i < end; ++i) {
      const int64_t at = parameter_of(i);
      norm::parameter<float>(a.inv_std, at) = room.inv_std[i];
      set(room.mean, i, mean_of(i));
      set(room.factor, i, given(a.scale, i) * room.inv_std[i]);
      set(room.offset, i, given(a.bias, i));
      if (!a.running_mean) continue;
      const float momentum = float(a.momentum), keep = float(1 - a.momentum);
      float &mean = norm::parameter<float>(a.running_mean, at), &var = norm::parameter<float>(a.running_var, at);
      mean = keep * mean + momentum * mean_of(i);
      var = keep * var + momentum * float(room.var[i] * (n / std::max(n - 1, 1.0)));
    }
  }

  void inference_lines(int64_t channel, int64_t count) const {
    for (int64_t i = channel; i < channel + count; ++i) room.var[i] = given(a.var, i);
    norm_kernels().inverse_std(count, room.var + channel, float(a.eps), room.inv_std + channel);
    for (int64_t i = channel; i < channel + count; ++i) {
      set(room.mean, i, given(a.mean, i));
      set(room.factor, i, given(a.scale, i) * room.inv_std[i]);
      set(room.offset, i, given(a.bias, i));
    }
  }

  void backward_lines(int64_t channel, int64_t count) const {
    for (int64_t i = channel; i < channel + count; ++i) set(room.mean, i, given(a.mean, i));
    sum(channel, count, kernels.gradients);
    for (int64_t i = channel; i < channel + count; ++i) {
      const double n = double(c.members), inv_std = given(a.inv_std, i), scale = room.second[i] * inv_std;
      norm::parameter<float>(a.dbias, parameter_of(i)) = float(room.first[i]);
      norm::parameter<float>(a.dscale, parameter_of(i)) = float(scale);
      set(room.factor, i, given(a.scale, i) * float(inv_std));
      set(room.offset, i, float(room.first[i] / n));
      set(room.slope, i, float(scale / n * inv_std));
    }
  }

  const Cut& c;
  const NormSpaces& spaces;
  const NormDirection direction;
  const NormArgs& a;
  const Room room;
  const NormKernels::Typed& kernels = kernels_of<T>();
  bool stream = false;
};

struct Streamed final : Engine<NormProblem> {
  std::string name() const override { return "cpu.norm.streamed"; }
  std::string why_not(const NormProblem& p, const Device&) const override {
    if (p.x.dtype == DType::float64) return "computes in float32, and x is float64";
    if (p.x.numel() == 0) return "an empty batch has no statistics to sum";
    if (!loops_of(p))
      return "reads vectors: the members of a statistic, or the statistics' channels, must lie beside each other in "
             "x, " +
             std::string(p.direction == NormDirection::backward ? "dy and dx" : "and y") + " alike, at even steps";
    return "";
  }
  double estimate_us(const NormProblem& p, const Device& d) const override {
    return roofline_us(norm_flop(p) / 8, norm_bytes(p), d, 0.8);
  }
  size_t workspace_bytes(const NormProblem& p, const Device& d, const Config&) const override {
    return Room::bytes(cut_of(p, d));
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
