// SPDX-License-Identifier: Apache-2.0
// Tests how cuda.pooling.nchw and cuda.pooling.nhwc divide the layers of typical networks. For random problems, blocks
// must cover the result, element numbers must fit in 16 bits, and shared memory must fit the device.
#include "cuda/pooling/nchw/nchw_tiling.h"
#include "cuda/pooling/nhwc/nhwc_tiling.h"
#include "tests/cpp/random_problems.h"

using namespace minidnn;
using namespace minidnn::cuda::pooling;

// The number of SMs of an H100, and its shared memory per block in bytes.
constexpr int64_t kSms = 132, kSmemBytes = 227 << 10;
constexpr auto kForward = PoolingDirection::forward, kBackward = PoolingDirection::backward;
constexpr auto kMax = PoolingMode::max, kAvg = PoolingMode::avg;

struct Layer {
  const char* name;
  Shape x;
  int64_t window, stride, pad;
};
static const Layer kStem{"ResNet's stem", {64, 64, 112, 112}, 3, 2, 1}, kVgg{"VGG", {32, 64, 224, 224}, 2, 2, 0},
    kYolo{"YOLO's 5x5 windows", {32, 512, 19, 19}, 5, 1, 2}, kInception{"Inception", {32, 192, 35, 35}, 3, 1, 1},
    kGlobal{"global", {64, 2048, 7, 7}, 7, 1, 0}, kOdd{"odd sizes", {3, 24, 37, 29}, 7, 3, 2};

static PoolingProblem problem(PoolingDirection direction, PoolingMode mode, DType dtype, const Layer& layer,
                              bool indices = false) {
  PoolingProblem p;
  p.direction = direction;
  p.mode = mode;
  Shape y{layer.x[0], layer.x[1]};
  for (int i = 0; i < 2; ++i) {
    p.window[i] = layer.window;
    p.spatial.stride[i] = layer.stride;
    p.spatial.dilation[i] = 1;
    p.spatial.before[i] = p.spatial.after[i] = layer.pad;
    y.push_back((layer.x[size_t(2 + i)] + 2 * layer.pad - layer.window) / layer.stride + 1);
  }
  p.x = described(dtype, layer.x, false);
  p.dy = described(dtype, y, false);
  p.out = direction == kBackward ? p.x : p.dy;
  if (indices) p.indices = described(DType::int64, y, false);
  return p;
}

static void expect(const std::string& what, int64_t got, int64_t want) {
  if (got != want) fail(cat(what, " is ", got, ", should be ", want));
}

// Checks the division of a layer by cuda.pooling.nchw: method, threads per block, planes (channels of an image) per
// block, blocks per plane, rows per block, and bytes of shared memory per block.
static void expect_nchw(const Layer& layer, const PoolingProblem& p, NchwTiling::Method method, int64_t threads,
                        int64_t planes, int64_t chunks, int64_t lines, int64_t smem_bytes) {
  const NchwTiling t = nchw_tiling(p);
  const std::string what = cat("nchw, ", layer.name, ": ");
  expect(what + "method", int64_t(t.method), int64_t(method));
  expect(what + "threads", t.threads, threads);
  expect(what + "planes", t.block.planes, planes);
  expect(what + "chunks", t.block.chunks, chunks);
  expect(what + "lines", t.block.lines, lines);
  expect(what + "smem_bytes", t.smem.bytes, smem_bytes);
}

