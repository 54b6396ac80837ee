// SPDX-License-Identifier: Apache-2.0
// cpu.conv.im2col_gemm: the convolution engine of im2col.h on the CPU. Spans of elements that are contiguous both in x
// and in the im2col matrix are copied as a whole, and all other data element by element.
#include "cpp/conv/im2col.h"
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"

namespace minidnn {
namespace cpu::conv {
namespace {

// The smallest number of elements for which it is worth waking another thread.
constexpr int64_t kGrain = 8192;

bool inside(int64_t i, int64_t size) { return uint64_t(i) < uint64_t(size); }

// Copies spans of elements from x to the im2col matrix along the last spatial dimension, in which x has stride 1. A
// work item is one channel of one image.
template <class T> void copy_rows(const ConvColumns& m, const T* x, T* columns) {
  const ConvGeometry& g = m.g;
  const int64_t *size = g.y.size, *window = g.window;
  int64_t channels = g.groups * g.x.channels, work = size[0] * size[1] * size[2] * window[0] * window[1] * window[2];
  cpu::parallel_for(g.images * channels, cpu::work_size(kGrain) / work + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t image = i / channels, channel = i % channels, group = channel / g.x.channels;
      const T* from = x + image * g.x.image + channel * g.x.channel;
      T* to = columns + m.origin + image * m.image + group * m.group + (channel - group * g.x.channels) * m.channel;
      for (NdIterator<3> tap(g.window, 0); tap.at[0] < window[0]; tap.advance()) {
        int64_t first[kMaxSpatial];
        for (int j = 0; j < kMaxSpatial; ++j) first[j] = tap.at[j] * g.dilation[j] - g.pad[j];
        int64_t low = std::clamp<int64_t>(-first[2], 0, size[2]),
                high = std::clamp(g.x.size[2] - first[2], low, size[2]);
        T* matrix = to + tap.at[0] * m.tap[0] + tap.at[1] * m.tap[1] + tap.at[2] * m.tap[2];
        for (int64_t a = 0; a < size[0]; ++a)
          for (int64_t b = 0; b < size[1]; ++b) {
            int64_t h = a * g.stride[0] + first[0], w = b * g.stride[1] + first[1];
            T* line = matrix + a * m.position[0] + b * m.position[1];
            if (!inside(h, g.x.size[0]) || !inside(w, g.x.size[1])) {
              std::fill_n(line, size[2], T(0));
              continue;
            }
            std::fill_n(line, low, T(0));
            std::copy_n(from + h * g.x.space[0] + w * g.x.space[1] + first[2] + low, high - low, line + low);
            std::fill_n(line + high, size[2] - high, T(0));
          }
      }
    }
  });
}

// Copies spans of elements along the channels from x to the im2col matrix. A work item is one image and one index of
// the first two spatial dimensions.
template <class T> void copy_channels(const ConvColumns& m, const T* x, T* columns) {
  const ConvGeometry& g = m.g;
  int64_t work = g.y.size[2] * g.groups * g.x.channels * g.window[0] * g.window[1] * g.window[2];
  const int64_t items[] = {g.images, g.y.size[0], g.y.size[1]};
  cpu::parallel_for(items[0] * items[1] * items[2], cpu::work_size(kGrain) / work + 1, [&](int64_t begin, int64_t end) {
    NdIterator<3> item(items, begin);
    for (int64_t i = begin; i < end; ++i, item.advance())
      for (int64_t c = 0; c < g.y.size[2]; ++c) {
        int64_t position[] = {item.at[1], item.at[2], c}, first[kMaxSpatial];
        T* to = columns + m.origin + item.at[0] * m.image;
        for (int j = 0; j < kMaxSpatial; ++j) {
          first[j] = position[j] * g.stride[j] - g.pad[j];
          to += position[j] * m.position[j];
        }
        for (NdIterator<3> tap(g.window, 0); tap.at[0] < g.window[0]; tap.advance()) {
          T* line = to;
          int64_t from = item.at[0] * g.x.image;
          bool within = true;
          for (int j = 0; j < kMaxSpatial; ++j) {
            int64_t at = first[j] + tap.at[j] * g.dilation[j];
            within = within && inside(at, g.x.size[j]);
            from += at * g.x.space[j];
            line += tap.at[j] * m.tap[j];
          }
          for (int64_t group = 0; group < g.groups; ++group, line += m.group, from += g.x.channels)
            if (within) std::copy_n(x + from, g.x.channels, line);
            else std::fill_n(line, g.x.channels, T(0));
        }
      }
  });
}

template <class T> void gather(const ConvColumns& m, const T* x, T* columns) {
  bool rows = !m.channels_last && m.g.stride[2] == 1 && (m.g.x.space[2] == 1 || m.g.x.size[2] == 1);
  if (rows) return copy_rows(m, x, columns);
  if (m.channels_last && m.channel == 1) return copy_channels(m, x, columns);
  int64_t taps = m.g.window[0] * m.g.window[1] * m.g.window[2];
  cpu::parallel_for(columns_points(m), cpu::work_size(kGrain) / taps + 1, [&](int64_t begin, int64_t end) {
    ConvPoint point = columns_point(m, begin);
    for (int64_t i = begin; i < end; ++i, point.count.advance()) columns_gather(m, x, columns, point);
  });
}

template <class T> void sum(const ConvColumns& m, const Accumulator<T>* columns, T* dx) {
  int64_t taps = m.g.window[0] * m.g.window[1] * m.g.window[2];
  cpu::parallel_for(conv_out_numel(m.g), cpu::work_size(kGrain) / taps + 1, [&](int64_t begin, int64_t end) {
    ConvPoint point(m.g, m.g.x, begin);
    ConvWindow window;
    for (int64_t i = begin; i < end; ++i, point.count.advance()) {
      window.move_to(m.g, point);
      columns_sum<T>(m, columns, dx, point, window);
    }
  });
}

struct Mover final : ColumnsMover {
  const DType operands, dx;
  Mover(DType t, DType result) : operands(t), dx(result) {}
  void gather(const ConvColumns& m, const void* x, void* columns, Stream) const override {
    with_floating(operands, [&](auto type) {
      using T = typename decltype(type)::type;
      conv::gather(m, static_cast<const T*>(x), static_cast<T*>(columns));
    });
  }
  void sum(const ConvColumns& m, const void* columns, void* to, Stream) const override {
    with_floating(dx, [&](auto type) {
      using T = typename decltype(type)::type;
      conv::sum<T>(m, static_cast<const Accumulator<T>*>(columns), static_cast<T*>(to));
    });
  }
};

}  // namespace

struct Im2colGemm final : Im2colEngine {
  std::string name() const override { return "cpu.conv.im2col_gemm"; }
  std::shared_ptr<const ColumnsMover> mover(DType operands, DType dx, const Device&) const override {
    return std::make_shared<Mover>(operands, dx);
  }
};

}  // namespace cpu::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cpu::conv::Im2colGemm>();

}  // namespace minidnn
