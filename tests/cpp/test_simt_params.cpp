// SPDX-License-Identifier: Apache-2.0
// Tests the launch parameters of cuda.conv.simt and cuda.matmul.simt for random problems. Plain loops with the kernel's
// own index arithmetic compute every tile, also for launches that divide the inner dimension k among blocks. The
// results are compared with those of the direct engines' functions.
#include "cuda/gemm/simt/plan.h"
#include "tests/cpp/random_problems.h"

using namespace minidnn;

static float at(const void* base, int64_t offset) {
  return *reinterpret_cast<const float*>(static_cast<const char*>(base) + offset);
}

// Executes a launch of the simt kernel on the host, for each part of k if the launch splits k.
static void simulate(const SimtParams& p, const SimtTileSize& tile, uint32_t blocks) {
  uint64_t elements = 0;
  for (uint32_t batch_index = 0; batch_index < p.batch.size; ++batch_index)
    for (uint32_t split = 0; split < p.splits.divisor; ++split)
      for (uint32_t i = 0; i < p.phases.divisor; ++i) {
        const SimtPhase& f = p.phase[i];
        const GemmCoordinates32 batch = p.batch.coordinates(batch_index);
        const int64_t a = f.a_offset + offset_of(p.a_batch, batch), b = f.b_offset + offset_of(p.b_batch, batch);
        const int64_t y = f.y_offset + offset_of(p.y_batch, batch) + split * p.y_split;
        for (uint32_t m = 0; m < f.m.size; ++m)
          for (uint32_t n = 0; n < f.n.size; ++n, ++elements) {
            const GemmCoordinates32 at_m = f.m.coordinates(m), at_n = f.n.coordinates(n);
            const uint32_t of_row = f.window.taps_in_k ? outside_bits(f.window, at_m) : tap_bits(f.window, at_m);
            float sum = 0;
            for (uint32_t k = split * p.k_per_split; k < f.k.size && k < (split + 1) * p.k_per_split; ++k) {
              const GemmCoordinates32 at_k = f.k.coordinates(k);
              const uint32_t of_k = f.window.taps_in_k ? tap_bits(f.window, at_k) : outside_bits(f.window, at_k);
              if (of_row & of_k) continue;
              sum += at(p.args.a, a + offset_of(f.a_row, at_m) + offset_of(f.a_k, at_k)) *
                     at(p.args.b, b + offset_of(f.b_row, at_n) + offset_of(f.b_k, at_k));
            }
            float& to = *reinterpret_cast<float*>(static_cast<char*>(p.args.y) + y + offset_of(f.y_m, at_m) +
                                                  offset_of(f.y_n, at_n));
            to = (p.flags & kSimtCluster && split ? to : 0) + sum;
          }
      }
  const uint64_t covered = uint64_t(blocks) * uint64_t(tile.m) * uint64_t(tile.n);
  if (elements > covered) fail(cat(blocks, " blocks cover ", covered, " of ", elements, " elements"));
}

// Computes y for a whole problem, without bias and activation. The sums of all parts of k are added up.
static void run(const GemmTask& task, const GemmArgs& args, const SimtConfig& config) {
  const SimtLaunches l = simt_launches(task, config);
  const SplitKWorkspace layout(l.reduced);
  std::vector<float> sums(l.to_workspace ? size_t(config.splits * layout.partition_stride) : 0, 1e9f);
  for (size_t i = 0; i < l.params.size(); ++i) {
    SimtParams p = l.params[i];
    p.args = args;
    if (l.to_workspace) p.args.y = sums.data();
    if (l.exchanged) std::swap(p.args.a, p.args.b);
    simulate(p, config.tile, l.blocks[i]);
  }
  if (!l.to_workspace) return;
  const GemmView& v = l.reduced;
  for (int64_t batch = 0; batch < v.batch.size; ++batch)
    for (int64_t m = 0; m < v.m.size; ++m)
      for (int64_t n = 0; n < v.n.size; ++n) {
        float sum = 0;
        for (int64_t s = 0; s < config.splits; ++s)
          sum += sums[size_t(s * layout.partition_stride + (batch * v.m.size + m) * layout.columns + n)];
        static_cast<float*>(
            args.y)[v.y_offset + offset_of(v.y_batch, coordinates_of(v.batch, batch)) +
                    offset_of(v.y_m, coordinates_of(v.m, m)) + offset_of(v.y_n, coordinates_of(v.n, n))] = sum;
      }
}

static SimtConfig any_config(const GemmTask& task) {
  constexpr const char* tiles[] = {"tile=128x128", "tile=128x64", "tile=64x64", "tile=128x32", "tile=128x16"};
  SimtConfig c = simt_config(tiles[pick(0, 4)]);
  if (task.views.size() == 1) {
    c.splits = int(pick(1, 4));
    c.cluster = c.splits > 1 && pick(0, 1);
  }
  return c;
}

static void check_conv() {
  const int64_t groups = pick(1, 3), channels = groups * pick(1, 5), filters = groups * pick(1, 5);
  ConvProblem p = random_conv(DType::float32, {groups, channels, filters, pick(1, 3), 9});
  p.ieee = 1;
  ConvNumbers<float> n(p, 4);
  std::vector<float> got(n.want.size(), 1e9f);
  const GemmTask task = gemm_task(p);
  if (std::string why = simt_why_not(task); !why.empty()) fail(why);
  n.args.out = got.data();
  run(task, gemm_args(p, n.args), any_config(task));
  check(Family<ConvProblem>::text(p), got, n.want);
}

static void check_matmul() {
  Shape batch;
  for (int64_t i = pick(0, 3); i > 0; --i) batch.push_back(pick(1, 3));
  int64_t m = pick(1, 9), n = pick(1, 9), k = pick(0, 70);
  auto with = [&](int64_t rows, int64_t columns) {
    Shape shape = batch;
    shape.push_back(rows);
    shape.push_back(columns);
    TensorDesc d = described(DType::float32, shape, false);
    if (pick(0, 1)) {
      std::swap(d.stride[d.rank - 2], d.stride[d.rank - 1]);
      d.stride[d.rank - 1] = rows;
    }
    return d;
  };
  MatmulProblem p;
  p.a = with(m, k);
  p.b = with(k, n);
  p.y = with(m, n);
  std::vector<float> a = numbers<float>(p.a.numel(), 4), b = numbers<float>(p.b.numel(), 4),
                     got(size_t(p.y.numel()), 1e9f), want = got;
  MatmulArgs args{a.data(), b.data(), nullptr, nullptr, want.data()};
  for (int64_t i = 0; i < p.y.numel(); ++i) matmul_element<float, float>(p, args, i);
  const GemmTask task = gemm_task(p);
  args.y = got.data();
  run(task, gemm_args(args), any_config(task));
  check(Family<MatmulProblem>::text(p), got, want);
}

int main() {
  for (int i = 0; i < 3000; ++i) check_conv();
  for (int i = 0; i < 1000; ++i) check_matmul();
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
