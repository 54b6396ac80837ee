// SPDX-License-Identifier: Apache-2.0
// NVTX ranges, which profilers such as Nsight Systems show on the time line of a thread. NVTX has no library: a
// profiler names its own library in the environment variable NVTX_INJECTION64_PATH, and the program opens it.
#pragma once
#include <string>

namespace minidnn::nvtx {

// A range of the calling thread, from construction to destruction. It does nothing if `name` is empty or if no profiler
// is attached.
class Range {
 public:
  explicit Range(const std::string& name);
  ~Range();
  Range(const Range&) = delete;

 private:
  bool open_ = false;
};

}  // namespace minidnn::nvtx
