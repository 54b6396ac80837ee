// SPDX-License-Identifier: Apache-2.0
// Vectorised loops. Local response norm has vectors of positions, with a loop over channels (NCHW), or vectors of
// channels (NHWC). Local contrast norm has vectors along rows, with a loop over the positions of the windows. The
// squares of a window are summed again for each element: a sliding sum would keep the rounding errors of large elements
// that have left the window.
#include "cpp/core/elementary.h"
#include "cpp/norm/local_norm_kernels.h"
#include "cpp/simd/simd.h"

namespace minidnn::MINIDNN_ISA {
namespace {

static_assert(kAcrossRun % kFloats == 0 && kAcrossPiece % kFloats == 0);

template <class T> MINIDNN_HD Floats read(const T* from, int64_t lanes) {
  return lanes == kFloats ? load_floats(from) : load_first(from, lanes);
}
template <class T> MINIDNN_HD void write(T* to, int64_t lanes, Floats v) {
  if (lanes == kFloats) store_floats(to, v);
  else store_first(to, lanes, v);
}
MINIDNN_HD Floats inverse_power(Floats s, float beta) { return elementary::exp(-beta * elementary::log(s)); }

// The contributions of an element to its own gradient and to those of its neighbours.
struct Parts {
  Floats own, g;
};
MINIDNN_HD Parts parts_of(const AcrossChannels& c, Floats squares, Floats x, Floats dy) {
  const Floats s = c.k + c.scale * squares, own = dy * inverse_power(s, c.beta);
  return {own, own * x / s};
}

template <class T>
MINIDNN_HD Floats squares_around(const AcrossChannels& c, const T* x, int64_t plane, int64_t channel, int64_t lanes) {
  Floats sum{};
  for (int64_t o = max_of(channel - c.behind, int64_t(0)); o <= min_of(channel + c.ahead, c.channels - 1); ++o) {
    const Floats v = read(x + o * plane, lanes);
    sum += v * v;
  }
  return sum;
}

template <class T>
void forward_run(const AcrossChannels& c, const void* from, int64_t plane, int64_t n, void* to) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  for (int64_t channel = 0; channel < c.channels; ++channel)
    for (int64_t i = 0; i < n; i += kFloats) {
      const int64_t lanes = min_of(int64_t(kFloats), n - i), at = channel * plane + i;
      const Floats s = c.k + c.scale * squares_around(c, x + i, plane, channel, lanes);
      write(y + at, lanes, read(x + at, lanes) * inverse_power(s, c.beta));
    }
}

template <class T>
void backward_run(const AcrossChannels& c, const void* from, const void* gradient, int64_t plane, int64_t n, void* to) {
  const T *x = static_cast<const T*>(from), *dy = static_cast<const T*>(gradient);
  T* dx = static_cast<T*>(to);
  const int64_t size = c.behind + c.ahead + 1;
  float own[kMostAcross * kAcrossRun], g[kMostAcross * kAcrossRun];  // ring buffers of `size` channels
  const float slope = 2 * c.beta * c.scale;
  for (int64_t next = 0; next < c.channels + c.behind; ++next) {
    if (next < c.channels)
      for (int64_t i = 0; i < n; i += kFloats) {
        const int64_t lanes = min_of(int64_t(kFloats), n - i), at = next * plane + i;
        const int64_t slot = next % size * kAcrossRun + i;
        const Parts p =
            parts_of(c, squares_around(c, x + i, plane, next, lanes), read(x + at, lanes), read(dy + at, lanes));
        store(own + slot, p.own), store(g + slot, p.g);
      }
    // The channel whose last neighbour is `next`.
    const int64_t channel = next - c.behind;
    if (channel < 0) continue;
    const int64_t first = max_of(channel - c.ahead, int64_t(0)), last = min_of(next, c.channels - 1);
    for (int64_t i = 0; i < n; i += kFloats) {
      const int64_t lanes = min_of(int64_t(kFloats), n - i), at = channel * plane + i;
      Floats sum{};
      for (int64_t o = first; o <= last; ++o) sum += load(g + o % size * kAcrossRun + i);
      write(dx + at, lanes, load(own + channel % size * kAcrossRun + i) - slope * read(x + at, lanes) * sum);
    }
  }
}

// A copy of the channels of a chunk and of kMargin channels on either side. Channels outside the row are zero.
constexpr int64_t kMargin = kMostAcross;
static_assert(kMargin % kFloats == 0);
struct Line {
  float at[kMargin + kAcrossPiece + kMargin + kFloats];
  MINIDNN_HD float* operator+(int64_t i) { return at + kMargin + i; }
};

// Copies channels [begin, end) of a row, counted from `first`, to the same indices of the line.
template <class T>
MINIDNN_HD void read_line(int64_t channels, const T* row, int64_t first, int64_t begin, int64_t end, Line& to) {
  const int64_t from = max_of(begin, -first), until = min_of(end, channels - first);
  for (int64_t i = begin; i < from; ++i) *(to + i) = 0;
  for (int64_t i = from; i < until; i += kFloats)
    store(to + i, read(row + first + i, min_of(int64_t(kFloats), until - i)));
  for (int64_t i = max_of(until, from); i < end; ++i) *(to + i) = 0;
}
MINIDNN_HD Floats squares_around(Line& x, int64_t i, int64_t behind, int64_t ahead) {
  Floats sum{};
  for (int64_t o = -behind; o <= ahead; ++o) {
    const Floats v = load(x + (i + o));
    sum += v * v;
  }
  return sum;
}

template <class T> void forward_rows(const AcrossChannels& c, const void* from, int64_t positions, void* to) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  Line line;
  for (int64_t row = 0; row < positions; ++row, x += c.channels, y += c.channels)
    for (int64_t first = 0; first < c.channels; first += kAcrossPiece) {
      const int64_t n = min_of(kAcrossPiece, c.channels - first);
      read_line(c.channels, x, first, -c.behind, n + c.ahead, line);
      for (int64_t i = 0; i < n; i += kFloats) {
        const Floats s = c.k + c.scale * squares_around(line, i, c.behind, c.ahead);
        write(y + first + i, min_of(int64_t(kFloats), n - i), load(line + i) * inverse_power(s, c.beta));
      }
    }
}

