// SPDX-License-Identifier: Apache-2.0
// A report on the engines for one problem: which of them can run it, their variants (configs), and their times.
// explain() and find() return a report. Errors and the log print it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "cpp/core/recording.h"

namespace minidnn {

struct TuningLine;

struct EngineReport {
  std::string name;
  int revision = 1;
  unsigned traits = 0;
  std::string why_not{};  // the reason why the engine cannot run the problem; empty if it can
  std::string config{};
  std::vector<std::string> configs{};      // the configs (variants) whose workspace the handle allows
  std::vector<size_t> config_workspace{};  // for each config, the bytes of its workspace
  double cost_factor = 1;  // `estimate_us` is the estimate of the engine itself times this factor (costs.h)
  double estimate_us = 0;
  double measured_us = 0;  // time of the fastest config in microseconds; 0 if not measured
  // The measured configs (variants of the engine), each with its time in microseconds.
  std::vector<std::pair<std::string, double>> measurements{};
  size_t workspace_bytes = 0;
};

struct Report {
  std::string family;
  std::string problem;
  std::string device;
  std::vector<EngineReport> engines;
  std::string chosen;

  // After find(), the reason why the measurement is not in the tuning file. It is empty if the measurement is in the
  // file.
  std::string not_kept{};

  bool any() const;
  // Returns one line for each engine that cannot run the problem, such as "\n  cuda.softmax.warp: needs cols <= 1024;
  // got 4096".
  std::string reasons() const;
  // Returns the fastest engine that can run the problem: by measured time, or by estimated time if nothing was
  // measured.
  EngineReport& fastest();
  // Returns the report on the engine and config that find() has recorded, or null if the record does not apply: the
  // engine cannot run the problem, has another revision, or does not offer the config.
  EngineReport* recorded(const TuningLine&);
};

// While a DryRun object exists on a thread, public functions on this thread only report how they would run. They do not
// write outputs.
class DryRun {
 public:
  // explain: chooses engines. find: measures all engines, and records the fastest. calibrate: measures the first config
  // of each engine whose own estimate is below kMostCalibrateUs, and records nothing.
  enum class Purpose { explain, find, calibrate };
  static constexpr double kMostCalibrateUs = 20e3;
  const Purpose purpose;
  // receives the text of a problem, the number of its configs measured so far, and the number of all its configs
  using Progress = std::function<void(const std::string& problem, size_t done, size_t total)>;
  explicit DryRun(Purpose purpose, Progress progress = {});
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
  static DryRun* current();
  bool measures() const { return purpose != Purpose::explain; }
  // Returns how many configs of an engine a session that measures times: the first ones.
  size_t configs_to_measure(const EngineReport&) const;
  void report_progress(const std::string& problem, size_t done, size_t total) const {
    if (progress_) progress_(problem, done, total);
  }
  void add(Report r) { reports_.push_back(std::move(r)); }
  const std::vector<Report>& reports() const { return reports_; }

 private:
  const Progress progress_;
  const RecordingPause at_once_;  // explain() inside a recording reports on its calls; it does not record them
  DryRun* const outer_;
  std::vector<Report> reports_;
};

// While an object of this class exists, plans on its thread are chosen as in a plain call, although explain() or find()
// is active.
class DryRunPause {
 public:
  DryRunPause();
  ~DryRunPause();
  DryRunPause(const DryRunPause&) = delete;

 private:
  DryRun* const paused_;
};

}  // namespace minidnn
