// SPDX-License-Identifier: Apache-2.0
// The log: what calls report on stderr or in a file, and NVTX ranges. The environment variable PYMINIDNN_LOG and
// set_log() select it by words, separated by commas:
//   off, info, debug   the level. "info": each call prints a line with its problem, device, engine and config. "debug":
//                      also why the other engines were not chosen. The default is "info" if `us` or `file` is given.
//   us                 each line ends with the microseconds of the call. The call then waits for the device.
//   nvtx               each call is an NVTX range, whose name is the text of the problem
//   file=PATH          lines are appended to this file. It is the last word, so PATH may contain commas.
#pragma once
#include <atomic>
#include <functional>
#include <string>

#include "cpp/core/handle.h"
#include "cpp/engine/report.h"

namespace minidnn {

namespace detail {
extern std::atomic<bool> log_is_on;
}
// Whether calls must use run_logged(). It is also true if PYMINIDNN_LOG is not valid.
inline bool logs() { return detail::log_is_on.load(std::memory_order_relaxed); }

// Replaces the selection of PYMINIDNN_LOG. Throws ShapeError, and changes nothing, if `words` is not valid. The text of
// the error begins with `name`.
void set_log(const std::string& name, const std::string& words);
// Why PYMINIDNN_LOG is not valid; "" if it is, or if set_log() has replaced it.
std::string why_no_log();
// Prints a line that belongs to no call. Prints nothing if the level is "off".
void log_line(const std::string&);
// Calls `run`, and reports it as a call of an engine. If `run` is empty, the call is only reported, without its time.
// Throws ShapeError with the text of why_no_log(), if there is one.
void run_logged(const Handle&, const Report&, const std::string& engine, const std::string& config,
                const std::function<void()>& run);

}  // namespace minidnn
