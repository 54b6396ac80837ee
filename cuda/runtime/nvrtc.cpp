// SPDX-License-Identifier: Apache-2.0
// Finds NVRTC and calls it. The header of NVRTC belongs to the CUDA toolkit, which a build of this library must not
// need. This file therefore declares the dozen functions of NVRTC that it uses. The C interface of these functions has
// not changed since CUDA 8. For the functions that return cubins, it has not changed since CUDA 11.1.
#include "cuda/runtime/nvrtc.h"

#include <cstdlib>
#include <filesystem>
#include <mutex>

#include "cpp/core/error.h"
#include "cpp/core/platform.h"
#include "cuda/runtime/driver.h"

namespace minidnn::cuda {
namespace {

namespace fs = std::filesystem;

using Program = struct ProgramTag*;
struct Nvrtc {
  int (*nvrtcVersion)(int*, int*);
  const char* (*nvrtcGetErrorString)(int);
  int (*nvrtcCreateProgram)(Program*, const char* source, const char* name, int headers, const char* const* texts,
                            const char* const* names);
  int (*nvrtcDestroyProgram)(Program*);
  int (*nvrtcAddNameExpression)(Program, const char*);
  int (*nvrtcCompileProgram)(Program, int options, const char* const*);
  int (*nvrtcGetProgramLogSize)(Program, size_t*);
  int (*nvrtcGetProgramLog)(Program, char*);
  int (*nvrtcGetLoweredName)(Program, const char* expression, const char** lowered);
  int (*nvrtcGetCUBINSize)(Program, size_t*);
  int (*nvrtcGetCUBIN)(Program, char*);
};

struct Found {
  Nvrtc table{};
  NvrtcInfo info;
  std::string why;  // the reason why NVRTC is not usable, or "" if it is
};

std::vector<std::string>& search_path() {
  static auto* const folders = new std::vector<std::string>;
  return *folders;
}

std::function<std::string()>& finder() {
  static auto* const function = new std::function<std::string()>;
  return *function;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_nvrtc(const std::string& file) {
  return file.starts_with("libnvrtc") && file.find(".so") != file.npos && file.find("builtins") == file.npos &&
         // A name with .alt. is an older compiler, which PyPI packages add for old machines.
         file.find(".alt.") == file.npos;
}

std::vector<std::string> loaded_already() {
  std::vector<std::string> paths;
  for (const std::string& path : platform::mapped_files())
    if (is_nvrtc(fs::path(path).filename().string()) && (paths.empty() || paths.back() != path)) paths.push_back(path);
  return paths;
}

// The paths of the NVRTC libraries to try, in the order of preference. For a name without a folder, the system's loader
// finds the library.
std::vector<std::string> candidates() {
  std::vector<std::string> paths = loaded_already();
  if (finder())
    if (std::string path = finder()(); !path.empty()) paths.push_back(path);
  auto add = [&](const fs::path& folder, const char* name) {
    std::error_code ignored;
    if (fs::exists(folder / name, ignored)) paths.push_back((folder / name).string());
  };
  for (const std::string& folder : search_path()) {
    add(fs::path(folder) / "nvidia/cu13/lib", "libnvrtc.so.13");
    add(fs::path(folder) / "nvidia/cuda_nvrtc/lib", "libnvrtc.so.12");
  }
  for (fs::path toolkit : {environment("CUDA_HOME"), environment("CUDA_PATH"), std::string("/usr/local/cuda")}) {
    if (toolkit.empty()) continue;
    add(toolkit / "lib64", "libnvrtc.so.13");
    add(toolkit / "lib64", "libnvrtc.so.12");
  }
  paths.push_back("libnvrtc.so.13");
  paths.push_back("libnvrtc.so.12");
  for (const std::string& folder : search_path()) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(fs::path(folder) / "torch/lib", ignored))
      if (is_nvrtc(entry.path().filename().string())) paths.push_back(entry.path().string());
  }
  return paths;
}

// Loads NVRTC's builtins library from the folder of NVRTC. Without this, NVRTC would open its builtins library by a
// name without a folder. The loader does not search the folder of a PyPI package for that name.
void open_builtins_beside(const fs::path& library) {
  if (!library.has_parent_path()) return;
  std::string ignored_reason;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(library.parent_path(), ignored)) {
    std::string file = entry.path().filename().string();
    if (file.starts_with("libnvrtc-builtins") && file.find(".alt.") == file.npos)
      platform::load_library(entry.path().string(), ignored_reason);
  }
}

