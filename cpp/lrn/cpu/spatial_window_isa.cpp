// SPDX-License-Identifier: Apache-2.0
// The vectorised loops of cpu.lrn.spatial_window. A vector holds adjacent elements of a row.
#include "cpp/lrn/cpu/spatial_window_kernel.h"
#include "cpp/lrn/cpu/window_line.h"

namespace minidnn::MINIDNN_ISA {
namespace {

static_assert(kSpatialChunk <= kLineChunk);

// Selects all but the first `skip` lanes, or the first `count` lanes if `skip` is 0.
struct Lanes {
  int64_t count, skip;
  MINIDNN_HD Floats of(Floats v) const {
    if (skip) return lanes_from(int(skip), v);
    for (int64_t k = count; k < kFloats; ++k) v[k] = 0;
    return v;
  }
};
// Calls tap(i, from, lanes) for each position in the window and each vector of elements. i is the first element of the
// vector, and `from` the offset of its neighbour at this position. `lanes` selects the elements that are new.
template <class Tap> MINIDNN_HD void each_tap(const SpatialChunk& p, const Tap& tap) {
  for (int64_t down = -p.above; down <= p.below; ++down)
    for (int64_t o = -p.behind; o <= p.ahead; ++o) {
      const int64_t shift = o * p.step, first = max_of(p.begin, -shift), last = min_of(p.end, p.row - shift);
      const int64_t from = down * p.row + shift;
      int64_t i = first;
      for (; i + kFloats <= last; i += kFloats) tap(i - p.begin, from + i, Lanes{kFloats, 0});
      if (i >= last) continue;
      const int64_t early = last - kFloats;
      if (early >= first) tap(early - p.begin, from + early, Lanes{kFloats, i - early});
      else tap(i - p.begin, from + i, Lanes{last - i, 0});
    }
}
MINIDNN_HD void add(float* to, Lanes lanes, Floats v) { store(to, load(to) + lanes.of(v)); }
// One float per element of a chunk, with space for a vector that begins at any element.
struct ChunkBuffer {
  float at[kSpatialChunk + kFloats];
  MINIDNN_HD float* operator+(int64_t i) { return at + i; }
};
MINIDNN_HD void clear(ChunkBuffer& to, int64_t n) {
  for (int64_t i = 0; i < n; i += kFloats) store(to + i, Floats{});
}
template <class T> MINIDNN_HD void read_chunk(const SpatialChunk& p, const T* from, ChunkBuffer& to) {
  const int64_t n = p.end - p.begin;
  for (int64_t i = 0; i < n; i += kFloats)
    store(to + i, from ? read(from + p.begin + i, min_of(int64_t(kFloats), n - i)) : Floats{});
}
// Returns true if windows are read from a copy of each row with zeros around it. Sums then stay in registers.
// Otherwise, sums are loaded and stored for each position in the window.
MINIDNN_HD bool is_contiguous(const SpatialChunk& p) {
  return p.step == 1 && p.behind <= kMargin && p.ahead <= kMargin;
}
template <class T> MINIDNN_HD void read_row(const SpatialChunk& p, const T* from, int64_t down, Line& to) {
  read_line(p.row, from + down * p.row, p.begin, -p.behind, p.end - p.begin + p.ahead, to);
}
// Sets the lanes of v to zero whose elements are outside the row. Lane 0 has element `at` of the chunk.
MINIDNN_HD Floats inside(const SpatialChunk& p, int64_t at, Floats v) {
  const int64_t low = -(p.begin + at), high = low + p.row;
  if (low <= 0 && high >= kFloats) return v;
  Vector<int32_t> lane;
  for (int k = 0; k < kFloats; ++k) lane[k] = k;
  const auto mask = (lane >= int32_t(max_of(low, int64_t(0)))) & (lane < int32_t(min_of(high, int64_t(kFloats))));
  return (Floats)(Vector<int32_t>(v) & mask);
}
// Computes the sum of (x - mean)^2 over the window of each element, and that of (x - mean) if `deviations` is not null.
template <class T>
MINIDNN_HD void squares_around(const SpatialChunk& p, const T* x, ChunkBuffer& mean, ChunkBuffer& squares,
                               ChunkBuffer* deviations) {
  clear(squares, p.end - p.begin);
  if (deviations) clear(*deviations, p.end - p.begin);
  if (is_contiguous(p)) {
    Line line;
    for (int64_t down = -p.above; down <= p.below; ++down) {
      read_row(p, x, down, line);
      for (int64_t i = 0; i < p.end - p.begin; i += kFloats) {
        const Floats center = load(mean + i);
        Floats sum = load(squares + i), sum_deviations = deviations ? load(*deviations + i) : Floats{};
        for (int64_t o = -p.behind; o <= p.ahead; ++o) {
          const Floats deviation = inside(p, i + o, load(line + (i + o)) - center);
          sum += deviation * deviation;
          sum_deviations += deviation;
        }
        store(squares + i, sum);
        if (deviations) store(*deviations + i, sum_deviations);
      }
    }
    return;
  }
  each_tap(p, [&](int64_t i, int64_t from, Lanes lanes) __attribute__((always_inline)) {
    const Floats deviation = read(x + from, lanes.count) - load(mean + i);
    add(squares + i, lanes, deviation * deviation);
    if (deviations) add(*deviations + i, lanes, deviation);
  });
}

template <class T> void forward(const SpatialChunk& p, const void* from, const void* means, void* to) {
  const T* x = static_cast<const T*>(from);
  ChunkBuffer mean, squares;
  read_chunk(p, static_cast<const T*>(means), mean);
  squares_around(p, x, mean, squares, nullptr);
  for (int64_t i = 0; i < p.end - p.begin; i += kFloats) {
    const int64_t lanes = min_of(int64_t(kFloats), p.end - p.begin - i);
    const Floats s = p.k + p.scale * load(squares + i);
    write(static_cast<T*>(to) + p.begin + i, lanes, read(x + p.begin + i, lanes) * inverse_power(s, p.beta));
  }
}

template <class T>
void weights(const SpatialChunk& p, const void* from, const void* means, const void* gradient, float* g, float* own,
             void* dmeans) {
  const T *x = static_cast<const T*>(from), *dy = static_cast<const T*>(gradient);
  ChunkBuffer mean, squares, deviations;
  read_chunk(p, static_cast<const T*>(means), mean);
  squares_around(p, x, mean, squares, dmeans ? &deviations : nullptr);
  const float slope = 2 * p.beta * p.scale;
  for (int64_t i = 0; i < p.end - p.begin; i += kFloats) {
    const int64_t at = p.begin + i, lanes = min_of(int64_t(kFloats), p.end - at);
    const Floats s = p.k + p.scale * load(squares + i), some = read(dy + at, lanes) * inverse_power(s, p.beta);
    const Floats of_g = some * read(x + at, lanes) / s;
    write(own + at, lanes, some);
    write(g + at, lanes, of_g);
    if (dmeans) write(static_cast<T*>(dmeans) + at, lanes, slope * of_g * load(deviations + i));
  }
}

template <class T>
void gradients(const SpatialChunk& p, const void* from, const void* means, const float* g, const float* own, void* to) {
  const T *x = static_cast<const T*>(from), *m = static_cast<const T*>(means);
  ChunkBuffer own_values, sums;
  read_chunk(p, x, own_values);
  clear(sums, p.end - p.begin);
  if (is_contiguous(p)) {
    Line weights, centers;
    for (int64_t down = -p.above; down <= p.below; ++down) {
      read_row(p, g, down, weights);
      if (m) read_row(p, m, down, centers);
      for (int64_t i = 0; i < p.end - p.begin; i += kFloats) {
        const Floats own_x = load(own_values + i);
        Floats sum = load(sums + i);
        for (int64_t o = -p.behind; o <= p.ahead; ++o) {
          const Floats deviation = m ? own_x - load(centers + (i + o)) : own_x;
          sum += inside(p, i + o, load(weights + (i + o)) * deviation);
        }
        store(sums + i, sum);
      }
    }
  } else
    each_tap(p, [&](int64_t i, int64_t at, Lanes lanes) __attribute__((always_inline)) {
      const Floats deviation = m ? load(own_values + i) - read(m + at, lanes.count) : load(own_values + i);
      add(sums + i, lanes, read(g + at, lanes.count) * deviation);
    });
  const float slope = 2 * p.beta * p.scale;
  for (int64_t i = 0; i < p.end - p.begin; i += kFloats) {
    const int64_t lanes = min_of(int64_t(kFloats), p.end - p.begin - i);
    write(static_cast<T*>(to) + p.begin + i, lanes, read(own + p.begin + i, lanes) - slope * load(sums + i));
  }
}

template <class T> constexpr SpatialWindowKernels::Typed kTyped{forward<T>, weights<T>, gradients<T>};

}  // namespace

extern const SpatialWindowKernels spatial_window_kernels;
const SpatialWindowKernels spatial_window_kernels = {kTyped<float>, kTyped<bfloat16>, kTyped<float16>};

}  // namespace minidnn::MINIDNN_ISA
