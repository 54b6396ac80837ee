// SPDX-License-Identifier: Apache-2.0
// Implements report.h: choices of engines from a report, and nested dry runs.
#include "cpp/engine/report.h"

#include <algorithm>

#include "cpp/engine/log.h"
#include "cpp/engine/tuning.h"

namespace minidnn {

bool Report::any() const {
  return std::ranges::any_of(engines, [](const EngineReport& e) { return e.why_not.empty(); });
}

std::string Report::reasons() const {
  std::string text;
  for (const EngineReport& e : engines)
    if (!e.why_not.empty()) text += cat("\n  ", e.name, ": ", e.why_not);
  return text;
}

EngineReport& Report::fastest() {
  EngineReport* best = nullptr;
  auto cost = [](const EngineReport& e) { return e.measured_us > 0 ? e.measured_us : e.estimate_us; };
  for (EngineReport& e : engines)
    if (e.why_not.empty() && (!best || cost(e) < cost(*best))) best = &e;
  return *best;
}

EngineReport* Report::recorded(const TuningLine& line) {
  std::string why = "there is no such engine";
  for (EngineReport& e : engines) {
    if (e.name != line.engine) continue;
    if (!e.why_not.empty()) why = e.why_not;
    else if (e.revision != line.revision) why = cat("the revision of the engine is ", e.revision);
    else if (std::ranges::find(e.configs, line.config) == e.configs.end())
      why = "the engine does not support that config for this problem";
    else {
      e.config = line.config;
      e.measured_us = line.us;
      return &e;
    }
  }
  log_line(cat("the tuning record of ", problem, " -> ", line.engine, " revision ", line.revision, " config '",
               line.config, "' is ignored: ", why));
  return nullptr;
}

namespace {
thread_local DryRun* current_session = nullptr;
}  // namespace

DryRun::DryRun(Purpose purpose, Progress progress)
    : purpose(purpose), progress_(std::move(progress)), outer_(current_session) {
  current_session = this;
}
DryRun::~DryRun() {
  current_session = outer_;
  if (outer_) outer_->reports_.insert(outer_->reports_.end(), reports_.begin(), reports_.end());
}
size_t DryRun::configs_to_measure(const EngineReport& e) const {
  if (!e.why_not.empty()) return 0;
  if (purpose == Purpose::find) return e.configs.size();
  // A wrong factor must not exclude the engine from the measurement that corrects it.
  return e.estimate_us / e.cost_factor < kMostCalibrateUs ? 1 : 0;
}

DryRun* DryRun::current() { return current_session; }

DryRunPause::DryRunPause() : paused_(current_session) { current_session = nullptr; }
DryRunPause::~DryRunPause() { current_session = paused_; }

}  // namespace minidnn
