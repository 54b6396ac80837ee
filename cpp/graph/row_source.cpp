// SPDX-License-Identifier: Apache-2.0
#include "cpp/graph/row_source.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>

#include "cpp/core/text.h"

namespace minidnn {
namespace {

// The approximate number of instructions that compute an element of a step from its operands.
int instructions(const RegionNode& n) {
  constexpr int kMaths = 20;
  if (const auto* p = n.as<PointwiseProblem>()) {
    const PointwiseGroup group = info(p->op).group;
    return group == PointwiseGroup::maths1 || group == PointwiseGroup::maths2 ? kMaths : 1;
  }
  if (const auto* p = n.as<ActivationProblem>()) {
    using enum Activation;
    return p->mode == identity || p->mode == relu || p->mode == clipped_relu || p->mode == leaky_relu ? 1 : kMaths;
  }
  if (n.as<RandomProblem>()) return kMaths;
  if (n.as<LayerNormProblem>()) return 4;
  if (const auto* p = n.as<SoftmaxProblem>()) return p->log ? 3 : 6;
  return 2;
}

// Which values of elements are kept in registers between statistics.
class Kept {
 public:
  // Values that fewer instructions compute are computed again.
  static constexpr int kCheap = 8;

  Kept(const Region& r, const RowRegion& e) : r_(r), e_(e), slot(e.steps.size(), -1), stage(e.steps.size(), -1) {
    constexpr int kLoad = 3;  // for a tensor that is loaded at each use
    for (size_t i = 0; i < e.steps.size(); ++i) {
      int cost = instructions(r.nodes[i]);
      for (const RowSource& s : e.steps[i].sources)
        if (s.kind == RowSource::Kind::load && row_load_of(e, e.loads[size_t(s.index)]) != RowLoad::dense)
          cost += kLoad;
      for (int from : operands(int(i)))
        if (!is_long(from)) cost += cost_[size_t(from)];
      cost_.push_back(cost);
    }
    for (size_t k = 0; k < e.statistics.size(); ++k) {
      const int node = e.statistics[k];
      // The values of a mean, or of exponentials, are used twice.
      const int passes = r.nodes[size_t(node)].as<ReduceProblem>() ? 1 : 2;
      for (int pass = 0; pass < passes; ++pass, ++pass_)
        for (int from : operands(node)) visit(from, int(k));
    }
    for (size_t i = 0; i < e.steps.size(); ++i)
      if (e.steps[i].store >= 0) visit(int(i), int(e.statistics.size()));
  }
  // The steps whose elements a step reads.
  std::vector<int> operands(int step) const {
    std::vector<int> all;
    for (const RowSource& s : e_.steps[size_t(step)].sources)
      if (s.kind == RowSource::Kind::step) all.push_back(s.index);
    return all;
  }

 private:
  bool is_long(int step) const { return cost_[size_t(step)] > kCheap; }
  void visit(int step, int at) {
    if (is_long(step)) {
      int& first = first_pass_[size_t(step)];
      if (first >= 0) {
        if (first != pass_ && slot[size_t(step)] < 0) slot[size_t(step)] = count++;
        return;
      }
      first = pass_;
      stage[size_t(step)] = at;
    }
    for (int from : operands(step)) visit(from, at);
  }

  const Region& r_;
  const RowRegion& e_;
  std::vector<int> cost_;
  std::vector<int> first_pass_ = std::vector<int>(e_.steps.size(), -1);  // in which a long step is computed first
  int pass_ = 0;                                                         // over the elements of a row

 public:
  std::vector<int> slot;   // for each step, its number among the values that are kept, or -1
  std::vector<int> stage;  // for each long step, the statistic before which it is computed first
  int count = 0;
};

class Writer {
 public:
  Writer(const Region& r, const RowRegion& e) : r_(r), e_(e), kept_(r, e), steps_(r, false, "fast_ftz") {
    for (const ElementOperand& o : e.loads) {
      constexpr const char* kNames[] = {"load", "column", "broadcast"};
      const auto kind = size_t(row_load_of(e, o));
      loads_.push_back(cat("x.template ", kNames[kind], "<", operands_[kind].size(), ">()"));
      operands_[kind].push_back(o);
    }
  }

