// SPDX-License-Identifier: Apache-2.0
// Implements costs.h: what a line of the file of cost factors means.
#include "cpp/engine/costs.h"

#include <cmath>

#include "cpp/core/platform.h"
#include "cpp/core/read_number.h"

namespace minidnn {
namespace {

// A factor beyond this limit, or below its inverse, is no measurement of a working engine.
constexpr double kMostFactor = 1e4;

// Reads the last two of the fields of a record.
bool read_factor(const std::vector<std::string>& fields, int& revision, double& factor) {
  return read_integer(fields[fields.size() - 2], revision) && read_number(fields.back(), factor) &&
         factor >= 1 / kMostFactor && factor <= kMostFactor;
}

std::optional<Records::Record> record_of(const std::vector<std::string>& fields) {
  int revision = 0;
  double factor = 0;
  if (fields.size() != 5 || !read_factor(fields, revision, factor)) return {};
  return Records::Record{{fields[0], cat(fields[1], "\t", fields[2])}, cat(revision, "\t", factor)};
}

}  // namespace

std::string cost_kind(const std::string& problem) {
  const size_t end = problem.find(' ');
  const std::string family = problem.substr(0, end);
  if (family == "graph" || family == "pointwise" || family == "reduce") return family;
  return problem.substr(0, problem.find(' ', end + 1));
}

Records& costs() {
  static Records& all = *new Records(records_file("costs.txt"), record_of);
  [[maybe_unused]] static const int forks_wait =
      platform::at_fork([] { all.lock(); }, [] { all.unlock(); }, [] { all.unlock(); });
  return all;
}

thread_local const CostScope* CostScope::current_ = nullptr;

CostScope::CostScope(const Device& device) : outer_(current_), device_(device.model) {
  // An inner scope has the factors of the outermost one.
  if (outer_ && outer_->device_ == device_) return;
  factors_ = costs().starting_with(device_, "");
  current_ = this;
}
CostScope::~CostScope() { current_ = outer_; }

// Returns the factors of a device whose keys begin with `prefix`.
std::vector<Records::Record> costs_of_kind(const Device& device, const std::string& prefix) {
  const CostScope* const scope = CostScope::current_;
  if (!scope || scope->device_ != device.model) return costs().starting_with(device.model, prefix);
  std::vector<Records::Record> found;
  for (const Records::Record& r : scope->factors_)
    if (r.first.second.starts_with(prefix)) found.push_back(r);
  return found;
}

bool has_costs(const Device& device) {
  if (device.place.is_cuda) return false;
  const CostScope* const scope = CostScope::current_;
  return scope && scope->device_ == device.model ? !scope->factors_.empty() : !costs().empty();
}

double cost_factor(const Device& device, const std::string& problem, const std::string& engine, int revision) {
  const std::string prefix = cost_kind(problem) + "\t";
  const std::vector<Records::Record> of_kind = costs_of_kind(device, prefix);
  double logarithms = 0, count = 0;
  for (const auto& [key, value] : of_kind) {
    int measured_revision = 0;
    double factor = 1;
    read_factor(fields_of(value), measured_revision, factor);
    if (key.second.substr(prefix.size()) == engine) {
      if (measured_revision == revision) return factor;
      continue;
    }
    logarithms += std::log(factor);
    ++count;
  }
  return count ? std::exp(logarithms / count) : 1;
}

}  // namespace minidnn
