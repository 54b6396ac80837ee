// SPDX-License-Identifier: Apache-2.0
#include "cpp/conv/im2col.h"

#include <charconv>

#include "cpp/conv/im2col_product.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/transform/transform.h"

namespace minidnn {
namespace {

struct Chunk : Im2colChunk {
  SelectedPlan<MatmulProblem> choice;
};

// Divides the batch into chunks of `images` images. The last chunk may have fewer.
struct Im2colTiling {
  int64_t images;
  Chunk whole, rest;
  bool accumulates;
  TransformProblem to_dw;
  SelectedPlan<TransformProblem> to_dw_choice;
  // Byte offsets in the workspace. `inner_at` is the workspace of the matrix products and of the final copy to dw.
  size_t columns_at = 0, dy_at = 0, sums_at = 0, inner_at = 0, bytes = 0;

  Im2colTiling(const ConvProblem& p, const Device& d, int64_t chunk) : images(chunk) {
    ConvGeometry g = conv_geometry(p);
    DType t = operand_dtype(p);
    accumulates = p.direction == ConvDirection::backward_filter && (images < g.images || !has_filter_matrix(p));
    size_t inner = 0;
    auto choose = [&](const auto& problem, auto& choice) {
      choice = choose_on(d, problem);
      inner = std::max(inner, choice.workspace_bytes);
    };
    whole = {im2col_chunk(p, images, accumulates), {}};
    choose(whole.product, whole.choice);
    if (g.images % images) {
      rest = {im2col_chunk(p, g.images % images, accumulates), {}};
      choose(rest.product, rest.choice);
    }
    if (accumulates) {
      to_dw = {im2col_sums(p), p.w};
      choose(to_dw, to_dw_choice);
    }
    auto reserve = [&](bool needed, double elements, DType dtype) {
      size_t at = bytes;
      if (needed) bytes += ceil_div<size_t>(size_t(elements) * itemsize(dtype), 256) * 256;
      return at;
    };
    columns_at =
        reserve(whole.gathers_x || whole.sums_dx, columns_elements(whole.x.g), whole.sums_dx ? sum_dtype(t) : t);
    dy_at = reserve(whole.gathers_dy, columns_elements(whole.dy.g), t);
    sums_at = reserve(accumulates, double(p.w.numel()), sum_dtype(t));
    inner_at = bytes;
    bytes += inner;
  }
  bool moves() const { return whole.gathers_x || whole.gathers_dy || whole.sums_dx; }
  // Returns the bytes written to and read from the im2col matrix, and from the copy of dy, for one chunk of images.
  double moved_bytes(DType t) const {
    double x = whole.gathers_x || whole.sums_dx ? columns_elements(whole.x.g) : 0;
    double dy = whole.gathers_dy ? columns_elements(whole.dy.g) : 0;
    return 2 * (x * double(itemsize(whole.sums_dx ? sum_dtype(t) : t)) + dy * double(itemsize(t)));
  }
};

int64_t images_of(const Config& config) {
  int64_t images = 0;
  size_t digits = config.find('=') + 1;
  std::from_chars(config.data() + digits, config.data() + config.size(), images);
  return images;
}

struct Im2colPlan final : Plan<ConvProblem> {
  ConvProblem p;
  ConvGeometry g;
  Im2colTiling tiling;
  std::shared_ptr<const ColumnsMover> mover;

  Im2colPlan(const ConvProblem& problem, const Device& d, int64_t images, std::shared_ptr<const ColumnsMover> m)
      : p(problem), g(conv_geometry(problem)), tiling(problem, d, images), mover(std::move(m)) {
    auto build = [&](const auto& what, auto& choice) {
      if (choice.engine) choice.plan = choice.engine->build(what, d, choice.config);
    };
    build(tiling.whole.product, tiling.whole.choice);
    build(tiling.rest.product, tiling.rest.choice);
    build(tiling.to_dw, tiling.to_dw_choice);
  }