  GeneratedSource write() {
    std::string functions = row_function("before", "", "", 0, "");
    for (size_t k = 0; k < e_.statistics.size(); ++k) functions += stage_functions(int(k));
    std::string stores;
    begin_function(int(e_.statistics.size()));
    for (size_t i = 0; i < e_.steps.size(); ++i)
      if (e_.steps[i].store >= 0) {
        need(int(i));
        lines_ += cat("    x.template store<", e_.steps[i].store, ">(v", i, ");\n");
      }
    functions += cat(lane_function("void of(", ""), lines_, "  }\n");
    const RowVectors v = row_vectors(r_, e_);
    GeneratedSource to = steps_.source();
    to.text =
        cat("namespace minidnn {\nstruct Region {\n  using Loads = Types<", cuda_types(operands_[0]),
            ">;\n  using Columns = Types<", cuda_types(operands_[1]), ">;\n  using Broadcast = Types<",
            cuda_types(operands_[2]), ">;\n  using Stores = Types<", cuda_types(e_.stores),
            ">;\n  using RowLoads = Types<", cuda_types(e_.row_loads), ">;\n  using Statistics = Types<", statistics_,
            ">;\n  static constexpr int kVectors = ", v.vectors, ", kWidth = ", v.width, ", kKept = ", v.kept,
            ", kRowNumbers = ", e_.row_numbers, ",\n    kRandoms = ", steps_.randoms(), ", kRegisters = ", v.registers,
            ";\n", steps_.random_function("RowArgs"), functions, "};\n}  // namespace minidnn\n");
    return to;
  }

 private:
  static std::string lane_function(const char* name, const std::string& stage) {
    return cat("  template <class Lane> __device__ __forceinline__ static ", name, stage,
               "const Lane& x, const RowArgs& a) {\n");
  }

  // The functions before and after statistic k.
  std::string stage_functions(int k) {
    const int node = e_.statistics[size_t(k)];
    const std::string stage = cat("Stage<", k, ">, ");
    std::string text;
    begin_function(k);
    computes_kept_ = true;
    for (size_t i = 0; i < e_.steps.size(); ++i)
      if (kept_.slot[i] >= 0 && kept_.stage[i] == k) {
        need(int(i));
        lines_ += cat("    x.template keep<", kept_.slot[i], ">(v", i, ");\n");
      }
    if (!lines_.empty()) text += cat(lane_function("void keep(", stage), lines_, "  }\n");
    begin_function(k);
    const std::string value = argument(node);
    text += cat(lane_function("float value(", stage), lines_, "    return ", value, ";\n  }\n");
    statistics_ += cat(k ? ", " : "", statistic_type(r_.nodes[size_t(node)]));
    return text + row_function("after", stage, "const auto& s, ", k + 1, numbers_of_statistic(node));
  }

  void begin_function(int stage) {
    stage_ = stage;
    computes_kept_ = false;
    done_.clear();
    lines_.clear();
  }

  // Writes the lines that compute the elements of a step, unless the function has them.
  void need(int step) {
    if (!done_.insert(step).second) return;
    const auto i = size_t(step);
    const bool is_kept = kept_.slot[i] >= 0 && (computes_kept_ ? kept_.stage[i] < stage_ : kept_.stage[i] <= stage_);
    std::string text = cat("x.template kept<", kept_.slot[i], ">()");
    if (!is_kept) {
      const std::vector<std::string> operands = operands_of(step);
      if (texts_[step].empty())
        texts_[step] =
            e_.steps[i].statistic < 0 ? steps_.function(r_.nodes[i], operands) : elements_of_statistic(step, operands);
      text = texts_[step];
    }
    lines_ += cat("    const ", e_.steps[i].statistic < 0 ? register_type(e_.steps[i].dtype) : "float", " v", step,
                  " = ", text, ";\n");
  }
  std::vector<std::string> operands_of(int step) {
    std::vector<std::string> operands;
    for (const RowSource& s : e_.steps[size_t(step)].sources) {
      if (s.kind == RowSource::Kind::step) need(s.index);
      operands.push_back(source(s));
    }
    return operands;
  }
  std::string source(const RowSource& s) {
    switch (s.kind) {
      case RowSource::Kind::step:
        return cat("v", s.index);
      case RowSource::Kind::load:
        return loads_[size_t(s.index)];
      case RowSource::Kind::row_number:
        return row(s.index);
      case RowSource::Kind::row_load:
        return cat("x.template row_load<", s.index, ">()");
      default: {
        std::string& text = numbers_[s.index];
        if (text.empty()) text = steps_.number_of_value(s.index, s.dtype);
        return text;
      }
    }
  }
  static std::string row(int number) { return cat("x.template row<", number, ">()"); }

