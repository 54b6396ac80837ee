// SPDX-License-Identifier: Apache-2.0
// The vectorised loops of cpu.lrn.cross_channel. A vector holds adjacent positions of one channel in NCHW, and adjacent
// channels of one position in NHWC.
#include "cpp/lrn/cpu/cross_channel_kernel.h"
#include "cpp/lrn/cpu/window_line.h"

namespace minidnn::MINIDNN_ISA {
namespace {

static_assert(kChannelSpan % kFloats == 0 && kChannelChunk <= kLineChunk && kMaxChannelWindow <= kMargin);

// Two terms of an element: dy s^-beta, for its own dx, and g = dy x s^(-beta - 1), for the dx of its neighbours (see
// lrn_math.h).
struct Terms {
  Floats own, g;
};
MINIDNN_HD Terms terms_of(const ChannelWindow& c, Floats squares, Floats x, Floats dy) {
  const Floats s = c.k + c.scale * squares, own = dy * inverse_power(s, c.beta);
  return {own, own * x / s};
}

template <class T>
MINIDNN_HD Floats squares_around(const ChannelWindow& c, const T* x, int64_t plane, int64_t channel, int64_t lanes) {
  Floats sum{};
  for (int64_t o = max_of(channel - c.behind, int64_t(0)); o <= min_of(channel + c.ahead, c.channels - 1); ++o) {
    const Floats v = read(x + o * plane, lanes);
    sum += v * v;
  }
  return sum;
}

template <class T>
void forward_planes(const ChannelWindow& c, const void* from, int64_t plane, int64_t n, void* to) {
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
void backward_planes(const ChannelWindow& c, const void* from, const void* gradient, int64_t plane, int64_t n,
                     void* to) {
  const T *x = static_cast<const T*>(from), *dy = static_cast<const T*>(gradient);
  T* dx = static_cast<T*>(to);
  const int64_t size = c.behind + c.ahead + 1;
  // The terms `own` and `g` of the last `size` channels, as ring buffers.
  float own[kMaxChannelWindow * kChannelSpan], g[kMaxChannelWindow * kChannelSpan];
  const float slope = 2 * c.beta * c.scale;
  for (int64_t next = 0; next < c.channels + c.behind; ++next) {
    if (next < c.channels)
      for (int64_t i = 0; i < n; i += kFloats) {
        const int64_t lanes = min_of(int64_t(kFloats), n - i), at = next * plane + i;
        const int64_t slot = next % size * kChannelSpan + i;
        const Terms p =
            terms_of(c, squares_around(c, x + i, plane, next, lanes), read(x + at, lanes), read(dy + at, lanes));
        store(own + slot, p.own);
        store(g + slot, p.g);
      }
    // Channel `next` is the last channel that contributes to dx of channel `next - behind`.
    const int64_t channel = next - c.behind;
    if (channel < 0) continue;
    const int64_t first = max_of(channel - c.ahead, int64_t(0)), last = min_of(next, c.channels - 1);
    for (int64_t i = 0; i < n; i += kFloats) {
      const int64_t lanes = min_of(int64_t(kFloats), n - i), at = channel * plane + i;
      Floats sum{};
      for (int64_t o = first; o <= last; ++o) sum += load(g + o % size * kChannelSpan + i);
      write(dx + at, lanes, load(own + channel % size * kChannelSpan + i) - slope * read(x + at, lanes) * sum);
    }
  }
}

MINIDNN_HD Floats squares_around(Line& x, int64_t i, int64_t behind, int64_t ahead) {
  Floats sum{};
  for (int64_t o = -behind; o <= ahead; ++o) {
    const Floats v = load(x + (i + o));
    sum += v * v;
  }
  return sum;
}

template <class T> void forward_channels(const ChannelWindow& c, const void* from, int64_t positions, void* to) {
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  Line line;
  for (int64_t row = 0; row < positions; ++row, x += c.channels, y += c.channels)
    for (int64_t first = 0; first < c.channels; first += kChannelChunk) {
      const int64_t n = min_of(kChannelChunk, c.channels - first);
      read_line(c.channels, x, first, -c.behind, n + c.ahead, line);
      for (int64_t i = 0; i < n; i += kFloats) {
        const Floats s = c.k + c.scale * squares_around(line, i, c.behind, c.ahead);
        write(y + first + i, min_of(int64_t(kFloats), n - i), load(line + i) * inverse_power(s, c.beta));
      }
    }
}

template <class T>
void backward_channels(const ChannelWindow& c, const void* from, const void* gradient, int64_t positions, void* to) {
  const T *x = static_cast<const T*>(from), *dy = static_cast<const T*>(gradient);
  T* dx = static_cast<T*>(to);
  const float slope = 2 * c.beta * c.scale;
  const int64_t reach = c.behind + c.ahead;
  Line line, gradients, g;
  for (int64_t row = 0; row < positions; ++row, x += c.channels, dy += c.channels, dx += c.channels)
    for (int64_t first = 0; first < c.channels; first += kChannelChunk) {
      const int64_t n = min_of(kChannelChunk, c.channels - first);
      read_line(c.channels, x, first, -reach, n + reach, line);
      read_line(c.channels, dy, first, -c.ahead, n + c.behind, gradients);
      for (int64_t i = -c.ahead; i < n + c.behind; i += kFloats) {
        const Terms p = terms_of(c, squares_around(line, i, c.behind, c.ahead), load(line + i), load(gradients + i));
        store(gradients + i, p.own);
        store(g + i, p.g);
      }
      // Channels outside x must have the weight g = 0. Their computed weight is 0 / 0 = NaN if k and all squares in the
      // window are 0.
      for (int64_t i = -c.ahead; i < -first; ++i) *(g + i) = 0;
      for (int64_t i = c.channels - first; i < n + c.behind; ++i) *(g + i) = 0;
      for (int64_t i = 0; i < n; i += kFloats) {
        Floats sum{};
        for (int64_t o = -c.ahead; o <= c.behind; ++o) sum += load(g + (i + o));
        write(dx + first + i, min_of(int64_t(kFloats), n - i), load(gradients + i) - slope * load(line + i) * sum);
      }
    }
}

template <class T> constexpr CrossChannelKernels::Typed kTyped{forward_planes<T>, backward_planes<T>,
                                                               forward_channels<T>, backward_channels<T>};

}  // namespace

extern const CrossChannelKernels cross_channel_kernels;
const CrossChannelKernels cross_channel_kernels = {kTyped<float>, kTyped<bfloat16>, kTyped<float16>};

}  // namespace minidnn::MINIDNN_ISA
