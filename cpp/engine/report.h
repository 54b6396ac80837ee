// SPDX-License-Identifier: Apache-2.0
// What dispatch knows about one problem, as data. explain() and find() return a report; errors and the log print it.
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
  std::string why_not{};  // the reason why the engine cannot run the problem; empty if it can
  std::string config{};
  std::vector<std::string> configs{};      // all configs that the handle allows, the best guess first
  std::vector<size_t> config_workspace{};  // bytes of workspace that each of `configs` needs
  double estimate_us = 0;
  double measured_us = 0;  // the least time of the engine's configs; 0 if not measured
  // Each measured config with its time in microseconds.
  std::vector<std::pair<std::string, double>> measurements{};
  size_t workspace_bytes = 0;
};

struct Report {
  std::string family;
  std::string problem;
  std::string device;
  std::vector<EngineReport> engines;
  std::string chosen;

  // After find(): why the measurement is not in the tuning file, or "" if it is.
  std::string not_kept{};

  bool any() const;
  // One line for each engine that cannot run the problem, such as "\n  cuda.softmax.warp: needs cols <= 1024; got
  // 4096".
  std::string reasons() const;
  // The fastest engine that can run the problem, by measured time, or by estimate if nothing was measured.
  EngineReport& fastest();
  // Returns the engine that a tuning record names, with the config of the record. Returns null if the record does not
  // apply: the engine cannot run the problem, has another revision, or does not offer the config to this handle.
  EngineReport* recorded(const TuningLine&);
};

// While a DryRun object exists on a thread, public functions on this thread report how they would run, and do not write
// outputs.
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

// The environment variable PYMINIDNN_LOG. With "info", each call prints one line with its problem and engine. With
// "debug", it also prints why the other engines were not chosen.
enum class LogLevel { off, info, debug };
LogLevel log_level();
void set_log_level(LogLevel);
void log_line(const std::string&);  // log_line() prints nothing if the log level is off
void log_call(const Report&, const std::string& engine, const std::string& config);

}  // namespace minidnn
