// SPDX-License-Identifier: Apache-2.0
// Tests how the three main loops of matrix products (sm90, mma, simt) choose tile sizes and split the inner dimension
// k, on an H100. The choice is a pure function of the problem, so no GPU is needed.
#include "cuda/gemm/mma/plan.h"
#include "cuda/gemm/simt/plan.h"
#include "cuda/gemm/sm90/plan.h"
#include "cuda/gemm/sm90/tiling.h"
#include "tests/cpp/h100.h"
#include "tests/cpp/random_problems.h"

using namespace minidnn;

static MatmulProblem matmul(DType t, int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed) {
  MatmulProblem p{described(t, {m, k}, false), described(t, {k, n}, false)};
  if (a_transposed) {
    p.a.stride[0] = 1;
    p.a.stride[1] = m;
  }
  if (b_transposed) {
    p.b.stride[0] = 1;
    p.b.stride[1] = k;
  }
  p.y = described(t, {m, n}, false);
  return p;
}

static void expect(const std::string& what, const std::string& got, const std::string& want) {
  if (!got.starts_with(want)) fail(cat(what, ": chose ", got, ", should be ", want));
}
static std::string chosen(const GemmTask& t) { return mma_configs(t, h100(), MmaProducts::one).front(); }

static ConvProblem resnet(ConvDirection direction, int64_t c, int64_t size, int64_t k, int64_t window, int64_t stride) {
  ConvProblem p;
  const int64_t pad = window / 2, out = (size + 2 * pad - window) / stride + 1;
  p.direction = direction;
  p.x = described(DType::float32, {64, c, size, size}, true);
  p.w = described(DType::float32, {k, c, window, window}, true);
  p.y = described(DType::float32, {64, k, out, out}, true);
  for (int j = 0; j < 2; ++j) {
    p.spatial.stride[j] = stride;
    p.spatial.before[j] = p.spatial.after[j] = pad;
  }
  return p;
}

static void check_mma_choices() {
  const std::string large = chosen(gemm_task(matmul(DType::bfloat16, 8192, 8192, 8192, false, false)));
  if (large != "tile=256x128" && large != "tile=128x128") fail("a large product takes " + large);
  expect("64 filters", chosen(gemm_task(resnet(ConvDirection::forward, 64, 56, 64, 3, 1))), "tile=128x64");
  const std::string long_sum = chosen(gemm_task(resnet(ConvDirection::backward_filter, 64, 56, 64, 3, 1)));
  if (long_sum.find(";split=") == std::string::npos) fail("few tiles of a long sum are not split: " + long_sum);
  expect("a small product", chosen(gemm_task(matmul(DType::float16, 150, 70, 400, false, false))), "tile=64x64");
  // A product and its transpose consist of the same sums over k, so their k must be split into equally many parts.
  for (int i = 0; i < 300; ++i) {
    const int64_t m = pick(1, 700), n = pick(1, 700), k = pick(1, 3000);
    auto splits = [&](const MatmulProblem& p) {
      return mma_launches(gemm_task(p), MmaProducts::one, chosen(gemm_task(p))).splits;
    };
    const int64_t row_major = splits(matmul(DType::float16, m, n, k, false, false));
    const int64_t transposed = splits(matmul(DType::float16, n, m, k, true, true));
    if (row_major != transposed)
      fail(cat(m, "x", n, "x", k, " is split in ", row_major, ", its transpose in ", transposed));
  }
}

