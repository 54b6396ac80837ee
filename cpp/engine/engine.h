// SPDX-License-Identifier: Apache-2.0
// How pyminidnn chooses an implementation of a function. All families use only this mechanism. A family is a group of
// functions with one type of problem, such as conv or softmax.
//   Problem    what a call computes: shapes, strides, dtypes, attributes. It is a struct of 64-bit fields. Calls whose
//              problems have equal bytes share a plan.
//   Engine     one implementation of a family. It is stateless and const. The engine list of its family names it once.
//   Config     a variant of an engine as text, such as "tile=128x64;stages=3", so that a tuning file can contain it.
//   Plan       an engine and a config, ready to run (kernels are compiled). It is immutable: any thread may run it.
//   Family<P>  ties the problem type P to its engines. The header F.h of each family F specialises this template.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <shared_mutex>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/handle.h"
#include "cpp/engine/call_recorder.h"
#include "cpp/engine/costs.h"
#include "cpp/engine/kernel_spec.h"
#include "cpp/engine/log.h"
#include "cpp/engine/report.h"
#include "cpp/engine/timer.h"
#include "cpp/engine/tuning.h"

namespace minidnn {

using Config = std::string;
enum Trait : unsigned { kNondeterministic = 1, kReducedPrecision = 2, kNeedsJit = 4 };

// This template is specialised for each problem type P. Its members, with those of softmax as examples:
//   using Args                                          the pointers and scalars of one call
//   static constexpr const char* name                   name of the family, "softmax"
//   static std::string text(const P&)                   problem as text, "softmax forward f32 4x1000 axis=1"
//   static void ports(const P&, Args&, Ports&)          names each tensor and number in Args (ports.h)
//   static void check(const P&, const Args&)            optional: checks elements of inputs on the CPU, such as indices
//   static const Engines<P>& cpu_engines()              defined in cpp/F/ for the family F
//   static const Engines<P>& cuda_engines()             defined in cuda/F/engines.cpp
template <class P> struct Family;
template <class P> using ArgsOf = typename Family<P>::Args;

template <class P> struct Plan {
  virtual ~Plan() = default;
  // Enqueues the work of the plan on `stream`, and returns. It neither allocates nor synchronises, so a CUDA graph can
  // capture it.
  virtual void run(const ArgsOf<P>& args, void* workspace, Stream stream) const = 0;
};

template <class P> struct Engine {
  virtual ~Engine() = default;
  // The name of the engine, such as "cuda.softmax.block_per_row". It is public and stable, and tuning files contain it.
  virtual std::string name() const = 0;
  // The revision of the engine. It must be incremented when the kernel changes. Records of a tuning file that have
  // another revision are ignored.
  virtual int revision() const { return 1; }
  virtual unsigned traits() const { return 0; }
  // Returns an empty text if this engine computes the problem correctly on this device. If not, it returns the reason
  // as one sentence. Slow speed is never a reason.
  virtual std::string why_not(const P&, const Device&) const = 0;
  // The expected time in microseconds, comparable between engines. It is called only for problems that the engine can
  // run, that is, if why_not() returns an empty text. Engines are compared by expected_us(), which corrects it.
  virtual double estimate_us(const P&, const Device&) const = 0;
  // Returns all configs (variants as text, such as "tile=64x64") of the engine for a problem. The first one is expected
  // to be the fastest.
  virtual std::vector<Config> configs(const P&, const Device&) const { return {""}; }
  // The number of bytes of workspace that the engine needs with a config. This is a method of the engine, not of the
  // plan, so that a memory limit is checked before anything is compiled.
  virtual size_t workspace_bytes(const P&, const Device&, const Config&) const { return 0; }
  virtual std::unique_ptr<Plan<P>> build(const P&, const Device&, const Config&) const = 0;
  // Returns all kernels that build() may need. `python -m pyminidnn compile` compiles them ahead of time.
  virtual std::vector<KernelSpec> kernels() const { return {}; }
};
template <class P> using Engines = std::vector<const Engine<P>*>;

// Returns the cost factor of an engine for a problem: the time it takes on this device over its own estimate, as
// `pyminidnn calibrate` has measured it, or 1.
template <class P> double cost_factor(const Engine<P>& e, const P& p, const Device& d) {
  return has_costs(d) ? cost_factor(d, Family<P>::text(p), e.name(), e.revision()) : 1;
}

// Returns the expected time of an engine in microseconds: its own estimate times its cost factor.
template <class P> double expected_us(const Engine<P>& e, const P& p, const Device& d) {
  return e.estimate_us(p, d) * cost_factor(e, p, d);
}

// Makes a plan from a callable object. It is for engines whose Plan::run() fits in a lambda.
template <class P, class Run> std::unique_ptr<Plan<P>> make_plan(Run run) {
  struct Callable final : Plan<P> {
    Run run_;
    explicit Callable(Run r) : run_(std::move(r)) {}
    void run(const ArgsOf<P>& args, void* workspace, Stream stream) const override { run_(args, workspace, stream); }
  };
  return std::make_unique<Callable>(std::move(run));
}

template <class P> const Engines<P>& engines(Place place) {
  return place.is_cuda ? Family<P>::cuda_engines() : Family<P>::cpu_engines();
}

// An engine, a config (variant of the engine), the plan made from both, and what a call needs to know about the plan.
template <class P> struct SelectedPlan {
  const Engine<P>* engine = nullptr;
  Config config;
  double estimate_us = 0;
  size_t workspace_bytes = 0;
  std::shared_ptr<const Plan<P>> plan;
};

// The syntax of the argument `algo`. The empty text selects all engines, "cuda.conv.direct" selects one engine, and
// "direct" selects all engines whose name ends in ".direct". A config may follow the engine after a colon:
// "simt:tile=64x64;split=2".
inline std::string engine_of(const std::string& algo) { return algo.substr(0, algo.find(':')); }
inline bool names_config(const std::string& algo) { return algo.find(':') != std::string::npos; }
inline bool names_engine(const std::string& algo, const std::string& name) {
  const std::string engine = engine_of(algo);
  return engine.empty() || engine == name || name.ends_with("." + engine);
}

// Stores in `line` the configs (variants) of engine `e` whose workspace the handle allows, or only the config that
// `algo` names. If none remains, sets line.why_not.
template <class P>
void find_configs(const Engine<P>& e, const P& p, const Handle& h, const std::string& algo, EngineReport& line) {
  std::vector<Config> all = e.configs(p, h.device());
  if (names_config(algo)) {
    const Config named = algo.substr(algo.find(':') + 1);
    if (std::ranges::find(all, named) == all.end()) {
      line.why_not = cat("config '", named, "' is not supported for this problem; use '", join(all, "', '"), "'");
      return;
    }
    all = {named};
  }
  size_t least = SIZE_MAX;
  for (Config& c : all) {
    const size_t bytes = e.workspace_bytes(p, h.device(), c);
    least = std::min(least, bytes);
    if (bytes > h.options().max_workspace) continue;
    line.configs.push_back(std::move(c));
    line.config_workspace.push_back(bytes);
  }
  if (line.configs.empty())
    line.why_not = cat("needs ", bytes_text(double(least)), " of workspace; Handle.max_workspace allows ",
                       bytes_text(double(h.options().max_workspace)));
}

// Returns a report on every engine of a family, in the order of the engine list. For each engine, the report has the
// estimated time, or the reason why the engine is excluded.
template <class P> Report evaluate_engines(const P& p, const Handle& h, const std::string& only) {
  Report report{Family<P>::name, Family<P>::text(p), name(h.place()), {}, ""};
  for (const Engine<P>* e : engines<P>(h.place())) {
    EngineReport line{e->name(), e->revision(), e->traits()};
    if (!names_engine(only, line.name)) line.why_not = cat("algo='", only, "' selects another engine");
    else if (h.options().deterministic && e->traits() & kNondeterministic)
      line.why_not = "is not deterministic; the handle has deterministic=True";
    else line.why_not = e->why_not(p, h.device());
    if (line.why_not.empty()) find_configs(*e, p, h, only, line);
    if (line.why_not.empty()) {
      line.config = line.configs.front();
      line.workspace_bytes = line.config_workspace.front();
      line.cost_factor = cost_factor(*e, p, h.device());
      line.estimate_us = e->estimate_us(p, h.device()) * line.cost_factor;
    }
    report.engines.push_back(std::move(line));
  }
  return report;
}

// Builds the plan for one engine and one of its configs (variants).
template <class P>
SelectedPlan<P> select_plan(const P& p, const Handle& h, const Report& report, const EngineReport& line,
                            const Config& config) {
  const Engine<P>* e = engines<P>(h.place())[size_t(&line - report.engines.data())];
  const size_t index = size_t(std::ranges::find(line.configs, config) - line.configs.begin());
  return {e, config, line.estimate_us, line.config_workspace[index], e->build(p, h.device(), config)};
}

// Returns the options that restrict the choice of an engine as text: algo, deterministic, max_workspace and threads.
// find() records its choice for a problem together with this text.
inline std::string restrictions_text(const HandleOptions& o, const std::string& algo) {
  std::string text;
  if (!algo.empty()) text += cat(" algo=", algo);
  if (o.deterministic) text += " deterministic";
  if (o.max_workspace != HandleOptions{}.max_workspace) text += cat(" max_workspace=", o.max_workspace);
  if (o.threads) text += cat(" threads=", o.threads);
  return text;
}

// Returns what find() has recorded for the problem with the call's restrictions, else for the problem without
// restrictions. The result is empty if there is no record, or if `algo` names a config (variant of an engine).
template <class P> std::optional<TuningLine> recall(const P& p, const Handle& h, const std::string& algo) {
  if (names_config(algo)) return {};
  const std::string text = Family<P>::text(p), restrictions = restrictions_text(h.options(), algo);
  if (!restrictions.empty())
    if (auto line = recall_tuning(h.device(), text + restrictions)) return line;
  return recall_tuning(h.device(), text);
}

// Times every engine that can run the problem, with each of its configs (variants), on separate scratch memory. Writes
// the median times to the report. A session that calibrates leaves out slow engines, and all configs but the first.
template <class P> void measure(const P& p, Handle& h, const DryRun& session, Report& report) {
  size_t done = 0, total = 0;
  for (const EngineReport& line : report.engines) total += session.configs_to_measure(line);
  Scratch scratch(h.place(), h.stream());
  ScratchPorts allocate(scratch);
  ArgsOf<P> args{};
  Family<P>::ports(p, args, allocate);  // separate memory, instead of the caller's tensors
  auto flush = [&, cold = scratch.bytes(h.place().is_cuda ? size_t(2 * h.device().l2_bytes) : 0)] {
    if (cold->bytes) memory_of(h.place()).fill(cold->data, 0, cold->bytes, h.stream());
  };
  for (EngineReport& line : report.engines) {
    for (size_t i = 0; i < session.configs_to_measure(line); ++i) {
      const Config& config = line.configs[i];
      SelectedPlan<P> c = select_plan(p, h, report, line, config);
      const std::shared_ptr<Storage> workspace = allocator_of(h.place()).allocate(
          c.workspace_bytes, h.stream(), [&] { return cat("find: workspace of ", line.name); });
      double us = median_us(h, flush, [&] { c.plan->run(args, workspace->data, h.stream()); });
      line.measurements.emplace_back(config, us);
      if (line.measured_us == 0 || us < line.measured_us) {
        line.measured_us = us;
        line.config = config;
        line.workspace_bytes = c.workspace_bytes;
      }
      session.report_progress(report.problem, ++done, total);
      cpu::check_interrupt();
    }
  }
}

// Returns the engines and configs that `algo` and a handle allow for a problem, the engine with the lowest estimate
// first. Each engine has its configs in its own order. If `all` is false, returns only the first. Ignores records of
// find().
template <class P>
std::vector<NodeChoice> choices(const Handle& h, const P& p, const std::string& algo, bool all) {
  std::vector<std::pair<double, const Engine<P>*>> able;
  for (const Engine<P>* e : engines<P>(h.place())) {
    if (h.options().deterministic && e->traits() & kNondeterministic) continue;
    if (!algo.empty() && !names_engine(algo, e->name())) continue;
    if (e->why_not(p, h.device()).empty()) able.emplace_back(expected_us(*e, p, h.device()), e);
  }
  std::ranges::stable_sort(able, {}, [](const auto& pair) { return pair.first; });
  std::vector<NodeChoice> result;
  for (const auto& [us, e] : able) {
    EngineReport line;
    find_configs(*e, p, h, algo, line);
    for (size_t i = 0; i < line.configs.size(); ++i) {
      result.push_back({cat(e->name(), ":", line.configs[i]), us, line.config_workspace[i]});
      if (!all) return result;
    }
  }
  return result;
}

// The handle for which a plan is being chosen on this thread. An engine that consists of other calls, such as those of
// graphs, chooses their plans with the same handle, and with the same cost factors.
class PlanningHandle {
 public:
  explicit PlanningHandle(Handle& h) : outer_(current_), costs_(h.device()) { current_ = &h; }
  ~PlanningHandle() { current_ = outer_; }
  PlanningHandle(const PlanningHandle&) = delete;
  static Handle* current() { return current_; }