  // ---- statistics

  static std::string mode_name(const ReduceProblem& p) {
    constexpr const char* kNames[] = {"sum", "mean", "max", "min", "prod", "norm1", "norm2", "sumsq", "amax"};
    return cat("ReduceMode::", kNames[size_t(p.mode)]);
  }
  static std::string statistic_type(const RegionNode& n) {
    if (const auto* p = n.as<LayerNormProblem>()) return p->kind == RowNorm::rms ? "RowSum" : "RowMoments";
    if (const auto* p = n.as<SoftmaxProblem>())
      return p->direction == SoftmaxDirection::forward ? cat("RowExponentials<", cuda_name(p->out.dtype), ">")
                                                       : "RowSum";
    switch (kind_of(n.as<ReduceProblem>()->mode)) {
      case ReduceKind::prod:
        return "RowProduct";
      case ReduceKind::max:
        return "RowLargest";
      default:
        return "RowSum";
    }
  }

  // Writes the lines that compute what an element contributes to a statistic. Returns an expression for it.
  std::string argument(int step) {
    const RegionNode& n = r_.nodes[size_t(step)];
    const std::vector<std::string> operands = operands_of(step);
    if (const auto* p = n.as<LayerNormProblem>())
      return p->kind == RowNorm::rms ? cat("float(", operands[0], ") * float(", operands[0], ")") : operands[0];
    if (const auto* p = n.as<SoftmaxProblem>()) {
      if (p->direction == SoftmaxDirection::forward) return softmax_argument(step, operands);
      return p->log ? operands[1] : cat(operands[1], " * ", operands[0]);
    }
    return cat("reduction::mapped(", mode_name(*n.as<ReduceProblem>()), ", float(", operands[0], "))");
  }
  // The elements of softmax before the exponentials: scaled, and masked.
  std::string softmax_argument(int step, const std::vector<std::string>& operands) {
    const RegionNode& n = r_.nodes[size_t(step)];
    const auto& p = *n.as<SoftmaxProblem>();
    std::string text = operands[0];
    if (p.scaled) text = cat("__fmul_rn(", text, ", ", scale_of_softmax(step), ")");
    if (p.masked == SoftmaxMask::add) text += cat(" + ", operands[1]);
    if (p.masked == SoftmaxMask::keep) text = cat(operands[1], " ? ", text, " : -INFINITY");
    return text;
  }
  std::string scale_of_softmax(int step) {
    std::string& text = scales_[step];
    if (text.empty())
      text = steps_.number(r_.nodes[size_t(step)].first_word + offsetof(SoftmaxArgs, scale) / 8, DType::float32);
    return text;
  }

  // Returns an expression for the elements that a statistic's node computes.
  std::string elements_of_statistic(int step, const std::vector<std::string>& operands) {
    const RegionNode& n = r_.nodes[size_t(step)];
    const int first = e_.steps[size_t(step)].first_number;
    if (const auto* p = n.as<LayerNormProblem>()) {
      std::string text = p->kind == RowNorm::rms ? cat(operands[0], " * ", row(first))
                                                 : cat("normalized(", operands[0], ", ", row(first), ", ",
                                                       row(first + 1), ", ", row(first + 2), ")");
      size_t k = 0;
      for (const RegionPort& port : n.ports) {
        if (!port.reads) continue;
        if (port.name == "scale") text = cat(text, " * ", operands[k]);
        if (port.name == "bias") text += cat(" + ", operands[k]);
        ++k;
      }
      return text;
    }
    const auto& p = *n.as<SoftmaxProblem>();
    if (p.direction == SoftmaxDirection::backward)
      return cat("softmax_gradient<", p.log ? "true" : "false", ">(", operands[0], ", ", operands[1], ", ", row(first),
                 ", ", scale_of_softmax(step), ")");
    const std::string numbers = cat(", ", row(first), ", ", row(first + 1), ")");
    if (p.log) return cat("log_softmax(", softmax_argument(step, operands), numbers);
    return cat("softmax<", cuda_name(p.out.dtype), ">(", softmax_argument(step, operands), numbers);
  }