template <class T>
void backward_rows(const AcrossChannels& c, const void* from, const void* gradient, int64_t positions, void* to) {
  const T *x = static_cast<const T*>(from), *dy = static_cast<const T*>(gradient);
  T* dx = static_cast<T*>(to);
  const float slope = 2 * c.beta * c.scale;
  const int64_t around = c.behind + c.ahead;
  Line line, gradients, g;
  for (int64_t row = 0; row < positions; ++row, x += c.channels, dy += c.channels, dx += c.channels)
    for (int64_t first = 0; first < c.channels; first += kAcrossPiece) {
      const int64_t n = min_of(kAcrossPiece, c.channels - first);
      read_line(c.channels, x, first, -around, n + around, line);
      read_line(c.channels, dy, first, -c.ahead, n + c.behind, gradients);
      for (int64_t i = -c.ahead; i < n + c.behind; i += kFloats) {
        const Parts p = parts_of(c, squares_around(line, i, c.behind, c.ahead), load(line + i), load(gradients + i));
        store(gradients + i, p.own), store(g + i, p.g);
      }
      // Outside the row, s may be 0, and g would be 0 / 0: sets g to zero there.
      for (int64_t i = -c.ahead; i < -first; ++i) *(g + i) = 0;
      for (int64_t i = c.channels - first; i < n + c.behind; ++i) *(g + i) = 0;
      for (int64_t i = 0; i < n; i += kFloats) {
        Floats sum{};
        for (int64_t o = -c.ahead; o <= c.behind; ++o) sum += load(g + (i + o));
        write(dx + first + i, min_of(int64_t(kFloats), n - i), load(gradients + i) - slope * load(line + i) * sum);
      }
    }
}

