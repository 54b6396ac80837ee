// SPDX-License-Identifier: Apache-2.0
// Tests of recordings that Python cannot make: families that forget a port, and arenas of random graphs.
#include "cpp/graph/recorder.h"

#include <random>

#include "cpp/activation/activation.h"
#include "cpp/transform/transform.h"
#include "tests/cpp/check.h"

using namespace minidnn;
using graph::Buffer;
using graph::Graph;
using graph::Recorder;

static TensorDesc floats(int64_t n) { return dense(DType::float32, {{n}}, Layout::channels_first, "test"); }

// A family for this test. Its calls have a word of flags, and an address that `ports` may forget.
struct FakeArgs {
  const void* x = nullptr;
  void* y = nullptr;
  double alpha = 2;
  int64_t flags = 7;
};
static NodeKind fake_kind(void (*ports)(const void*, void*, Ports&)) {
  return {"fake",
          8,
          sizeof(FakeArgs),
          [](const void*) { return std::string("fake call"); },
          ports,
          [](const void*, const void*) {},
          nullptr,
          nullptr};
}
static void all_ports(const void*, void* args, Ports& v) {
  auto& a = *static_cast<FakeArgs*>(args);
  v.in("x", floats(4), a.x);
  v.out("y", floats(4), a.y);
}
static void one_port(const void*, void* args, Ports& v) { v.out("y", floats(4), static_cast<FakeArgs*>(args)->y); }

static void test_ports() {
  Handle& h = handle_for(nullptr, {}, "test", "x");
  Recorder recorder(nullptr, {}, [] { return std::string("line 1 of test"); });
  recorder.enter();
  const Tensor x = recorder.input("x", floats(4)), y = empty(floats(4), {}, nullptr, "fake", "y");
  const int64_t problem = 0;
  FakeArgs args{x.data, y.data};
  const NodeKind complete = fake_kind(&all_ports), forgetful = fake_kind(&one_port);
  CHECK(has(error_of([&] { recorder.add(h, forgetful, &problem, &args, ""); }),
            "fake: word 0 of Args is recorded, and ports() does not name it"));
  recorder.add(h, complete, &problem, &args, "");  // the words alpha and flags are no stand-ins

  float outside[4] = {};
  args.x = outside;
  CHECK(has(error_of([&] { recorder.add(h, complete, &problem, &args, ""); }), "was not noted by the recorder"));
  args.x = nullptr;  // an optional tensor that the caller did not pass
  recorder.add(h, complete, &problem, &args, "");
  recorder.output("y", y);
  recorder.leave();
  const std::shared_ptr<const Graph> g = recorder.finish();
  CHECK(g->nodes.size() == 2, g->nodes.size());
  CHECK(g->nodes[0].ports.size() == 2 && g->nodes[1].ports.size() == 1);
  CHECK(g->nodes[0].where == "line 1 of test", g->nodes[0].where);
  CHECK(has(error_of([&] { recorder.enter(); }), "the recording has ended"));
}

static void test_stand_ins() {
  Recorder recorder(nullptr, {}, {});
  recorder.enter();
  // A terabyte that is recorded needs no memory.
  const Tensor large = recorder.input("large", floats(int64_t(1) << 38));
  const Tensor y = activation_forward(large, Activation::relu, {}, {});
  const Tensor part = view_as(y, {{int64_t(1) << 19, int64_t(1) << 19}}, "test");
  const Tensor z = activation_forward(part, Activation::relu, {}, {});
  CHECK(is_stand_in(y) && is_stand_in(part) && !share_memory(large, y) && share_memory(y, part));
  CHECK(error_of([&] { to(y, Place{}, {}, {}, false); }) == "no error");
  recorder.output("z", z);
  recorder.leave();
  CHECK(has(error_of([&] { activation_forward(y, Activation::relu, {}, {}); }), "is not active on this thread"));
  CHECK(recorder.finish()->nodes.size() == 2);
}

// Temporaries that are in use at the same time must not overlap.
static void test_arena() {
  std::mt19937_64 bits(20261126);
  auto pick = [&](int64_t low, int64_t high) { return low + int64_t(bits() % uint64_t(high - low + 1)); };
  for (int round = 0; round < 300; ++round) {
    Graph g;
    const int nodes = int(pick(1, 40));
    size_t sum = 0, largest = 0;
    for (int i = int(pick(1, 30)); i > 0; --i) {
      Buffer b;
      b.bytes = size_t(pick(0, 5) ? pick(1, 5000) : pick(100000, 200000));
      b.first_write = int(pick(0, nodes - 1));
      b.last_use = int(pick(b.first_write, nodes - 1));
      b.is_output = pick(0, 5) == 0;
      if (!b.is_output) {
        sum += (b.bytes + 511) / 512 * 512;
        largest = std::max(largest, b.bytes);
      }
      g.buffers.push_back(b);
    }
    g.finish(true);
    CHECK(largest <= g.arena_bytes() && g.arena_bytes() <= sum, largest, ' ', g.arena_bytes(), ' ', sum);
    for (size_t i = 0; i < g.buffers.size(); ++i)
      for (size_t k = 0; k < i; ++k) {
        const Buffer &a = g.buffers[i], &b = g.buffers[k];
        if (a.is_output || b.is_output || a.last_use < b.first_write || b.last_use < a.first_write) continue;
        const size_t at = g.arena_offset(int(i)), other = g.arena_offset(int(k));
        CHECK(at + a.bytes <= other || other + b.bytes <= at, "round ", round, ": ", at, ' ', other);
        CHECK(at % 512 == 0 && at + a.bytes <= g.arena_bytes(), at);
      }
  }
}

int main() {
  test_ports();
  test_stand_ins();
  test_arena();
  std::cout << (failures ? minidnn::cat(failures.load(), " failures") : "all right") << std::endl;
  return failures != 0;
}
