// SPDX-License-Identifier: Apache-2.0
// Implements graph_file.h.
#include "cpp/graph/graph_file.h"

namespace minidnn::graph {
namespace {

// Finds the numbers among the ports of a call.
class NumberFinder final : public Ports {
 public:
  explicit NumberFinder(const uint64_t* args) : args_(args) {}
  void number(const char*, double& slot, double) override { found.push_back({index_of(&slot), false}); }
  void bits(uint64_t& slot, uint64_t) override { found.push_back({index_of(&slot), false}); }
  void seed(const char*, uint64_t& slot) override { found.push_back({index_of(&slot), true}); }
  std::vector<NumberWord> found;

 private:
  void tensor(Access, const char*, const TensorDesc&, void*&) override {}
  size_t index_of(const void* slot) const { return size_t(static_cast<const uint64_t*>(slot) - args_); }
  const uint64_t* const args_;
};

}  // namespace

std::vector<NumberWord> number_words(const Node& node) {
  std::vector<uint64_t> args = node.args;
  NumberFinder finder(args.data());
  node.kind->ports(node.problem.data(), args.data(), finder);
  return finder.found;
}

std::vector<uint64_t> plain_args(const Node& node) {
  std::vector<uint64_t> args = node.args;
  for (const Port& p : node.ports) args[size_t(p.word)] = 0;
  for (const DynamicWord& d : node.dynamic) args[size_t(d.word)] = 0;
  return args;
}

Tensor storage_of(const Tensor& t) {
  const int64_t bytes[] = {int64_t(t.storage->bytes)};
  return {dense(DType::uint8, bytes, Layout::channels_first, "storage"), t.storage->data, t.storage};
}

Tensor elements_at(const Tensor& memory, int64_t offset, const TensorDesc& desc) {
  MINIDNN_CHECK(DTypeError, memory.desc.dtype == DType::uint8 && is_row_major(memory.desc),
                "memory must be bytes; got ", memory.text());
  const Extent e = extent(desc);
  const auto size = int64_t(itemsize(desc.dtype)), bytes = memory.nbytes();
  const bool aligned = (reinterpret_cast<uintptr_t>(memory.data) + uintptr_t(offset)) % uintptr_t(size) == 0;
  // Divisions instead of products, which may overflow.
  const bool inside = 0 <= offset && offset <= bytes && -e.begin <= offset / size && e.end <= (bytes - offset) / size;
  MINIDNN_CHECK(ShapeError, inside && aligned, "a tensor ", shape_text(desc), " ", name(desc.dtype), " with strides [",
                join(strides_of(desc)), "] at byte ", offset, " does not lie in a buffer of ", bytes, " bytes");
  return {desc, static_cast<char*>(memory.data) + offset, memory.storage};
}

}  // namespace minidnn::graph
