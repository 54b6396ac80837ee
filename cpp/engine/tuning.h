// SPDX-License-Identifier: Apache-2.0
// The measurements of find(), kept in a text file with one line per device, problem and restrictions of the call:
//   device <tab> problem and restrictions <tab> engine <tab> revision <tab> config <tab> microseconds, for example
//   NVIDIA H100 80GB HBM3 <tab> softmax forward f32 4x1000 axis=1 <tab> cuda.softmax.block_per_row <tab> 1 <tab> <tab>
//   3.2
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
  // An empty name keeps records in memory only. A file that is not regular, belongs to another user or is writable by
  // others is neither read nor written. Lines that are not valid records are ignored.
  explicit Tuning(std::string file);

  // A key is the problem's text followed by the call's restrictions_text().
  std::optional<TuningLine> recall(const Device&, const std::string& key) const;
  // Replaces the record of that key. Returns "", or why the file could not be written; the record is then in memory
  // only.
  std::string remember(const Device&, const std::string& key, const EngineReport&);

  // Incremented by each remember(). A plan chosen at an earlier generation may disagree with the records.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  // "", or why remember() keeps records in memory only.
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

Tuning& tuning();  // the process's records, from the cache folder

}  // namespace minidnn