static void nchw_of_networks() {
  using enum NchwTiling::Method;
  constexpr DType f32 = DType::float32, bf16 = DType::bfloat16;
  expect_nchw(kStem, problem(kForward, kMax, bf16, kStem), forward_tiles, 96, 1, 2, 28, 15936);
  expect_nchw(kStem, problem(kForward, kMax, bf16, kStem, true), static_forward, 256, 1, 2, 28, 12784);
  expect_nchw(kStem, problem(kBackward, kMax, bf16, kStem), max_backward, 64, 1, 2, 56, 41600);
  expect_nchw(kStem, problem(kBackward, kMax, bf16, kStem, true), max_backward, 64, 1, 4, 28, 20992);
  expect_nchw(kVgg, problem(kBackward, kAvg, f32, kVgg), average_backward, 128, 1, 13, 18, 20656);
  expect_nchw(kYolo, problem(kForward, kMax, f32, kYolo), forward_tiles, 96, 11, 1, 19, 31808);
  expect_nchw(kYolo, problem(kBackward, kMax, f32, kYolo), max_backward, 96, 11, 1, 19, 47712);
  expect_nchw(kInception, problem(kBackward, kAvg, bf16, kInception), average_backward, 96, 6, 1, 35, 29456);
  expect_nchw(kGlobal, problem(kForward, kAvg, f32, kGlobal), any_windows, 256, 83, 1, 1, 16288);
  expect_nchw(kGlobal, problem(kBackward, kAvg, f32, kGlobal), any_windows, 256, 83, 1, 7, 16992);
  expect_nchw(kOdd, problem(kForward, kAvg, f32, kOdd), any_windows, 256, 1, 1, 12, 4320);
  expect_nchw(kOdd, problem(kBackward, kMax, f32, kOdd), any_windows, 256, 1, 1, 37, 5008);

  const NchwTiling stem = nchw_tiling(problem(kBackward, kMax, bf16, kStem));
  expect("lines of windows of the stem's strips", stem.strips.lines, 5);
  expect("strips side by side in the stem's warps", stem.strips.lanes, 8);
  expect("whether global pooling has one window", nchw_tiling(problem(kForward, kAvg, f32, kGlobal)).one_window, true);
  expect("log2 of its threads per window", nchw_tiling(problem(kForward, kAvg, f32, kGlobal)).lane_bits, 2);
}

// Checks the division of a layer by cuda.pooling.nhwc: method, threads per block, blocks per image, bytes of shared
// memory per block, and threads (or warps, by the method) per image.
static void expect_nhwc(const Layer& layer, const PoolingProblem& p, NhwcTiling::Method method, int64_t threads,
                        int64_t blocks, int64_t smem_bytes, int64_t items) {
  const NhwcTiling t = nhwc_tiling(p, kSms);
  const std::string what = cat("nhwc, ", layer.name, ": ");
  expect(what + "method", int64_t(t.method), int64_t(method));
  expect(what + "threads", t.threads, threads);
  expect(what + "blocks", t.blocks, blocks);
  expect(what + "smem_bytes", t.smem_bytes, smem_bytes);
  expect(what + "items", t.items, items);
}

static void nhwc_of_networks() {
  using enum NhwcTiling::Method;
  constexpr DType f32 = DType::float32, bf16 = DType::bfloat16;
  expect_nhwc(kStem, problem(kForward, kMax, bf16, kStem), windows, 256, 25, 0, 6272);
  expect_nhwc(kStem, problem(kForward, kMax, bf16, kStem, true), word_tiles, 256, 98, 0, 25088);
  expect_nhwc(kStem, problem(kBackward, kMax, bf16, kStem), strips, 128, 30, 44032, 120);
  expect_nhwc(kStem, problem(kBackward, kMax, bf16, kStem, true), strips, 128, 30, 35584, 120);
  expect_nhwc(kVgg, problem(kBackward, kAvg, f32, kVgg), block_tiles, 256, 392, 10368, 0);
  expect_nhwc(kYolo, problem(kForward, kMax, f32, kYolo), word_tiles, 256, 100, 0, 25600);
  expect_nhwc(kYolo, problem(kBackward, kMax, f32, kYolo), strips, 128, 60, 90112, 240);
  expect_nhwc(kInception, problem(kBackward, kAvg, bf16, kInception), word_tiles, 256, 61, 0, 15552);
  expect_nhwc(kGlobal, problem(kForward, kAvg, f32, kGlobal), windows, 256, 16, 8192, 512);
  expect_nhwc(kGlobal, problem(kBackward, kAvg, f32, kGlobal), block_tiles, 256, 16, 512, 0);
  expect_nhwc(kOdd, problem(kForward, kAvg, f32, kOdd), windows, 256, 21, 8192, 648);
  expect_nhwc(kOdd, problem(kBackward, kMax, f32, kOdd), block_tiles, 256, 4, 48096, 0);

  expect("teams of global pooling", nhwc_tiling(problem(kForward, kAvg, f32, kGlobal), kSms).teams, 8);
  expect("lines of the stem's strips", nhwc_tiling(problem(kBackward, kMax, bf16, kStem), kSms).lines_of_strip, 30);
  const NhwcTiling::BlockTile tile = nhwc_tiling(problem(kBackward, kMax, f32, kOdd), kSms).tile;
  expect("whether windows of odd sizes add to dx", tile.scatter, true);
  expect("lines of their tile", tile.lines, 21);
  expect("columns of their tile", tile.columns, 30);
}

