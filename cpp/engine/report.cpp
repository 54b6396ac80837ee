// SPDX-License-Identifier: Apache-2.0
// Implements report.h: the choice of an engine from a report, dry runs within dry runs, and the log.
#include "cpp/engine/report.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

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

LogLevel level_from_environment() {
  const char* text = std::getenv("PYMINIDNN_LOG");
  std::string level = text ? text : "";
  return level == "debug" ? LogLevel::debug : level == "info" ? LogLevel::info : LogLevel::off;
}
std::atomic<LogLevel> the_log_level = level_from_environment();
}  // namespace

DryRun::DryRun(bool measures) : measures_(measures), outer_(current_session) { current_session = this; }
DryRun::~DryRun() {
  current_session = outer_;
  if (outer_) outer_->reports_.insert(outer_->reports_.end(), reports_.begin(), reports_.end());
}
DryRun* DryRun::current() { return current_session; }

LogLevel log_level() { return the_log_level.load(std::memory_order_relaxed); }
void set_log_level(LogLevel level) { the_log_level = level; }

void log_line(const std::string& line) {
  if (log_level() != LogLevel::off) std::fputs(cat("pyminidnn: ", line, "\n").c_str(), stderr);
}

void log_call(const Report& report, const std::string& engine, const std::string& config) {
  std::string line = cat("pyminidnn: ", report.problem, " on ", report.device, " -> ", engine,
                         config.empty() ? "" : " " + config, "\n");
  if (log_level() == LogLevel::debug)
    for (const EngineReport& e : report.engines) {
      if (e.name == engine) continue;
      line += cat("pyminidnn:   not ", e.name, ": ",
                  e.why_not.empty() ? cat("estimated ", e.estimate_us, " us") : e.why_not, "\n");
    }
  // All lines are written by one call of fputs(), so that they do not mix with lines of other threads.
  std::fputs(line.c_str(), stderr);
}

}  // namespace minidnn
