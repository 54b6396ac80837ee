// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/sm90/tensor_maps.h"

#include <algorithm>
#include <functional>

#include "cpp/core/dtype.h"

namespace minidnn {
namespace {

// The single stride of an index over all its dimensions, or nullopt. An index with one element has stride 0.
std::optional<int64_t> single_stride(GemmIndex index, GemmStrides strides) {
  join(index, {&strides});
  if (index.first < kDigits - 1) return std::nullopt;
  return index.size == 1 ? 0 : strides.of[kDigits - 1];
}

// Whether an operand needs no window: it has one tap, which is never outside of the tensor, and positions at a single
// stride.
bool window_is_idle(const GemmOperand& o, const GemmIndex& rows, const GemmIndex& k) {
  const GemmWindow& w = o.window;
  if (!w.on) return true;
  const GemmIndex &positions = w.row_digit ? rows : k, &taps = w.row_digit ? k : rows;
  for (int j = 0; j < 3; ++j) {
    const int64_t step = w.row_digit ? w.row_step[j] : w.k_step[j];
    if (taps.digit[j] != 1 || w.start[j] < 0 || w.start[j] + (positions.digit[1 + j] - 1) * step >= w.size[j])
      return false;
  }
  return single_stride(positions, w.row_digit ? o.row : o.k).has_value();
}

template <class Map> Map map_of(DType type) {
  Map m;
  m.dtype = type;
  m.tf32 = type == DType::float32;
  m.swizzle_bytes = 128;
  m.l2_promotion_bytes = 256;
  return m;
}

// An operand with a tiled map. `k` is the number of channels, and `channel` their stride in elements.
TmaOperand tile_operand(const GemmView& v, const GemmOperand& o, const GemmIndex& rows, int64_t k, int64_t channel,
                        bool with_taps, DType type, const char* name) {
  TmaOperand out;
  out.offset = o.offset;
  const int64_t item = int64_t(itemsize(type));
  const std::optional<int64_t> row = single_stride(rows, o.row), batch = single_stride(v.batch, o.batch);
  if (!row) out.why = cat("needs rows of ", name, " at a single stride");
  else if (!batch) out.why = cat("needs matrices of ", name, " at a single stride");
  if (!out.why.empty()) return out;
  const bool along_k = k == 1 ? *row != 1 : channel == 1;
  if (!along_k && *row != 1) out.why = cat("needs ", name, " to be contiguous along rows or columns");
  out.source = along_k ? Sm90Source::tile_along_k : Sm90Source::tile_along_rows;
  int64_t tap_count[2] = {1, 1}, tap_stride[2]{};  // map dimensions 1 and 2
  if (with_taps) {
    const GemmTaps& t = v.taps;
    int64_t unit[3];
    for (int j = 0; j < 3; ++j) {
      unit[j] = o.k.of[j] / t.step[j];
      out.offset -= t.first[j] * unit[j];
    }
    if (t.window[0] > 1 && t.window[1] > 1 && unit[0] != unit[1] * t.window[1])
      out.why = cat("needs the window elements of ", name, " at a single stride");
    tap_count[0] = t.window[2];
    tap_count[1] = t.window[0] * t.window[1];
    tap_stride[0] = unit[2];
    tap_stride[1] = t.window[1] > 1 ? unit[1] : unit[0];
    const int64_t digit_step[3] = {t.step[0] * t.window[1], t.step[1], t.step[2]};
    for (int j = 0; j < 3; ++j) out.device.tap_step[j] = int32_t(digit_step[j]);
    for (int i = 0; i < 2; ++i)
      // Tensor maps have no negative strides, so the order of such taps is reversed.
      if (tap_count[i] > 1 && tap_stride[i] < 0) {
        out.offset += tap_stride[i] * (tap_count[i] - 1);
        tap_stride[i] = -tap_stride[i];
        for (int j = i == 0 ? 2 : 0; j < (i == 0 ? 3 : 2); ++j) out.device.tap_step[j] *= -1;
      }
  }
  out.device.batch_step = *batch != 0;
  cuda::TiledMap& m = out.tile = map_of<cuda::TiledMap>(type);
  m.rank = 5;
  const int64_t dims[] = {along_k ? k : rows.size, tap_count[0], tap_count[1], along_k ? rows.size : k,
                          *batch ? v.batch.size : 1};
  const int64_t strides[] = {tap_stride[0], tap_stride[1], along_k ? *row : channel, *batch};
  for (int i = 0; i < 5; ++i) {
    m.dims[i] = uint64_t(dims[i]);
    m.box[i] = 1;
    if (i == 0) continue;
    if (dims[i] == 1) m.strides[i - 1] = 16;
    else if (strides[i - 1] <= 0 || strides[i - 1] * item % 16)
      out.why = cat("needs strides of ", name, " that are positive multiples of 16 bytes");
    else m.strides[i - 1] = uint64_t(strides[i - 1] * item);
  }
  if (out.offset * item % 16) out.why = cat("needs ", name, " to start at a multiple of 16 bytes");
  return out;
}

// The coordinates of the first tap in a tiled map.
void first_tap(const TmaOperand& o, const GemmTaps& t, int32_t (&at)[2]) {
  at[0] = int32_t(o.device.tap_step[2] < 0 ? t.window[2] - 1 - t.first[2] : t.first[2]);
  const int64_t outer = t.first[0] * t.window[1] + t.first[1];
  at[1] = int32_t(o.device.tap_step[1] < 0 ? t.window[0] * t.window[1] - 1 - outer : outer);
}

// The distance of adjacent taps in spatial dimension j.
int64_t tap_reach(const GemmWindow& w, int j) { return w.row_digit ? w.k_step[j] : w.row_step[j]; }

// An operand with an im2col map: (channels of all groups, W, H[, D], N). `lower` are the smallest coordinates that the
// window reads at its first position.
TmaOperand pixels_operand(const GemmView& v, const GemmOperand& o, const GemmIndex& positions, int64_t channels,
                          const int64_t (&lower)[3], DType type, int spatial, const char* name) {
  const GemmWindow& w = o.window;
  // along_k: rows count positions and k counts taps, else the reverse
  const bool along_k = w.row_digit == 1;
  const GemmStrides &at_position = along_k ? o.row : o.k, &at_tap = along_k ? o.k : o.row;
  const int64_t item = int64_t(itemsize(type));
  TmaOperand out;
  out.source = along_k ? Sm90Source::pixels_along_k : Sm90Source::pixels_along_rows;
  out.offset = o.offset;
  cuda::Im2colMap& m = out.pixels = map_of<cuda::Im2colMap>(type);
  m.rank = spatial + 2;
  m.dims[0] = uint64_t(channels * v.batch.size);
  if (channels > 1 && at_tap.of[3] != 1) out.why = cat("needs contiguous channels (NHWC) of ", name);
  if (v.batch.size > 1 && o.batch.of[3] != channels) out.why = cat("needs contiguous groups of ", name);
  auto stride = [&](int64_t elements, uint64_t size) {
    if (size == 1) return uint64_t(16);
    if (elements <= 0 || elements * item % 16)
      out.why = cat("needs strides of ", name, " that are positive multiples of 16 bytes");
    return uint64_t(elements * item);
  };
  for (int j = 0; j < 3; ++j) {
    const int64_t count = positions.digit[1 + j], step = along_k ? w.row_step[j] : w.k_step[j];
    out.offset -= w.start[j] * w.stride[j];
    out.device.corner[j] = int32_t(lower[j]);
    out.device.position_step[j] = int32_t(step);
    out.device.offset_step[j] = int32_t(tap_reach(w, j));
    const int dim = 3 - j;  // the map dimension of spatial dimension j; W is 1
    if (dim > spatial) continue;
    m.dims[dim] = uint64_t(w.size[j]);
    m.strides[dim - 1] = stride(w.stride[j], m.dims[dim]);
    m.element_strides[dim] = uint32_t(step);
    m.lower[dim - 1] = int(lower[j]);
    m.upper[dim - 1] = int(lower[j] + (count - 1) * step + 1 - w.size[j]);
  }
  m.dims[spatial + 1] = uint64_t(positions.digit[0]);
  m.strides[spatial] = stride(at_position.of[0], m.dims[spatial + 1]);
  m.channels = uint32_t(128 / item);
  m.pixels = 64;
  out.device.channels_of_batch = int32_t(v.batch.size > 1 ? channels : 0);
  if (out.why.empty()) {
    // The address is not known yet. Any valid address lets why_not() check the other fields.
    m.address = reinterpret_cast<const void*>(uintptr_t(16));
    out.why = cuda::why_not(m);
  }
  return out;
}

TmaView tma_view_as_it_is(const GemmTask& task) {
  TmaView low;
  GemmView& v = low.view = task.views.front();
  const int64_t k_of_block = 128 / int64_t(itemsize(task.type));
  const bool many = task.views.size() > 1;
  GemmIndex GemmView::* const position_index = v.b.window.on && v.b.window.row_digit ? &GemmView::n : &GemmView::m;
  if (many) {
    GemmIndex& all = v.*position_index;
    for (const GemmView& phase : task.views)
      for (int j = 1; j < kDigits; ++j) all.digit[j] = max_of(all.digit[j], (phase.*position_index).digit[j]);
    all.size = all.digit[0] * all.digit[1] * all.digit[2] * all.digit[3];
    all.first = 0;
  }
  const bool a_moves = v.a.window.on && (many || !window_is_idle(v.a, v.m, v.k));
  const bool b_moves = v.b.window.on && (many || !window_is_idle(v.b, v.n, v.k));
  const GemmOperand* moving = a_moves ? &v.a : b_moves ? &v.b : nullptr;
  // whether k counts the taps of an operand's window
  const bool taps_in_k = moving && moving->window.row_digit;

  // the channels in k, and their strides in both operands
  int64_t k = v.k.digit[3], a_channel = v.a.k.of[3], b_channel = v.b.k.of[3];
  if (!taps_in_k) {
    GemmIndex joined = v.k;
    GemmStrides a_k = v.a.k, b_k = v.b.k;
    if (b_moves) join(joined, {&a_k});
    else join(joined, {&a_k, &b_k});
    if (joined.first < kDigits - 1) low.why = "needs summed dimensions that join into one with a single stride";
    k = joined.digit[3];
    a_channel = a_k.of[3];
    b_channel = b_k.of[3];
  }
  low.k_blocks = ceil_div(k, k_of_block);

  int64_t lower[3]{};  // the smallest coordinates at the first position, over all views
  const GemmIndex& positions = taps_in_k ? v.*position_index : v.k;
  if (moving) {
    const GemmWindow& first = moving->window;
    bool flat = first.size[0] == 1 && positions.digit[1] == 1 && v.taps.window[0] == 1;
    for (int j = 0; j < 3; ++j) {
      bool any = false;
      for (const GemmView& phase : task.views) {
        const GemmWindow& w = (a_moves ? phase.a : phase.b).window;
        if (phase.taps.count[j] == 0) continue;
        const int64_t reach = tap_reach(w, j) * (phase.taps.count[j] - 1),
                      least = w.start[j] + min_of(reach, int64_t(0));
        lower[j] = any ? min_of(lower[j], least) : least;
        any = true;
      }
      low.positions[j] = int32_t(positions.digit[1 + j]);
      // at least 1, because the first GemmView may use no taps
      low.window[j] = int32_t(max_of(v.taps.count[j], int64_t(1)));
    }
    low.spatial = flat && lower[0] == 0 ? 2 : 3;
    low.channel_blocks = ceil_div(v.n.digit[3], k_of_block);
    if (taps_in_k && v.batch.size > 1 && k % k_of_block)
      low.why = cat("needs a multiple of ", k_of_block, " channels in each group; got ", k);
    // TMA fails with an illegal instruction if the channels of a group are not aligned to 16 bytes.
    const int64_t of_group = v.n.digit[3];
    if (!taps_in_k && v.batch.size > 1 && of_group * int64_t(itemsize(task.type)) % 16)
      low.why = cat("needs the channels of each group to start at multiples of 16 bytes; got ", of_group,
                    " channels in a group");
  }
  const GemmIndex n = v.n;
  if (b_moves && !taps_in_k) {
    low.n_limit = n.digit[3];
    v.n.digit[3] = low.channel_blocks * k_of_block;
    v.n.size = v.n.digit[0] * v.n.digit[1] * v.n.digit[2] * v.n.digit[3];
  }
  const int64_t channels = taps_in_k ? k : n.digit[3];
  low.a = a_moves ? pixels_operand(v, v.a, positions, channels, lower, task.type, low.spatial, "a")
                  : tile_operand(v, v.a, v.m, k, a_channel, taps_in_k, task.type, "a");
  low.b = b_moves ? pixels_operand(v, v.b, positions, channels, lower, task.type, low.spatial, "b")
                  : tile_operand(v, v.b, n, k, b_channel, taps_in_k, task.type, "b");
  for (const GemmView& phase : task.views) {
    Sm90Phase& to = low.phases.emplace_back();
    to.bounds.y_offset = phase.y_offset;
    std::ranges::copy((phase.*position_index).digit, to.bounds.limit);
    for (int j = 0; j < 3; ++j) {
      to.taps[j] = taps_in_k ? int32_t(phase.taps.count[j]) : 1;
      if (!moving || phase.taps.count[j] == 0) continue;
      const int64_t offset = (a_moves ? phase.a : phase.b).window.start[j] - lower[j];
      (a_moves ? to.a_offset : to.b_offset)[j] = int32_t(offset);
      const int64_t most = low.spatial == 2 ? 255 : 31;
      const int64_t last = offset + tap_reach(moving->window, j) * (phase.taps.count[j] - 1);
      if (max_of(offset, last) > most)
        low.why = cat("supports windows that reach at most ", most, " elements; got ", max_of(offset, last));
    }
    if (taps_in_k) first_tap(a_moves ? low.b : low.a, phase.taps, a_moves ? to.b_tap : to.a_tap);
    to.blocks = int32_t(to.taps[0] * to.taps[1] * to.taps[2] * low.k_blocks);
    if (to.blocks == 0) {
      to.blocks = 1;
      to.k_shift = 1 << 30;
    }
  }
  std::ranges::stable_sort(low.phases, std::ranges::greater{}, &Sm90Phase::blocks);
  for (const TmaOperand* o : {&low.a, &low.b})
    if (low.why.empty()) low.why = o->why;
  return low;
}

}  // namespace

GemmOutput output_of(const GemmTask& t, const TmaView& low) {
  GemmOutput y = output_of(low.view, t.y, t.alignment, t.has_c, t.has_bias, low.n_limit);
  // Each phase of backward_data has its own limits for the dimensions of positions, so these are not joined.
  if (low.phases.size() > 1) {
    if (low.exchanged) {
      y.n = low.view.n;
      y.y_n = low.view.y_n;
    } else {
      y.m = low.view.m;
      y.y_m = low.view.y_m;
      y.y_transposed = 0;
    }
    divide(y);
  }
  return y;
}

GemmStore store_of(const GemmTask& t, const TmaView& low) {
  const GemmOutput y = output_of(t, low);
  if (t.type == DType::float32 && low.a.along_rows() && low.n_limit == 0 && y.y_columns) {
    const bool even = y.n.first == kDigits - 1;
    if (low.phases.size() == 1 && even) return GemmStore::columns;
    bool fits = low.phases.size() > 1 && low.exchanged;
    for (const Sm90Phase& p : low.phases) fits = fits && p.bounds.y_offset % 4 == 0;
    int64_t reach = 0;  // the largest column offset in y, which gemm_store_phases() has in 32 bits
    for (int j = 0; j < kDigits; ++j) {
      fits = fits && y.y_n.of[j] >= 0;
      reach += (y.n.digit[j] - 1) * y.y_n.of[j];
    }
    if (fits && reach < int64_t(1) << 31) return GemmStore::phases;
  }
  return store_of(y, t.has_c);
}

TmaView tma_view(const GemmTask& task) {
  const TmaView low = tma_view_as_it_is(task);
  if (task.type != DType::float32 || low.a.along_rows() || !low.b.along_rows() || low.n_limit ||
      low.view.y_n.of[kDigits - 1] != 1)
    return low;
  GemmTask other = task;
  for (GemmView& view : other.views) view = transposed(view);
  TmaView exchanged = tma_view_as_it_is(other);
  exchanged.exchanged = true;
  return task.views.size() == 1 || store_of(other, exchanged) == GemmStore::phases ? exchanged : low;
}

}  // namespace minidnn
