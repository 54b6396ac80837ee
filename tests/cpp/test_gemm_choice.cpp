// SPDX-License-Identifier: Apache-2.0
// Tests which tensor-core engine, and which of its variants (configs), the time estimates choose on an H100; no GPU is
// needed. All cases were measured on an H100 (docs/notes/gemm.md): the expected variant is the fastest one, or takes at
// most 5 % longer.
#include <iostream>

#include "cpp/conv/conv.h"
#include "cpp/matmul/matmul.h"
#include "tests/cpp/h100.h"

using namespace minidnn;

static int failures = 0;

template <class P>
static void check(const P& p, const std::string& engine, std::initializer_list<const char*> configs) {
  const Engine<P>* best = nullptr;
  for (const Engine<P>* e : Family<P>::cuda_engines()) {
    std::string why = e->why_not(p, h100());
    if (e->name() == engine && !why.empty()) ++failures, std::cout << Family<P>::text(p) << ": " << why << std::endl;
    if (why.empty() && (!best || e->estimate_us(p, h100()) < best->estimate_us(p, h100()))) best = e;
  }
  const std::string config = best->configs(p, h100()).front();
  bool right = best->name() == engine && configs.size() == 0;
  for (const char* c : configs) right = right || (best->name() == engine && config == c);
  if (right) return;
  ++failures;
  std::cout << Family<P>::text(p) << ": chose " << best->name() << ' ' << config << std::endl;
  for (const Engine<P>* e : Family<P>::cuda_engines())
    if (e->why_not(p, h100()).empty())
      std::cout << "  " << e->name() << ' ' << e->estimate_us(p, h100()) << " us " << e->configs(p, h100()).front()
                << std::endl;
}

static MatmulProblem matmul(int64_t m, int64_t n, int64_t k, DType t = DType::bfloat16) {
  auto dense_of = [&](int64_t rows, int64_t columns) {
    return dense(t, Shape{rows, columns}, Layout::channels_first, "test");
  };
  MatmulProblem p{dense_of(m, k), dense_of(k, n)};
  p.y = dense_of(m, n);
  return p;
}

static ConvProblem conv(ConvDirection direction, int64_t c, int64_t h, int64_t k, int64_t r, int64_t stride,
                        DType t = DType::bfloat16, Layout layout = Layout::channels_last) {
  ConvProblem p;
  p.direction = direction;
  const int64_t out = (h + r / 2 * 2 - r) / stride + 1;
  p.x = dense(t, Shape{64, c, h, h}, layout, "test");
  p.w = dense(t, Shape{k, c, r, r}, layout, "test");
  p.y = dense(t, Shape{64, k, out, out}, layout, "test");
  for (int j = 0; j < 2; ++j) {
    p.spatial.stride[j] = stride;
    p.spatial.before[j] = p.spatial.after[j] = r / 2;
  }
  return p;
}

int main() {
  using enum ConvDirection;
  check(matmul(512, 512, 512), "cuda.matmul.wgmma", {"tile=64x64"});
  check(matmul(1024, 1024, 1024), "cuda.matmul.wgmma", {"tile=128x64", "tile=64x128"});
  check(matmul(4096, 4096, 4096), "cuda.matmul.wgmma", {"tile=128x256", "tile=128x256;cluster=2"});
  check(matmul(8192, 8192, 8192), "cuda.matmul.wgmma", {"tile=128x256;cluster=2", "tile=128x256"});
  check(matmul(16, 8192, 8192), "cuda.matmul.wgmma", {"tile=64x64", "tile=64x128", "tile=64x128;split=2;in_cluster"});
  check(matmul(4096, 4096, 4096, DType::float32), "cuda.matmul.wgmma", {"tile=128x256", "tile=128x256;cluster=2"});
  check(matmul(2048, 8192, 512, DType::float32), "cuda.matmul.wgmma", {"tile=128x256", "tile=64x256"});
  check(conv(forward, 64, 56, 64, 1, 1), "cuda.conv.wgmma", {"tile=128x64"});
  check(conv(backward_filter, 64, 56, 64, 1, 1), "cuda.conv.wgmma", {});
  for (ConvDirection d : {forward, backward_data})
    for (auto [size, config] : {std::pair(56, "positions=64"), std::pair(512, "positions=128")})
      check(conv(d, 64, size, 64, 3, 1), "cuda.conv.wgmma_halo", {config});
  for (int64_t size : {56, 512}) check(conv(backward_filter, 64, size, 64, 3, 1), "cuda.conv.wgmma_halo", {});
  check(conv(forward, 128, 28, 128, 3, 1), "cuda.conv.wgmma", {"tile=128x128", "tile=192x128"});
  check(conv(backward_data, 128, 56, 128, 3, 2), "cuda.conv.wgmma", {});
  check(conv(forward, 256, 14, 256, 3, 1), "cuda.conv.wgmma", {"tile=192x128"});
  check(conv(forward, 512, 7, 512, 3, 1), "cuda.conv.wgmma", {"tile=64x256", "tile=128x128", "tile=128x128;shared"});
  check(conv(forward, 256, 14, 256, 3, 1, DType::float32), "cuda.conv.wgmma", {});
  check(conv(backward_data, 256, 14, 256, 3, 1, DType::float32), "cuda.conv.wgmma", {"tile=128x192;shared"});
  check(conv(forward, 3, 224, 64, 7, 2), "cuda.conv.first_layer", {});
  check(conv(backward_filter, 3, 224, 64, 7, 2), "cuda.conv.first_layer_filter", {});
  check(conv(backward_filter, 3, 224, 64, 7, 2, DType::float32), "cuda.conv.first_layer_filter", {});
  check(matmul(16384, 64, 64), "cuda.matmul.wgmma", {"tile=64x64", "tile=64x128", "tile=128x64"});
  check(conv(backward_filter, 128, 28, 512, 1, 1), "cuda.conv.wgmma", {});
  // cuda.conv.wgmma copies NCHW tensors to NHWC.
  for (ConvDirection d : {forward, backward_data, backward_filter})
    check(conv(d, 1024, 14, 256, 1, 1, DType::float16, Layout::channels_first), "cuda.conv.wgmma", {});
  std::cout << (failures ? "FAILED" : "ok") << std::endl;
  return failures != 0;
}