static void random_problem() {
  const Layer layer{
      "random", {pick(1, 40), 8 * pick(1, 20), pick(1, 70), pick(1, 300)}, pick(1, 9), pick(1, 9), pick(0, 4)};
  const auto mode = PoolingMode(pick(0, 2));
  for (int i = 2; i < 4; ++i)
    if (layer.x[size_t(i)] + 2 * layer.pad < layer.window) return;
  const PoolingProblem p = problem(PoolingDirection(pick(0, 1)), mode, pick(0, 1) ? DType::float32 : DType::bfloat16,
                                   layer, mode == kMax && pick(0, 1));
  const std::string what = Family<PoolingProblem>::text(p);
  const int64_t lines = p.out.shape[2], all_planes = p.x.shape[0] * p.x.shape[1];

  const NchwTiling t = nchw_tiling(p);
  const NchwParams s = nchw_params(p, t);
  if (t.block.chunks * t.block.lines < lines || (t.block.chunks - 1) * t.block.lines >= lines)
    fail(cat(what, ": ", t.block.chunks, " chunks of ", t.block.lines, " lines"));
  if (t.block.planes > 1 && t.block.chunks > 1) fail(what + ": several planes are in chunks");
  expect(what + ": blocks", s.blocks(), ceil_div(all_planes, t.block.planes) * t.block.chunks);
  if (t.block.numbered > 65534) fail(cat(what, ": ", t.block.numbered, " elements with 16-bit numbers"));
  if (t.smem.bytes > kSmemBytes) fail(cat(what, ": ", t.smem.bytes, " bytes of shared memory"));
  if (t.threads % 32 || t.threads > kNchwThreads) fail(cat(what, ": ", t.threads, " threads"));

  const NhwcTiling u = nhwc_tiling(p, kSms);
  const NhwcParams v = nhwc_params(p, u);
  if (u.smem_bytes > kSmemBytes) fail(cat(what, ": nhwc has ", u.smem_bytes, " bytes of shared memory"));
  if (u.method == NhwcTiling::Method::block_tiles) {
    const NhwcTiling::BlockTile& tile = u.tile;
    const int64_t tiles = ceil_div<int64_t>(v.vectors, tile.vectors) * ceil_div(lines, tile.lines) *
                          ceil_div(p.out.shape[3], tile.columns);
    expect(what + ": tiles", u.blocks, tiles);
    if (tile.lines * tile.columns > 65535) fail(what + ": keys do not fit 16 bits");
  } else {
    const int64_t threads = u.method == NhwcTiling::Method::strips ? 32 : u.teams > 0 ? u.teams : 1;
    if (u.blocks * u.threads < u.items * threads) fail(what + ": blocks do not cover the items");
  }
}

int main() {
  nchw_of_networks();
  nhwc_of_networks();
  for (int i = 0; i < 20000; ++i) random_problem();
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
