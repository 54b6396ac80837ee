// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/cpu/to_nhwc.h"

#include <algorithm>

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/op.h"
#include "cpp/simd/bf16_products.h"
#include "cpp/simd/gemm_microkernel.h"

namespace minidnn {
namespace {

// The smallest number of elements for which it is worth waking another thread.
constexpr int64_t kGrain = 16384;

// Copies dense images to channels-last. All pixels of an image form one line, because the copy has no border of zeros.
template <class T, class To> void copy_images(const ChannelsLast& m, const T* x, To* to) {
  const int64_t chunk = cpu::work_size(64);
  const int64_t all = m.source.channels * m.groups, step = m.source.space[2];
  const int64_t pixels = m.source.size[0] * m.source.size[1] * m.source.size[2], chunks = ceil_div(pixels, chunk);
  cpu::parallel_for(m.images * chunks, cpu::work_size(kGrain) / (chunk * all) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % chunks * chunk, count = std::min(chunk, pixels - first);
      const T* from = x + i / chunks * m.source.image + first * step;
      To* at = to + (i / chunks * pixels + first) * all;
      if constexpr (sizeof(T) == 4) gemm_kernels().transpose(from, m.source.channel, all, count, at, all);
      else {
        if constexpr (sizeof(To) == 2)
          // With other numbers of channels, this function writes beyond the last pixel.
          if (all % 8 == 0) {
            bf16_kernels().transpose(from, m.source.channel, all, count, at, all);
            continue;
          }
        for (int64_t c = 0; c < all; ++c)
          for (int64_t w = 0; w < count; ++w) at[w * all + c] = To(from[w + c * m.source.channel]);
      }
    }
  });
}

// Copies any tensor to channels-last, one image row per work item, unless copy_images() can copy it.
template <class T, class To> void copy(const ChannelsLast& m, const T* x, To* to) {
  const int64_t* size = m.source.size;
  const int64_t* space = m.source.space;
  const bool flat = m.border[0] + m.border[1] + m.border[2] == 0 && space[2] == 1 &&
                    (size[1] == 1 || space[1] == size[2]) && (size[0] == 1 || space[0] == size[1] * size[2]);
  if (flat) return copy_images(m, x, to);
  const int64_t all = m.source.channels * m.groups, length = m.side.space[1];
  const int64_t lines[] = {m.images, m.side.size[0], m.side.size[1]};
  cpu::parallel_for(
      lines[0] * lines[1] * lines[2], cpu::work_size(kGrain) / length + 1, [&](int64_t begin, int64_t end) {
        NdIterator<3> line(lines, begin);
        for (int64_t i = begin; i < end; ++i, line.advance()) {
          To* at = to + i * length;
          const int64_t a = line.at[1] - m.border[0], b = line.at[2] - m.border[1], edge = m.border[2] * all;
          if (a < 0 || a >= size[0] || b < 0 || b >= size[1]) {
            std::fill_n(at, length, To(0.0f));
            continue;
          }
          std::fill_n(at, edge, To(0.0f));
          std::fill_n(at + length - edge, edge, To(0.0f));
          at += edge;
          const T* from = x + line.at[0] * m.source.image + a * space[0] + b * space[1];
          const int64_t pixels = size[2], step = space[2], channel = m.source.channel;
          if constexpr (sizeof(T) == 4) {
            if (step == 1 || pixels == 1) {
              gemm_kernels().transpose(from, channel, all, pixels, at, all);
              continue;
            }
            if (channel == 1 && step == all) {
              std::copy_n(from, pixels * all, at);
              continue;
            }
          }
          if (channel == 1)
            for (int64_t w = 0; w < pixels; ++w)
              for (int64_t c = 0; c < all; ++c) at[w * all + c] = To(from[w * step + c]);
          else
            for (int64_t c = 0; c < all; ++c)
              for (int64_t w = 0; w < pixels; ++w) at[w * all + c] = To(from[w * step + c * channel]);
        }
      });
}

}  // namespace

ChannelsLast::ChannelsLast(const ConvTensorView& tensor, DType t, int64_t n, int64_t number, bool always,
                           const int64_t (&zeros)[kMaxSpatial], DType of_copy)
    : side(tensor), dtype(t), wanted(of_copy), source(tensor), images(n), groups(number) {
  const int64_t all = tensor.channels * groups;
  copied = always || dtype != wanted || (tensor.channel != 1 && all > 1);
  if (!copied) return;
  for (int j = 0; j < kMaxSpatial; ++j) {
    border[j] = zeros[j];
    side.size[j] += 2 * zeros[j];
  }
  side.channel = 1;
  side.space[2] = all;
  side.space[1] = side.space[2] * side.size[2];
  side.space[0] = side.space[1] * side.size[1];
  side.image = side.space[0] * side.size[0];
}

const void* ChannelsLast::read(const void* tensor, void* scratch) const {
  if (!copied) return tensor;
  if (side.image > 0 && wanted == DType::bfloat16) {
    copy(*this, static_cast<const bfloat16*>(tensor), static_cast<bfloat16*>(scratch));
  } else if (side.image > 0) {
    with_floating(dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      if constexpr (sizeof(T) != 8) copy(*this, static_cast<const T*>(tensor), static_cast<float*>(scratch));
    });
  }
  return scratch;
}

}  // namespace minidnn
