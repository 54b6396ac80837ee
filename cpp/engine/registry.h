// SPDX-License-Identifier: Apache-2.0
// A registry of all families by name, with facts about their engines. The Python function engines(), the documentation
// of engines, and the manifest of kernels use it.
#pragma once
#include <functional>

#include "cpp/engine/engine.h"

namespace minidnn {

struct EngineInfo {
  std::string name;
  int revision;
  unsigned traits;
};

struct FamilyInfo {
  std::string name;
  std::function<std::vector<EngineInfo>(bool cuda)> engines;
  std::function<std::vector<KernelSpec>()> kernels;
};

inline std::vector<FamilyInfo>& families() {
  static std::vector<FamilyInfo> all;
  return all;
}

// Registers a family. The function that binds the family to Python calls register_family() for each problem type of the
// family.
template <class P> void register_family() {
  families().push_back({Family<P>::name,
                        [](bool cuda) {
                          std::vector<EngineInfo> infos;
                          for (const Engine<P>* e : engines<P>({cuda, 0}))
                            infos.push_back({e->name(), e->revision(), e->traits()});
                          return infos;
                        },
                        [] {
                          std::vector<KernelSpec> specs;
                          for (const Engine<P>* e : Family<P>::cuda_engines())
                            for (KernelSpec& spec : e->kernels()) specs.push_back(std::move(spec));
                          return specs;
                        }});
}

}  // namespace minidnn
