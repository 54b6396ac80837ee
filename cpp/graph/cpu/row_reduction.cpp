// SPDX-License-Identifier: Apache-2.0
// cpu.graph.row_reduction: a region whose results depend on single rows, one row at a time, or several short ones. A
// row is read once and written once, and stays in a cache in between. row_tape.h has the calls that compute it:
// functions of elements in spans of 512, by the loops of the separate calls, and statistics of a whole row, by the
// loops of the norms, of softmax and of reduce.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/core/text.h"
#include "cpp/engine/engine_object.h"
#include "cpp/graph/cpu/row_tape.h"

namespace minidnn {
namespace cpu::graph {
namespace {

// The most bytes that values of a row may take on a thread.
constexpr int64_t kMostBytes = 256 << 20;

// The time of a region on one thread, in nanoseconds, without loads, stores and softmax (measured on 2 Xeon cores with
// AVX-512, 2026-11).
double thread_ns(const Region& r, const RowRegion& e) {
  double element = 0, row = 0;
  for (size_t i = 0; i < r.nodes.size(); ++i) {
    const RegionNode& n = r.nodes[i];
    if (n.as<LayerNormProblem>()) element += 0.2;
    else if (n.as<ReduceProblem>()) element += 0.05;
    else if (!n.as<SoftmaxProblem>()) (e.steps[i].wide ? element : row) += function_ns(n);
  }
  return double(e.indexing.n) * element + double(e.rows) * row;
}
double flop_of_softmax(const Region& r) {
  double flop = 0;
  for (const RegionNode& n : r.nodes)
    if (const auto* p = n.as<SoftmaxProblem>()) flop += softmax_flop(*p);
  return flop;
}

int64_t threads_for(const RowRegion& e, const RowTape& t, const Region& r, const Device& d) {
  // A thread gets at least 2 us of arithmetic.
  const auto worth = int64_t((thread_ns(r, e) + flop_of_softmax(r) / 50) / double(cpu::work_size(2000)));
  return std::clamp<int64_t>(min_of(worth, ceil_div(e.rows, t.block_rows)), 1, d.sm_count);
}
int64_t whole_lines(int64_t bytes) { return ceil_div(bytes, int64_t(64)) * 64; }
// The distance between buffers is 4 KB and a cache line. With a multiple of 4 KB, a processor would take loads for
// reads of recent stores to another buffer, and delay them.
constexpr int64_t kBufferStep = kBufferBytes + 64;

int64_t bytes_of_slots(const RowTape& t) {
  int64_t total = 0;
  for (const RowSlot& s : t.slots)
    if (s.kind == RowSlot::Kind::block) total += whole_lines(s.bytes * t.block());
    else if (s.kind == RowSlot::Kind::row) total += whole_lines(s.bytes * t.block_rows);
  return total;
}
// The bytes that a thread needs.
int64_t bytes_of(const RowTape& t) { return whole_lines(t.buffers * kBufferStep) + bytes_of_slots(t); }

// Computes the blocks [begin, end) in bytes_of(t) bytes of memory, aligned to 64.
void run_row_tape(const RowTape& t, const Region& r, const RegionArgs& args, int64_t rows, char* memory, int64_t begin,
                  int64_t end) {
  std::vector<void*> slot(size_t(kMostBuffers) + t.slots.size());
  // The memory of a slot at the first element of a tensor, or of a block.
  std::vector<char*> base(t.slots.size());
  for (int i = 0; i < t.buffers; ++i) slot[size_t(i)] = memory + i * kBufferStep;
  memory += whole_lines(t.buffers * kBufferStep);
  for (size_t i = 0; i < t.slots.size(); ++i) {
    const RowSlot& s = t.slots[i];
    const bool buffers_block = s.kind == RowSlot::Kind::block, buffers_rows = s.kind == RowSlot::Kind::row;
    base[i] = buffers_block || buffers_rows ? memory : static_cast<char*>(r.address(s.value, args));
    if (buffers_block || buffers_rows) memory += whole_lines(s.bytes * (buffers_block ? t.block() : t.block_rows));
  }
  // Moves all slots to the element `at` of the block that begins at element `first`.
  auto move = [&](int64_t first, int64_t at) {
    for (size_t i = 0; i < t.slots.size(); ++i) {
      const RowSlot& s = t.slots[i];
      const int64_t element = s.kind == RowSlot::Kind::tensor ? first + at : s.kind == RowSlot::Kind::row ? 0 : at;
      slot[size_t(kMostBuffers) + i] = base[i] + element * s.bytes;
    }
  };
  auto run = [&](const std::vector<Call>& calls, int64_t first, int64_t n) {
    for (const Call& call : calls) call({args, slot.data(), first, n});
  };
  run(t.constants, 0, kPointwiseSpan);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t row = block * t.block_rows, count = min_of(t.block_rows, rows - row), first = row * t.cols;
    const int64_t n = count * t.cols;
    move(first, 0);
    run(t.rows[0], row, count);
    for (size_t k = 0; k <= t.statistics.size(); ++k) {
      for (int64_t at = 0; at < n && !t.phases[k].empty(); at += kPointwiseSpan) {
        if (n > kPointwiseSpan) move(first, at);
        run(t.phases[k], first + at, min_of(kPointwiseSpan, n - at));
      }
      if (k == t.statistics.size()) break;
      if (n > kPointwiseSpan) move(first, 0);
      t.statistics[k]({args, slot.data(), first, n});
      run(t.rows[k + 1], row, count);
    }
  }
  if (t.non_temporal) order_stores();
}

}  // namespace

struct RowReduction final : Engine<RegionProblem> {
  std::string name() const override { return "cpu.graph.row_reduction"; }
  std::string why_not(const RegionProblem& p, const Device&) const override {
    const Region& r = region_of(p);
    RowRegion e;
    if (std::string why = row_region(r, e); !why.empty()) return why;
    if (p.rounding_each) return "rounding='each' is not supported: values of a row are kept in float32";
    RowTape tape;
    if (std::string why = row_tape(r, e, tape); !why.empty()) return why;
    if (bytes_of_slots(tape) > kMostBytes)
      return cat("keeps ", bytes_of_slots(tape) >> 20, " MB of values of a row; supported are at most ",
                 kMostBytes >> 20, " MB");
    return "";
  }
  double estimate_us(const RegionProblem& p, const Device& d) const override {
    const Region& r = region_of(p);
    RowRegion e;
    row_region(r, e);
    // The loops of softmax are as fast as cpu.softmax.vectorized estimates: they reach twice the rate of the device.
    constexpr double kBandwidth = 1.5, kSoftmax = 2;
    constexpr double kStart = 0.1;  // the time to start a loop, in microseconds
    const double threads = double(min_of<int64_t>(e.rows, d.sm_count));
    const double flop = flop_of_softmax(r) * kBandwidth / kSoftmax * d.sm_count / threads;
    return roofline_us(flop, r.bytes_together(), d, kBandwidth) + thread_ns(r, e) / threads * 1e-3 +
           kStart * double(r.nodes.size());
  }
  size_t workspace_bytes(const RegionProblem& p, const Device& d, const Config&) const override {
    const Region& r = region_of(p);
    RowRegion e;
    row_region(r, e);
    RowTape tape;
    row_tape(r, e, tape);
    return size_t(threads_for(e, tape, r, d) * bytes_of(tape));
  }
  std::unique_ptr<Plan<RegionProblem>> build(const RegionProblem& p, const Device& d, const Config&) const override {
    struct RowPlan final : Plan<RegionProblem> {
      const Region& region;
      RowRegion rows;
      RowTape tape;
      int64_t threads = 1;
      explicit RowPlan(const Region& r) : region(r) {}

      void run(const RegionArgs& args, void* workspace, Stream) const override {
        const int64_t blocks = ceil_div(rows.rows, tape.block_rows), batch = max_of<int64_t>(blocks / (threads * 8), 1);
        cpu::parallel_batches(blocks, batch, threads, [&](int64_t begin, int64_t end, int64_t thread) {
          run_row_tape(tape, region, args, rows.rows, static_cast<char*>(workspace) + thread * bytes_of(tape), begin,
                       end);
        });
      }
    };
    auto plan = std::make_unique<RowPlan>(region_of(p));
    row_region(plan->region, plan->rows);
    row_tape(plan->region, plan->rows, plan->tape);
    plan->threads = threads_for(plan->rows, plan->tape, plan->region, d);
    return plan;
  }
};

}  // namespace cpu::graph

template const Engine<RegionProblem>& engine_object<RegionProblem, cpu::graph::RowReduction>();

}  // namespace minidnn
