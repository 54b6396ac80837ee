// SPDX-License-Identifier: Apache-2.0
// cuda.conv.winograd: an engine for float32 convolutions with 3 x 3 windows at stride 1 (winograd_math.h). It computes
// a quarter of the multiplications of the definition. First, it transforms x and w. Then the main loop of
// cuda/gemm/simt/kernel.cu computes 36 matrix products. Then it transforms their results to y. dx and dw are computed
// in the same way.
//
// Predicted times for the 3 x 3 layers of ResNet-50 at batch 64 on an H100 (3 TB/s, about 45 TFLOP/s). Each layer has
// 14.8 GFLOP, so a direct sum takes 330 us. The matrix products of this engine take 82 us. For images of 14 x 14 or 7 x
// 7 they take 107 us, because tiles of 4 x 4 extend past the border. All transforms of a layer together take:
//   64 channels of 56 x 56    112 us
//   128 channels of 28 x 28    56 us
//   256 channels of 14 x 14    38 us
//   512 channels of 7 x 7      32 us
// With tiles of 2 x 2, the matrix products would take 146 us. The transforms are separate kernels, because a single
// fused kernel would need 128 sums per thread, and an SM could run only one block of it. Images are processed in
// batches. If that is faster, batches are so small that the buffers of the transforms stay in the L2.
//
// Sums are float32. A rounding error, a NaN or an infinity in one element of a patch (6 x 6 inputs) affects all 16
// results that are computed from the patch.
#include <array>

#include "cpp/conv/conv.h"
#include "cpp/engine/engine_object.h"
#include "cuda/conv/winograd/winograd_math.h"
#include "cuda/gemm/simt/plan.h"
#include "cuda/runtime/launch.h"

namespace minidnn {
namespace cuda::conv {
namespace {

// Smaller sums are not supported: the rounding error of a result comes from all inputs of its tile, but the tests'
// tolerance grows with the result's own products. At these limits, a simulated error was at most 0.8 of the tolerance.
constexpr int64_t kLeastChannels = 32, kLeastProducts = 128, kLeastPositions = 512;
constexpr int64_t kMost = (int64_t(1) << 31) - 1;

bool to_weights(const ConvProblem& p) { return p.direction == ConvDirection::backward_filter; }

// Converts the description of x or y to the struct that the kernels take.
WinogradTensor tensor_of(const ConvTensorView& s) {
  return {s.image, s.channel, s.space[1], s.space[2], int32_t(s.size[1]), int32_t(s.size[2])};
}

// `tiles` is divided into tiles of 4 x 4 elements: y, dx or, for dw, dy. `patches` is divided into overlapping patches
// of 6 x 6 elements: x or, for dx, dy. The patch of a tile starts before_row rows and before_column columns before it.
struct Sides {
  ConvGeometry g;
  const ConvTensorView* patches;
  const ConvTensorView* tiles;
  int before_row, before_column;
  int64_t patch_channels, tile_channels;

