// SPDX-License-Identifier: Apache-2.0
// cuda.conv.first_layer: an engine that computes y of a network's first layer by tensor cores (first_layer.cu). It
// requires that x has few channels. First, pad_channels.cu copies x and the filters. The copies include the padding,
// and their number of channels is a power of two.
#include "cpp/conv/conv.h"
#include "cpp/engine/engine_object.h"
#include "cpp/engine/roofline.h"
#include "cuda/conv/first_layer/first_layer_params.h"
#include "cuda/conv/first_layer/pad_channels.h"
#include "cuda/gemm/epilogue/output.h"
#include "cuda/gemm/view/gemm_task.h"

namespace minidnn {
namespace cuda::conv {
namespace {

constexpr int kFilters = 64, kStages = 4, kChunkBytes = 16;
// two mbarriers per stage
constexpr int64_t kBarrierBytes = 2 * kStages * 8;
// Room after the last buffer, only for compute-sanitizer. wgmma reads overlapping windows (65 chunks of 16 bytes), but
// compute-sanitizer checks the range that they would take without overlap (128 chunks).
constexpr int64_t kOverlapBytes = (128 - 65) * kChunkBytes;

struct Image {
  Padded x, w;
  FirstLayerParams problem;
  GemmStore store{};
  std::string why;

  explicit Image(const ConvProblem& p) {
    const int64_t item = int64_t(itemsize(p.x.dtype)), step = p.spatial.stride[1], taps = p.w.shape[3];
    int64_t channels = 4;  // the number of channels of a pixel in the padded copies of x and w
    while (channels < p.x.shape[1]) channels *= 2;
    // Adds channels until adjacent windows start at least one chunk (16 bytes) apart.
    while (step * channels * item < kChunkBytes) channels *= 2;
    const int64_t pixel = channels * item, planes = step * pixel / kChunkBytes;
    if (pixel > kChunkBytes)
      why = cat("supports pixels of at most 16 bytes; got ", pixel, " for ", channels,
                " channels, padded to a power of two");
    else if (step * pixel % kChunkBytes || (planes > 1 && (pixel != kChunkBytes || planes % 2)))
      why = cat("supports strides of 1 and even strides along the width; got ", step);
    const int64_t per_chunk = max_of(kChunkBytes / pixel, int64_t(1)),
                  chunks = ceil_div(taps * pixel, int64_t(2 * kChunkBytes)) * 2;
    const int64_t positions = p.y.shape[3], padded = ceil_div(positions, int64_t(64)) * 64;
    // Rows of the copy of x end with zeros, because windows are rounded up to an even number of chunks (16 bytes).
    x.planes = max_of(planes, int64_t(1));
    const int64_t line = ceil_div((positions - 1) * x.planes + chunks, x.planes) * x.planes * kChunkBytes;
    x.x = p.x;
    x.channels = channels;
    x.columns = line / pixel;
    x.rows = (p.y.shape[2] - 1) * p.spatial.stride[0] + (p.w.shape[2] - 1) * p.spatial.dilation[0] + 1;
    x.before[0] = p.spatial.before[0];
    x.before[1] = p.spatial.before[1];
    w.x = p.w;
    w.channels = channels;
    w.rows = p.w.shape[2];
    w.columns = chunks * per_chunk;
    x.round = w.round = p.x.dtype == DType::float32;

    const GemmTask task = gemm_task(p);
    problem.y = output_of(task.views.front(), task.y, task.alignment, task.has_c, task.has_bias);
    store = store_of(problem.y, task.has_c);
    // The vectors of four positions that GemmStore::transposed stores must not cross the end of a row of y.
    if (store == GemmStore::transposed && p.y.shape[3] % 4) store = GemmStore::any;
    problem.lines = FastDivmod(p.y.shape[2]);
    problem.tiles = int32_t(p.y.shape[0] * p.y.shape[2]);
    problem.positions = int32_t(positions);
    problem.window = int32_t(p.w.shape[2]);
    problem.step = int32_t(p.spatial.stride[0]);
    problem.dilation = int32_t(p.spatial.dilation[0]);
    problem.elements = int32_t(taps * channels);
    problem.chunks = int32_t(chunks);
    problem.planes = int32_t(x.planes);
    problem.line_bytes = int32_t(line);
    problem.plane_bytes = int32_t(line / x.planes);
    problem.image_bytes = x.rows * line;
    problem.filter_count = int32_t(p.w.shape[0]);
    problem.filter_line_bytes = int32_t(w.columns * pixel);
    problem.filter_bytes = problem.filter_line_bytes * problem.window;
    beyond = (padded - positions + chunks) * kChunkBytes + kOverlapBytes;
  }

