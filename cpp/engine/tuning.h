// SPDX-License-Identifier: Apache-2.0
// The measurements of find(), kept in a text file. A line is a record for one device, one problem, and the restrictions
// of the call:
//   device <tab> problem and restrictions <tab> engine <tab> revision <tab> config <tab> microseconds
// The config is a variant of the engine. In this example, it is empty:
//   NVIDIA H100 80GB HBM3 <tab> softmax forward f32 4x1000 axis=1 <tab> cuda.softmax.block_per_row <tab> 1
//       <tab> <tab> 3.2
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
  // If `file` is empty, records are kept in memory only. A file that is not regular, belongs to another user, or is
  // writable by others is neither read nor written. Lines that are not valid records are ignored.
  explicit Tuning(std::string file);

  // Finds a record. The key is the text of the problem, followed by the restrictions of the call as text, such as
  // "deterministic".
  std::optional<TuningLine> recall(const Device&, const std::string& key) const;
  // Adds the record for `key`, or replaces it. If the file cannot be written, keeps the record in memory only and
  // returns the reason. If it can, returns an empty text.
  std::string remember(const Device&, const std::string& key, const EngineReport&);

  // Returns all records, as lines of the tuning file in the order of their keys.
  std::string text() const;
  // Adds the records of `text`, which text() has returned here or elsewhere. A record whose key exists already is
  // added only if `replace`. Returns the number of added records. If a line is not a record, or if the file cannot be
  // written, it throws and changes nothing.
  int64_t import_text(const std::string& text, bool replace);
  // Deletes all records, and the file. Throws DeviceError if the file cannot be deleted.
  void clear();

  // The number of times that records changed so far. A plan that was chosen when this number was lower may
  // disagree with the records.
  uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  // Returns the reason why remember() keeps records in memory only. Returns an empty text if it writes them to the
  // file.
  std::string why_not_kept() const;

 private:
  friend Tuning& tuning();
  using Lines = std::map<std::pair<std::string, std::string>, TuningLine>;
  // Appends records to the file, or replaces those with the same keys. Returns "", or why the file was not changed.
  std::string write(const Lines&, bool replaces) const;

  const std::string file_;
  std::string refusal_;
  mutable std::mutex mutex_;
  std::atomic<uint64_t> generation_ = 0;
  Lines lines_;
};

// Returns the tuning records of this process, which are read from the file in the cache folder.
Tuning& tuning();

}  // namespace minidnn
