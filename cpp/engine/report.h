// SPDX-License-Identifier: Apache-2.0
// What dispatch knows about one problem, as data: explain() and find() return it, errors and the log print it.
#pragma once
#include <string>
#include <vector>

#include "cpp/core/device.h"

namespace minidnn {

struct TuningLine;

struct EngineReport {
  std::string name;
  int revision = 1;
  unsigned traits = 0;
  std::string why_not{};  // empty when the engine can run the problem
  std::string config{};
  std::vector<std::string> configs{};  // all that may be chosen, best guess first
  double estimate_us = 0;
  double measured_us = 0;                                      // 0 when not measured
  std::vector<std::pair<std::string, double>> measurements{};  // of every config, microseconds
  size_t workspace_bytes = 0;
};

struct Report {
  std::string family;
  std::string problem;
  std::string device;
  std::vector<EngineReport> engines;
  std::string chosen;

  std::string not_kept{};  // under find(): why the tuning file does not have what was measured, or ""

  bool any() const;
  std::string reasons() const;  // a line per engine that cannot: "\n  cuda.softmax.warp: needs cols <= 1024; got 4096"
  EngineReport& fastest();      // of those that can: measured, or else estimated
  // The engine and config of a tuning record, or null where the record does not hold here: the engine declines the
  // problem, has another revision, or does not offer that config to this handle.
  EngineReport* recorded(const TuningLine&);
};

// While one lives on a thread, ops on that thread report how they would run and touch no output.
class DryRun {
 public:
  explicit DryRun(bool measures);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
  static DryRun* current();
  bool measures() const { return measures_; }
  void add(Report r) { reports_.push_back(std::move(r)); }
  const std::vector<Report>& reports() const { return reports_; }

 private:
  const bool measures_;
  DryRun* const outer_;
  std::vector<Report> reports_;
};

// PYMINIDNN_LOG=info: a line per call with problem and engine; debug: also why the others were passed over.
enum class LogLevel { off, info, debug };
LogLevel log_level();
void set_log_level(LogLevel);
void log_line(const std::string&);  // unless the level is off
void log_call(const Report&, const std::string& engine, const std::string& config);

}  // namespace minidnn
