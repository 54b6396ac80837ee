// SPDX-License-Identifier: Apache-2.0
// The caches of kernel_cache.h. A cache file has four lines of text, followed by the cubin:
//   "pyminidnn cubin <format>" | key | symbol of the kernel | SHA-256 of key, symbol and code, in hex
// A file is written under a temporary name, synced and then renamed, so that no reader sees an incomplete file. If a
// file fails verification, it is replaced.
#include "cuda/runtime/kernel_cache.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <mutex>
#include <unordered_map>

#include "cpp/core/device/cuda_backend.h"
#include "cpp/core/error.h"
#include "cpp/core/platform.h"
#include "cpp/engine/log.h"
#include "cuda/runtime/nvrtc.h"
#include "cuda/runtime/sha256.h"

namespace minidnn::cuda {
namespace {

namespace fs = std::filesystem;
using Result = std::shared_ptr<const Cubin>;

// The format number of cache files. It must be incremented when the format of cache files or the meaning of a cache key
// changes.
constexpr int kFormat = 1;

struct State {
  std::mutex mutex;
  std::string root;
  std::vector<std::string> packaged;  // folders of packaged cubins
  std::unordered_map<std::string, std::shared_future<Result>> cubins;
  CacheStats stats;
};
State& state() {
  static auto* const all = new State;
  return *all;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Reads a file. Returns false if the path is not a regular file, or if reading fails.
bool read_file(const fs::path& path, std::string& text, platform::FileStatus& status) {
  platform::File file(path.string(), platform::File::Mode::read);
  if (!file) return false;
  status = file.status();
  return status.is_file && file.read_all(text);
}

// Returns "" if only this user may write to the file or folder. If not, returns the reason for not using it. A cubin is
// machine code, so other users must not be able to replace it.
std::string why_not_trusted(const platform::FileStatus& status) {
  if (!status.foreign_owner.empty()) return status.foreign_owner;
  if (status.others_may_write) return "other users may write to it; run chmod go-w on it";
  return "";
}

// Collects the files that `text` includes by quoted #includes, recursively, with names relative to `root`. Headers that
// only host code includes are collected, too.
void follow(const std::string& text, const std::string& from, const fs::path& root,
            std::map<std::string, std::string>& headers) {
  const char* space = " \t";
  for (size_t line = 0; line < text.size();) {
    size_t end = std::min(text.find('\n', line), text.size());
    std::string_view rest(text.data() + line, end - line);
    line = end + 1;
    auto skip = [&](std::string_view token) {
      rest.remove_prefix(std::min(rest.find_first_not_of(space), rest.size()));
      if (!rest.starts_with(token)) return false;
      rest.remove_prefix(token.size());
      return true;
    };
    if (!skip("#") || !skip("include") || !skip("\"")) continue;
    std::string name(rest.substr(0, rest.find('"')));
    auto [entry, fresh] = headers.try_emplace(name);
    if (!fresh) continue;
    platform::FileStatus ignored;
    MINIDNN_CHECK(DeviceError, read_file(root / name, entry->second, ignored), from, " includes \"", name,
                  "\", which is not a file in ", root.string());
    // The reference entry->second stays valid during the recursion, because a std::map does not move its elements.
    follow(entry->second, name, root, headers);
  }
}

std::vector<std::string> options_of(const KernelSpec& spec, const std::string& arch) {
  // The compiler options do not include -lineinfo, which makes the cubin of a small kernel 50 % larger. A profiling
  // build adds -lineinfo to spec.options.
  std::vector<std::string> options = {"--std=c++20", "--gpu-architecture=" + arch};
  options.insert(options.end(), spec.options.begin(), spec.options.end());
  return options;
}

// Appends a field to the text of a key. The length of the field comes first, so that the fields ("ab", "c") and ("a",
// "bc") give different keys.
void append_field(std::string& all, const std::string& field) { all += cat(field.size(), ':') + field; }

std::string key_of(const Sources& sources, const KernelSpec& spec, const std::string& arch) {
  std::string all;
  append_field(all, cat(kFormat));
  append_field(all, sources.program);
  for (const auto& [name, text] : sources.headers) {
    append_field(all, name);
    append_field(all, text);
  }
  append_field(all, spec.kernel);
  for (const std::string& option : options_of(spec, arch)) append_field(all, option);
  return sha256_hex(all);
}

std::string entry_head(const std::string& key, const std::string& kernel_name, const std::string& code) {
  std::string digest = sha256_hex(cat(key, '\n', kernel_name, '\n') + code);
  return cat("pyminidnn cubin ", kFormat, '\n', key, '\n', kernel_name, '\n', digest, '\n');
}

// Reads a cubin from a cache file. Returns null if the file does not exist, or if its content does not match `key`. The
// owner of a packaged cubin is not checked, because it is the user who installed the package.
std::shared_ptr<Cubin> read_entry(const fs::path& path, const std::string& key, bool packaged) {
  std::string text, why;
  platform::FileStatus status;
  if (!read_file(path, text, status)) return nullptr;
  if (!packaged && !(why = why_not_trusted(status)).empty()) {
    log_line(cat(path.string(), " is not used: ", why));
    return nullptr;
  }
  size_t end = 0, start[4]{};
  for (int i = 0; i < 4 && end != text.npos; ++i) {
    start[i] = end + (i > 0);
    end = text.find('\n', start[i]);
  }
  if (end != text.npos) {
    auto cubin = std::make_shared<Cubin>();
    cubin->kernel_name = text.substr(start[2], start[3] - 1 - start[2]);
    cubin->code = text.substr(end + 1);
    if (!cubin->code.empty() && text.starts_with(entry_head(key, cubin->kernel_name, cubin->code))) return cubin;
  }
  log_line(cat(path.string(), " is damaged and will be made again"));
  return nullptr;
}

// Writes a cubin to a cache file. Returns "", or the reason why the file could not be written.
std::string write_entry(const fs::path& path, const std::string& key, const Cubin& cubin) {
  static std::atomic<int> count{0};
  std::string temporary = cat(path.string(), '.', platform::process_id(), '.', count++, ".tmp");
  std::string bytes = entry_head(key, cubin.kernel_name, cubin.code) + cubin.code;
  platform::File file(temporary, platform::File::Mode::create);
  const bool created = bool(file);
  if (created && file.write(bytes) && file.sync() && file.close() && platform::rename(temporary, path.string()))
    return "";
  std::string why = cat(path.string(), " cannot be written: ", std::strerror(errno));
  file.close();
  if (created) std::remove(temporary.c_str());
  return why;
}

bool make_folders(const fs::path& path) {
  if (platform::make_folder(path.string()) || errno == EEXIST) return true;
  if (errno != ENOENT || !path.has_parent_path() || path.parent_path() == path) return false;
  return make_folders(path.parent_path()) && (platform::make_folder(path.string()) || errno == EEXIST);
}

// Creates the folder if it does not exist. Returns "", or the reason why the folder cannot be used as a cache.
std::string open_folder(const fs::path& path) {
  if (!make_folders(path)) return std::strerror(errno);
  const platform::FileStatus status = platform::status(path.string());
  return status.is_folder ? why_not_trusted(status) : "not a folder";
}

std::string open_cache_folder() {
  std::string path = environment("PYMINIDNN_CACHE_DIR");
  if (path.empty() && !environment("XDG_CACHE_HOME").empty()) path = environment("XDG_CACHE_HOME") + "/pyminidnn";
  if (path.empty() && !platform::user_cache_folder().empty()) path = platform::user_cache_folder() + "/pyminidnn";
  if (path.empty()) return "";
  const std::string why = open_folder(path);
  if (why.empty()) return path;
  log_line(cat("kernels are kept in memory only: ", path, ": ", why));
  return "";
}

// Deletes the least recently used cache files until the cache folder has at most kCacheBytes bytes. Only files with the
// extensions .cubin and .tmp in subfolders sm_* are counted and deleted.
void trim(const fs::path& folder) {
  struct Entry {
    fs::file_time_type used;
    int64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  int64_t total = 0;
  std::error_code error;
  for (const auto& arch : fs::directory_iterator(folder, error)) {
    if (!arch.path().filename().string().starts_with("sm_")) continue;
    for (const auto& file : fs::directory_iterator(arch, error)) {
      auto extension = file.path().extension();
      if ((extension != ".cubin" && extension != ".tmp") || !file.is_regular_file(error)) continue;
      entries.push_back({file.last_write_time(error), int64_t(file.file_size(error)), file.path()});
      total += entries.back().bytes;
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (size_t i = 0; i < entries.size() && total > kCacheBytes; ++i) {
    fs::remove(entries[i].path, error);
    total -= entries[i].bytes;
  }
}

Result compile(const Sources& sources, const KernelSpec& spec, const std::string& arch) {
  MINIDNN_CHECK(DeviceError, why_no_nvrtc().empty(), "kernel ", spec.kernel, " for ", arch,
                " is in no cache and cannot be compiled: ", why_no_nvrtc());
  auto made = std::make_shared<Cubin>();
  auto begin = std::chrono::steady_clock::now();
  made->code = compile_cubin("generated:" + spec.file, sources.program, sources.headers, options_of(spec, arch),
                             spec.kernel, made->kernel_name);
  made->compile_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  made->origin = "nvrtc";
  log_line(cat("compiled ", spec.kernel, " for ", arch, " in ", made->compile_seconds, " s"));
  return made;
}

// Obtains a cubin that is not in memory: a packaged cubin, else one from the disk cache, else one from the compiler. If
// `recompiled`, it always comes from the compiler.
Result obtain(const KernelSpec& spec, const std::string& arch, bool recompiled) {
  const Sources sources = sources_of(spec);
  const std::string key = key_of(sources, spec, arch), file = key + ".cubin";
  if (!recompiled)
    for (const fs::path folder : state().packaged)
      if (auto packaged = read_entry(folder / arch / file, key, true)) {
        packaged->origin = "packaged";
        return packaged;
      }
  if (!why_no_nvrtc().empty() || cache_folder().empty()) return compile(sources, spec, arch);
  const NvrtcInfo& nvrtc = nvrtc_info();
  const fs::path folder = fs::path(cache_folder()) / cat(arch, "-nvrtc", nvrtc.major, '.', nvrtc.minor);
  const fs::path path = folder / file;
  if (std::string why = open_folder(folder); !why.empty()) {
    log_line(cat("kernels for ", arch, " are kept in memory only: ", folder.string(), ": ", why));
    return compile(sources, spec, arch);
  }
  if (!recompiled) {
    if (auto stored = read_entry(path, key, false)) {
      // This call sets the time of the file to now. trim() deletes the files with the oldest times.
      std::error_code ignored;
      fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
      stored->origin = "disk";
      return stored;
    }
  }
  Result made = compile(sources, spec, arch);
  std::string why = write_entry(path, key, *made);
  if (why.empty()) trim(cache_folder());
  else log_line(why);  // this is not an error: the kernel is compiled, but the next process has to compile it again
  return made;
}

void count(const Cubin& cubin) {
  State& s = state();
  std::lock_guard lock(s.mutex);
  if (cubin.origin == "packaged") ++s.stats.packaged;
  else if (cubin.origin == "disk") ++s.stats.disk;
  else ++s.stats.nvrtc;
  s.stats.compile_seconds += cubin.compile_seconds;
}

// Returns the cubin in memory. If it is not in memory, calls obtain(). If several threads need the same cubin, one
// thread calls obtain(), and the other threads wait for its result. A failure is not cached.
Result shared(const KernelSpec& spec, const std::string& arch, bool recompiled) {
  State& s = state();
  std::string id = identity(spec);
  append_field(id, arch);
  std::promise<Result> promise;
  {
    std::unique_lock lock(s.mutex);
    auto [entry, fresh] = s.cubins.try_emplace(id);
    if (!fresh && !recompiled) {
      ++s.stats.memory;
      std::shared_future<Result> made = entry->second;
      lock.unlock();
      return made.get();
    }
    entry->second = promise.get_future().share();
  }
  try {
    Result made = obtain(spec, arch, recompiled);
    count(*made);
    promise.set_value(made);
    return made;
  } catch (...) {
    {
      std::lock_guard lock(s.mutex);
      s.cubins.erase(id);
    }
    promise.set_exception(std::current_exception());
    throw;
  }
}

}  // namespace

void set_package_folder(std::string root, const std::vector<std::string>& packages) {
  state().packaged = {root + "/cubins"};
  state().packaged.insert(state().packaged.end(), packages.begin(), packages.end());
  state().root = std::move(root);
}

std::string identity(const KernelSpec& spec) {
  std::string id;
  for (const std::string* field : {&spec.file, &spec.kernel, &spec.generated}) append_field(id, *field);
  for (const std::string& option : spec.options) append_field(id, option);
  append_field(id, cat(spec.min_arch));
  return id;
}

Sources sources_of(const KernelSpec& spec) {
  const std::string& root = state().root;
  MINIDNN_CHECK(DeviceError, !root.empty(), "kernel ", spec.kernel, ": set_package_folder() has not been called");
  Sources sources;
  sources.program = cat("#include \"", spec.file, "\"\n", spec.generated);
  follow(sources.program, cat("the program of kernel ", spec.kernel), root, sources.headers);
  return sources;
}

std::string cache_key(const KernelSpec& spec, const std::string& arch) { return key_of(sources_of(spec), spec, arch); }

Result cubin(const KernelSpec& spec, const std::string& arch) { return shared(spec, arch, false); }
Result recompile(const KernelSpec& spec, const std::string& arch) { return shared(spec, arch, true); }

std::string arch_for(const KernelSpec& spec, int device_arch) {
  MINIDNN_CHECK(DeviceError, device_arch >= spec.min_arch, "kernel ", spec.kernel, " needs compute capability ",
                spec.min_arch / 10, '.', spec.min_arch % 10, "; this GPU has ", device_arch / 10, '.',
                device_arch % 10);
  int generation = device_arch / 10 * 10;
  return cat("sm_", std::max(generation, spec.min_arch), generation == 90 ? "a" : "");
}

void compile_to(const KernelSpec& spec, const std::string& arch, const std::string& folder) {
  const Sources sources = sources_of(spec);
  const std::string key = key_of(sources, spec, arch);
  const fs::path path = fs::path(folder) / arch / (key + ".cubin");
  if (read_entry(path, key, true)) return;
  Result made = compile(sources, spec, arch);
  count(*made);
  // If create_directories() fails, its error is ignored, because write_entry() then fails and reports the reason.
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  std::string why = write_entry(path, key, *made);
  MINIDNN_CHECK(DeviceError, why.empty(), why);
}

std::string cache_folder() {
  static const auto* const folder = new std::string(open_cache_folder());
  return *folder;
}

CacheStats cache_stats() {
  std::lock_guard lock(state().mutex);
  return state().stats;
}

}  // namespace minidnn::cuda
