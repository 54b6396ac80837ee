// SPDX-License-Identifier: Apache-2.0
// Implements tuning.h: reads, appends and replaces the records of the tuning file, while other processes do so, too.
#include "cpp/engine/tuning.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cpp/core/device/cuda_backend.h"
#include "cpp/core/platform.h"
#include "cpp/core/read_number.h"
#include "cpp/engine/log.h"

namespace minidnn {
namespace {

using Key = std::pair<std::string, std::string>;

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

bool read_revision(const std::string& text, int& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// The names that engines had before version 0.1.0, and their current names.
constexpr std::pair<std::string_view, std::string_view> kRenamedEngines[]{
    {"cpu.activation.dense", "cpu.activation.vectorized"},
    {"cpu.conv.filter_taps", "cpu.conv.small_channel_filter"},
    {"cpu.conv.filter_tiles", "cpu.conv.implicit_gemm_filter"},
    {"cpu.conv.groups", "cpu.conv.grouped_nhwc"},
    {"cpu.conv.planes", "cpu.conv.direct_nchw"},
    {"cpu.conv.reduce", "cpu.conv.bias_reduction"},
    {"cpu.conv.then_reduce", "cpu.conv.unfused_statistics"},
    {"cpu.conv.tiles", "cpu.conv.implicit_gemm"},
    {"cpu.loss.dense", "cpu.loss.vectorized"},
    {"cpu.matmul.tiles", "cpu.matmul.packed"},
    {"cpu.norm.across", "cpu.lrn.cross_channel"},
    {"cpu.norm.around", "cpu.lrn.spatial_window"},
    {"cpu.norm.columns", "cpu.layer_norm.strided_axis"},
    {"cpu.norm.local_reference", "cpu.lrn.reference"},
    {"cpu.norm.reference", "cpu.batch_norm.reference"},
    {"cpu.norm.rows", "cpu.layer_norm.contiguous_rows"},
    {"cpu.norm.rows_reference", "cpu.layer_norm.reference"},
    {"cpu.norm.streamed", "cpu.batch_norm.vectorized"},
    {"cpu.pointwise.runs", "cpu.pointwise.vectorized"},
    {"cpu.pooling.channels", "cpu.pooling.nhwc"},
    {"cpu.pooling.places", "cpu.pooling.max_with_indices"},
    {"cpu.pooling.planes", "cpu.pooling.nchw"},
    {"cpu.random.dense", "cpu.random.vectorized"},
    {"cpu.reduce.runs", "cpu.reduce.vectorized"},
    {"cpu.softmax.dense", "cpu.softmax.vectorized"},
    {"cpu.transform.gather", "cpu.gather.contiguous_rows"},
    {"cpu.transform.gather_reference", "cpu.gather.reference"},
    {"cpu.transform.pad", "cpu.pad.contiguous_rows"},
    {"cpu.transform.pad_reference", "cpu.pad.reference"},
    {"cuda.activation.dense", "cuda.activation.vectorized"},
    {"cuda.conv.image", "cuda.conv.first_layer"},
    {"cuda.conv.image_filter", "cuda.conv.first_layer_filter"},
    {"cuda.conv.planes", "cuda.conv.direct_nchw"},
    {"cuda.conv.reduce", "cuda.conv.bias_reduction"},
    {"cuda.conv.then_reduce", "cuda.conv.unfused_statistics"},
    {"cuda.conv.wgmma_taps", "cuda.conv.wgmma_packed_taps"},
    {"cuda.conv.window", "cuda.conv.wgmma_halo"},
    {"cuda.loss.columns", "cuda.loss.strided_axis"},
    {"cuda.loss.generic", "cuda.loss.block_per_row"},
    {"cuda.loss.rows", "cuda.loss.persistent_rows"},
    {"cuda.loss.thread", "cuda.loss.thread_per_row"},
    {"cuda.norm.across", "cuda.lrn.cross_channel"},
    {"cuda.norm.around", "cuda.lrn.spatial_window"},
    {"cuda.norm.generic", "cuda.batch_norm.generic"},
    {"cuda.norm.groups", "cuda.layer_norm.two_pass_groups"},
    {"cuda.norm.local_generic", "cuda.lrn.generic"},
    {"cuda.norm.long_rows", "cuda.layer_norm.two_pass"},
    {"cuda.norm.resident", "cuda.batch_norm.persistent"},
    {"cuda.norm.rows", "cuda.layer_norm.persistent_rows"},
    {"cuda.norm.rows_generic", "cuda.layer_norm.generic"},
    {"cuda.norm.split", "cuda.batch_norm.two_pass"},
    {"cuda.pointwise.vectors", "cuda.pointwise.vectorized"},
    {"cuda.pooling.channels", "cuda.pooling.nhwc"},
    {"cuda.pooling.planes", "cuda.pooling.nchw"},
    {"cuda.random.fours", "cuda.random.philox4"},
    {"cuda.reduce.columns", "cuda.reduce.strided_axis"},
    {"cuda.reduce.rows", "cuda.reduce.contiguous_axis"},
    {"cuda.softmax.columns", "cuda.softmax.strided_axis"},
    {"cuda.softmax.generic", "cuda.softmax.block_per_row"},
    {"cuda.softmax.rows", "cuda.softmax.persistent_rows"},
    {"cuda.softmax.thread", "cuda.softmax.thread_per_row"},
    {"cuda.transform.dense", "cuda.transform.vectorized"},
    {"cuda.transform.gather", "cuda.gather.contiguous_rows"},
    {"cuda.transform.gather_generic", "cuda.gather.generic"},
    {"cuda.transform.pad", "cuda.pad.vectorized"},
    {"cuda.transform.pad_generic", "cuda.pad.generic"},
    {"cuda.transform.runs", "cuda.transform.batched_memcpy"},
};

// The first words of problem texts before version 0.1.0, and their current first words. The first match is applied.
constexpr std::pair<std::string_view, std::string_view> kRenamedProblems[]{
    {"norm layer_", "layer_norm layer_"},
    {"norm rms_", "layer_norm rms_"},
    {"norm group_", "layer_norm group_"},
    {"norm lrn_", "lrn lrn_"},
    {"norm lcn_", "lrn lcn_"},
    {"norm ", "batch_norm "},
    {"transform gather ", "gather forward "},
    {"transform gather_backward ", "gather backward "},
    {"transform pad ", "pad forward "},
};

std::optional<std::pair<Key, TuningLine>> record_of(const std::string& line) {
  std::vector<std::string> fields{""};
  for (char c : line)
    if (c == '\t') fields.emplace_back();
    else fields.back() += c;
  if (fields.size() != 6) return {};
  TuningLine record{fields[2], 0, fields[4], 0};
  for (const auto& [former, present] : kRenamedEngines)
    if (record.engine == former) {
      record.engine = present;
      break;
    }
  for (const auto& [former, present] : kRenamedProblems)
    if (fields[1].starts_with(former)) {
      fields[1].replace(0, former.size(), present);
      break;
    }
  if (!read_revision(fields[3], record.revision) || !read_number(fields[5], record.us)) return {};
  if (!(record.us > 0) || !std::isfinite(record.us)) return {};
  return std::pair{Key{fields[0], fields[1]}, record};
}

std::string text_of(const std::map<Key, TuningLine>& lines) {
  std::string text;
  for (const auto& [key, r] : lines)
    text += cat(key.first, "\t", key.second, "\t", r.engine, "\t", r.revision, "\t", r.config, "\t", r.us, "\n");
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

Tuning::Tuning(std::string file) : file_(std::move(file)) {
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
    if (auto record = record_of(line)) lines_[record->first] = record->second;
  });
}

std::optional<TuningLine> Tuning::recall(const Device& device, const std::string& key) const {
  std::lock_guard lock(mutex_);
  auto it = lines_.find({device.model, key});
  if (it == lines_.end()) return std::nullopt;
  return it->second;
}

std::string Tuning::remember(const Device& device, const std::string& key, const EngineReport& best) {
  const Key whole{device.model, key};
  const TuningLine record{best.name, best.revision, best.config, best.measured_us};
  std::lock_guard lock(mutex_);
  const bool replaces = !lines_.insert_or_assign(whole, record).second;
  ++generation_;
  if (std::string why = why_not_kept(); !why.empty()) return why;
  const std::string why = write({{whole, record}}, replaces);
  return why.empty() ? why : cat(file_, ": ", why);
}

std::string Tuning::text() const {
  std::lock_guard lock(mutex_);
  return text_of(lines_);
}

int64_t Tuning::import_text(const std::string& text, bool replace) {
  Lines fresh;
  int64_t number = 0;
  each_line(text, [&](const std::string& line) {
    ++number;
    const auto record = record_of(line);
    MINIDNN_CHECK(ShapeError, record, "record ", number, " is not valid: '", line.substr(0, 80), "'");
    fresh.insert_or_assign(record->first, record->second);
  });
  std::lock_guard lock(mutex_);
  if (!replace) std::erase_if(fresh, [&](const auto& line) { return lines_.contains(line.first); });
  std::string why = why_not_kept();
  if (why.empty() && !fresh.empty()) why = write(fresh, replace);
  MINIDNN_CHECK(DeviceError, why.empty(), "the records cannot be kept: ", why);
  for (const auto& [key, record] : fresh) lines_.insert_or_assign(key, record);
  ++generation_;
  return int64_t(fresh.size());
}

void Tuning::clear() {
  std::lock_guard lock(mutex_);
  if (!file_.empty()) {
    File guard(file_ + ".lock", File::Mode::append);
    MINIDNN_CHECK(DeviceError, guard && guard.lock(), file_, ".lock: ", std::strerror(errno));
    MINIDNN_CHECK(DeviceError, std::remove(file_.c_str()) == 0 || errno == ENOENT, file_, ": ", std::strerror(errno));
  }
  lines_.clear();
  ++generation_;
}

std::string Tuning::why_not_kept() const {
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
std::string Tuning::write(const Lines& records, bool replaces) const {
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
    const auto other = record_of(old);
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

// fork() locks the mutex. Otherwise a child process could inherit it locked by a thread that the child lacks.
Tuning& tuning() {
  static Tuning& all = *new Tuning([] {
    std::string folder = cuda::cache_folder();
    return folder.empty() ? folder : folder + "/tuning.txt";
  }());
  [[maybe_unused]] static const int forks_wait =
      platform::at_fork([] { all.mutex_.lock(); }, [] { all.mutex_.unlock(); }, [] { all.mutex_.unlock(); });
  return all;
}

}  // namespace minidnn
