// SPDX-License-Identifier: Apache-2.0
// Compares the results of cuda.pooling.nchw, and the gradients of maxima of cuda.pooling.nhwc, with the definition of
// pooling. The host executes the kernels' code; between two barriers, it executes one thread after the other. Problems
// have random sizes, values with many ties, and unaligned addresses. Threads that run at the same time are tested on a
// GPU only.
#include <cmath>
#include <cstring>

#include "cuda/pooling/nchw/nchw_backward.cuh"
#include "cuda/pooling/nchw/nchw_tiling.h"
#include "cuda/pooling/nhwc/nhwc_max_backward.cuh"
#include "tests/cpp/random_problems.h"

using namespace minidnn;
using namespace minidnn::cuda::pooling;

template <class Work, class Phase> static void all(Work& work, Phase&& phase, int threads = kNchwThreads) {
  for (work.t = {0, threads}; work.t.index < threads; ++work.t.index) phase();
}

template <class T, bool is_max, class S> static void run_block(const NchwTiling& t, const NchwParams& s,
                                                               const PoolingArgs& a, int64_t block, bool backward,
                                                               unsigned char* smem) {
  if (!backward) {
    NchwForward<T, is_max, S> work{s, a, {s, block, false}, smem, {}};
    all(work, [&] { work.load(); });
    all(work, [&] {
      if constexpr (S::window == 0) work.pool_any();
      else if (s.index_bytes) work.pool_with_indices();
      else work.pool_tiles();
    });
    if (t.method == NchwTiling::Method::forward_tiles) all(work, [&] { work.store(); });
    return;
  }
  using Work = NchwBackward<T, is_max, S>;
  Work work{s, a, {s, block, true}, smem, {}};
  all(work, [&] { work.load(); });
  if constexpr (is_max && S::window > 0) {
    all(work, [&] { work.clear_sums(); });
    if (s.index_bytes) {
      all(work, [&] { work.template load_indices<int64_t>(); });
      all(work, [&] { work.template pool_maxima<8>(); }, int(t.threads));
    } else {
      all(work, [&] { work.template pool_maxima<0>(); }, int(t.threads));
    }
    return all(work, [&] { work.store_sums(); });
  }
  all(work, [&] { work.find(); });
  if constexpr (S::window == 0)
    if (s.one_window) return all(work, [&] { work.store_one_window(); });
  all(work, [&] { work.gather(); });
  all(work, [&] { work.store(work.dx()); });
}

template <class T, bool is_max> static void run(const PoolingProblem& p, const PoolingArgs& a) {
  const NchwTiling t = nchw_tiling(p);
  NchwParams s = nchw_params(p, t);
  s.lane_bits = 0;  // threads run one at a time here, so they cannot exchange values by shuffles
  const bool backward = p.direction == PoolingDirection::backward;
  std::vector<Words> smem(size_t(t.smem.bytes / 16 + 1));
  // Blocks are executed from the last to the first, so that no later block hides a write beyond the end of a block.
  for (int64_t block = s.blocks(); block-- > 0;) {
    std::memset(smem.data(), 0x7f, smem.size() * 16);
    auto* bytes = reinterpret_cast<unsigned char*>(smem.data());
    const int step = t.step.window * 10 + t.step.stride;
    if (step == 0) run_block<T, is_max, Step<0, 0>>(t, s, a, block, backward, bytes);
    if (step == 22) run_block<T, is_max, Step<2, 2>>(t, s, a, block, backward, bytes);
    if (step == 32) run_block<T, is_max, Step<3, 2>>(t, s, a, block, backward, bytes);
    if (step == 31) run_block<T, is_max, Step<3, 1>>(t, s, a, block, backward, bytes);
    if constexpr (is_max)
      if (step == 51) run_block<T, is_max, Step<5, 1>>(t, s, a, block, backward, bytes);
  }
}

