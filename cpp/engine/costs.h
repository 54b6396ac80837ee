// SPDX-License-Identifier: Apache-2.0
// The cost factors that `pyminidnn calibrate` has measured, kept in a text file. A cost factor is the time that an
// engine takes on a device over its own estimate of that time. A line is a record for one device, one kind of problem
// and one engine:
//   device <tab> kind <tab> engine <tab> revision <tab> factor
#pragma once
#include <string>

#include "cpp/core/device/device.h"
#include "cpp/engine/records.h"

namespace minidnn {

// Returns the cost factors of this process, which are read from the file in the cache folder.
Records& costs();

// Returns the kind of a problem with that text: its family and the next word, such as "softmax forward". All problems of
// graph, pointwise and reduce are of one kind, because their next word is one of many functions.
std::string cost_kind(const std::string& problem);

// Returns the cost factor of an engine for a problem with that text. If none was measured for this revision of the
// engine, returns the geometric mean of the factors of other engines for this kind of problem, or 1 if there are none.
// Thus the estimates of engines with and without a factor remain comparable.
double cost_factor(const Device&, const std::string& problem, const std::string& engine, int revision);
// Whether the device has any cost factors. If not, cost_factor() is 1. GPUs are not calibrated.
bool has_costs(const Device&);

// While an object of this class exists, the device's cost factors remain the same on this thread, although other threads
// may change them. Thus an engine that consists of others chooses the same ones for its workspace and for its plan.
class CostScope {
 public:
  explicit CostScope(const Device&);
  ~CostScope();
  CostScope(const CostScope&) = delete;

 private:
  friend std::vector<Records::Record> costs_of_kind(const Device&, const std::string& prefix);
  friend bool has_costs(const Device&);
  static thread_local const CostScope* current_;
  const CostScope* const outer_;
  const std::string device_;
  std::vector<Records::Record> factors_;
};

}  // namespace minidnn
