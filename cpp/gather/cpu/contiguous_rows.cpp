// SPDX-License-Identifier: Apache-2.0
// cpu.gather.contiguous_rows: gathers from row-major tensors. The forward function copies one contiguous slice of x per
// index. Each row of dx is the sum of the slices of dy whose index selects this row.
#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/work_size.h"
#include "cpp/engine/engine_object.h"
#include "cpp/gather/gather.h"

namespace minidnn {
namespace cpu::gather {
namespace {

// The smallest number of bytes that a thread gets.
constexpr int64_t kGrainBytes = 65536;
// The number of elements of a row that are summed at a time.
constexpr int64_t kColumns = 512;

template <class T> void sum_rows(const GatherRows& g, const GatherArgs& a, const GatherOrder& o) {
  const int64_t columns = cpu::work_size(kColumns);
  const int64_t grain = max_of<int64_t>(cpu::work_size(kGrainBytes) / (g.span * int64_t(sizeof(T))), 1);
  cpu::parallel_for(g.outer * g.rows, grain, [&](int64_t begin, int64_t end) {
    Accumulator<T> sums[kColumns];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t outer = i / g.rows, row = i - outer * g.rows;
      const T* dy = static_cast<const T*>(a.from) + outer * g.indices * g.span;
      for (int64_t c = 0; c < g.span; c += columns) {
        const int64_t n = min_of(columns, g.span - c);
        std::fill(sums, sums + n, Accumulator<T>(0));
        for (int32_t j = o.starts[row]; j < o.starts[row + 1]; ++j) {
          const T* line = dy + o.order[j] * g.span + c;
          for (int64_t k = 0; k < n; ++k) sums[k] += Accumulator<T>(line[k]);
        }
        T* dx = static_cast<T*>(a.to) + i * g.span + c;
        for (int64_t k = 0; k < n; ++k) dx[k] = T(sums[k]);
      }
    }
  });
}

}  // namespace

struct ContiguousRows final : Engine<GatherProblem> {
  std::string name() const override { return "cpu.gather.contiguous_rows"; }
  std::string why_not(const GatherProblem& p, const Device&) const override {
    GatherRows g;
    return gather_rows(p, g);
  }
  double estimate_us(const GatherProblem& p, const Device& d) const override {
    return roofline_us(0, gather_bytes(p), d, 1);
  }
  size_t workspace_bytes(const GatherProblem& p, const Device&, const Config&) const override {
    return gather_cpu_bytes(p);
  }
  std::unique_ptr<Plan<GatherProblem>> build(const GatherProblem& p, const Device&, const Config&) const override {
    GatherRows g;
    gather_rows(p, g);
    return make_plan<GatherProblem>([p, g](const GatherArgs& a, void* workspace, Stream) {
      if (p.direction == GatherDirection::backward) {
        const GatherOrder o = sort_indices(p, a, workspace);
        return with_floating(p.x.dtype, [&](auto type) { sum_rows<typename decltype(type)::type>(g, a, o); });
      }
      const int64_t bytes = g.span * int64_t(itemsize(p.x.dtype));
      cpu::parallel_for(g.outer * g.indices, max_of<int64_t>(cpu::work_size(kGrainBytes) / bytes, 1),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) {
                            const int64_t outer = i / g.indices, row = gather_row(p, a.index, i - outer * g.indices);
                            char* to = static_cast<char*>(a.to) + i * bytes;
                            if (row < 0)
                              // Only find(), which does not check indices, passes an index out of range.
                              std::memset(to, 0, size_t(bytes));
                            else
                              std::memcpy(to, static_cast<const char*>(a.from) + (outer * g.rows + row) * bytes,
                                          size_t(bytes));
                          }
                        });
    });
  }
};

}  // namespace cpu::gather

template const Engine<GatherProblem>& engine_object<GatherProblem, cpu::gather::ContiguousRows>();

}  // namespace minidnn