// Checks the tilings (tile size and split of k) of a product: they are sorted by estimated time, the text of a tiling
// is read as the same tiling, and tiles fit in shared memory.
static void check_sm90(const GemmTask& t, const std::string& what) {
  if (!sm90_why_not(t, h100()).empty()) return;
  const std::vector<Sm90Tiling> all = sm90_tilings(t, h100());
  if (all.empty()) fail(what + ": sm90 has no tiling");
  for (size_t i = 0; i < all.size(); ++i) {
    const Sm90Tiling& s = all[i];
    const std::string config = s.config();
    if (s.us <= 0 || (i > 0 && s.us < all[i - 1].us)) fail(cat(what, ": sm90 ", config, " is out of order"));
    if (sm90_tiling(config).config() != config) fail(cat(what, ": sm90 ", config, " is read as another tiling"));
    if (s.tile.smem_bytes() > unsigned(h100().max_smem_bytes)) fail(cat(what, ": sm90 ", config, " is too large"));
    if ((s.split.passes() > 1) != (sm90_workspace_bytes(t, config) > 0)) fail(cat(what, ": workspace of ", config));
  }
}
static void check_mma(const GemmTask& t, const std::string& what) {
  if (!mma_why_not(t, h100(), MmaProducts::one).empty()) return;
  const MmaViews views(t);
  for (const MmaTiling& s : mma_tilings(t, h100(), MmaProducts::one)) {
    const MmaTiling read = mma_tiling(views, MmaProducts::one, s.config());
    if (read.config() != s.config()) fail(cat(what, ": mma ", s.config(), " is read as another tiling"));
    if (s.us <= 0 || s.splits < 1) fail(cat(what, ": mma ", s.config(), " has no estimate"));
    if (mma_smem_bytes(s.tile, views) > h100().max_smem_bytes) fail(cat(what, ": mma ", s.config(), " is too large"));
  }
}
static void check_simt(const GemmTask& t, const std::string& what) {
  if (!simt_why_not(t).empty()) return;
  const std::vector<SimtTiling> all = simt_tilings(t, h100());
  const std::vector<Config> configs = simt_configs(t, h100());
  for (size_t i = 0; i < all.size(); ++i) {
    const SimtConfig &s = all[i].config, read = simt_config(configs[i]);
    if (read.tile.m != s.tile.m || read.tile.n != s.tile.n || read.splits != s.splits || read.cluster != s.cluster)
      fail(cat(what, ": simt ", configs[i], " is read as another tiling"));
    if (i > 0 && all[i].us < all[i - 1].us) fail(cat(what, ": simt ", configs[i], " is out of order"));
    if (s.cluster && s.splits > 8) fail(cat(what, ": simt ", configs[i], " has too large a cluster"));
  }
}
static void check_tilings(const GemmTask& t, const std::string& what) {
  check_sm90(t, what);
  check_mma(t, what);
  check_simt(t, what);
}

static void check_sm90_choices() {
  auto best = [](const MatmulProblem& p) { return sm90_tilings(gemm_task(p), h100()).front(); };
  const Sm90Tiling large = best(matmul(DType::bfloat16, 4096, 4096, 4096, false, false));
  if (large.tile.m != 128 || large.tile.n != 256) fail("a large product takes " + large.config());
  const Sm90Tiling small = best(matmul(DType::bfloat16, 512, 512, 512, false, false));
  if (small.tile.m * small.tile.n > 64 * 128) fail("a small product takes " + small.config());
  // An epilogue runs while another warpgroup multiplies (ping-pong).
  for (int64_t k : {512, 1024})
    for (Activation mode : {Activation::identity, Activation::gelu_tanh}) {
      GemmTask layer = gemm_task(matmul(DType::bfloat16, 8192, 4096, k, false, false));
      layer.has_bias = true;
      layer.activation = mode;
      const Sm90Tiling tiling = sm90_tilings(layer, h100()).front();
      if (!tiling.tile.ping_pong) fail(cat("a linear layer with k = ", k, " takes ", tiling.config()));
    }
  const Sm90Tiling long_sum = best(matmul(DType::bfloat16, 64, 64, 1 << 16, false, false));
  if (long_sum.split.chunks == 1) fail("one tile of a long sum is not split: " + long_sum.config());
}

int main() {
  check_sm90_choices();
  check_mma_choices();
  for (int i = 0; i < 300; ++i) {
    constexpr DType types[] = {DType::float16, DType::bfloat16, DType::float32};
    const MatmulProblem p =
        matmul(types[pick(0, 2)], 8 * pick(1, 200), 8 * pick(1, 200), 8 * pick(1, 500), pick(0, 1), pick(0, 1));
    check_tilings(gemm_task(p), Family<MatmulProblem>::text(p));
  }
  for (int i = 0; i < 300; ++i) {
    const ConvProblem p = random_conv(pick(0, 1) ? DType::float16 : DType::float32, {1, 8, 16, pick(1, 2), 9});
    check_tilings(gemm_task(p), Family<ConvProblem>::text(p));
  }
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
