// SPDX-License-Identifier: Apache-2.0
// Implements tuning.h: what a line of the tuning file means, and what lines of earlier versions mean.
#include "cpp/engine/tuning.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "cpp/core/platform.h"
#include "cpp/core/read_number.h"

namespace minidnn {
namespace {

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

// The text of a record after its key.
std::string value_of(const TuningLine& r) { return cat(r.engine, "\t", r.revision, "\t", r.config, "\t", r.us); }

// Reads the last four of the fields of a record.
std::optional<TuningLine> line_of(const std::vector<std::string>& fields) {
  const size_t first = fields.size() - 4;
  TuningLine line{fields[first], 0, fields[first + 2], 0};
  for (const auto& [former, present] : kRenamedEngines)
    if (line.engine == former) {
      line.engine = present;
      break;
    }
  if (!read_integer(fields[first + 1], line.revision) || !read_number(fields[first + 3], line.us)) return {};
  if (!(line.us > 0) || !std::isfinite(line.us)) return {};
  return line;
}

std::optional<Records::Record> record_of(const std::vector<std::string>& fields) {
  if (fields.size() != 6) return {};
  const std::optional<TuningLine> line = line_of(fields);
  if (!line) return {};
  std::string problem = fields[1];
  for (const auto& [former, present] : kRenamedProblems)
    if (problem.starts_with(former)) {
      problem.replace(0, former.size(), present);
      break;
    }
  return Records::Record{{fields[0], problem}, value_of(*line)};
}

}  // namespace

Records& tuning() {
  static Records& all = *new Records(records_file("tuning.txt"), record_of);
  [[maybe_unused]] static const int forks_wait =
      platform::at_fork([] { all.lock(); }, [] { all.unlock(); }, [] { all.unlock(); });
  return all;
}

std::optional<TuningLine> recall_tuning(const Device& device, const std::string& key) {
  const std::optional<std::string> value = tuning().find(device.model, key);
  return value ? line_of(fields_of(*value)) : std::nullopt;
}

std::string remember_tuning(const Device& device, const std::string& key, const EngineReport& best) {
  return tuning().remember({{device.model, key}, value_of({best.name, best.revision, best.config, best.measured_us})});
}

}  // namespace minidnn