// Returns the gradient of one plane (the pixels of one channel) by the kernel of cuda.pooling.nhwc. All channels of a
// vector are copies of the plane.
template <class T, class S, bool given>
static std::vector<T> by_strips(const PoolingProblem& p, const T* x, const T* dy, const int64_t* indices) {
  constexpr int C = kLanes<T>;
  auto repeated = [](const auto* plane, int64_t n) {
    std::vector<std::remove_cvref_t<decltype(*plane)>> all;
    for (int64_t i = 0; i < n; ++i) all.insert(all.end(), C, plane[i]);
    return all;
  };
  NhwcParams s{};
  s.h = windows_of(p, 0);
  s.w = windows_of(p, 1);
  s.images = 1;
  s.vectors = 1;
  s.by_x_columns = FastDivmod(s.w.size);
  s.x_column = s.y_column = s.dx_column = s.indices_column = C;
  s.x_line = s.dx_line = s.w.size * C;
  s.y_line = s.indices_line = s.w.count * C;
  s.by_channels = FastDivmod(1);
  s.by_columns = FastDivmod(ceil_div(s.w.size + s.w.before % S::stride, strip_steps(S::stride) * S::stride));
  s.tile_lines = int32_t(pick(1, 12)) * S::stride;
  const int items = ceil_div(s.h.size + s.h.before % S::stride, s.tile_lines) * int(s.by_columns.divisor);
  const int64_t plane = int64_t(s.h.size) * s.w.size, of_plane = int64_t(s.h.count) * s.w.count;
  auto many_x = repeated(x, plane), many_dy = repeated(dy, of_plane);
  auto many_indices = repeated(indices, of_plane);
  std::vector<T> many(size_t(plane * C)), dx;
  PoolingArgs a;
  a.x = many_x.data();
  a.dy = many_dy.data();
  a.indices = many_indices.data();
  a.out = many.data();
  using Work = NhwcMaxBackward<T, S, given ? 8 : 0>;
  std::vector<Words> smem(Work::kLayout.smem_bytes / 16);
  std::memset(smem.data(), 0x7f, smem.size() * 16);
  for (int item = 0, warp = int(pick(0, 3)); item < items; ++item)
    for (int lane = 0; lane < 32; ++lane)
      Work{s, a, 0, reinterpret_cast<unsigned char*>(smem.data()), warp * 32 + lane}.pool(item);
  for (int64_t i = 0; i < plane; ++i) dx.push_back(many[size_t(i * C + pick(0, C - 1))]);
  return dx;
}
template <class T, bool given>
static std::vector<T> by_strips(const PoolingProblem& p, const T* x, const T* dy, const int64_t* indices) {
  const StaticStep step = static_step(p);
  if (step.window == 2) return by_strips<T, Step<2, 2>, given>(p, x, dy, indices);
  if (step.window == 5) return by_strips<T, Step<5, 1>, given>(p, x, dy, indices);
  if (step.stride == 2) return by_strips<T, Step<3, 2>, given>(p, x, dy, indices);
  return by_strips<T, Step<3, 1>, given>(p, x, dy, indices);
}

// A copy of the elements of v, whose address is `by` elements after a 16-byte boundary.
template <class T> struct Shifted {
  int64_t by = pick(0, 3);
  std::vector<T> all;
  explicit Shifted(const std::vector<T>& v) : all(v.size() + 4) { std::copy(v.begin(), v.end(), all.begin() + by); }
  T* data() { return all.data() + by; }
};

// The definition of pooling. seen() returns the offsets of the elements of x in a window, in row-major order.
struct Definition {
  const PoolingProblem& p;
  int64_t H = p.x.shape[2], W = p.x.shape[3];
  std::vector<int64_t> seen(int64_t i, int64_t j) const {
    std::vector<int64_t> elements;
    for (int64_t r = 0; r < p.window[0]; ++r)
      for (int64_t c = 0; c < p.window[1]; ++c) {
        const int64_t line = p.spatial.input_index(0, i, r), column = p.spatial.input_index(1, j, c);
        if (line >= 0 && line < H && column >= 0 && column < W) elements.push_back(line * W + column);
      }
    return elements;
  }
  template <class T> static int64_t first_maximum(const T* x, const std::vector<int64_t>& elements) {
    int64_t best = -1;
    for (int64_t at : elements)
      if (best < 0 || (!std::isnan(float(x[best])) && !(float(x[at]) <= float(x[best])))) best = at;
    return best;
  }
};

template <class T> static void expect(const std::string& what, const T* got, const std::vector<double>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double v = float(got[i]);
    const bool same = v == want[i] || (std::isnan(v) && std::isnan(want[i]));
    if (!same && !(std::abs(v - want[i]) <= std::abs(want[i]) * (sizeof(T) == 2 ? 1 / 256. : 1e-6) + 1e-6))
      return fail(cat(what, ": element ", i, " is ", v, ", should be ", want[i]));
  }
}

