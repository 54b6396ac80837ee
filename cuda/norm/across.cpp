// SPDX-License-Identifier: Apache-2.0
// cuda.norm.across: local response norm of dense tensors; see across.cu.
#include "cuda/norm/across.h"

#include "cuda/norm/engines.h"
#include "cuda/runtime/plan.h"

namespace minidnn {
namespace {

constexpr int64_t kUsualSize = 5;  // of most networks, and cuDNN's default

struct Cut {
  NormAcross across;
  bool planes = false, whole = false;  // whole: vectors of 16 bytes
  int64_t size = 0;                    // of windows, where a kernel is made for it; else 0
  int64_t items = 0;                   // positions of a strip in planes
  int64_t threads = 0, blocks = 0;
};

std::string parse(const LocalNormProblem& p, Cut& c) {
  if (p.kind != LocalNorm::lrn) return "has windows across channels, and not in space";
  if (p.x.dtype == DType::float64) return "computes in float32, and x is float64";
  const LocalWindow w(p);
  if (w.ahead > kAcrossSide) return cat("has windows of ", 2 * kAcrossSide + 1, " channels at most; got ", p.size);
  if (std::string why = why_not_across(p); !why.empty()) return why;
  NormAcross& r = c.across;
  r.channels = p.x.shape[1], r.plane = plane_of(p.x), r.behind = int32_t(w.behind), r.ahead = int32_t(w.ahead);
  c.planes = channels_in_order(p.x) && r.plane > 1;
  const int64_t positions = p.x.shape[0] * r.plane, wide = 16 / int64_t(itemsize(p.x.dtype));
  c.items = c.planes && p.backward ? kAcrossItems : wide;
  c.whole = p.alignment == 16 && (c.planes ? r.plane : r.channels) % c.items == 0;
  if (c.planes && !c.whole) c.items = kAcrossItems;
  if (c.whole && p.size == kUsualSize) c.size = kUsualSize;
  int64_t columns;
  if (c.planes) {
    // As few tiles of channels as kAcrossWarps warps take; backward they overlap by a window.
    const int64_t most = kAcrossWarps * kAcrossOwn, overlap = p.backward ? p.size - 1 : 0;
    const int64_t tiles = r.channels <= most ? 1 : ceil_div(r.channels, most - overlap);
    const int64_t step = ceil_div(r.channels, tiles);
    r.tiles = uint32_t(tiles), r.step = uint32_t(step), r.halo = tiles > 1 && p.backward ? uint32_t(w.ahead) : 0;
    c.threads = ceil_div(step + (tiles > 1 ? overlap : 0), int64_t(kAcrossOwn)) * 32;
    columns = c.whole ? positions / c.items : positions;
    r.of_plane = Divisor(min_of(c.whole ? r.plane / c.items : r.plane, int64_t(INT32_MAX)));
    r.by_tiles = Divisor(tiles);
    c.blocks = ceil_div(columns, int64_t(32) * (c.whole ? 1 : c.items)) * tiles;
  } else {
    const int64_t of_row = ceil_div(r.channels, c.whole ? wide : kAcrossOwn);
    r.halo = p.backward ? 1 : 0, r.step = kAcrossThreads - 2 * r.halo;
    columns = positions * of_row;
    r.of_plane = Divisor(min_of(of_row, int64_t(INT32_MAX)));
    c.threads = kAcrossThreads, c.blocks = ceil_div(columns, int64_t(r.step));
  }
  constexpr int64_t kMostColumns = int64_t(1) << 30;  // and a last block's beyond them stay below 2^31
  if (columns > kMostColumns || c.blocks > INT32_MAX || r.channels > INT32_MAX)
    return cat("counts 2^30 vectors at most; there are ", columns);
  r.columns = uint32_t(columns);
  return "";
}

KernelSpec spec(DType t, bool backward, const Cut& c) {
  const std::string strip = c.planes ? cat("Planes<", cuda_name(t), ", ", c.items) : cat("Rows<", cuda_name(t));
  return {"cuda/norm/across.cu", cat("minidnn::norm_across_", backward ? "backward<" : "forward<", cuda_name(t),
                                     ", minidnn::", strip, c.whole ? ", true>, " : ", false>, ", c.size, ">")};
}

struct Across final : Engine<LocalNormProblem> {
  std::string name() const override { return "cuda.norm.across"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const LocalNormProblem& p, const Device&) const override {
    Cut c;
    return parse(p, c);
  }
  double estimate_us(const LocalNormProblem& p, const Device& d) const override {
    Cut c;
    parse(p, c);
    return roofline_us(local_norm_flop(p), local_norm_bytes(p), d, c.whole ? 0.75 : 0.5);
  }
  std::unique_ptr<Plan<LocalNormProblem>> build(const LocalNormProblem& p, const Device& d,
                                                const Config&) const override {
    Cut c;
    parse(p, c);
    auto kernel = cuda::load_kernel(spec(p.x.dtype, p.backward, c), d.place.index);
    cuda::LaunchConfig config;
    config.block = {unsigned(c.threads)}, config.grid = {unsigned(c.blocks)};
    return make_plan<LocalNormProblem>(
        [=, r = c.across, size = double(p.size)](const LocalNormArgs& a, void*, Stream stream) {
          const double scale = a.alpha / size;
          const AcrossFactors factors{float(scale), float(a.beta), float(a.k), float(2 * a.beta * scale)};
          cuda::LaunchConfig now = config;
          now.stream = stream;
          cuda::launch(*kernel, now, r, a, factors);
        });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType t : {DType::float32, DType::float16, DType::bfloat16})
      for (bool backward : {false, true})
        for (auto [whole, size] :
             {std::pair(true, kUsualSize), std::pair(true, int64_t(0)), std::pair(false, int64_t(0))}) {
          all.push_back(spec(t, backward, {.planes = false, .whole = whole, .size = size}));
          const int64_t items = whole && !backward ? 16 / int64_t(itemsize(t)) : kAcrossItems;
          all.push_back(spec(t, backward, {.planes = true, .whole = whole, .size = size, .items = items}));
        }
    return all;
  }
};

}  // namespace

const Engine<LocalNormProblem>& norm_across() {
  static const Across engine;
  return engine;
}

}  // namespace minidnn
