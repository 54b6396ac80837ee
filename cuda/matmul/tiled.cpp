// SPDX-License-Identifier: Apache-2.0
// cuda.matmul.tiled: an engine for matrix products without tensor cores. Its tiles have 128 x 64 or 64 x 64 elements of
// y. It supports all floating dtypes except float32, for which there is cuda.matmul.simt.
#include "cpp/engine/engine_object.h"
#include "cpp/matmul/matmul.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace cuda::matmul {
namespace {

constexpr int64_t kTileN = 64;

KernelSpec spec(DType t, DType y, int64_t tile_m) {
  return {"cuda/matmul/tiled.cu",
          cat("minidnn::matmul_tiled<", cuda_name(t), ", ", cuda_name(y), ", ", tile_m, ", ", kTileN, ">")};
}
// float64 has no tiles of 128 rows, because they need more than 48 KB of shared memory.
std::vector<int64_t> tiles_of(DType t) {
  return t == DType::float64 ? std::vector<int64_t>{64} : std::vector<int64_t>{128, 64};
}
Config config_of(int64_t tile_m) { return cat("tile=", tile_m, "x", kTileN); }

int64_t tile_count(const MatmulProblem& p, int64_t tile_m) {
  MatmulSizes s = sizes_of(p);
  return s.batch * ceil_div(s.m, tile_m) * ceil_div(s.n, kTileN);
}

double tile_us(const MatmulProblem& p, const Device& d, int64_t tile_m) {
  // Guesses: an SM computes one tile after another, at half of its peak rate, or less for tiles of 64 rows, which read
  // shared memory more often.
  double efficiency = tile_m == 128 ? 0.5 : 0.45;
  double rounds = std::ceil(double(tile_count(p, tile_m)) / d.sm_count);
  // The first loads of a tile take as long as the products of 16 values of k.
  double flop = 2.0 * double(tile_m * kTileN) * double(sizes_of(p).k + 16);
  return std::max(roofline_us(rounds * d.sm_count * flop, 0, d, efficiency), roofline_us(0, matmul_bytes(p), d, 0.7));
}

}  // namespace

struct Tiled final : Engine<MatmulProblem> {
  std::string name() const override { return "cuda.matmul.tiled"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const MatmulProblem& p, const Device&) const override {
    if (p.a.dtype == DType::float32) return "float32 is not supported";
    return matmul_why_not(p);
  }
  double estimate_us(const MatmulProblem& p, const Device& d) const override {
    double best = std::numeric_limits<double>::infinity();
    for (int64_t tile_m : tiles_of(p.a.dtype)) best = std::min(best, tile_us(p, d, tile_m));
    return best;
  }
  std::vector<Config> configs(const MatmulProblem& p, const Device& d) const override {
    std::vector<int64_t> tiles = tiles_of(p.a.dtype);
    std::ranges::stable_sort(tiles, {}, [&](int64_t tile_m) { return tile_us(p, d, tile_m); });
    std::vector<Config> configs;
    for (int64_t tile_m : tiles) configs.push_back(config_of(tile_m));
    return configs;
  }
  std::unique_ptr<Plan<MatmulProblem>> build(const MatmulProblem& p, const Device& d,
                                             const Config& config) const override {
    int64_t tile_m = config == config_of(128) ? 128 : 64;
    cuda::LaunchConfig launch;
    launch.block = {256};
    launch.grid = {unsigned(std::min<int64_t>(tile_count(p, tile_m), std::numeric_limits<int>::max()))};
    return cuda::kernel_plan(spec(p.a.dtype, p.y.dtype, tile_m), p, d, launch);
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float64, DType::float16, DType::bfloat16})
      for (int64_t tile_m : tiles_of(t)) {
        all.push_back(spec(t, t, tile_m));
        if (itemsize(t) == 2) all.push_back(spec(t, DType::float32, tile_m));
      }
    return all;
  }
};

}  // namespace cuda::matmul

template const Engine<MatmulProblem>& engine_object<MatmulProblem, cuda::matmul::Tiled>();

}  // namespace minidnn