  void run(const ConvArgs& args, void* workspace, Stream stream) const override {
    auto scratch = [&](size_t at) { return static_cast<char*>(workspace) + at; };
    int64_t size = int64_t(itemsize(operand_dtype(p))), out_size = int64_t(itemsize(out_dtype(p)));
    for (int64_t first = 0; first < g.images; first += tiling.images) {
      const Chunk& c = first + tiling.images <= g.images ? tiling.whole : tiling.rest;
      auto in = [&](const void* base, const ConvTensorView& s) {
        return static_cast<const char*>(base) + first * s.image * size;
      };
      auto out = [&](const ConvTensorView& s) { return static_cast<char*>(args.out) + first * s.image * out_size; };
      const void *x = nullptr, *dy = nullptr;
      if (!g.backward_data) x = in(args.x, g.x);
      if (p.direction != ConvDirection::forward) dy = in(args.dy, g.y);
      if (c.gathers_x) {
        mover->gather(c.x, x, scratch(tiling.columns_at), stream);
        x = scratch(tiling.columns_at);
      }
      if (c.gathers_dy) {
        mover->gather(c.dy, dy, scratch(tiling.dy_at), stream);
        dy = scratch(tiling.dy_at);
      }
      MatmulArgs m;
      if (p.direction == ConvDirection::forward) {
        m.a = x;
        m.b = args.w;
        m.y = out(g.y);
        m.activation_alpha = args.activation_alpha;
        if (c.product.has_bias) m.bias = args.bias;
        else if (p.has_bias) {
          m.c = args.bias;
          m.beta = 1;
        }
        if (p.residual.rank) {
          m.c = static_cast<const char*>(args.residual) + first * g.residual.image * out_size;
          m.beta = 1;
        }
      } else if (p.direction == ConvDirection::backward_data) {
        m.a = dy;
        m.b = args.w;
        m.y = c.sums_dx ? scratch(tiling.columns_at) : out(g.x);
      } else {
        m.a = dy;
        m.b = x;
        m.y = tiling.accumulates ? scratch(tiling.sums_at) : args.out;
        if (tiling.accumulates) {
          m.c = m.y;
          m.beta = first ? 1 : 0;
        }
      }
      c.choice.plan->run(m, scratch(tiling.inner_at), stream);
      if (c.sums_dx) mover->sum(c.x, scratch(tiling.columns_at), out(g.x), stream);
    }
    if (tiling.accumulates)
      tiling.to_dw_choice.plan->run({scratch(tiling.sums_at), args.out}, scratch(tiling.inner_at), stream);
  }
};

}  // namespace

std::string Im2colEngine::why_not(const ConvProblem& p, const Device& d) const {
  if (p.direction == ConvDirection::backward_bias) return "backward_bias is not supported";
  if (p.y.numel() == 0 || p.w.numel() == 0) return "w or y is empty";
  if (std::string why = im2col_why_not(p); !why.empty()) return why;
  ConvGeometry g = conv_geometry(p);
  g.images = 1;
  double bytes = columns_elements(g) * double(itemsize(sum_dtype(operand_dtype(p))));
  if (bytes > double(d.memory_bytes))
    return cat("needs up to ", bytes_text(bytes), " for the im2col columns of one image; the device has ",
               bytes_text(double(d.memory_bytes)));
  return "";
}

double Im2colEngine::estimate_us(const ConvProblem& p, const Device& d) const {
  const Im2colTiling tiling(p, d, images_of(configs(p, d).front()));
  double chunks = double(ceil_div(p.y.shape[0], tiling.images));
  // For the time estimate: the speed of the loops that copy to and from the im2col matrix, as a fraction of the speed
  // of a plain copy. GPUs were measured at 0.03 to 0.4, because these loops are strided. On a CPU, the
  // time depends on the number of elements, not of bytes.
  const DType dtype = operand_dtype(p);
  const double rate = d.place.is_cuda ? 0.1 : 0.5 * std::min(1.0, double(itemsize(dtype)) / 4);
  double moving = tiling.moves() ? roofline_us(0, tiling.moved_bytes(dtype), d, rate) : 0;
  return chunks * (tiling.whole.choice.estimate_us + moving) + tiling.to_dw_choice.estimate_us;
}

std::vector<Config> Im2colEngine::configs(const ConvProblem& p, const Device& d) const {
  // The size of an im2col matrix that any matmul engine processes at full speed. On the CPU, the matrix must also fit
  // the caches.
  double enough = d.place.is_cuda ? 512e6 : double(cpu::work_size(16000000));
  int64_t images = p.y.shape[0];
  const Im2colChunk one = im2col_chunk(p, 1, false);
  if (one.gathers_x || one.gathers_dy || one.sums_dx)
    images = std::clamp(int64_t(enough / (columns_elements(one.x.g) * double(itemsize(operand_dtype(p))))), int64_t(1),
                        images);
  std::vector<Config> all;
  for (; images > 0; images /= 2) all.push_back(cat("images=", images));
  return all;
}

size_t Im2colEngine::workspace_bytes(const ConvProblem& p, const Device& d, const Config& config) const {
  return Im2colTiling(p, d, images_of(config)).bytes;
}

std::unique_ptr<Plan<ConvProblem>> Im2colEngine::build(const ConvProblem& p, const Device& d,
                                                       const Config& config) const {
  return std::make_unique<Im2colPlan>(p, d, images_of(config), mover(operand_dtype(p), out_dtype(p), d));
}

}  // namespace minidnn
