// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/rewrite.h"

#include <bit>
#include <cstddef>
#include <cstring>
#include <map>

#include "cpp/activation/activation.h"
#include "cpp/pointwise/pointwise.h"
#include "cpp/transform/transform.h"

namespace minidnn::graph {
namespace {

template <class P> const P* as(const Node& n) {
  return n.kind == &node_kind<P>() ? static_cast<const P*>(static_cast<const void*>(n.problem.data())) : nullptr;
}
template <class P> const ArgsOf<P>& args_of(const Node& n) {
  return *static_cast<const ArgsOf<P>*>(static_cast<const void*>(n.args.data()));
}

bool same_view(const View& a, const View& b) {
  return a.buffer == b.buffer && a.offset == b.offset && a.desc.dtype == b.desc.dtype && same_shape(a.desc, b.desc) &&
         same_strides(a.desc, b.desc);
}

// Whether every number of dtype `from` is a number of dtype `to`, and a later cast gives the same as a cast of `from`.
// Integers that became floating numbers saturate in a cast to an integer dtype, and others wrap around.
bool casts_without_loss(DType from, DType to, DType last) {
  if (from == to) return true;
  if (from == DType::boolean) return true;
  const bool real = is_floating(to);
  if (is_floating(from)) return real && itemsize(from) < itemsize(to);
  if (to == DType::boolean || to == DType::int8 || to == DType::uint8) return false;
  if (!real) return itemsize(from) < itemsize(to);
  const bool exact = itemsize(from) == 1 || (from == DType::int32 && to == DType::float64);
  return exact && (is_floating(last) || last == DType::boolean);
}

class Rewriter {
 public:
  explicit Rewriter(Graph& g) : graph_(g), dead_(g.nodes.size(), false) { index(); }

  bool run() {
    struct Rule {
      const char* name;
      bool keeps_bits;
      bool (Rewriter::*apply)(int node);
    };
    constexpr Rule kRules[] = {{"cast of a cast", true, &Rewriter::cast_of_cast},
                               {"relu", true, &Rewriter::relu},
                               {"leaky_relu", true, &Rewriter::leaky_relu},
                               {"silu", false, &Rewriter::silu}};
    for (int j = 0; j < int(graph_.nodes.size()); ++j)
      for (const Rule& rule : kRules)
        if (!dead_[size_t(j)] && (rule.keeps_bits || !graph_.rounding_each) && is_free(j) && (this->*rule.apply)(j)) {
          note(j, rule.name);
          index();
        }
    merge_equal_nodes();
    size_t kept = 0;
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (!dead_[i]) {
        if (kept != i) graph_.nodes[kept] = std::move(graph_.nodes[i]);
        ++kept;
      }
    graph_.nodes.resize(kept);
    return changed_;
  }

 private:
  // x.to(a).to(b), where a has all values of the dtype of x: one cast.
  bool cast_of_cast(int j) {
    const auto* last = cast_at(j);
    if (!last) return false;
    const int i = writer_of(port(j, "x").view, j);
    const auto* first = i < 0 ? nullptr : cast_at(i);
    if (!first || !casts_without_loss(first->x.dtype, first->y.dtype, last->y.dtype)) return false;
    const Port x = port(i, "x"), y = port(j, "y");
    if (!unchanged(x.view, i, j) || memory_of(x.view.buffer) == memory_of(y.view.buffer)) return false;
    drop_if_unused(i, j);
    replace(j, TransformProblem{.x = first->x, .y = last->y, .alignment = std::min(first->alignment, last->alignment)},
            TransformArgs{}, {reads(x, "x", offsetof(TransformArgs, x)), writes(y, offsetof(TransformArgs, y))});
    return true;
  }
  // maximum(x, 0). maximum(0, x) differs: of 0 and -0, it gives the first, and relu gives x.
  bool relu(int j) {
    const auto* p = as<PointwiseProblem>(node(j));
    if (!p || p->op != Pointwise::maximum || !is_floating(p->a.dtype) || is_broadcast(p->a)) return false;
    const std::optional<double> zero = number_of(port(j, "b").view);
    if (!zero || std::bit_cast<uint64_t>(*zero) != 0) return false;
    activate(j, Activation::relu, port(j, "a"), 0);
    return true;
  }
  // where(x > 0, x, alpha * x)
  bool leaky_relu(int j) {
    const auto* p = as<PointwiseProblem>(node(j));
    if (!p || p->op != Pointwise::where || !is_floating(p->b.dtype) || is_broadcast(p->b)) return false;
    const Port test = port(j, "a"), x = port(j, "b"), product = port(j, "c");
    const int i = writer_of(test.view, j), k = writer_of(product.view, j);
    if (i < 0 || k < 0 || !read_once(test.view.buffer) || !read_once(product.view.buffer)) return false;
    const std::optional<double> zero = other_number(i, Pointwise::gt, "a", x),
                                flipped = other_number(i, Pointwise::lt, "b", x);
    if (zero.value_or(1) != 0 && flipped.value_or(1) != 0) return false;
    std::optional<double> alpha = other_number(k, Pointwise::mul, "a", x);
    if (!alpha) alpha = other_number(k, Pointwise::mul, "b", x);
    if (!alpha || !unchanged(x.view, std::min(i, k), j)) return false;
    dead_[size_t(i)] = dead_[size_t(k)] = true;
    activate(j, Activation::leaky_relu, x, *alpha);
    return true;
  }
  // sigmoid(x) * x. The sigmoid is not rounded to the dtype any more.
  bool silu(int j) {
    const auto* p = as<PointwiseProblem>(node(j));
    if (!p || p->op != Pointwise::mul || is_broadcast(p->a)) return false;
    for (const auto& [of_sigmoid, of_x] : {std::pair{"a", "b"}, {"b", "a"}}) {
      const Port s = port(j, of_sigmoid), x = port(j, of_x);
      const int i = writer_of(s.view, j);
      const auto* a = i < 0 ? nullptr : as<ActivationProblem>(node(i));
      if (!a || a->mode != Activation::sigmoid || a->direction != ActivationDirection::forward) continue;
      if (!read_once(s.view.buffer) || !same_view(port(i, "x").view, x.view) || !unchanged(x.view, i, j)) continue;
      dead_[size_t(i)] = true;
      activate(j, Activation::silu, x, 0);
      return true;
    }
    return false;
  }

