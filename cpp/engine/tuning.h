// SPDX-License-Identifier: Apache-2.0
// The measurements of find(), kept in a text file. A line is a record for one device, one problem, and the restrictions
// of the call:
//   device <tab> problem and restrictions <tab> engine <tab> revision <tab> config <tab> microseconds
// The config is a variant of the engine. In this example, it is empty:
//   NVIDIA H100 80GB HBM3 <tab> softmax forward f32 4x1000 axis=1 <tab> cuda.softmax.block_per_row <tab> 1
//       <tab> <tab> 3.2
#pragma once
#include <optional>
#include <string>

#include "cpp/engine/records.h"
#include "cpp/engine/report.h"

namespace minidnn {

struct TuningLine {
  std::string engine;
  int revision = 0;
  std::string config;
  double us = 0;
};

// Returns the tuning records of this process, which are read from the file in the cache folder.
Records& tuning();

// Finds a record. The key is the text of the problem, followed by the restrictions of the call as text, such as
// "deterministic".
std::optional<TuningLine> recall_tuning(const Device&, const std::string& key);
// Adds the record for `key`, or replaces it. Returns what Records::remember() returns.
std::string remember_tuning(const Device&, const std::string& key, const EngineReport&);

}  // namespace minidnn