  explicit Sides(const ConvProblem& p) : g(conv_geometry(p)) {
    const bool data = p.direction == ConvDirection::backward_data;
    patches = data ? &g.y : &g.x;
    tiles = data ? &g.x : &g.y;
    // dx is a convolution of dy with the rotated window, and with padding 2 - pad.
    before_row = int(data ? 2 - g.pad[1] : g.pad[1]);
    before_column = int(data ? 2 - g.pad[2] : g.pad[2]);
    patch_channels = patches->channels;
    tile_channels = tiles->channels;
  }
  Sides(const Sides&) = delete;
  int64_t tiles_of_image() const {
    return ceil_div(tiles->size[1], int64_t(kWinogradTile)) * ceil_div(tiles->size[2], int64_t(kWinogradTile));
  }
};

// The smallest number of products per result along dimension j. Results at the border have fewer products.
int64_t least_products(const ConvProblem& p, const Sides& s, int j) {
  const int64_t before = j == 1 ? s.before_row : s.before_column, size = s.patches->size[j], tiles = s.tiles->size[j];
  // how many of `count` positions from at - before on are inside of `patches`
  auto overlap = [&](int64_t at, int64_t count) {
    return min_of(size, at + count - before) - max_of(int64_t(0), at - before);
  };
  int64_t least = kMost;
  for (int64_t tap = 0; tap < 3 && to_weights(p); ++tap) least = min_of(least, overlap(tap, tiles));
  for (int64_t at : {int64_t(0), tiles - 1})
    if (!to_weights(p)) least = min_of(least, overlap(at, 3));
  return max_of(least, int64_t(0));
}

// The layout of a tensor's transforms: [36][tile][channel] if its channels are contiguous, else [36][channel][tile].
WinogradGrid grid_of(const Sides& s, const ConvTensorView& side, int64_t images) {
  WinogradGrid g;
  g.across = FastDivmod(ceil_div(s.tiles->size[2], int64_t(kWinogradTile)));
  g.down = FastDivmod(ceil_div(s.tiles->size[1], int64_t(kWinogradTile)));
  g.tiles = uint32_t(images * s.tiles_of_image());
  g.padded_tiles = ceil_div(g.tiles, 4u) * 4;
  g.channels = uint32_t(side.channels);
  g.channels_fast = side.channel == 1 && side.channels > 1;
  const int64_t pitch = g.channels_fast ? ceil_div(g.channels, 4u) * 4 : g.padded_tiles;
  g.fast = FastDivmod(g.channels_fast ? int64_t(g.channels) : int64_t(g.padded_tiles));
  g.channel = g.channels_fast ? 1 : pitch;
  g.tile = g.channels_fast ? pitch : 1;
  g.plane = pitch * (g.channels_fast ? g.padded_tiles : g.channels);
  return g;
}

// w or dw as a matrix [sum][result] of windows: [channel][filter] for y, [filter][channel] for dx and dw. For dx, the
// windows are rotated by 180 degrees.
WinogradFilter filter_of(const ConvProblem& p, const ConvGeometry& g) {
  WinogradFilter f;
  const bool forward = p.direction == ConvDirection::forward;
  f.results = FastDivmod(forward ? g.y.channels : g.x.channels);
  f.sums = uint32_t(forward ? g.x.channels : g.y.channels);
  f.result = forward ? g.w_filter : g.w_channel;
  f.sum = forward ? g.w_channel : g.w_filter;
  f.origin = g.w_origin;
  f.row = g.w_space[1];
  f.column = g.w_space[2];
  if (p.direction == ConvDirection::backward_data) {
    f.origin += 2 * f.row + 2 * f.column;
    f.row = -f.row;
    f.column = -f.column;
  }
  f.pitch = ceil_div(int64_t(f.results.divisor), int64_t(4)) * 4;
  f.plane = f.pitch * f.sums;
  return f;
}

GemmIndex index_of(int64_t size) {
  GemmIndex index;
  index.size = index.digit[kDigits - 1] = size;
  return index;
}
GemmStrides stride_of(int64_t stride) {
  GemmStrides s;
  s.of[kDigits - 1] = stride;
  return s;
}

// The 36 matrix products as one batched product. For y and dx: m = tiles, n = results, k = channels that are summed.
// For dw: m = filters, n = channels, k = tiles. `adds`: whether the products are added to the previous result.
GemmTask products(const ConvProblem& p, const Sides& s, int64_t images, bool adds) {
  const WinogradGrid in = grid_of(s, *s.patches, images), out = grid_of(s, *s.tiles, images);
  const WinogradFilter f = filter_of(p, s.g);
  GemmView v;
  v.batch = index_of(kWinogradPoints);
  if (to_weights(p)) {
    v.m = index_of(f.sums);
    v.n = index_of(f.results.divisor);
    v.k = index_of(in.padded_tiles);
    v.a.row = stride_of(out.channel);
    v.a.k = stride_of(out.tile);
    v.a.batch = stride_of(out.plane);
    v.b.row = stride_of(in.channel);
    v.b.k = stride_of(in.tile);
    v.b.batch = stride_of(in.plane);
    v.y_m = stride_of(f.pitch);
    v.y_n = stride_of(1);
    v.y_batch = stride_of(f.plane);
  } else {
    v.m = index_of(in.padded_tiles);
    v.n = index_of(f.results.divisor);
    v.k = index_of(f.sums);
    v.a.row = stride_of(in.tile);
    v.a.k = stride_of(in.channel);
    v.a.batch = stride_of(in.plane);
    v.b.row = stride_of(1);
    v.b.k = stride_of(f.pitch);
    v.b.batch = stride_of(f.plane);
    v.y_m = stride_of(out.tile);
    v.y_n = stride_of(out.channel);
    v.y_batch = stride_of(out.plane);
  }
  if (adds) {
    v.c_m = v.y_m;
    v.c_n = v.y_n;
    v.c_batch = v.y_batch;
  }
  const double elements = double(in.plane) + double(out.plane) + double(f.plane);
  return {{v}, DType::float32, DType::float32, Activation::identity, false, adds, 16, 4.0 * kWinogradPoints * elements};
}

// In bytes: the buffers for transforms, and the workspace of the matrix products.
struct Buffers {
  size_t patches, tiles, windows, products;
  size_t total() const { return patches + tiles + windows + products; }
};
Buffers buffers_of(const ConvProblem& p, const Sides& s, int64_t images, const Device& d) {
  auto bytes = [](int64_t plane) { return size_t(ceil_div(plane * kWinogradPoints * 4, int64_t(256)) * 256); };
  size_t most = 0;
  for (int64_t batch : {images, s.g.images % images}) {
    if (!batch) continue;
    const GemmTask task = products(p, s, batch, to_weights(p) && images < s.g.images);
    most = std::max(most, simt_workspace_bytes(task, simt_configs(task, d).front()));
  }
  return {bytes(grid_of(s, *s.patches, images).plane), bytes(grid_of(s, *s.tiles, images).plane),
          bytes(filter_of(p, s.g).plane), most};
}

double batches_us(const ConvProblem& p, const Sides& s, int64_t images, const Device& d) {
  const double batches = double(ceil_div(s.g.images, images));
  const WinogradGrid in = grid_of(s, *s.patches, images), out = grid_of(s, *s.tiles, images);
  const double buffers = 4.0 * kWinogradPoints * (double(in.plane) + double(out.plane));
  const double windows = 4.0 * kWinogradPoints * double(filter_of(p, s.g).plane);
  // If the buffers fit in half of the L2, their reads and writes are about twice as fast as those of memory.
  const double rate = (buffers < 0.5 * double(d.l2_bytes) ? 2 : 1) * 0.85 * d.copy_gb_s * 1e3;
  const double in_and_out = conv_bytes(p) / (0.85 * d.copy_gb_s * 1e3);
  const double each = simt_estimate_us(products(p, s, images, to_weights(p) && images < s.g.images), d);
  return 3 + in_and_out + windows / rate + batches * (each + buffers / rate + 2 * 2.5);
}

std::vector<int64_t> piece_sizes(const ConvProblem& p, const Device& d) {
  const Sides s(p);
  std::vector<std::pair<double, int64_t>> sizes;
  for (int64_t images = s.g.images; images > 0 && sizes.size() < 6;
       images = images == 1 ? 0 : ceil_div(images, int64_t(2)))
    sizes.emplace_back(batches_us(p, s, images, d), images);
  std::ranges::stable_sort(sizes);
  std::vector<int64_t> best;
  for (auto [us, images] : sizes) best.push_back(images);
  return best;
}

int64_t images_of(const Config& config) { return std::stoll(config.substr(config.find('=') + 1)); }

KernelSpec spec(const std::string& kernel) { return {"cuda/conv/winograd/winograd.cu", cat("minidnn::", kernel)}; }
KernelSpec input_spec(const char* transform) { return spec(cat("winograd_input<minidnn::", transform, ">")); }
KernelSpec output_spec(Activation a) {
  return spec(cat("winograd_output<minidnn::Activation::", minidnn::name(a), ">"));
}

struct WinogradPlan final : Plan<ConvProblem> {
  struct Batch {
    int64_t images = 0;
    WinogradGrid in, out;
    std::unique_ptr<GemmPlan> products;
  };
  ConvProblem p;
  Sides s;
  Buffers buffers;
  WinogradFilter filter;
  // `last` is for a last batch with fewer images.
  Batch batch, last;
  bool vectors = false;
  std::shared_ptr<const cuda::Kernel> patches_in, tiles_in, windows, result;