 private:
  static inline thread_local Handle* current_ = nullptr;
  Handle* const outer_;
  const CostScope costs_;
};

// Chooses the engine for an inner problem, such as the matmul inside a convolution: the deterministic engine with the
// lowest estimate. Measurements of find() are ignored. plan_on() also builds the plan.
template <class P> SelectedPlan<P> choose_on(const Device& d, const P& p) {
  SelectedPlan<P> best;
  for (const Engine<P>* e : engines<P>(d.place)) {
    if (e->traits() & kNondeterministic || !e->why_not(p, d).empty()) continue;
    const double us = expected_us(*e, p, d);
    if (!best.engine || us < best.estimate_us) {
      best.engine = e;
      best.estimate_us = us;
    }
  }
  MINIDNN_CHECK(NotSupported, best.engine, "no engine can run ", Family<P>::text(p), " on ", name(d.place));
  best.config = best.engine->configs(p, d).front();
  best.workspace_bytes = best.engine->workspace_bytes(p, d, best.config);
  return best;
}
template <class P> SelectedPlan<P> plan_on(const Device& d, const P& p) {
  SelectedPlan<P> choice = choose_on(d, p);
  choice.plan = choice.engine->build(p, d, choice.config);
  return choice;
}

// The plans of a handle for one problem type. New plans replace the least recently used ones.
template <class P> class PlanCache final : public HandleCache {
  struct Key {
    P problem;
    std::string algo;
  };
  struct View {
    const P& problem;
    std::string_view algo;
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(const View& k) const {
      static_assert(std::has_unique_object_representations_v<P>, "a Problem must be free of padding and floats");
      auto words = reinterpret_cast<const uint64_t*>(&k.problem);
      uint64_t h = std::hash<std::string_view>{}(k.algo);
      for (size_t i = 0; i < sizeof(P) / 8; ++i) {
        h = (h ^ words[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
      }
      return h;
    }
    size_t operator()(const Key& k) const { return (*this)(View{k.problem, k.algo}); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const View& a, const View& b) const {
      return std::memcmp(&a.problem, &b.problem, sizeof(P)) == 0 && a.algo == b.algo;
    }
    bool operator()(const Key& a, const Key& b) const {
      return (*this)(View{a.problem, a.algo}, View{b.problem, b.algo});
    }
    bool operator()(const View& a, const Key& b) const { return (*this)(a, View{b.problem, b.algo}); }
    bool operator()(const Key& a, const View& b) const { return (*this)(View{a.problem, a.algo}, b); }
  };
  struct Entry {
    std::shared_ptr<const SelectedPlan<P>> choice;
    std::atomic<uint64_t> used;  // the value of insertions_ when the entry was last used
    // Records::generation() when the plan was last checked against tuning records and cost factors.
    std::atomic<uint64_t> generation;
    Entry(std::shared_ptr<const SelectedPlan<P>> c, uint64_t now, uint64_t g)
        : choice(std::move(c)), used(now), generation(g) {}
  };

 public:
  // Returns the cached plan of a problem, or null. Sets `stale` if tuning records or cost factors have changed since the
  // plan was last checked against them.
  std::shared_ptr<const SelectedPlan<P>> find(const P& p, const std::string& algo, bool& stale) {
    const uint64_t generation = Records::generation();
    std::shared_lock lock(mutex);
    auto it = choices_.find(View{p, algo});
    if (it == choices_.end()) return nullptr;
    Entry& e = it->second;
    const uint64_t now = insertions_.load(std::memory_order_relaxed);
    if (e.used.load(std::memory_order_relaxed) != now) e.used.store(now, std::memory_order_relaxed);
    stale = e.generation.load(std::memory_order_relaxed) != generation;
    return e.choice;
  }
  void agrees(const P& p, const std::string& algo, uint64_t generation) {
    std::shared_lock lock(mutex);
    auto it = choices_.find(View{p, algo});
    if (it != choices_.end()) it->second.generation = generation;
  }
  void put(const P& p, const std::string& algo, std::shared_ptr<const SelectedPlan<P>> choice, uint64_t generation,
           size_t most) {
    // Dropped plans are destroyed after the lock is released, because `dropped` is declared before the lock.
    std::vector<std::shared_ptr<const SelectedPlan<P>>> dropped;
    std::unique_lock lock(mutex);
    if (auto it = choices_.find(View{p, algo}); it != choices_.end()) {
      dropped.push_back(std::exchange(it->second.choice, std::move(choice)));
      it->second.generation = generation;
      return;
    }
    while (choices_.size() >= most) drop_unused(choices_.size() - most + most / 8 + 1, dropped);
    choices_.try_emplace({p, algo}, std::move(choice), ++insertions_, generation);
  }

 private:
  // Removes the `count` least recently used plans (calls made ready to run) from the cache.
  void drop_unused(size_t count, std::vector<std::shared_ptr<const SelectedPlan<P>>>& dropped) {
    using Iterator = decltype(choices_.begin());
    std::vector<Iterator> all;
    for (auto it = choices_.begin(); it != choices_.end(); ++it) all.push_back(it);
    count = std::min(count, all.size());
    std::ranges::nth_element(all, all.begin() + ptrdiff_t(count), {},
                             [](Iterator it) { return it->second.used.load(); });
    for (size_t i = 0; i < count; ++i) {
      dropped.push_back(std::move(all[i]->second.choice));
      choices_.erase(all[i]);
    }
  }

  std::atomic<uint64_t> insertions_ = 0;
  std::unordered_map<Key, Entry, Hash, Equal> choices_;
};

// Returns the plan for a problem from the plan cache, or builds it for the engine that find() has recorded, else for
// the engine with the lowest estimate. During find(), all engines are timed, and the fastest is used.
template <class P> std::shared_ptr<const SelectedPlan<P>> find_plan(Handle& h, const P& p,
                                                                    const std::string& algo = "") {
  const std::shared_ptr<PlanCache<P>> cache = h.cache<PlanCache<P>>();
  DryRun* session = DryRun::current();
  uint64_t generation = Records::generation();
  std::shared_ptr<const SelectedPlan<P>> former;
  if (!session) [[likely]] {
    bool stale = false;
    former = cache->find(p, algo, stale);
    if (former && !stale) [[likely]]
      return former;
  }

  const PlanningHandle planning(h);
  Report report = evaluate_engines(p, h, algo);
  MINIDNN_CHECK(NotSupported, report.any(), "no engine can run ", report.problem, " on ", report.device,
                report.reasons());
  if (session && session->measures()) measure(p, h, *session, report);
  EngineReport* best = &report.fastest();
  if (session && session->purpose == DryRun::Purpose::find) {
    report.not_kept = remember_tuning(h.device(), report.problem + restrictions_text(h.options(), algo), *best);
    generation = Records::generation();
  } else if (const auto line = recall(p, h, algo)) {
    if (EngineReport* recorded = report.recorded(*line)) best = recorded;
  }
  report.chosen = best->name;
  if (former && best->name == former->engine->name() && best->config == former->config) {
    cache->agrees(p, algo, generation);
    return former;
  }

  auto choice = std::make_shared<const SelectedPlan<P>>(select_plan(p, h, report, *best, best->config));
  best->workspace_bytes = choice->workspace_bytes;
  if (session) session->add(std::move(report));
  cache->put(p, algo, choice, generation, h.options().max_plans);
  return choice;
}

// Throws NotSupported unless an engine can run the problem. Builds nothing, so it is fast enough for each recorded
// call.
template <class P> void check_supported(const Handle& h, const P& p, const std::string& algo) {
  for (const Engine<P>* e : engines<P>(h.place())) {
    if (!names_engine(algo, e->name()) || (h.options().deterministic && e->traits() & kNondeterministic)) continue;
    if (!e->why_not(p, h.device()).empty()) continue;
    EngineReport line;
    find_configs(*e, p, h, algo, line);
    if (line.why_not.empty()) return;
  }
  const Report report = evaluate_engines(p, h, algo);
  throw NotSupported(cat("no engine can run ", report.problem, " on ", report.device, report.reasons()));
}

// Whether Family<P>::check() reads elements of a call's tensors, such as indices.
template <class P>
constexpr bool kHasCheck = requires(const P& p, const ArgsOf<P>& args) { Family<P>::check(p, args); };

// Returns the functions of Family<P> that a recorded call needs.
template <class P> const NodeKind& node_kind() {
  using Args = ArgsOf<P>;
  static_assert(sizeof(P) % 8 == 0 && sizeof(Args) % 8 == 0 && std::is_trivially_copyable_v<Args>);
  static constexpr NodeKind kind{
      .family = Family<P>::name,
      .problem_bytes = sizeof(P),
      .args_bytes = sizeof(Args),
      .text = [](const void* p) { return Family<P>::text(*static_cast<const P*>(p)); },
      .ports = [](const void* p, void* args,
                  Ports& ports) { Family<P>::ports(*static_cast<const P*>(p), *static_cast<Args*>(args), ports); },
      .check =
          [](const void* p, const void* args) {
            if constexpr (kHasCheck<P>) Family<P>::check(*static_cast<const P*>(p), *static_cast<const Args*>(args));
          },
      .plan = [](Handle& h, const void* p, const std::string& algo) -> NodePlan {
        auto choice = find_plan(h, *static_cast<const P*>(p), algo);
        const size_t bytes = choice->workspace_bytes;
        return {std::move(choice), bytes};
      },
      .run =
          [](const void* plan, const void* args, void* workspace, Stream stream) {
            static_cast<const SelectedPlan<P>*>(plan)->plan->run(*static_cast<const Args*>(args), workspace, stream);
          },
      .choices = [](const Handle& h, const void* p, const std::string& algo,
                    bool all) { return choices(h, *static_cast<const P*>(p), algo, all); },
      .has_check = kHasCheck<P>,
  };
  return kind;
}

// Finds a plan, and runs it with workspace from the allocator. Every public function that computes calls run(). While
// this thread records a graph, run() only writes the call down.
template <class P> void run(Handle& h, const P& p, const ArgsOf<P>& args, const std::string& algo) {
  if (CallRecorder* recorder = CallRecorder::current()) [[unlikely]] {
    check_supported(h, p, algo);
    return recorder->add(h, node_kind<P>(), &p, &args, algo);
  }
  const cpu::ThreadLimit limit(h.options().threads);  // this limit on threads also holds while find() times engines
  std::shared_ptr<const SelectedPlan<P>> c = find_plan(h, p, algo);
  const bool dry = DryRun::current();  // explain() and find() only choose; they do not write the caller's outputs
  const auto execute = [&] {
    std::shared_ptr<Storage> workspace;
    if (c->workspace_bytes)
      workspace = allocator_of(h.place()).allocate(c->workspace_bytes, h.stream(),
                                                   [&] { return cat(c->engine->name(), ": workspace"); });
    c->plan->run(args, workspace ? workspace->data : nullptr, h.stream());
  };
  if (logs()) [[unlikely]]
    run_logged(h, evaluate_engines(p, h, algo), c->engine->name(), c->config,
               dry ? std::function<void()>() : std::function<void()>(execute));
  else if (!dry) [[likely]] execute();
}

}  // namespace minidnn
