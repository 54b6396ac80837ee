// SPDX-License-Identifier: Apache-2.0
// Implements records.h: reads, appends and replaces the lines of a file, while other processes do so, too.
#include "cpp/engine/records.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "cpp/core/device/cuda_backend.h"
#include "cpp/core/error.h"
#include "cpp/core/platform.h"
#include "cpp/engine/log.h"

namespace minidnn {
namespace {

using platform::File;

// Returns the reason why the file must not be trusted, or an empty text. Trust matters because the records of the file
// choose which engine runs and with which config.
std::string why_not_ours(const File& file) {
  const platform::FileStatus status = file.status();
  if (!status.is_file) return "it is not a regular file";
  if (!status.foreign_owner.empty()) return status.foreign_owner;
  if (status.others_may_write) return "other users may write to it; run chmod 600 on it";
  return "";
}

std::string text_of(File& file) {
  std::string text;
  file.read_all(text);
  return text;
}

std::string text_of(const std::map<Records::Key, std::string>& lines) {
  std::string text;
  for (const auto& [key, value] : lines) text += cat(key.first, "\t", key.second, "\t", value, "\n");
  return text;
}

template <class F> void each_line(const std::string& text, F&& f) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    f(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

// Appends `bytes` to the file. Returns an empty text, or the text of the error. After an error the file is truncated to
// its previous length, if possible.
std::string write_all(File& file, const std::string& bytes) {
  const int64_t before = file.size();
  if (file.write(bytes)) return "";
  const std::string why = std::strerror(errno);
  if (before >= 0) file.truncate(before);
  return why;
}

}  // namespace

std::string records_file(const std::string& name) {
  const std::string folder = cuda::cache_folder();
  return folder.empty() ? folder : folder + "/" + name;
}

std::vector<std::string> fields_of(const std::string& text) {
  std::vector<std::string> fields{""};
  for (char c : text)
    if (c == '\t') fields.emplace_back();
    else fields.back() += c;
  return fields;
}

bool read_integer(const std::string& text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

Records::Records(std::string file, Parse* parse) : file_(std::move(file)), parse_(parse) {
  if (file_.empty()) return;
  File in(file_, File::Mode::read);
  if (!in) {
    if (errno != ENOENT) refusal_ = cat(file_, ": ", std::strerror(errno));
    return;
  }
  if (const std::string why = why_not_ours(in); !why.empty()) {
    refusal_ = cat(file_, " is not used: ", why);
    log_line(refusal_);
    return;
  }
  each_line(text_of(in), [&](const std::string& line) {
    if (auto record = parse_(fields_of(line))) lines_[record->first] = record->second;
  });
}

std::optional<std::string> Records::find(const std::string& device, const std::string& key) const {
  std::lock_guard guard(mutex_);
  auto it = lines_.find({device, key});
  if (it == lines_.end()) return std::nullopt;
  return it->second;
}

std::vector<Records::Record> Records::starting_with(const std::string& device, const std::string& prefix) const {
  std::lock_guard guard(mutex_);
  std::vector<Record> found;
  for (auto it = lines_.lower_bound({device, prefix});
       it != lines_.end() && it->first.first == device && it->first.second.starts_with(prefix); ++it)
    found.push_back(*it);
  return found;
}

bool Records::empty() const {
  std::lock_guard guard(mutex_);
  return lines_.empty();
}

std::string Records::remember(const Record& record) {
  std::lock_guard guard(mutex_);
  const bool replaces = !lines_.insert_or_assign(record.first, record.second).second;
  ++generation_;
  if (std::string why = why_not_kept(); !why.empty()) return why;
  const std::string why = write({record}, replaces);
  return why.empty() ? why : cat(file_, ": ", why);
}

std::string Records::text() const {
  std::lock_guard guard(mutex_);
  return text_of(lines_);
}

Records::Lines Records::lines_of(const std::string& text) const {
  Lines lines;
  int64_t number = 0;
  each_line(text, [&](const std::string& line) {
    ++number;
    const auto record = parse_(fields_of(line));
    MINIDNN_CHECK(ShapeError, record, "record ", number, " is not valid: '", line.substr(0, 80), "'");
    lines.insert_or_assign(record->first, record->second);
  });
  return lines;
}

int64_t Records::import_text(const std::string& text, bool replace) {
  Lines fresh = lines_of(text);
  std::lock_guard guard(mutex_);
  if (!replace) std::erase_if(fresh, [&](const auto& line) { return lines_.contains(line.first); });
  std::string why = why_not_kept();
  if (why.empty() && !fresh.empty()) why = write(fresh, replace);
  MINIDNN_CHECK(DeviceError, why.empty(), "the records cannot be kept: ", why);
  for (const auto& [key, value] : fresh) lines_.insert_or_assign(key, value);
  ++generation_;
  return int64_t(fresh.size());
}

void Records::clear() {
  std::lock_guard guard(mutex_);
  if (!file_.empty()) {
    File locked(file_ + ".lock", File::Mode::append);
    MINIDNN_CHECK(DeviceError, locked && locked.lock(), file_, ".lock: ", std::strerror(errno));
    MINIDNN_CHECK(DeviceError, std::remove(file_.c_str()) == 0 || errno == ENOENT, file_, ": ", std::strerror(errno));
  }
  lines_.clear();
  ++generation_;
}

std::string Records::why_not_kept() const {
  if (file_.empty()) return "there is no cache folder";
  if (!refusal_.empty()) return refusal_;
  const std::string folder = file_.substr(0, file_.rfind('/'));
  for (const std::string& path : {folder, file_})
    if (!platform::may_write(path) && errno != ENOENT) return cat(path, ": ", std::strerror(errno));
  return "";
}

// Writes records to the file, while other processes may write, too. New records are appended under a file lock. To
// replace records, the function writes a new file and renames it, so that readers see either the old file or the new
// one.
std::string Records::write(const Lines& records, bool replaces) const {
  File guard(file_ + ".lock", File::Mode::append);
  if (!guard || !guard.lock()) return std::strerror(errno);
  File file(file_, File::Mode::append);
  if (!file) return std::strerror(errno);
  if (const std::string why = why_not_ours(file); !why.empty()) return why;
  const std::string added = text_of(records);
  if (!replaces) {
    // After a full disk or a killed process, the last line may lack its newline. The new record then begins with one.
    char last = '\n';
    if (file.size() > 0 && !file.last_byte(last)) return std::strerror(errno);
    return write_all(file, last == '\n' ? added : "\n" + added);
  }
  std::string text;
  each_line(text_of(file), [&](const std::string& old) {
    const auto other = parse_(fields_of(old));
    if (!other || !records.contains(other->first)) text += old + "\n";
  });
  const std::string aside = file_ + ".new";
  File copy(aside, File::Mode::replace);
  if (!copy) return std::strerror(errno);
  std::string why = write_all(copy, text + added);
  // Windows renames no open file, and replaces none.
  file.close();
  if (why.empty() && !(copy.sync() && copy.close() && platform::rename(aside, file_))) why = std::strerror(errno);
  if (!why.empty()) {
    copy.close();
    std::remove(aside.c_str());
  }
  return why;
}

}  // namespace minidnn