  WinogradPlan(const ConvProblem& problem, const Device& d, int64_t images)
      : p(problem), s(problem), buffers(buffers_of(p, s, images, d)), filter(filter_of(p, s.g)) {
    const int device = d.place.index;
    make(batch, images, d);
    if (int64_t rest = s.g.images % images) make(last, rest, d);
    patches_in = cuda::load_kernel(input_spec("WinogradPatch"), device);
    if (to_weights(p)) tiles_in = cuda::load_kernel(input_spec("WinogradGradient"), device);
    windows = cuda::load_kernel(spec(to_weights(p) ? "winograd_weights" : "winograd_filter"), device);
    if (!to_weights(p)) result = cuda::load_kernel(output_spec(p.activation), device);
    const ConvTensorView& y = *s.tiles;
    vectors = p.alignment >= 16 && y.space[2] == 1 && y.size[2] % 4 == 0 && y.space[1] % 4 == 0 && y.channel % 4 == 0 &&
              y.image % 4 == 0;
  }
  void make(Batch& to, int64_t images, const Device& d) {
    to.images = images;
    to.in = grid_of(s, *s.patches, images);
    to.out = grid_of(s, *s.tiles, images);
    const GemmTask task = products(p, s, images, to_weights(p) && batch.images < s.g.images);
    to.products = simt_plan(task, d, simt_configs(task, d).front());
  }

