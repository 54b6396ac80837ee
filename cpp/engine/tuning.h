// SPDX-License-Identifier: Apache-2.0
// What find() measured, kept in a text file: one line per problem and device, the last one counts.
//   NVIDIA H100 80GB HBM3 <tab> softmax forward f32 4x1000 axis=1 <tab> cuda.softmax.generic <tab> 1 <tab> config <tab> 3.2
#pragma once
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "cpp/engine/report.h"

namespace minidnn {

struct TuningLine {
  std::string engine;
  int revision = 0;
  std::string config;
  double us = 0;
};

class Tuning {
 public:
  explicit Tuning(std::string file);  // "" keeps it in memory; an unreadable file or line is passed over
  std::optional<TuningLine> recall(const Device&, const std::string& problem) const;
  void remember(const Device&, const std::string& problem, const EngineReport&);

 private:
  const std::string file_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, TuningLine> lines_;
};

Tuning& tuning();  // the process's, in the cache folder

}  // namespace minidnn