  // Extra bytes after the last buffer, because the windows of the last positions of y reach past it.
  int64_t beyond = 0;
  int64_t smem_bytes() const {
    return int64_t(problem.window) * problem.chunks * kFilters * kChunkBytes +
           kStages * int64_t(problem.window) * problem.line_bytes + beyond + 128 + 8 * kLinesBytes;
  }
};

KernelSpec spec(DType type, DType y, const EpilogueTraits& ending) {
  KernelSpec s{"cuda/conv/first_layer/first_layer.cu",
               cat("minidnn::conv_first_layer<", cuda_name(type), ", ", cuda_name(y), ", ", kFilters, ", ", kStages,
                   ", ", ending.text(), ">")};
  s.min_arch = 90;
  return s;
}

}  // namespace

struct FirstLayer final : Engine<ConvProblem> {
  std::string name() const override { return "cuda.conv.first_layer"; }
  unsigned traits() const override { return kNeedsJit; }
  std::string why_not(const ConvProblem& p, const Device& d) const override {
    if (p.direction != ConvDirection::forward) return "supports forward only";
    if (d.arch / 10 != 9) return cat("needs wgmma, which sm_90 has; got sm_", d.arch);
    if (p.ieee && operand_dtype(p) == DType::float32)
      return "math='ieee' is not supported: float32 is multiplied as TF32";
    if (itemsize(p.x.dtype) > 4) return "float64 is not supported";
    if (p.x.rank != 4) return cat("supports two spatial dimensions only; got ", p.x.rank - 2);
    if (p.groups != 1) return cat("supports groups=1 only; got ", p.groups);
    if (p.x.numel() == 0 || p.w.numel() == 0 || p.y.numel() == 0) return "x, w or y is empty";
    if (p.flip) return "mode='convolution' is not supported";
    if (p.x.shape[1] > 8) return cat("supports at most 8 channels of x; got ", p.x.shape[1]);
    if (p.w.shape[3] > 1 && p.spatial.dilation[1] != 1)
      return cat("needs dilation 1 along the width; got ", p.spatial.dilation[1]);
    const Image i(p);
    if (!i.why.empty()) return i.why;
    for (const Padded* copy : {&i.x, &i.w})
      for (int64_t size : {copy->x.shape[0] * copy->rows * copy->columns, copy->before[0], copy->before[1]})
        if (size >= int64_t(1) << 31) return cat("supports fewer than 2^31 padded pixels; got ", size);
    if (p.y.shape[0] * p.y.shape[2] * p.y.shape[3] >= int64_t(1) << 30)
      return "supports fewer than 2^30 positions of y; got more";
    if (const int64_t bytes = i.smem_bytes() + kBarrierBytes; bytes > d.max_smem_bytes)
      return cat("needs ", bytes, " bytes of shared memory for filters and lines of x; the device has ",
                 d.max_smem_bytes);
    return "";
  }
  double estimate_us(const ConvProblem& p, const Device& d) const override {
    // The time to copy x and w, and the time of the kernel, which mostly writes y. The constants are guesses.
    const Image i(p);
    const double item = double(itemsize(p.x.dtype)), y = double(p.y.numel()) * double(itemsize(p.y.dtype));
    const double tiles = double(ceil_div(p.w.shape[0], int64_t(kFilters)));
    const double clocks = double(i.problem.tiles) * std::ceil(i.problem.positions / 64.0) * tiles * i.problem.window *
                          i.problem.chunks / 2 * 64 / d.sm_count;
    return 8 + roofline_us(0, double(p.x.numel()) * item + 2 * double(i.x.bytes()), d, 0.7) +
           std::max(clocks / 1700, roofline_us(0, y, d, 0.7));
  }
  size_t workspace_bytes(const ConvProblem& p, const Device&, const Config&) const override {
    const Image i(p);
    return i.x.bytes() + i.w.bytes();
  }
  std::unique_ptr<Plan<ConvProblem>> build(const ConvProblem& p, const Device& d, const Config&) const override {
    struct Steps {
      Image image;
      ConvProblem problem;
      std::shared_ptr<const cuda::Kernel> pad_x, pad_w, kernel;
      cuda::LaunchConfig launch;
    };
    auto steps = std::make_shared<Steps>(Steps{Image(p), p, nullptr, nullptr, nullptr, {}});
    const Image& i = steps->image;
    const GemmTask task = gemm_task(p);
    steps->pad_x = cuda::load_kernel(i.x.kernel(), d.place.index);
    steps->pad_w = cuda::load_kernel(i.w.kernel(), d.place.index);
    steps->kernel = cuda::load_kernel(spec(task.type, task.y, {p.activation, task.has_bias, task.has_c, i.store}),
                                      d.place.index, int(i.smem_bytes()));
    cuda::LaunchConfig& launch = steps->launch;
    launch.block = {384};
    launch.smem_bytes = unsigned(i.smem_bytes());
    launch.programmatic = true;
    const int64_t filters = ceil_div(p.w.shape[0], int64_t(kFilters));
    launch.grid = {unsigned(min_of(int64_t(i.problem.tiles), ceil_div(int64_t(d.sm_count), filters))),
                   unsigned(filters)};
    return make_plan<ConvProblem>([steps](const ConvArgs& args, void* workspace, Stream stream) {
      const Image& image = steps->image;
      char* const x = static_cast<char*>(workspace);
      char* const w = x + image.x.bytes();
      image.x.run(*steps->pad_x, args.x, x, stream);
      image.w.run(*steps->pad_w, args.w, w, stream);
      ConvArgs now = args;
      now.x = x;
      now.w = w;
      cuda::launch(*steps->kernel, steps->launch, stream, image.problem, gemm_args(steps->problem, now));
    });
  }
  std::vector<KernelSpec> kernels() const override {
    std::vector<KernelSpec> all;
    for (DType type : {DType::float16, DType::bfloat16, DType::float32})
      for (GemmStore store : {GemmStore::lines, GemmStore::transposed, GemmStore::any})
        if (type != DType::float32 || store != GemmStore::transposed) all.push_back(spec(type, type, {.store = store}));
    return all;
  }
};

}  // namespace cuda::conv

template const Engine<ConvProblem>& engine_object<ConvProblem, cuda::conv::FirstLayer>();

}  // namespace minidnn
