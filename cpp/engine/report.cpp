// SPDX-License-Identifier: Apache-2.0
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

const EngineReport& Report::pick(const Device& device, const Tuning* tuned) {
  EngineReport* best = nullptr;
  auto cost = [](const EngineReport& e) { return e.measured_us > 0 ? e.measured_us : e.estimate_us; };
  for (EngineReport& e : engines)
    if (e.why_not.empty() && (!best || cost(e) < cost(*best))) best = &e;
  if (tuned)
    if (auto line = tuned->recall(device, problem))
      for (EngineReport& e : engines)
        if (e.why_not.empty() && e.name == line->engine && e.revision == line->revision) {
          e.config = line->config;
          e.measured_us = line->us;
          best = &e;
        }
  return *best;
}

namespace {
thread_local Session* current_session = nullptr;

LogLevel level_from_environment() {
  const char* text = std::getenv("PYMINIDNN_LOG");
  std::string level = text ? text : "";
  return level == "debug" ? LogLevel::debug : level == "info" ? LogLevel::info : LogLevel::off;
}
std::atomic<LogLevel> the_log_level = level_from_environment();
}  // namespace

Session::Session(bool measures) : measures_(measures), outer_(current_session) { current_session = this; }
Session::~Session() { current_session = outer_; }
Session* Session::current() { return current_session; }

LogLevel log_level() { return the_log_level.load(std::memory_order_relaxed); }
void set_log_level(LogLevel level) { the_log_level = level; }

void log_call(const Report& report, const std::string& engine, const std::string& config) {
  std::string line = cat("pyminidnn: ", report.problem, " on ", report.device, " -> ", engine,
                         config.empty() ? "" : " " + config, "\n");
  if (log_level() == LogLevel::debug)
    for (const EngineReport& e : report.engines) {
      if (e.name == engine) continue;
      line += cat("pyminidnn:   not ", e.name, ": ",
                  e.why_not.empty() ? cat("estimated ", e.estimate_us, " us") : e.why_not, "\n");
    }
  std::fputs(line.c_str(), stderr);  // one write, so that lines of two threads do not mix
}

}  // namespace minidnn