  template <class... Args>
  static void launch(const cuda::Kernel& kernel, int64_t threads, Stream stream, const Args&... args) {
    cuda::LaunchConfig config;
    config.block = {256};
    config.grid = {unsigned(ceil_div(threads, int64_t(256)))};
    cuda::launch(kernel, config, stream, args...);
  }

  void run(const ConvArgs& a, void* workspace, Stream stream) const override {
    char* const memory = static_cast<char*>(workspace);
    auto* const patches = reinterpret_cast<float*>(memory);
    auto* const tiles = reinterpret_cast<float*>(memory + buffers.patches);
    auto* const of_windows = reinterpret_cast<float*>(memory + buffers.patches + buffers.tiles);
    void* const rest = memory + buffers.patches + buffers.tiles + buffers.windows;
    const bool weights = to_weights(p);
    const auto* x = static_cast<const float*>(p.direction == ConvDirection::backward_data ? a.dy : a.x);
    const int64_t of_windows_size = int64_t(filter.sums) * filter.results.divisor;
    if (!weights) launch(*windows, of_windows_size, stream, filter, static_cast<const float*>(a.w), of_windows);
    for (int64_t image = 0; image < s.g.images; image += batch.images) {
      const Batch& now = s.g.images - image < batch.images ? last : batch;
      launch(*patches_in, now.in.size(), stream, tensor_of(*s.patches), now.in, s.before_row, s.before_column,
             x + image * s.patches->image, patches);
      GemmArgs args{patches, of_windows, nullptr, nullptr, tiles};
      if (weights) {
        launch(*tiles_in, now.out.size(), stream, tensor_of(*s.tiles), now.out, 0, 0,
               static_cast<const float*>(a.dy) + image * s.tiles->image, tiles);
        args = {tiles, patches, image ? of_windows : nullptr, nullptr, of_windows};
        args.beta = 1;
      }
      now.products->run(args, rest, stream);
      if (weights) continue;
      const float* residual = static_cast<const float*>(a.residual);
      if (residual) residual += image * s.g.residual.image;
      const WinogradOutput output{tensor_of(*s.tiles), tensor_of(s.g.residual), now.out,
                                  s.g.bias_stride,     int32_t(vectors),        float(a.activation_alpha)};
      launch(*result, now.out.size(), stream, output, static_cast<const float*>(tiles),
             static_cast<const float*>(a.bias), residual, static_cast<float*>(a.out) + image * s.tiles->image);
    }
    if (weights)
      launch(*windows, of_windows_size, stream, filter, static_cast<const float*>(of_windows),
             static_cast<float*>(a.out));
  }
};

}  // namespace

struct Winograd final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.winograd"; }
  unsigned traits() const override { return kNeedsJit | kReducedPrecision; }
  std::string why_not(const ConvProblem& p, const Device&) const override {
    if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
    if (operand_dtype(p) != DType::float32) return cat("supports float32 only; got ", minidnn::name(operand_dtype(p)));
    if (p.x.rank != 4) return cat("supports two spatial dimensions only; got ", p.x.rank - 2);
    const Sides s(p);
    for (int j = 1; j < 3; ++j) {
      if (s.g.window[j] != 3) return cat("supports 3 x 3 windows only; got ", s.g.window[1], " x ", s.g.window[2]);
      if (s.g.stride[j] != 1 || s.g.dilation[j] != 1) return "needs stride 1 and dilation 1";
    }
    if (p.groups != 1) return cat("supports groups=1 only; got ", p.groups);
    const int64_t tiles = s.tiles_of_image() * s.g.images, least = least_products(p, s, 1) * least_products(p, s, 2);
    if (to_weights(p) && s.g.images * least < kLeastPositions)
      return cat("needs at least ", kLeastPositions, " positions in each sum for the accuracy of float32; got ",
                 s.g.images * least);
    if (!to_weights(p) && (s.patch_channels < kLeastChannels || s.patch_channels * least < kLeastProducts))
      return cat("needs at least ", kLeastProducts, " products and ", kLeastChannels,
                 " channels in each sum for the accuracy of float32; got ", s.patch_channels * least, " and ",
                 s.patch_channels);
    for (int64_t size : {s.g.x.size[1], s.g.x.size[2], s.g.y.size[1], s.g.y.size[2], s.g.pad[1], s.g.pad[2]})
      if (size > kMost / 4) return cat("supports rows, columns and padding below 2^29; got ", size);
    if (double(tiles + 3) * double(max_of(s.patch_channels, s.tile_channels)) > double(kMost) ||
        double(s.patch_channels) * double(s.tile_channels) > double(kMost))
      return "supports fewer than 2^31 pairs of a tile and a channel, or of an input and an output channel; got more";
    return simt_why_not(products(p, s, s.g.images, false));
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    return batches_us(p, Sides(p), piece_sizes(p, d).front(), d);
  }
  std::vector<Config> configs(const ConvProblem& p, const Device& d) const override {
    std::vector<Config> configs;
    for (int64_t images : piece_sizes(p, d)) configs.push_back(cat("images=", images));
    return configs;
  }
  size_t workspace_bytes(const ConvProblem& p, const Device& d, const Config& config) const override {
    return buffers_of(p, Sides(p), images_of(config), d).total();
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config& config) const override {
    return std::make_unique<WinogradPlan>(p, d, images_of(config));
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all{input_spec("WinogradPatch"),       input_spec("WinogradGradient"),
                                spec("winograd_filter"),           spec("winograd_weights"),
                                output_spec(Activation::identity), output_spec(Activation::relu)};
    for (KernelSpec& k : simt_kernels()) all.push_back(std::move(k));
    return all;
  }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::Winograd>();

}  // namespace minidnn
