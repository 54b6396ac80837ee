// SPDX-License-Identifier: Apache-2.0
#include "cpp/cpu/runs.h"
#include "cpp/transform/transform_kernels.h"

namespace minidnn::MINIDNN_ISA {
namespace {

void copy_run(const char* from, char* to, int64_t bytes, bool past_caches) {
  if (past_caches) {
    int64_t head = min_of(until_line(to), bytes), lines = (bytes - head) & -64;
    __builtin_memcpy(to, from, size_t(head));
    stream(from + head, to + head, lines);
    from += head + lines, to += head + lines, bytes -= head + lines;
  }
  __builtin_memcpy(to, from, size_t(bytes));
}

template <class T> void copy(const TransformRuns& r, const TransformScale&) {
  auto from = static_cast<const char*>(r.x);
  auto to = static_cast<char*>(r.y);
  constexpr int64_t kBytes = sizeof(T), kShort = 256;
  const int64_t bytes = r.n * kBytes;
  if (bytes % 16 == 0 && bytes <= kShort && !r.past_caches) {  // a call for each would take longer than the copy
    for (int64_t i = 0; i < r.rows; ++i, from += r.x_pitch * kBytes, to += r.y_pitch * kBytes)
      for (int64_t at = 0; at < bytes; at += 16) __builtin_memcpy(to + at, from + at, 16);
    return;
  }
  for (int64_t i = 0; i < r.rows; ++i)
    copy_run(from + i * r.x_pitch * kBytes, to + i * r.y_pitch * kBytes, bytes, r.past_caches);
}

template <class From, class To> void cast_run(const From* from, To* to, int64_t n, bool past_caches) {
  alignas(64) float xs[kRun];
  for (int64_t i = 0, run; i < n; i += run) {
    run = min_of(kRun, n - i);
    if (past_caches && i == 0 && until_line(to)) run = min_of(run, until_line(to));
    if constexpr (sizeof(To) == 4) {
      if (!past_caches && run % kStep == 0) {
        read_run(from + i, to + i, run);
        continue;
      }
    }
    write_run(read_run(from + i, xs, run), to + i, run, past_caches && run == kRun);
  }
}
template <class From, class To> void cast(const TransformRuns& r, const TransformScale&) {
  for (int64_t i = 0; i < r.rows; ++i)
    cast_run(static_cast<const From*>(r.x) + i * r.x_pitch, static_cast<To*>(r.y) + i * r.y_pitch, r.n, r.past_caches);
}

template <class From, class To>
void scale_run(const From* from, To* to, int64_t n, const TransformScale& s, bool past_caches) {
  alignas(64) float xs[kRun], ys[kRun];
  write_all(to, n, past_caches, [&](int64_t i, int64_t run, float* out) __attribute__((always_inline)) {
    const float *x = read_run(from + i, xs, run), *y = s.reads_y ? read_run(to + i, ys, run) : nullptr;
    const int64_t whole = whole_steps(run);
    if (y)
#pragma GCC ivdep  // out is what is read, or apart from it
      for (int64_t j = 0; j < whole; ++j) out[j] = s.alpha * x[j] + s.beta * y[j];
    else
#pragma GCC ivdep
      for (int64_t j = 0; j < whole; ++j) out[j] = s.alpha * x[j];
  });
}
template <class From, class To> void scale(const TransformRuns& r, const TransformScale& s) {
  for (int64_t i = 0; i < r.rows; ++i)
    scale_run(static_cast<const From*>(r.x) + i * r.x_pitch, static_cast<To*>(r.y) + i * r.y_pitch, r.n, s,
              r.past_caches);
}

// A square of as many rows as a 16-byte vector has elements: each round interleaves the two halves of the rows.
template <class T> struct Square {
  static constexpr int kSide = 16 / int(sizeof(T));
  typedef T V __attribute__((vector_size(16)));

  // Of the square only `columns` are stored.
  static inline __attribute__((always_inline)) void transpose(const T* const x[kSide], T* to, int64_t to_step,
                                                              int columns = kSide) {
    V rows[kSide], next[kSide], low{}, high{};
    for (int i = 0; i < kSide; ++i) {
      __builtin_memcpy(&rows[i], x[i], 16);
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
    for (int i = 0; i < columns; ++i) __builtin_memcpy(to + i * to_step, &rows[i], 16);
  }
};

template <class T> void transpose(const void* x, int64_t step, void* data, int64_t across, int64_t along) {
  constexpr int64_t kSide = Square<T>::kSide;
  auto from = static_cast<const T*>(x);
  auto to = static_cast<T*>(data);
  const int64_t across_whole = across & -kSide, along_whole = along & -kSide;
  const T* rows[kSide];
  // What does not fill a square goes first: a vector stored at the end of a row of `to` reaches into the next row, which
  // is written afterwards.
  if (across_whole < across)
    for (int64_t j = 0; j < along_whole; j += kSide) {
      for (int64_t i = 0; i < kSide; ++i) rows[i] = from + min_of(across_whole + i, across - 1) * step + j;
      Square<T>::transpose(rows, to + j * across + across_whole, across);
    }
  for (int64_t i = across_whole; i < across; ++i)
    for (int64_t j = along_whole; j < along; ++j) to[j * across + i] = from[i * step + j];
  for (int64_t i = 0; i < across_whole; i += kSide) {
    for (int64_t j = 0; j < along_whole; j += kSide) {
      for (int64_t k = 0; k < kSide; ++k) rows[k] = from + (i + k) * step + j;
      Square<T>::transpose(rows, to + j * across + i, across);
    }
    if (along_whole == along) continue;
    // Vectors that reach beyond the rows of x, but not beyond the last one.
    if (step > 0 && (i + kSide - 1) * step + along_whole + kSide <= (across - 1) * step + along) {
      for (int64_t k = 0; k < kSide; ++k) rows[k] = from + (i + k) * step + along_whole;
      Square<T>::transpose(rows, to + along_whole * across + i, across, int(along - along_whole));
    } else {
      for (int64_t k = 0; k < kSide; ++k)
        for (int64_t j = along_whole; j < along; ++j) to[j * across + i + k] = from[(i + k) * step + j];
    }
  }
}

}  // namespace

extern const TransformKernels transform_kernels;
const TransformKernels transform_kernels = {
    {copy<uint8_t>, copy<uint16_t>, copy<uint32_t>, copy<uint64_t>},
    {transpose<uint8_t>, transpose<uint16_t>, transpose<uint32_t>, transpose<uint64_t>},
    // in the order of DType: float32, float64, float16, bfloat16, int8, uint8
    {{copy<float>, nullptr, cast<float, float16>, cast<float, bfloat16>},
     {},
     {cast<float16, float>, nullptr, copy<float16>, cast<float16, bfloat16>},
     {cast<bfloat16, float>, nullptr, cast<bfloat16, float16>, copy<bfloat16>},
     {cast<int8_t, float>, nullptr, cast<int8_t, float16>, cast<int8_t, bfloat16>},
     {cast<uint8_t, float>, nullptr, cast<uint8_t, float16>, cast<uint8_t, bfloat16>}},
    {{scale<float, float>, nullptr, scale<float, float16>, scale<float, bfloat16>},
     {},
     {scale<float16, float>, nullptr, scale<float16, float16>, scale<float16, bfloat16>},
     {scale<bfloat16, float>, nullptr, scale<bfloat16, float16>, scale<bfloat16, bfloat16>}},
    streams_end};

}  // namespace minidnn::MINIDNN_ISA