// Some lanes of a vector: the first `count`, or all but the first `skip`.
struct Lanes {
  int64_t count, skip;
  MINIDNN_HD Floats of(Floats v) const {
    if (skip) return lanes_from(int(skip), v);
    for (int64_t k = count; k < kFloats; ++k) v[k] = 0;
    return v;
  }
};
// Calls tap(i, from, lanes) for each position of the windows and each vector of the chunk. `i` counts from the chunk's
// begin; `from` is the offset of the vector's neighbours in that position. Neighbours outside the row are skipped. The
// last vector begins early, and skips lanes that were processed before.
template <class Tap> MINIDNN_HD void each_tap(const AroundPiece& p, const Tap& tap) {
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
// Scratch for a chunk, and for the lanes of the last vector beyond its end.
struct Piece {
  float at[kAroundPiece + kFloats];
  MINIDNN_HD float* operator+(int64_t i) { return at + i; }
};
MINIDNN_HD void clear(Piece& to, int64_t n) {
  for (int64_t i = 0; i < n; i += kFloats) store(to + i, Floats{});
}
template <class T> MINIDNN_HD void read_piece(const AroundPiece& p, const T* from, Piece& to) {
  const int64_t n = p.end - p.begin;
  for (int64_t i = 0; i < n; i += kFloats)
    store(to + i, from ? read(from + p.begin + i, min_of(int64_t(kFloats), n - i)) : Floats{});
}
// Whether positions are contiguous and windows fit a Line. Then a row of the windows is copied to a Line with zeros
// around it, and each output vector loops over its taps there. With each_tap(), vectors of one tap begin at other
// elements than those of the next, so loads of sums would wait for stores that only partly overlap.
static_assert(kAroundPiece <= kAcrossPiece);
MINIDNN_HD bool are_beside(const AroundPiece& p) { return p.step == 1 && p.behind <= kMargin && p.ahead <= kMargin; }
template <class T> MINIDNN_HD void read_row(const AroundPiece& p, const T* from, int64_t down, Line& to) {
  read_line(p.row, from + down * p.row, p.begin, -p.behind, p.end - p.begin + p.ahead, to);
}
// Sets the lanes outside the row to zero. The vector begins at index `at` of the chunk.
MINIDNN_HD Floats inside(const AroundPiece& p, int64_t at, Floats v) {
  const int64_t low = -(p.begin + at), high = low + p.row;
  if (low <= 0 && high >= kFloats) return v;
  Vector<int32_t> lane;
  for (int k = 0; k < kFloats; ++k) lane[k] = k;
  const auto mask = (lane >= int32_t(max_of(low, int64_t(0)))) & (lane < int32_t(min_of(high, int64_t(kFloats))));
  return (Floats)(Vector<int32_t>(v) & mask);
}
// Computes the sums of squares of the windows around their means and, with `away`, the sums of differences from the
// means.
template <class T>
MINIDNN_HD void squares_around(const AroundPiece& p, const T* x, Piece& mean, Piece& squares, Piece* away) {
  clear(squares, p.end - p.begin);
  if (away) clear(*away, p.end - p.begin);
  if (are_beside(p)) {
    Line line;
    for (int64_t down = -p.above; down <= p.below; ++down) {
      read_row(p, x, down, line);
      for (int64_t i = 0; i < p.end - p.begin; i += kFloats) {
        const Floats center = load(mean + i);
        Floats sum = load(squares + i), sum_away = away ? load(*away + i) : Floats{};
        for (int64_t o = -p.behind; o <= p.ahead; ++o) {
          const Floats apart = inside(p, i + o, load(line + (i + o)) - center);
          sum += apart * apart, sum_away += apart;
        }
        store(squares + i, sum);
        if (away) store(*away + i, sum_away);
      }
    }
    return;
  }
  each_tap(p, [&](int64_t i, int64_t from, Lanes lanes) __attribute__((always_inline)) {
    const Floats apart = read(x + from, lanes.count) - load(mean + i);
    add(squares + i, lanes, apart * apart);
    if (away) add(*away + i, lanes, apart);
  });
}

template <class T> void around(const AroundPiece& p, const void* from, const void* means, void* to) {
  const T* x = static_cast<const T*>(from);
  Piece mean, squares;
  read_piece(p, static_cast<const T*>(means), mean);
  squares_around(p, x, mean, squares, nullptr);
  for (int64_t i = 0; i < p.end - p.begin; i += kFloats) {
    const int64_t lanes = min_of(int64_t(kFloats), p.end - p.begin - i);
    const Floats s = p.k + p.scale * load(squares + i);
    write(static_cast<T*>(to) + p.begin + i, lanes, read(x + p.begin + i, lanes) * inverse_power(s, p.beta));
  }
}

template <class T>
void around_weights(const AroundPiece& p, const void* from, const void* means, const void* gradient, float* g,
                    float* own, void* dmeans) {
  const T *x = static_cast<const T*>(from), *dy = static_cast<const T*>(gradient);
  Piece mean, squares, away;
  read_piece(p, static_cast<const T*>(means), mean);
  squares_around(p, x, mean, squares, dmeans ? &away : nullptr);
  const float slope = 2 * p.beta * p.scale;
  for (int64_t i = 0; i < p.end - p.begin; i += kFloats) {
    const int64_t at = p.begin + i, lanes = min_of(int64_t(kFloats), p.end - at);
    const Floats s = p.k + p.scale * load(squares + i), some = read(dy + at, lanes) * inverse_power(s, p.beta);
    const Floats of_g = some * read(x + at, lanes) / s;
    write(own + at, lanes, some), write(g + at, lanes, of_g);
    if (dmeans) write(static_cast<T*>(dmeans) + at, lanes, slope * of_g * load(away + i));
  }
}

template <class T>
void around_gradient(const AroundPiece& p, const void* from, const void* means, const float* g, const float* own,
                     void* to) {
  const T *x = static_cast<const T*>(from), *m = static_cast<const T*>(means);
  Piece mine, sums;
  read_piece(p, x, mine);
  clear(sums, p.end - p.begin);
  if (are_beside(p)) {
    Line weights, centers;
    for (int64_t down = -p.above; down <= p.below; ++down) {
      read_row(p, g, down, weights);
      if (m) read_row(p, m, down, centers);
      for (int64_t i = 0; i < p.end - p.begin; i += kFloats) {
        const Floats own_x = load(mine + i);
        Floats sum = load(sums + i);
        for (int64_t o = -p.behind; o <= p.ahead; ++o) {
          const Floats apart = m ? own_x - load(centers + (i + o)) : own_x;
          sum += inside(p, i + o, load(weights + (i + o)) * apart);
        }
        store(sums + i, sum);
      }
    }
  } else
    each_tap(p, [&](int64_t i, int64_t at, Lanes lanes) __attribute__((always_inline)) {
      const Floats apart = m ? load(mine + i) - read(m + at, lanes.count) : load(mine + i);
      add(sums + i, lanes, read(g + at, lanes.count) * apart);
    });
  const float slope = 2 * p.beta * p.scale;
  for (int64_t i = 0; i < p.end - p.begin; i += kFloats) {
    const int64_t lanes = min_of(int64_t(kFloats), p.end - p.begin - i);
    write(static_cast<T*>(to) + p.begin + i, lanes, read(own + p.begin + i, lanes) - slope * load(sums + i));
  }
}

template <class T> constexpr LocalNormKernels::Typed kTyped{forward_run<T>,    backward_run<T>, forward_rows<T>,
                                                            backward_rows<T>,  around<T>,       around_weights<T>,
                                                            around_gradient<T>};

}  // namespace

extern const LocalNormKernels local_norm_kernels;
const LocalNormKernels local_norm_kernels = {kTyped<float>, kTyped<bfloat16>, kTyped<float16>};

}  // namespace minidnn::MINIDNN_ISA