// Loads the NVRTC library at `path`, and sets `found`. Returns "", or the reason why the library is not usable.
std::string try_library(const std::string& path, Found& found) {
  std::string why;
  void* library = platform::load_library(path, why);
  if (!library) return why;
  Nvrtc& n = found.table;
  bool complete = true;
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(platform::find_symbol(library, name));
    complete = complete && function;
  };
  find(n.nvrtcVersion, "nvrtcVersion");
  find(n.nvrtcGetErrorString, "nvrtcGetErrorString");
  find(n.nvrtcCreateProgram, "nvrtcCreateProgram");
  find(n.nvrtcDestroyProgram, "nvrtcDestroyProgram");
  find(n.nvrtcAddNameExpression, "nvrtcAddNameExpression");
  find(n.nvrtcCompileProgram, "nvrtcCompileProgram");
  find(n.nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
  find(n.nvrtcGetProgramLog, "nvrtcGetProgramLog");
  find(n.nvrtcGetLoweredName, "nvrtcGetLoweredName");
  find(n.nvrtcGetCUBINSize, "nvrtcGetCUBINSize");
  find(n.nvrtcGetCUBIN, "nvrtcGetCUBIN");
  NvrtcInfo info;
  if (!complete || n.nvrtcVersion(&info.major, &info.minor) != 0) return "lacks functions of NVRTC";
  if (info.major < 12) return cat("is release ", info.major, '.', info.minor, "; C++20 needs 12.0 or later");
  int driver_major = driver_cuda_version() / 1000;
  if (driver_major && info.major > driver_major)
    return cat("is release ", info.major, '.', info.minor, ", and the driver is of CUDA ", driver_major,
               ", which loads no code of a later major release; install nvidia-cuda-nvrtc-cu", driver_major);
  info.path = platform::library_of(reinterpret_cast<const void*>(n.nvrtcVersion));
  if (info.path.empty()) info.path = path;
  open_builtins_beside(info.path);
  found.info = info;
  return "";
}

const Found& found() {
  static const Found* const result = [] {
    auto* fresh = new Found;
    const char* install = "; to compile kernels: pip install \"pyminidnn[cuda]\"";
    std::string chosen = environment("PYMINIDNN_NVRTC");
    if (chosen == "none") {
      fresh->why = cat("PYMINIDNN_NVRTC is 'none'", install);
    } else if (!chosen.empty()) {
      std::string why = try_library(chosen, *fresh);
      if (!why.empty()) fresh->why = cat("PYMINIDNN_NVRTC is '", chosen, "', which fails: ", why, install);
    } else {
      std::string tried;
      for (const std::string& path : candidates()) {
        std::string why = try_library(path, *fresh);
        if (why.empty()) return fresh;
        tried += cat("\n  ", why.starts_with(path) ? "" : path + " ", why);
      }
      fresh->why = cat("there is no usable NVRTC; tried", tried, install);
    }
    return fresh;
  }();
  return *result;
}

// The first 40 lines of a compiler's log. Later errors are often consequences of the first errors.
std::string head(const std::string& log) {
  constexpr size_t kLines = 40;
  size_t end = 0;
  for (size_t line = 0; line < kLines && end != log.npos; ++line) end = log.find('\n', end + (line > 0));
  return end == log.npos ? log : log.substr(0, end) + "\n...";
}

}  // namespace

void set_nvrtc_finder(std::function<std::string()> find) { finder() = std::move(find); }
void set_search_path(std::vector<std::string> folders) { search_path() = std::move(folders); }

std::string why_no_nvrtc() { return found().why; }

const NvrtcInfo& nvrtc_info() {
  const Found& f = found();
  MINIDNN_CHECK(DeviceError, f.why.empty(), f.why);
  return f.info;
}

std::string compile_cubin(const std::string& program_name, const std::string& source,
                          const std::map<std::string, std::string>& headers, const std::vector<std::string>& options,
                          const std::string& kernel_expression, std::string& lowered_name) {
  const NvrtcInfo& info = nvrtc_info();
  const Nvrtc& n = found().table;
  std::vector<const char*> names, texts, flags;
  for (const auto& [name, text] : headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  for (const std::string& option : options) flags.push_back(option.c_str());

  struct Owner {
    const Nvrtc& n;
    Program program = nullptr;
    ~Owner() {
      if (program) n.nvrtcDestroyProgram(&program);
    }
  } owner{n};
  auto must = [&](int result, const char* step) {
    if (result == 0) return;
    size_t size = 0;
    std::string log;
    if (owner.program && n.nvrtcGetProgramLogSize(owner.program, &size) == 0 && size > 1) {
      log.resize(size);
      n.nvrtcGetProgramLog(owner.program, log.data());
      log.resize(size - 1);
    }
    throw DeviceError(cat("compiling ", kernel_expression, " of ", program_name, " with ", join(options, " "), ": ",
                          step, " of NVRTC ", info.major, '.', info.minor, " (", info.path, ") gives ",
                          n.nvrtcGetErrorString(result), log.empty() ? "" : "\n", head(log)));
  };
  must(n.nvrtcCreateProgram(&owner.program, source.c_str(), program_name.c_str(), int(names.size()), texts.data(),
                            names.data()),
       "nvrtcCreateProgram");
  must(n.nvrtcAddNameExpression(owner.program, kernel_expression.c_str()), "nvrtcAddNameExpression");
  must(n.nvrtcCompileProgram(owner.program, int(flags.size()), flags.data()), "nvrtcCompileProgram");
  const char* lowered = nullptr;
  must(n.nvrtcGetLoweredName(owner.program, kernel_expression.c_str(), &lowered), "nvrtcGetLoweredName");
  lowered_name = lowered;
  size_t size = 0;
  must(n.nvrtcGetCUBINSize(owner.program, &size), "nvrtcGetCUBINSize");
  std::string code(size, '\0');
  must(n.nvrtcGetCUBIN(owner.program, code.data()), "nvrtcGetCUBIN");
  return code;
}

}  // namespace minidnn::cuda
