// SPDX-License-Identifier: Apache-2.0
#include "cpp/cpu/runs.h"
#include "cpp/transform/transform_kernels.h"

namespace minidnn::MINIDNN_ISA {
namespace {

template <class T> void copy(const void* x, void* y, int64_t n, const TransformScale&, bool past_caches) {
  auto from = static_cast<const char*>(x);
  auto to = static_cast<char*>(y);
  int64_t bytes = n * int64_t(sizeof(T));
  if (past_caches) {
    int64_t head = min_of(until_line(to), bytes), lines = (bytes - head) & -64;
    __builtin_memcpy(to, from, size_t(head));
    stream(from + head, to + head, lines);
    from += head + lines, to += head + lines, bytes -= head + lines;
    streams_end();
  }
  __builtin_memcpy(to, from, size_t(bytes));
}

template <class From, class To, bool scaled>
void cast(const void* x, void* y, int64_t n, const TransformScale& s, bool past_caches) {
  auto from = static_cast<const From*>(x);
  auto to = static_cast<To*>(y);
  alignas(64) float xs[kRun], ys[kRun];
  write_all(to, n, past_caches, [&](int64_t i, int64_t run, float* out) __attribute__((always_inline)) {
    const float* v = read_run(from + i, xs, run);
    const int64_t whole = whole_steps(run);
    if (!scaled) {
      __builtin_memcpy(out, v, size_t(whole) * sizeof(float));
    } else if (s.reads_y) {
      const float* old = read_run(to + i, ys, run);
#pragma GCC ivdep  // out is what is read, or apart from it
      for (int64_t j = 0; j < whole; ++j) out[j] = s.alpha * v[j] + s.beta * old[j];
    } else {
#pragma GCC ivdep
      for (int64_t j = 0; j < whole; ++j) out[j] = s.alpha * v[j];
    }
  });
  if (past_caches) streams_end();
}

// A square of as many rows as a 16-byte vector has elements: each round interleaves the two halves of the rows.
template <class T> struct Square {
  static constexpr int kSide = 16 / int(sizeof(T));
  typedef T V __attribute__((vector_size(16)));

  static inline __attribute__((always_inline)) void transpose(const T* x, int64_t step, T* to, int64_t to_step) {
    V rows[kSide], next[kSide], low{}, high{};
    for (int i = 0; i < kSide; ++i) {
      __builtin_memcpy(&rows[i], x + i * step, 16);
      low[i] = T(i / 2 + i % 2 * kSide);
      high[i] = T(low[i] + kSide / 2);
    }
#pragma GCC unroll 4
    for (int round = 1; round < kSide; round *= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < kSide / 2; ++i) {
        next[2 * i] = __builtin_shuffle(rows[i], rows[i + kSide / 2], low);
        next[2 * i + 1] = __builtin_shuffle(rows[i], rows[i + kSide / 2], high);
      }
      for (int i = 0; i < kSide; ++i) rows[i] = next[i];
    }
    for (int i = 0; i < kSide; ++i) __builtin_memcpy(to + i * to_step, &rows[i], 16);
  }
};

template <class T> void transpose(const void* x, int64_t step, void* data, int64_t across, int64_t along) {
  constexpr int64_t kSide = Square<T>::kSide;
  auto from = static_cast<const T*>(x);
  auto to = static_cast<T*>(data);
  const int64_t across_whole = across & -kSide, along_whole = along & -kSide;
  for (int64_t i = 0; i < across_whole; i += kSide)
    for (int64_t j = 0; j < along_whole; j += kSide)
      Square<T>::transpose(from + i * step + j, step, to + j * across + i, across);
  for (int64_t i = 0; i < across; ++i)
    for (int64_t j = i < across_whole ? along_whole : 0; j < along; ++j) to[j * across + i] = from[i * step + j];
}

}  // namespace

extern const TransformKernels transform_kernels;
const TransformKernels transform_kernels = {
    {copy<uint8_t>, copy<uint16_t>, copy<uint32_t>, copy<uint64_t>},
    {transpose<uint8_t>, transpose<uint16_t>, transpose<uint32_t>, transpose<uint64_t>},
    // in the order of DType: float32, float64, float16, bfloat16, int8, uint8
    {{copy<float>, nullptr, cast<float, float16, false>, cast<float, bfloat16, false>},
     {},
     {cast<float16, float, false>, nullptr, copy<float16>, cast<float16, bfloat16, false>},
     {cast<bfloat16, float, false>, nullptr, cast<bfloat16, float16, false>, copy<bfloat16>},
     {cast<int8_t, float, false>, nullptr, cast<int8_t, float16, false>, cast<int8_t, bfloat16, false>},
     {cast<uint8_t, float, false>, nullptr, cast<uint8_t, float16, false>, cast<uint8_t, bfloat16, false>}},
    {{cast<float, float, true>, nullptr, cast<float, float16, true>, cast<float, bfloat16, true>},
     {},
     {cast<float16, float, true>, nullptr, cast<float16, float16, true>, cast<float16, bfloat16, true>},
     {cast<bfloat16, float, true>, nullptr, cast<bfloat16, float16, true>, cast<bfloat16, bfloat16, true>}}};

}  // namespace minidnn::MINIDNN_ISA
