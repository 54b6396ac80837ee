// SPDX-License-Identifier: Apache-2.0
// Tests what tensor_maps.cpp computes for random TF32 problems: tensor maps, products that are computed as their
// transpose, addresses of results and, for a strided backward_data, phases (pixels of dx that use the same window
// elements). The host loops over elements in the order of sm90/kernel.cu, and the results are compared with those of
// the direct engines.
#include "cuda/gemm/sm90/tensor_maps.h"
#include "tests/cpp/random_problems.h"

using namespace minidnn;

namespace {

constexpr int64_t kK = 32;  // the number of float32 elements in 128 bytes

int64_t digits_below(const int32_t (&size)[3], int64_t index, int64_t (&at)[3]) {
  for (int j = 2; j >= 0; --j) {
    at[j] = index % size[j];
    index /= size[j];
  }
  return index;
}

// Returns the element of an operand that Sm90Loader loads for a row and an index k. `tap` is the element of the window
// to which k belongs.
struct Fetch {
  const TmaView& low;
  const TmaOperand& o;
  const int32_t (&first_tap)[2], (&first_offset)[3];
  const float* data;
  int64_t size;

  float operator()(int64_t row, int64_t batch, const int64_t (&tap)[3], int64_t k) const {
    int64_t at = o.offset;
    bool in = true;
    auto add_step = [&](const cuda::MapTensor& map, int dim, int64_t coordinate) {
      in = in && uint64_t(coordinate) < map.dims[dim];
      at += coordinate * (dim == 0 ? 1 : int64_t(map.strides[dim - 1]) / 4);
    };
    if (!o.windowed()) {
      add_step(o.tile, 0, o.along_rows() ? row : k);
      add_step(o.tile, 1, first_tap[0] + tap[2] * o.device.tap_step[2]);
      add_step(o.tile, 2, first_tap[1] + tap[0] * o.device.tap_step[0] + tap[1] * o.device.tap_step[1]);
      add_step(o.tile, 3, o.along_rows() ? k : row);
      add_step(o.tile, 4, batch * o.device.batch_step);
    } else {
      int64_t position[3], of_tap[3] = {tap[0], tap[1], tap[2]}, channel = k;
      const int64_t image = digits_below(low.positions, o.along_rows() ? k : row, position);
      if (o.along_rows()) {
        channel = row / kK % low.channel_blocks * kK + row % kK;
        if (digits_below(low.window, row / kK / low.channel_blocks, of_tap)) return 0;
      }
      add_step(o.pixels, 0, channel + batch * o.device.channels_of_batch);
      for (int j = 3 - low.spatial; j < 3; ++j) {
        const int64_t corner = o.device.corner[j] + position[j] * o.device.position_step[j],
                      offset = first_offset[j] + of_tap[j] * o.device.offset_step[j];
        const int dim = 3 - j;
        add_step(o.pixels, dim, corner + offset);
        if (offset < 0 || corner < o.pixels.lower[dim - 1] ||
            corner >= int64_t(o.pixels.dims[dim]) + o.pixels.upper[dim - 1])
          fail("a window leaves its box");
      }
      add_step(o.pixels, low.spatial + 1, image);
    }
    if (in && uint64_t(at) >= uint64_t(size)) fail("an element is outside its tensor");
    return in && uint64_t(at) < uint64_t(size) ? data[at] : 0;
  }
};

int exchanged = 0, phases = 0;

// Computes the matrix product `task` and adds it to y.
void emulate(const std::string& what, const GemmTask& task, const GemmArgs& args, int64_t size_a, int64_t size_b,
             std::vector<float>& y) {
  const TmaView low = tma_view(task);
  if (!low.why.empty()) return fail(cat(what, ": ", low.why));
  const GemmStore store = store_of(task, low);
  const bool vectors = store == GemmStore::columns || store == GemmStore::phases;
  exchanged += low.exchanged;
  phases += store == GemmStore::phases;
  const GemmOutput o = output_of(task, low);
  const void* data[2] = {args.a, args.b};
  const int64_t sizes[2] = {size_a, size_b};
  for (const Sm90Phase& p : low.phases) {
    const GemmOutputBounds& bounds = low.phases.size() == 1 ? o.bounds : p.bounds;
    const Fetch a{
        low, low.a, p.a_tap, p.a_offset, static_cast<const float*>(data[low.exchanged]), sizes[low.exchanged]};
    const Fetch b{
        low, low.b, p.b_tap, p.b_offset, static_cast<const float*>(data[!low.exchanged]), sizes[!low.exchanged]};
    for (int64_t batch = 0; batch < low.view.batch.size; ++batch)
      for (int64_t m = 0; m < low.view.m.size + 4; ++m)
        for (int64_t n = 0; n < low.view.n.size + 4; ++n) {
          const GemmCoordinates at_m = coordinates_of(o.m, m), at_n = coordinates_of(o.n, n),
                                at_batch = coordinates_of(o.batch, batch);
          bool exists = store == GemmStore::phases ? m < o.m.size : n < o.n.size && at_n.at[kDigits - 1] < o.n_limit;
          for (int j = 0; j < kDigits; ++j)
            exists = exists && (store == GemmStore::phases ? at_n : at_m).at[j] < bounds.limit[j];
          if (!exists) continue;
          float sum = 0;
          for (int64_t i = 0; i < p.taps[0] * p.taps[1] * p.taps[2]; ++i) {
            int64_t tap[3];
            digits_below(p.taps, i, tap);
            for (int64_t k = p.k_shift; k < p.k_shift + low.k_blocks * kK; ++k)
              sum += a(m, batch, tap, k) * b(n, batch, tap, k);
          }
          const int64_t at =
              bounds.y_offset + offset_of(o.y_batch, at_batch) + offset_of(o.y_m, at_m) + offset_of(o.y_n, at_n);
          if (vectors && (offset_of(o.y_m, at_m) != m || (at - m) % 4)) return fail(what + ": a vector is torn");
          if (uint64_t(at) >= y.size()) return fail(what + ": writes outside y");
          y[size_t(at)] += sum;
        }
  }
}

void check_conv() {
  const int64_t groups = pick(0, 3) ? 1 : 2, channels = groups * (groups > 1 ? kK : 4 * pick(1, 3)),
                filters = groups * (groups > 1 ? kK : 4 * pick(1, 3));
  // If `one` is true, the convolution has one filter. Then the elements of dy over which dw is summed are contiguous.
  const bool one = groups == 1 && pick(0, 7) == 0;
  ConvProblem p = random_conv(DType::float32, {groups, channels, one ? 1 : filters, pick(1, 2), 4});
  if (one && p.direction != ConvDirection::backward_filter) return;
  for (TensorDesc* d : {&p.x, &p.w, &p.y})
    // p.x describes the result dx in backward_data. In about one of five such problems, dx keeps the layout of
    // random_conv(), which may be NCHW. All other tensors become NHWC.
    if (d != &p.x || p.direction != ConvDirection::backward_data || pick(0, 4))
      *d = described(DType::float32, Shape(d->shape, d->shape + d->rank), true);
  const ConvNumbers<float> n(p, 4);
  const bool data = p.direction == ConvDirection::backward_data, filter = p.direction == ConvDirection::backward_filter;
  std::vector<float> got(n.want.size());
  emulate(Family<ConvProblem>::text(p), gemm_task(p), gemm_args(p, n.args), data || filter ? p.y.numel() : p.x.numel(),
          filter ? p.x.numel() : p.w.numel(), got);
  check(Family<ConvProblem>::text(p), got, n.want);
}

void check_matmul() {
  Shape batch;
  for (int64_t i = pick(0, 2); i > 0; --i) batch.push_back(pick(1, 3));
  const int64_t m = 4 * pick(1, 4), n = 4 * pick(1, 4), k = 4 * pick(1, 12);
  auto with = [&](int64_t rows, int64_t columns, bool transposed) {
    Shape shape = batch;
    shape.push_back(rows);
    shape.push_back(columns);
    TensorDesc d = described(DType::float32, shape, false);
    if (transposed) {
      d.stride[d.rank - 2] = 1;
      d.stride[d.rank - 1] = rows;
    }
    return d;
  };
  MatmulProblem p{with(m, k, pick(0, 1)), with(k, n, pick(0, 1))};
  p.y = with(m, n, pick(0, 1));
  const std::vector<float> a = numbers<float>(p.a.numel(), 4), b = numbers<float>(p.b.numel(), 4);
  std::vector<float> got(size_t(p.y.numel())), want = got;
  const MatmulArgs args{a.data(), b.data(), nullptr, nullptr, want.data()};
  for (int64_t i = 0; i < p.y.numel(); ++i) matmul_element<float, float>(p, args, i);
  emulate(Family<MatmulProblem>::text(p), gemm_task(p), gemm_args(args), p.a.numel(), p.b.numel(), got);
  check(Family<MatmulProblem>::text(p), got, want);
}

}  // namespace

int main() {
  for (int i = 0; i < 1500; ++i) check_conv();
  for (int i = 0; i < 300; ++i) check_matmul();
  if (exchanged < 100 || phases < 100) fail(cat("too few: ", exchanged, " exchanged, ", phases, " in phases"));
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
