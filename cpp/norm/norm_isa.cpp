// SPDX-License-Identifier: Apache-2.0
// Two loops for everything: over runs of a column each, with its parameters in all lanes, and over rows of columns, with
// a lane for each. Sums are kept in lanes, a number of additions at a time that rounds no more than reference's.
#include "cpp/cpu/floats.h"
#include "cpp/norm/norm_kernels.h"

namespace minidnn::MINIDNN_ISA {
namespace {

// Two sums over vectors: moments of x around a center, or of dy and its product with x.
struct Moments {
  static constexpr bool reads_dy = false;
  Floats a, b;
  MINIDNN_HD void add(Floats x, Floats, Floats center) {
    Floats d = x - center;
    a += d;
    b += d * d;
  }
  MINIDNN_HD void add_last(int lanes, Floats x, Floats, Floats center) {
    Floats d = lanes_from(kFloats - lanes, x - center);
    a += d;
    b += d * d;
  }
};
struct Gradients {
  static constexpr bool reads_dy = true;
  Floats a, b;
  MINIDNN_HD void add(Floats x, Floats dy, Floats mean) {
    a += dy;
    b += dy * (x - mean);
  }
  MINIDNN_HD void add_last(int lanes, Floats x, Floats dy, Floats mean) {
    a += lanes_from(kFloats - lanes, dy);
    b += lanes_from(kFloats - lanes, dy * (x - mean));
  }
};

template <class Sums, class T> MINIDNN_HD Floats load_dy(const T* dy) {
  if constexpr (Sums::reads_dy) return load_floats(dy);
  else return Floats{};
}

constexpr int kSums = 4;       // independent ones, so that additions need not wait for each other
constexpr int kPiece = 128;    // additions before a sum joins the total
constexpr int kTileRuns = 64;  // whose totals are kept at a time

// The sums over one run, joined to `total`.
template <class Sums, class T> MINIDNN_HD void add_run(const T* x, const T* dy, int64_t n, Floats center, Sums& total) {
  int64_t i = 0;
  for (; i + kSums * kFloats <= n;) {
    Sums s[kSums]{};
    const int64_t end = min_of<int64_t>(n - kSums * kFloats, i + (kPiece - 1) * kSums * kFloats);
    for (; i <= end; i += kSums * kFloats)
#pragma GCC unroll 4
      for (int k = 0; k < kSums; ++k)
        s[k].add(load_floats(x + i + k * kFloats), load_dy<Sums>(dy + i + k * kFloats), center);
    total.a += (s[0].a + s[1].a) + (s[2].a + s[3].a);
    total.b += (s[0].b + s[1].b) + (s[2].b + s[3].b);
  }
  Sums s{};
  for (; i + kFloats <= n; i += kFloats) s.add(load_floats(x + i), load_dy<Sums>(dy + i), center);
  if (i < n) {
    // What is left, as the last lanes of a vector: of one that begins earlier, or of a copy.
    const int left = int(n - i);
    if (n >= kFloats) {
      s.add_last(left, load_floats(x + n - kFloats), load_dy<Sums>(dy + n - kFloats), center);
    } else {
      T last[2][kFloats];
      __builtin_memset(last, 0, sizeof last);
      for (int k = 0; k < left; ++k) {
        last[0][kFloats - left + k] = x[i + k];
        if constexpr (Sums::reads_dy) last[1][kFloats - left + k] = dy[i + k];
      }
      s.add_last(left, load_floats(last[0]), load_dy<Sums>(last[1]), center);
    }
  }
  total.a += s.a;
  total.b += s.b;
}

template <class Sums, class T> void sum_runs(const NormPart& p, const float* center, float* sums) {
  for (int64_t begin = 0; begin < p.columns; begin += kTileRuns) {
    const int64_t runs = min_of<int64_t>(kTileRuns, p.columns - begin);
    Sums total[kTileRuns];
    for (int64_t c = 0; c < runs; ++c) total[c] = Sums{};
    for (int64_t row = 0; row < p.rows; ++row)
      for (int64_t c = 0; c < runs; ++c) {
        const T* x = static_cast<const T*>(p.x) + row * p.x_step.row + (begin + c) * p.x_step.column;
        const T* dy = static_cast<const T*>(p.dy) + row * p.dy_step.row + (begin + c) * p.dy_step.column;
        add_run(x, dy, p.space, floats(center[begin + c]), total[c]);
      }
    for (int64_t c = 0; c < runs; ++c) {
      sums[begin + c] = sum_of_lanes(total[c].a);
      sums[p.columns + begin + c] = sum_of_lanes(total[c].b);
    }
  }
}

// Of a few rows, the sums of a vector of columns, joined to those in memory.
template <class Sums, int rows, class T>
MINIDNN_HD void add_columns(const NormPart& p, const T* x, const T* dy, const float* center, float* a, float* b) {
  auto add = [&](int64_t c, auto load, Floats m, Floats& total_a, Floats& total_b) {
    Sums s{};
#pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
      Floats dy_row = {};
      if constexpr (Sums::reads_dy) dy_row = load(dy + r * p.dy_step.row + c);
      s.add(load(x + r * p.x_step.row + c), dy_row, m);
    }
    total_a += s.a;
    total_b += s.b;
  };
  int64_t c = 0;
  for (; c + kFloats <= p.columns; c += kFloats) {
    Floats total_a = load(a + c), total_b = load(b + c);
    add(c, [](const T* from) { return load_floats(from); }, load(center + c), total_a, total_b);
    store(a + c, total_a);
    store(b + c, total_b);
  }
  if (const int64_t left = p.columns - c; left > 0) {
    Floats total_a = load_first(a + c, left), total_b = load_first(b + c, left);
    add(c, [&](const T* from) { return load_first(from, left); }, load_first(center + c, left), total_a, total_b);
    store_first(a + c, left, total_a);
    store_first(b + c, left, total_b);
  }
}

template <class Sums, class T> void sum_rows(const NormPart& p, const float* center, float* sums) {
  for (int64_t c = 0; c < 2 * p.columns; ++c) sums[c] = 0;
  const T* x = static_cast<const T*>(p.x);
  const T* dy = static_cast<const T*>(p.dy);
  int64_t row = 0;
  for (; row + 4 <= p.rows; row += 4, x += 4 * p.x_step.row, dy += 4 * p.dy_step.row)
    add_columns<Sums, 4>(p, x, dy, center, sums, sums + p.columns);
  for (; row < p.rows; ++row, x += p.x_step.row, dy += p.dy_step.row)
    add_columns<Sums, 1>(p, x, dy, center, sums, sums + p.columns);
}

template <class Sums, class T> void sum_part(const NormPart& p, const float* center, float* sums) {
  if (p.space > 1) sum_runs<Sums, T>(p, center, sums);
  else sum_rows<Sums, T>(p, center, sums);
}

// norm_element() on vectors.
struct Forward {
  static constexpr bool reads_dy = false;
  Floats mean, factor, offset;
  MINIDNN_HD Floats operator()(Floats x, Floats) const { return (x - mean) * factor + offset; }
};
struct Backward {
  static constexpr bool reads_dy = true;
  Floats mean, factor, offset, slope;
  MINIDNN_HD Floats operator()(Floats x, Floats dy) const { return factor * (dy - offset - (x - mean) * slope); }
};
template <class Map, class Load> MINIDNN_HD Map map_at(const NormLines& l, int64_t c, Load load) {
  if constexpr (Map::reads_dy) return {load(l.mean + c), load(l.factor + c), load(l.offset + c), load(l.slope + c)};
  else return {load(l.mean + c), load(l.factor + c), load(l.offset + c)};
}

// Of a vector that is not whole: the end of one that begins earlier, read before anything is written, as out may be x.
template <class Map, class T> MINIDNN_HD void map_run(const T* x, const T* dy, int64_t n, Map map, T* out) {
  Floats last = {};
  if (n >= kFloats) last = map(load_floats(x + n - kFloats), load_dy<Map>(dy + n - kFloats));
  int64_t i = 0;
#pragma GCC unroll 4
  for (; i + kFloats <= n; i += kFloats) store_floats(out + i, map(load_floats(x + i), load_dy<Map>(dy + i)));
  if (i == n) return;
  if (n >= kFloats) return store_floats(out + n - kFloats, last);
  Floats few_dy = {};
  if constexpr (Map::reads_dy) few_dy = load_first(dy, n);
  store_first(out, n, map(load_first(x, n), few_dy));
}

template <class Map, class T>
MINIDNN_HD void map_columns(const T* x, const T* dy, int64_t n, const NormLines& l, int64_t first, T* out) {
  int64_t c = 0;
  for (; c + kFloats <= n; c += kFloats) {
    Map map = map_at<Map>(l, first + c, [](const float* from) { return load(from); });
    store_floats(out + c, map(load_floats(x + c), load_dy<Map>(dy + c)));
  }
  if (const int64_t left = n - c; left > 0) {
    Map map = map_at<Map>(l, first + c, [=](const float* from) { return load_first(from, left); });
    Floats few_dy = {};
    if constexpr (Map::reads_dy) few_dy = load_first(dy + c, left);
    store_first(out + c, left, map(load_first(x + c, left), few_dy));
  }
}

template <class Map, class T> void map_part(const NormPart& p, const NormLines& l, bool stream) {
  const bool by_run = p.space > 1;
  const int64_t lines = by_run ? p.columns : 1, length = by_run ? p.space : p.columns;
  auto line = [&](int64_t row, int64_t c, int64_t begin, int64_t n, T* out) {
    const T* x = static_cast<const T*>(p.x) + row * p.x_step.row + c * p.x_step.column + begin;
    const T* dy = static_cast<const T*>(p.dy) + row * p.dy_step.row + c * p.dy_step.column + begin;
    if (by_run) map_run(x, dy, n, map_at<Map>(l, c, [](const float* from) { return floats(*from); }), out);
    else map_columns<Map>(x, dy, n, l, begin, out);
  };
  T* out = static_cast<T*>(p.out);
  if (!stream) {
    for (int64_t row = 0; row < p.rows; ++row)
      for (int64_t c = 0; c < lines; ++c) line(row, c, 0, length, out + row * p.out_step.row + c * p.out_step.column);
    return;
  }
  Streamer<T> to(out);
  for (int64_t row = 0; row < p.rows; ++row) {
    to.move_to(out + row * p.out_step.row);
    for (int64_t c = 0; c < lines; ++c)
      for (int64_t begin = 0; begin < length; begin += to.kRoom) {
        const int64_t n = min_of<int64_t>(to.kRoom, length - begin);
        line(row, c, begin, n, to.next());
        to.advance(n);
      }
  }
  to.finish();
}

void inverse_std(int64_t n, const float* var, float eps, float* inv_std) {
  for (int64_t i = 0; i < n; ++i) inv_std[i] = 1 / __builtin_sqrtf(var[i] + eps);
}

template <class T> constexpr NormKernels::Typed typed() {
  return {sum_part<Moments, T>, sum_part<Gradients, T>, map_part<Forward, T>, map_part<Backward, T>};
}

}  // namespace

extern const NormKernels norm_kernels;
const NormKernels norm_kernels = {typed<float>(), typed<bfloat16>(), typed<float16>(), inverse_std};

}  // namespace minidnn::MINIDNN_ISA
