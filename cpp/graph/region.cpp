// SPDX-License-Identifier: Apache-2.0
// Implements region.h: the regions that are kept, their text, and their memory for find().
#include "cpp/graph/region.h"

#include <bit>
#include <deque>
#include <map>
#include <mutex>

#include "cpp/core/platform.h"

namespace minidnn {
namespace {

constexpr int64_t kCandidate = -1;  // the id of a RegionCandidate
thread_local const Region* candidate = nullptr;

// The regions that are kept, by all their words. Entries are never removed, so a region has a constant address.
struct Kept {
  std::mutex mutex;
  std::map<std::vector<int64_t>, int64_t> ids;
  std::deque<Region> regions;
};
// fork() locks the mutex. Otherwise a child process could inherit it locked by a thread that the child lacks.
Kept& kept() {
  static Kept& all = *new Kept;
  [[maybe_unused]] static const int forks_wait =
      platform::at_fork([] { all.mutex.lock(); }, [] { all.mutex.unlock(); }, [] { all.mutex.unlock(); });
  return all;
}

void append(std::vector<int64_t>& words, const TensorDesc& d) {
  words.insert(words.end(), {int64_t(d.dtype), d.rank});
  words.insert(words.end(), d.shape, d.shape + d.rank);
  words.insert(words.end(), d.stride, d.stride + d.rank);
}

// Returns all that makes a region different from another one.
std::vector<int64_t> words_of(const Region& r) {
  std::vector<int64_t> words;
  for (const RegionNode& n : r.nodes) {
    words.insert(words.end(), {int64_t(reinterpret_cast<intptr_t>(n.kind)), int64_t(n.ports.size())});
    words.insert(words.end(), n.problem.begin(), n.problem.end());
    for (const RegionPort& p : n.ports) {
      words.insert(words.end(), {p.value, p.word, p.reads, p.writes});
      append(words, p.desc);
    }
  }
  for (const RegionValue& v : r.values) words.insert(words.end(), {v.input, v.output, v.alignment, v.number});
  return words;
}

// Visits the ports of one node for find(): values that are not internal get memory, which all nodes share.
class NodePorts final : public Ports {
 public:
  NodePorts(const Region& r, const RegionNode& n, uint64_t* words, Ports& inner)
      : region_(r), node_(n), words_(words), inner_(inner) {}
  void number(const char* name, double& slot, double usual) override { inner_.number(name, slot, usual); }
  void bits(uint64_t& slot, uint64_t usual) override { inner_.bits(slot, usual); }
  void seed(const char* name, uint64_t& slot) override { inner_.seed(name, slot); }

 private:
  void tensor(Access, const char* name, const TensorDesc&, void*& slot) override {
    const auto word = size_t(reinterpret_cast<uint64_t*>(&slot) - words_);
    for (const RegionPort& p : node_.ports) {
      if (node_.first_word + size_t(p.word) != word) continue;
      const RegionValue& v = region_.values[size_t(p.value)];
      if (v.internal()) return;
      if (v.slot != word) slot = reinterpret_cast<void*>(words_[v.slot]);
      else inner_.in_out(name, v.desc, slot);
      return;
    }
  }
  const Region& region_;
  const RegionNode& node_;
  uint64_t* const words_;
  Ports& inner_;
};

double bytes_of(const TensorDesc& d) {
  double n = double(itemsize(d.dtype));
  for (int i = 0; i < d.rank; ++i) n *= d.stride[i] == 0 ? 1 : double(d.shape[i]);
  return n;
}

}  // namespace

const RegionPort* RegionNode::port(std::string_view name) const {
  for (const RegionPort& p : ports)
    if (p.name == name) return &p;
  return nullptr;
}

std::string Region::text() const {
  std::vector<std::string> names;
  int numbers = 0, inputs = 0, outputs = 0, internals = 0;
  for (const RegionValue& v : values)
    names.push_back(v.number >= 0 ? cat("n", numbers++)
                    : v.input     ? cat("x", inputs++)
                    : v.output    ? cat("y", outputs++)
                                  : cat("%", internals++));
  std::string text;
  for (const RegionNode& n : nodes) {
    text += cat(text.empty() ? "" : " ; ", n.text(), " |");
    for (const RegionPort& p : n.ports) text += cat(" ", p.name, "=", names[size_t(p.value)]);
  }
  return text;
}

double Region::bytes_apart() const {
  double bytes = 0;
  for (const RegionNode& n : nodes)
    for (const RegionPort& p : n.ports) bytes += bytes_of(p.desc) * (p.reads + p.writes);
  return bytes;
}

double Region::bytes_together() const {
  double bytes = 0;
  for (const RegionValue& v : values) bytes += bytes_of(v.desc) * (v.input + v.output);
  return bytes;
}

std::optional<RegionProblem> keep_region(const Region& r, bool rounding_each) {
  int64_t alignment = 16;
  for (const RegionValue& v : r.values) alignment = std::min(alignment, v.alignment);
  std::vector<int64_t> words = words_of(r);
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  if (auto known = all.ids.find(words); known != all.ids.end())
    return RegionProblem{known->second, alignment, rounding_each};
  if (all.regions.size() >= kMostRegions) return {};
  const auto id = int64_t(all.regions.size());
  all.regions.push_back(r);
  all.ids.emplace(std::move(words), id);
  return RegionProblem{id, alignment, rounding_each};
}

const Region& region_of(const RegionProblem& p) {
  if (p.id == kCandidate) return *candidate;
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  return all.regions[size_t(p.id)];
}

RegionCandidate::RegionCandidate(const Region& r, bool rounding_each)
    : problem_{kCandidate, 16, rounding_each}, outer_(candidate) {
  for (const RegionValue& v : r.values) problem_.alignment = std::min(problem_.alignment, v.alignment);
  candidate = &r;
}
RegionCandidate::~RegionCandidate() { candidate = outer_; }

std::string Family<RegionProblem>::text(const RegionProblem& p) {
  std::string text = cat(name, " ", region_of(p).text());
  if (p.rounding_each) text += " rounding=each";
  if (p.alignment < 16) text += cat(" align=", p.alignment);
  return text;
}

void Family<RegionProblem>::ports(const RegionProblem& p, RegionArgs& a, Ports& v) {
  const Region& r = region_of(p);
  uint64_t* words = v.words(r.words);
  for (const RegionNode& n : r.nodes) {
    NodePorts node(r, n, words, v);
    n.kind->ports(n.problem.data(), words + n.first_word, node);
  }
  for (const RegionValue& value : r.values)
    if (value.number >= 0) words[value.number] = std::bit_cast<uint64_t>(1.0);
  a.words = words;
}

}  // namespace minidnn