  // Returns the lines that compute numbers of the row from a statistic s, and store its results.
  std::string numbers_of_statistic(int step) {
    const RegionNode& n = r_.nodes[size_t(step)];
    const RowStep& s = e_.steps[size_t(step)];
    const int first = s.first_number;
    std::string text;
    auto put = [&](int number, const std::string& value) {
      text += cat("    x.template put<", number, ">(", value, ");\n");
    };
    if (const auto* p = n.as<LayerNormProblem>()) {
      const std::string eps = cat("a.number[",
                                  (steps_.number(n.first_word + offsetof(LayerNormArgs, eps) / 8, DType::float64),
                                   steps_.source().numbers.size() - 1),
                                  "]");
      if (p->kind == RowNorm::rms) {
        put(first, cat("norm::inverse_std(s * a.per_col, ", eps, ")"));
      } else {
        put(first + 2, cat("norm::inverse_std(s.variance, ", eps, ")"));
        put(first, "s.mean");
        put(first + 1, cat("s.rest * ", row(first + 2)));
        for (const RowResult& result : s.results)
          if (result.row_number != first + 2) put(result.row_number, "s.mean + s.rest");
      }
    } else if (const auto* q = n.as<SoftmaxProblem>()) {
      if (q->direction == SoftmaxDirection::backward) put(first, "s");
      else {
        put(first, "s.largest");
        put(first + 1, q->log ? "maths::log(s.sum)" : "1.0f / s.sum");
      }
    } else {
      put(s.results[0].row_number, cat("reduced<", mode_name(*n.as<ReduceProblem>()), ">(s, a.per_col)"));
    }
    for (const RowResult& result : s.results) text += store(result);
    return text;
  }
  std::string store(const RowResult& result) const {
    if (result.store < 0) return "";
    return cat("    x.template store<", result.store, ", ", cuda_name(e_.row_stores[size_t(result.store)].desc.dtype),
               ">(", row(result.row_number), ");\n");
  }

  // A function that computes the numbers of a row that are known after `phase` statistics.
  std::string row_function(const char* name, const std::string& stage, const char* statistic, int phase,
                           std::string lines) {
    for (size_t i = 0; i < e_.steps.size(); ++i) {
      const RowStep& step = e_.steps[i];
      if (step.wide || step.statistic >= 0 || step.phase != phase) continue;
      lines += cat("    x.template put<", step.first_number, ">(", steps_.function(r_.nodes[i], operands_of(int(i))),
                   ");\n", store(step.results[0]));
    }
    return cat("  template <class Row> __device__ __forceinline__ static void ", name, "(", stage, "const Row& x, ",
               statistic, "const RowArgs& a) {\n", lines, "  }\n");
  }

  const Region& r_;
  const RowRegion& e_;
  const Kept kept_;
  StepSource steps_;
  std::vector<ElementOperand> operands_[3];  // by RowLoad
  std::vector<std::string> loads_;           // expressions for the elements of RowRegion::loads
  std::string statistics_;
  // Expressions, which a step has once: it takes its numbers once.
  std::map<int, std::string> texts_, numbers_, scales_;
  // The function that is written: its number among the stages, the steps that it has computed, and its lines.
  int stage_ = 0;
  bool computes_kept_ = false;
  std::set<int> done_;
  std::string lines_;
};

}  // namespace

RowLoad row_load_of(const RowRegion& e, const ElementOperand& o) {
  const PointwiseAccess& x = o.access;
  if (x.kind == Access::dense) return RowLoad::dense;
  const bool column = x.kind == Access::periodic && x.inner == 1 && x.stride == 1 && x.length == e.cols;
  return column ? RowLoad::column : RowLoad::other;
}

RowVectors row_vectors(const Region& r, const RowRegion& e) {
  RowVectors v{};
  v.kept = Kept(r, e).count;
  size_t widest = 1;
  double registers = v.kept;  // for each element
  for (const ElementOperand& o : e.loads)
    if (row_load_of(e, o) == RowLoad::dense) {
      widest = std::max(widest, itemsize(o.desc.dtype));
      registers += double(itemsize(o.desc.dtype)) / 4;
    }
  for (const ElementOperand& o : e.stores) widest = std::max(widest, itemsize(o.desc.dtype));
  bool long_code = false;
  for (const RegionNode& n : r.nodes) long_code = long_code || instructions(n) > Kept::kCheap;
  const double most = long_code ? 48 : 36;
  v.width = std::max(4, 16 / int(widest));
  int elements = 32;
  while (elements > v.width && elements * registers > most) elements /= 2;
  v.vectors = elements / v.width;
  if (elements * registers > 24) v.registers = 80;
  return v;
}

GeneratedSource row_source(const Region& r, const RowRegion& e) { return Writer(r, e).write(); }

}  // namespace minidnn
