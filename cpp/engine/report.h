// SPDX-License-Identifier: Apache-2.0
// What dispatch knows about one problem, as data. explain() and find() return it; errors and the log print it.
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
  std::vector<std::string> configs{};      // all allowed configs, best guess first
  std::vector<size_t> config_workspace{};  // bytes of workspace of each config
  double estimate_us = 0;
  double measured_us = 0;                                      // 0 when not measured
  std::vector<std::pair<std::string, double>> measurements{};  // each measured config with its time in microseconds
  size_t workspace_bytes = 0;
};

struct Report {
  std::string family;
  std::string problem;
  std::string device;
  std::vector<EngineReport> engines;
  std::string chosen;

  std::string not_kept{};  // after find(): why the tuning file lacks the measurement, or ""

  bool any() const;
  // One line per engine that cannot run it: "\n  cuda.softmax.warp: needs cols <= 1024; got 4096".
  std::string reasons() const;
  EngineReport& fastest();  // of the engines that can run it: by measured time, or else by estimate
  // The engine named by a tuning record, with the record's config. Null if the record does not apply: the engine cannot
  // run the problem, has another revision, or does not offer that config to this handle.
  EngineReport* recorded(const TuningLine&);
};

// While a DryRun exists on a thread, ops on that thread report how they would run and do not write outputs.
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

// PYMINIDNN_LOG=info prints one line per call with problem and engine; debug also prints why other engines were not
// chosen.
enum class LogLevel { off, info, debug };
LogLevel log_level();
void set_log_level(LogLevel);
void log_line(const std::string&);  // prints nothing if the level is off
void log_call(const Report&, const std::string& engine, const std::string& config);

}  // namespace minidnn
