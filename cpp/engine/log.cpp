// SPDX-License-Identifier: Apache-2.0
// Implements log.h.
#include "cpp/engine/log.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "cpp/core/device/cuda_backend.h"
#include "cpp/core/device/memory.h"
#include "cpp/core/platform.h"
#include "cpp/engine/nvtx.h"

namespace minidnn {
namespace {

enum class Level { off, info, debug };

struct Log {
  Level level = Level::off;
  bool us = false, nvtx = false;
  platform::File file = platform::File::standard_error();
  std::string invalid{};  // why PYMINIDNN_LOG is not valid, or ""

  bool on() const { return level != Level::off || nvtx || !invalid.empty(); }
};

std::shared_ptr<const Log> log_of(const std::string& name, const std::string& words) {
  auto log = std::make_shared<Log>();
  bool has_level = false, has_output = false;
  auto set_level = [&](Level level) {
    log->level = level;
    has_level = true;
  };
  for (size_t begin = 0; begin < words.size();) {
    size_t end = std::min(words.find(',', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    if (word.empty()) {
      // A comma at the start or at the end is allowed.
    } else if (word == "off") set_level(Level::off);
    else if (word == "info") set_level(Level::info);
    else if (word == "debug") set_level(Level::debug);
    else if (word == "nvtx") log->nvtx = true;
    else if (word == "us") log->us = has_output = true;
    else if (word.starts_with("file=")) {
      const std::string path = words.substr(begin + 5);
      end = words.size();
      has_output = true;
      log->file = platform::File(path, platform::File::Mode::log);
      MINIDNN_CHECK(ShapeError, log->file, name, " names the file '", path,
                    "', which cannot be opened: ", std::strerror(errno));
    } else
      throw ShapeError(cat(
          name, " must be words of off, info, debug, us, nvtx and file=PATH, separated by commas; got '", word, "'"));
    begin = end + 1;
  }
  if (!has_level && has_output) log->level = Level::info;
  return log;
}

std::shared_ptr<const Log> log_of_environment() {
  const char* words = std::getenv("PYMINIDNN_LOG");
  try {
    return log_of("PYMINIDNN_LOG", words ? words : "");
  } catch (const ShapeError& error) {
    auto log = std::make_shared<Log>();
    log->invalid = error.what();
    return log;
  }
}

// Each call keeps the log that it began with, so that a replaced file is closed after the last call that writes to it.
// The object is never destroyed, because threads may log while the process exits.
struct Current {
  std::mutex mutex;
  std::shared_ptr<const Log> log = log_of_environment();
};
Current& current() {
  static auto* const c = new Current;
  // fork() locks the mutex. Otherwise a child process could inherit it locked by a thread that the child lacks.
  [[maybe_unused]] static const int forks_wait =
      platform::at_fork([] { c->mutex.lock(); }, [] { c->mutex.unlock(); }, [] { c->mutex.unlock(); });
  return *c;
}
std::shared_ptr<const Log> current_log() {
  std::lock_guard lock(current().mutex);
  return current().log;
}

// Lines of one call are written by a single write(), so that lines of threads and processes do not mix. If a log
// cannot be written, the call goes on.
void write_lines(const Log& log, const std::string& lines) { log.file.write(lines); }

std::string lines_of(const Log& log, const Report& report, const std::string& engine, const std::string& config,
                     const std::string& time) {
  std::string lines = cat("pyminidnn: ", report.problem, " on ", report.device, " -> ", engine,
                          config.empty() ? "" : " " + config, time, "\n");
  if (log.level == Level::debug)
    for (const EngineReport& e : report.engines) {
      if (e.name == engine) continue;
      lines += cat("pyminidnn:   not ", e.name, ": ",
                   e.why_not.empty() ? cat("estimated ", e.estimate_us, " us") : e.why_not, "\n");
    }
  return lines;
}

double microseconds(const Handle& h, const std::function<void()>& run) {
  if (h.place().is_cuda) return cuda::time_us(h.place().index, h.stream(), run);
  const auto begin = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

std::atomic<bool> detail::log_is_on = current().log->on();

void set_log(const std::string& name, const std::string& words) {
  std::shared_ptr<const Log> fresh = log_of(name, words);
  std::lock_guard lock(current().mutex);
  current().log.swap(fresh);
  detail::log_is_on = current().log->on();
}

std::string why_no_log() { return current_log()->invalid; }

void log_line(const std::string& line) {
  if (!logs()) return;
  const std::shared_ptr<const Log> log = current_log();
  if (log->level != Level::off) write_lines(*log, cat("pyminidnn: ", line, "\n"));
}

void run_logged(const Handle& h, const Report& report, const std::string& engine, const std::string& config,
                const std::function<void()>& run) {
  const std::shared_ptr<const Log> log = current_log();
  MINIDNN_CHECK(ShapeError, log->invalid.empty(), log->invalid);
  // Work that a CUDA graph captures does not run now, so it has no time.
  const bool timed = log->us && run && !memory_of(h.place()).capture(h.stream()).id;
  if (log->level != Level::off && !timed) write_lines(*log, lines_of(*log, report, engine, config, ""));
  if (!run) return;
  const nvtx::Range range(log->nvtx ? report.problem : "");
  if (!timed) return run();
  const double us = microseconds(h, run);
  if (log->level != Level::off) write_lines(*log, lines_of(*log, report, engine, config, cat(" in ", us, " us")));
}

}  // namespace minidnn