  // Nodes with one problem, equal numbers and equal inputs become one, if no node in between writes an input. Of two
  // results, one may be an output of the graph.
  void merge_equal_nodes() {
    std::map<std::vector<uint64_t>, int> last;  // the last node with these words
    for (int j = 0; j < int(graph_.nodes.size()); ++j) {
      if (dead_[size_t(j)] || !is_free(j) || !writes_new_buffers(j)) continue;
      const auto [found, is_new] = last.try_emplace(words_of(j), j);
      const int i = std::exchange(found->second, j);
      if (is_new || !merge(i, j)) continue;
      found->second = i;
      dead_[size_t(j)] = true;
      note(i, "equal calls");
      index();
    }
  }
  bool merge(int i, int j) {
    const std::vector<Port>& first = node(i).ports;
    const std::vector<Port>& second = node(j).ports;
    for (size_t k = 0; k < first.size(); ++k) {
      if (first[k].reads && !unchanged(first[k].view, i, j)) return false;
      if (first[k].writes && buffer(first[k].view.buffer).is_output && buffer(second[k].view.buffer).is_output)
        return false;
    }
    std::map<int, int> renamed;
    for (size_t k = 0; k < first.size(); ++k)
      if (first[k].writes) {
        int kept = first[k].view.buffer, other = second[k].view.buffer;
        if (buffer(other).is_output) std::swap(kept, other);
        renamed[other] = kept;
      }
    for (Node& n : graph_.nodes)
      for (Port& p : n.ports)
        if (const auto it = renamed.find(p.view.buffer); it != renamed.end()) {
          p.view.buffer = it->second;
          n.args[size_t(p.word)] = address_of(p.view);
        }
    return true;
  }
  // What makes the results of a node different from those of another one: its problem, its numbers, and its inputs.
  // Numbers of the recording have no address here.
  std::vector<uint64_t> words_of(int j) const {
    const Node& n = node(j);
    std::vector<uint64_t> words{reinterpret_cast<uintptr_t>(n.kind)};
    words.insert(words.end(), n.problem.begin(), n.problem.end());
    const size_t args = words.size();
    words.insert(words.end(), n.args.begin(), n.args.end());
    for (const Port& p : n.ports) {
      const std::optional<double> number = p.reads ? number_of(p.view) : std::nullopt;
      words[args + size_t(p.word)] = number ? std::bit_cast<uint64_t>(*number) : p.writes ? 0 : address_of(p.view);
      words.push_back(number.has_value());
    }
    return words;
  }
  // Whether all results of a node are buffers that no other node writes.
  bool writes_new_buffers(int j) const {
    return std::ranges::all_of(node(j).ports, [&](const Port& p) {
      return !p.writes || (!p.reads && buffer(p.view.buffer).kind == Buffer::Kind::temporary &&
                           writers_[size_t(p.view.buffer)].size() == 1);
    });
  }

  const Node& node(int i) const { return graph_.nodes[size_t(i)]; }
  const Buffer& buffer(int i) const { return graph_.buffers[size_t(i)]; }
  // The port of a node that has one of that name. Copies it, because a rewrite replaces nodes.
  Port port(int i, std::string_view name) const {
    return *std::ranges::find(node(i).ports, name, [](const Port& p) -> std::string_view { return p.name; });
  }
  uint64_t address_of(const View& v) const { return buffer(v.buffer).base + uint64_t(v.offset); }
  // Whether the engine of a node and the numbers of a run are those of the graph.
  bool is_free(int i) const {
    const Node& n = node(i);
    return n.algo.empty() && !n.handle && n.dynamic.empty() && !n.kind->has_check;
  }

