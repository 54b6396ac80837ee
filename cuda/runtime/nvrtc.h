// SPDX-License-Identifier: Apache-2.0
// NVRTC, the CUDA compiler as a library. It is searched for at first use, and compiles cubins. Search order:
// $PYMINIDNN_NVRTC (a path, or "none"), a copy that the process has loaded, PyPI packages, a CUDA toolkit, the system's
// loader, torch's copy. A version of NVRTC that is newer than the driver's major version is skipped.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace minidnn::cuda {

// Sets the folders that may contain nvidia/*/lib and torch/lib (Python's sys.path). Must be called before the functions
// below.
void set_search_path(std::vector<std::string> folders);

struct NvrtcInfo {
  std::string path;
  int major = 0, minor = 0;
};
const NvrtcInfo& nvrtc_info();  // throws DeviceError with why_no_nvrtc() if there is no NVRTC
// Returns "" if NVRTC is available. Otherwise the text says what was tried and what to install.
std::string why_no_nvrtc();

// Compiles `source` to a cubin. `headers` maps the names in its #includes to the text of the headers; no file is read.
// `kernel_expression` names the template instance to compile, and `lowered_name` receives its symbol. If compilation
// fails, throws DeviceError with the first lines of the compiler's log. Thread-safe.
std::string compile_cubin(const std::string& program_name, const std::string& source,
                          const std::map<std::string, std::string>& headers, const std::vector<std::string>& options,
                          const std::string& kernel_expression, std::string& lowered_name);

}  // namespace minidnn::cuda
