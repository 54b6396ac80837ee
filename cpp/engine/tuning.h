// SPDX-License-Identifier: Apache-2.0
// What find() measured, kept in a text file: a line for each device, problem and restrictions of the call.
//   NVIDIA H100 80GB HBM3 <tab> softmax forward f32 4x1000 axis=1 <tab> cuda.softmax.generic <tab> 1 <tab> config <tab> 3.2
#pragma once
#include <atomic>
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
  // "" keeps records in memory. A file that is not a regular one, belongs to another user or can be written by others is
  // neither read nor written. A line that is not a record is passed over.
  explicit Tuning(std::string file);

  // A key is the problem's text and restrictions_text() of the call.
  std::optional<TuningLine> recall(const Device&, const std::string& key) const;
  // Replaces the record of that key. Returns "", or why the file does not have it: it is then kept in memory alone.
  std::string remember(const Device&, const std::string& key, const EngineReport&);

  // Changes with each remember(). A plan that was made before may no longer be what was found.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  // "", or why remember() keeps records in memory alone.
  std::string why_not_kept() const;

 private:
  friend Tuning& tuning();
  using Lines = std::map<std::pair<std::string, std::string>, TuningLine>;
  std::string write(const std::pair<std::string, std::string>& key, const TuningLine&, bool replaces) const;

  const std::string file_;
  std::string refusal_;
  mutable std::mutex mutex_;
  std::atomic<uint64_t> generation_ = 0;
  Lines lines_;
};

Tuning& tuning();  // the process's, in the cache folder

}  // namespace minidnn