  // Finds the nodes that write each buffer, and counts the ports that read it.
  void index() {
    writers_.assign(graph_.buffers.size(), {});
    reads_.assign(graph_.buffers.size(), 0);
    constants_.clear();
    for (int j = 0; j < int(graph_.nodes.size()); ++j) {
      if (dead_[size_t(j)]) continue;
      for (const Port& p : node(j).ports) {
        const auto b = size_t(p.view.buffer);
        reads_[b] += p.reads;
        if (!p.writes) continue;
        writers_[b].push_back(j);
        if (buffer(int(b)).kind == Buffer::Kind::constant) constants_.push_back(j);
      }
    }
  }
  // A number that is equal for buffers that may share memory: constants may be views of one array.
  int memory_of(int b) const { return buffer(b).kind == Buffer::Kind::constant ? -1 : b; }
  // Whether no node between `from` and `to` writes the memory of a view.
  bool unchanged(const View& v, int from, int to) const {
    const int memory = memory_of(v.buffer);
    const std::vector<int>& writers = memory < 0 ? constants_ : writers_[size_t(memory)];
    return std::ranges::none_of(writers, [&](int w) { return from < w && w < to; });
  }
  bool read_once(int b) const { return !buffer(b).is_output && reads_[size_t(b)] == 1; }
  // The free node that writes the elements of a view, all of them and no others, before node `reader`. -1 if there is
  // none, or if other nodes write to the buffer.
  int writer_of(const View& v, int reader) const {
    if (buffer(v.buffer).kind != Buffer::Kind::temporary || writers_[size_t(v.buffer)].size() != 1) return -1;
    const int i = writers_[size_t(v.buffer)].front();
    if (i >= reader || !is_free(i)) return -1;
    for (const Port& p : node(i).ports)
      if (p.writes && !p.reads && same_view(p.view, v)) return i;
    return -1;
  }
  // The value of a constant that is a number, and that no node writes.
  std::optional<double> number_of(const View& v) const {
    return writers_[size_t(v.buffer)].empty() ? buffer(v.buffer).number : std::nullopt;
  }
  // If node i is a function of two operands, and the one named `name` is `x`: the other one, if it is a number.
  std::optional<double> other_number(int i, Pointwise op, const char* name, const Port& x) const {
    const auto* p = as<PointwiseProblem>(node(i));
    if (!p || p->op != op || !same_view(port(i, name).view, x.view)) return {};
    return number_of(port(i, std::string_view(name) == "a" ? "b" : "a").view);
  }
  // The problem of a node that is a copy or a cast.
  const TransformProblem* cast_at(int i) const {
    const auto* p = as<TransformProblem>(node(i));
    return p && !p->scaled && !p->reads_y ? p : nullptr;
  }

  static Port reads(const Port& from, const char* name, size_t offset) {
    return {name, from.view, int64_t(offset / 8), true, false};
  }
  static Port writes(const Port& from, size_t offset) { return {"y", from.view, int64_t(offset / 8), false, true}; }
  void activate(int j, Activation mode, const Port& x, double alpha) {
    const Port y = port(j, "y");
    replace(j, ActivationProblem{ActivationDirection::forward, mode, x.view.desc, {}, y.view.desc},
            ActivationArgs{.alpha = alpha},
            {reads(x, "x", offsetof(ActivationArgs, x)), writes(y, offsetof(ActivationArgs, out))});
  }
  // Makes node j another call. Its line of the user's source stays.
  template <class P> void replace(int j, const P& problem, const ArgsOf<P>& args, std::vector<Port> ports) {
    Node& n = graph_.nodes[size_t(j)];
    n.kind = &node_kind<P>();
    n.problem.resize(sizeof(P) / 8);
    std::memcpy(n.problem.data(), &problem, sizeof(P));
    n.args.resize(sizeof args / 8);
    std::memcpy(n.args.data(), &args, sizeof args);
    n.ports = std::move(ports);
    for (const Port& p : n.ports) n.args[size_t(p.word)] = address_of(p.view);
  }
  // Removes node i if only node j reads its result.
  void drop_if_unused(int i, int j) {
    for (const Port& p : node(j).ports)
      if (p.reads && writer_of(p.view, j) == i) dead_[size_t(i)] = read_once(p.view.buffer);
  }
  void note(int j, const char* name) {
    std::string& text = graph_.nodes[size_t(j)].rewrites;
    changed_ = true;
    if (text.find(name) == std::string::npos) text += cat(text.empty() ? "" : ", ", name);
  }

  Graph& graph_;
  std::vector<bool> dead_;                 // for each node, whether it was removed
  std::vector<std::vector<int>> writers_;  // for each buffer, the nodes that write it, ascending
  std::vector<int> constants_;             // the nodes that write a constant
  bool changed_ = false;
  std::vector<int> reads_;  // for each buffer, the number of ports that read it
};

}  // namespace

bool rewrite(Graph& g) { return Rewriter(g).run(); }

}  // namespace minidnn::graph