template <class T> static void one(DType dtype) {
  constexpr int64_t kSteps[][2] = {{2, 2}, {3, 2}, {3, 1}, {5, 1}, {0, 0}};
  const int64_t* step = kSteps[pick(0, 4)];
  PoolingProblem p;
  p.direction = PoolingDirection(pick(0, 1));
  p.mode = PoolingMode(pick(0, 2));
  const bool backward = p.direction == PoolingDirection::backward, is_max = p.mode == PoolingMode::max;
  // `most` is the largest width of x. It exceeds the columns that a warp processes at a time.
  const int64_t most = pick(0, 9) ? 24 : pick(0, 3) ? 90 : 600;
  Shape x{pick(1, 3), pick(1, 5)}, y{x[0], x[1]};
  // If `whole` is true, one window covers a whole plane of x (the pixels of one channel). Several blocks may share the
  // plane.
  const bool whole = !step[0] && pick(0, 9) == 0;
  for (int i = 0; i < 2; ++i) {
    if (whole) {
      x.push_back(pick(1, pick(0, 1) ? 130 : 9)), y.push_back(1);
      p.window[i] = x.back();
      p.spatial.stride[i] = p.spatial.dilation[i] = 1;
      continue;
    }
    p.window[i] = step[0] ? step[0] : pick(1, 7);
    p.spatial.stride[i] = step[1] ? step[1] : pick(1, 4);
    p.spatial.dilation[i] = step[0] ? 1 : pick(1, 2);
    p.spatial.before[i] = pick(0, 1) * pick(0, 3);
    p.spatial.after[i] = pick(0, 1) * pick(0, 6);
    const int64_t reach = (p.window[i] - 1) * p.spatial.dilation[i] + 1;
    x.push_back(std::max<int64_t>(pick(1, i ? most : std::min<int64_t>(most, 90)),
                                  reach - p.spatial.before[i] - p.spatial.after[i]));
    y.push_back((p.spatial.before[i] + x[2 + i] + p.spatial.after[i] - reach) / p.spatial.stride[i] + 1);
  }
  p.x = described(dtype, x, false);
  p.dy = described(dtype, y, false);
  p.out = backward ? p.x : p.dy;
  const bool indexed = is_max && pick(0, 1);
  if (indexed) p.indices = described(DType::int64, y, false);
  const int64_t elements = p.x.numel(), windows = p.dy.numel(), plane = x[2] * x[3], of_plane = y[2] * y[3];

  std::vector<T> values = numbers<T>(elements, 3);
  if (pick(0, 3) == 0)
    for (int i = 0; i < 4; ++i) values[size_t(pick(0, elements - 1))] = T(pick(0, 1) ? NAN : -INFINITY);
  Shifted<T> from(values), dy(numbers<T>(windows, 3)), out(std::vector<T>(size_t(backward ? elements : windows)));
  std::vector<int64_t> indices(size_t(windows), -7);
  std::vector<double> want(size_t(p.out.numel()));
  std::vector<int64_t> argmax(static_cast<size_t>(windows));
  const Definition definition{p};
  for (int64_t i = 0; i < windows; ++i) {
    const int64_t n = i / of_plane, at = i % of_plane;
    const std::vector<int64_t> seen = definition.seen(at / y[3], at % y[3]);
    const T* of = from.data() + n * plane;
    const int64_t first = Definition::first_maximum(of, seen);
    double counted = 1, sum = 0;
    for (int64_t element : seen) sum += float(of[element]);
    if (p.mode == PoolingMode::avg_exclude_padding) counted = std::max<double>(double(seen.size()), 1);
    if (p.mode == PoolingMode::avg)
      for (int k = 0; k < 2; ++k) {
        int64_t within = 0;
        for (int64_t r = 0; r < p.window[k]; ++r) {
          const int64_t index = p.spatial.input_index(k, k ? at % y[3] : at / y[3], r);
          within += index >= -p.spatial.before[k] && index < x[size_t(2 + k)] + p.spatial.after[k];
        }
        counted *= double(std::max<int64_t>(within, 1));
      }
    argmax[size_t(i)] = first;
    // In some windows, the given index of the maximum is random. If it is outside the window, the window's gradient is
    // dropped.
    if (backward && indexed && pick(0, 9) == 0) indices[size_t(i)] = pick(-2, plane + 1);
    else if (backward) indices[size_t(i)] = first;
    if (!backward) {
      want[size_t(i)] = is_max ? (first < 0 ? -INFINITY : float(of[first])) : sum / counted;
    } else {
      const int64_t given = indices[size_t(i)];
      for (int64_t element : seen)
        if (!is_max || element == given) want[size_t(n * plane + element)] += double(float(dy.data()[i])) / counted;
    }
  }
  PoolingArgs a;
  a.x = from.data();
  a.dy = dy.data();
  a.out = out.data();
  a.indices = indices.data();
  if (is_max) run<T, true>(p, a);
  else run<T, false>(p, a);
  const std::string what = Family<PoolingProblem>::text(p);
  expect(what, out.data(), want);
  if (!backward && indexed) check(what + " indices", indices, argmax);
  if (!backward || !is_max || static_step(p).window == 0) return;
  for (int64_t n = 0; n < elements / plane; ++n) {
    const T *of_x = from.data() + n * plane, *of_dy = dy.data() + n * of_plane;
    const std::vector<T> dx = indexed ? by_strips<T, true>(p, of_x, of_dy, indices.data() + n * of_plane)
                                      : by_strips<T, false>(p, of_x, of_dy, indices.data() + n * of_plane);
    expect(what + " by strips of channels", dx.data(), {want.begin() + n * plane, want.begin() + (n + 1) * plane});
  }
}

int main() {
  for (int i = 0; i < 3000; ++i) one<float>(DType::float32), one<bfloat16>(DType::bfloat16);
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
