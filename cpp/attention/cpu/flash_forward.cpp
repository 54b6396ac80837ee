// SPDX-License-Identifier: Apache-2.0
// The forward pass of cpu.attention.flash, and the parts that flash.h declares. An item of work is some row blocks of
// one head of k. It walks over the blocks of columns that its rows see. Each is converted to float32 and packed once.
// The maximum and the sum of a row are updated from block to block, and earlier sums are corrected by a factor. Problems
// with one block of rows, such as decode, also divide the columns into parts, whose results are joined in order.
#include <cmath>
#include <numeric>

#include "cpp/attention/cpu/flash.h"

namespace minidnn::cpu::attention {

FlashRow Rows::row(int64_t r, AttentionRange visible, int64_t first, int64_t columns, float* kept) const {
  const int64_t h = head_of(r), i = index_of(r);
  FlashRow row{std::clamp<int64_t>(visible.begin - first, 0, columns),
               std::clamp<int64_t>(visible.end - first, 0, columns),
               nullptr,
               false,
               0,
               i + s.shift - first,
               nullptr};
  if (row.begin >= row.end) return row;
  const AttentionProblem& p = f.p;
  if (p.bias.rank) {
    row.bias = at(p.bias, f.a.bias, minidnn::attention::bias_offset(p, s.b, h, i, first));
  }
  if (p.alibi) {
    row.has_slope = true;
    row.slope = static_cast<const float*>(f.a.alibi)[p.alibi == 2 ? s.b * p.heads() + h : h];
  }
  if (p.has_dropout) {
    // Columns from a multiple of 4 on share random words.
    const int64_t row_size = round_up(p.kv_size(), 4), begin = row.begin / 4 * 4;
    const int64_t element = ((s.b * p.heads() + h) * p.q_size() + i) * row_size + first + begin;
    f.loops.keep({f.a.seed, f.a.offset, f.a.threshold}, uint64_t(element) / 4, ceil_div(row.end - begin, int64_t(4)),
                 kept + begin);
    row.kept = kept;
  }
  return row;
}

namespace {

// The address of column j of a block.
const void* column_at(const FlashCall& f, const Columns& columns, const TensorDesc& d, const void* data, int64_t j) {
  const char* const base = static_cast<const char*>(data);
  return at(
      d, data,
      minidnn::attention::kv_row<const char>(d, base, f.p, f.a, columns.s, columns.kv_head, columns.first + j) - base);
}

}  // namespace

const float* floats_of(const FlashCall& f, const Columns& columns, const TensorDesc& d, const void* data, float* buffer,
                       int64_t padded) {
  const int64_t count = columns.count, filled = columns.filled;
  const auto row = [&](int64_t j) { return column_at(f, columns, d, data, j); };
  if (is_floats(d, padded) && count == filled && !f.p.pages_of_sequence) return static_cast<const float*>(row(0));
  const auto widen = f.loops.widen[int64_t(d.dtype)];
  // Rows of other heads may lie between two rows, so the processor does not foresee which lines follow.
  constexpr int64_t kAhead = 12, kLine = 64;
  const int64_t bytes = d.stride[3] == 1 ? d.shape[3] * int64_t(itemsize(d.dtype)) : 0;
  for (int64_t j = 0; j < count; ++j) {
    if (j + kAhead < count) {
      const char* const next = static_cast<const char*>(row(j + kAhead));
      for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(next + i);
    }
    widen(row(j), d.stride[3], d.shape[3], buffer + j * padded, padded);
  }
  std::memset(buffer + count * padded, 0, size_t((filled - count) * padded) * sizeof(float));
  return buffer;
}

void copy_bf16(const void* from, int64_t step, int64_t n, bfloat16* to, int64_t padded) {
  const bfloat16* const x = static_cast<const bfloat16*>(from);
  if (step == 1) std::memcpy(static_cast<void*>(to), x, size_t(n) * sizeof *to);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = x[i * step];
  std::memset(static_cast<void*>(to + n), 0, size_t(padded - n) * sizeof *to);
}

Bf16Rows bf16_rows_of(const FlashCall& f, const Columns& columns, const TensorDesc& d, const void* data,
                      bfloat16* buffer, int64_t padded) {
  const int64_t count = columns.count, filled = columns.filled;
  if (d.stride[3] == 1 && d.shape[3] == padded && count == filled && !f.p.pages_of_sequence)
    return {static_cast<const bfloat16*>(column_at(f, columns, d, data, 0)), d.stride[2]};
  for (int64_t j = 0; j < count; ++j)
    copy_bf16(column_at(f, columns, d, data, j), d.stride[3], d.shape[3], buffer + j * padded, padded);
  std::memset(static_cast<void*>(buffer + count * padded), 0, size_t((filled - count) * padded) * sizeof *buffer);
  return {buffer, padded};
}

void pack_transposed(const FlashCall& f, const float* from, int64_t count, int64_t length, float* to) {
  const int64_t columns = f.gemm.columns;
  for (int64_t j = 0; j < count; j += columns)
    f.gemm.pack(from + j * length, length, 1, columns, length, to + j * length);
}
void pack_plain(const FlashCall& f, const float* from, int64_t count, int64_t length, float* to) {
  const int64_t columns = f.gemm.columns;
  for (int64_t j = 0; j < length; j += columns) f.gemm.pack(from + j, 1, length, columns, count, to + j * count);
}

void multiply(const FlashCall& f, const TileProduct& t, int64_t rows, int64_t columns, int64_t steps, bool add) {
  GemmSegment segment{};
  for (int64_t i = 0; i < f.gemm.rows; ++i) segment.a[i] = i * t.a_row * int64_t(sizeof(float));
  for (int64_t j = 0; j < columns; j += f.gemm.columns)
    for (int64_t i = 0; i < rows; i += f.gemm.rows)
      f.gemm.multiply({&segment, 1, steps, t.a + i * t.a_row, t.a_step, t.b + j / f.gemm.columns * t.panel, t.b_step,
                       t.c + i * t.pitch + j, t.pitch, add});
}

namespace {

constexpr int64_t kPartColumns = 1024;  // columns of a part, if the columns are divided
constexpr int64_t kMostBlocks = 12;     // row blocks of an item

// How a problem is divided. The results depend on row blocks, column blocks and parts, which the problem alone
// determines. The number of blocks of an item may depend on the number of threads.
struct Division {
  int64_t rows, blocks, parts, blocks_of_item, items_of_head;
  Division(const FlashCall& f, int64_t threads) {
    const AttentionProblem& p = f.p;
    rows = p.heads() / p.kv_heads() * p.q_size();
    blocks = std::max<int64_t>(ceil_div(rows, f.block), 1);
    parts = blocks == 1 ? std::max<int64_t>(ceil_div(p.kv_size(), kPartColumns), 1) : 1;
    const int64_t share = blocks * p.batch() * p.kv_heads() / (4 * threads);
    blocks_of_item = std::clamp<int64_t>(share, 2, kMostBlocks);
    items_of_head = ceil_div(blocks, blocks_of_item);
  }
  int64_t rows_of_item(const FlashCall& f) const { return blocks_of_item * f.block; }
  // The most rows of an item, rounded up to those of a product.
  int64_t most_rows(const FlashCall& f) const { return padded(f, std::min(rows, rows_of_item(f))); }
  static int64_t padded(const FlashCall& f, int64_t rows) {
    return round_up(rows, f.bf16 ? std::lcm(f.gemm.rows, kBf16Lines) : f.gemm.rows);
  }
};

// The memory of an item.
struct Buffers {
  float *q, *o, *k, *k_packed, *v, *v_packed, *products, *kept, *rounded;
  FlashSums* sums;
  Buffers(const FlashCall& f, int64_t rows, Arena arena) {
    q = arena.take(rows * f.head);
    o = arena.take(rows * f.value);
    k = arena.take(kFlashColumns * f.head);
    k_packed = arena.take(kFlashColumns * f.head);
    v = arena.take(kFlashColumns * f.value);
    v_packed = arena.take(kFlashColumns * f.value);
    products = arena.take(kBlockRows * kPitch);
    kept = arena.take(kFlashColumns);
    rounded = arena.take(rounded_floats(f));
    sums = reinterpret_cast<FlashSums*>(arena.take(2 * rows));
  }
  static int64_t rounded_floats(const FlashCall& f) { return f.bf16 ? f.block * kPitch / 2 : 0; }
  static int64_t bytes(const FlashCall& f, int64_t rows) {
    return Arena::bytes(rows * f.head) + Arena::bytes(rows * f.value) + 2 * Arena::bytes(kFlashColumns * f.head) +
           2 * Arena::bytes(kFlashColumns * f.value) + Arena::bytes(kBlockRows * kPitch) +
           Arena::bytes(rounded_floats(f)) + Arena::bytes(kFlashColumns) + Arena::bytes(2 * rows);
  }
};

// Some rows of one head of k, and the columns of one part.
struct ForwardItem {
  const FlashCall& f;
  const Rows& rows;
  int64_t kv_head, first, count;  // the rows [first, first + count)
  AttentionRange part;
  const Buffers& m;

  AttentionRange seen(int64_t r) const {
    AttentionRange range = rows.seen(first + r);
    range.begin = std::max(range.begin, part.begin);
    range.end = std::max(range.begin, std::min(range.end, part.end));
    return range;
  }
  // The columns that any of some rows sees.
  AttentionRange seen_by_any(int64_t r, int64_t n) const {
    AttentionRange all{INT64_MAX, 0};
    for (int64_t i = r; i < r + n; ++i) {
      const AttentionRange range = seen(i);
      if (range.begin >= range.end) continue;
      all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
    }
    return all;
  }

  void run() const {
    const int64_t padded = Division::padded(f, count), bytes = f.head * (f.bf16 ? 2 : 4);
    for (int64_t r = 0; r < count; ++r) {
      m.sums[r] = {-INFINITY, 0};
      const AttentionRange range = seen(r);
      if (range.begin >= range.end) std::memset(q_row(r), 0, size_t(bytes));
      else if (f.bf16)
        copy_bf16(rows.q_row(f.p.q, f.a.q, first + r), f.p.q.stride[3], f.p.head_size(), as_bf16(m.q) + r * f.head,
                  f.head);
      else rows.widen(f.p.q, f.a.q, first + r, m.q + r * f.head, f.head);
    }
    std::memset(q_row(count), 0, size_t((padded - count) * bytes));
    std::memset(m.o, 0, size_t(padded * f.value) * sizeof(float));
    const AttentionRange all = seen_by_any(0, count);
    if (f.bf16) f.bf16->begin();
    for (int64_t j = all.begin < all.end ? all.begin / kFlashColumns * kFlashColumns : all.end; j < all.end;
         j += kFlashColumns)
      column_block(j, std::min(kFlashColumns, all.end - j));
    if (f.bf16) f.bf16->end();
  }
  void* q_row(int64_t r) const { return f.bf16 ? static_cast<void*>(as_bf16(m.q) + r * f.head) : m.q + r * f.head; }

  void column_block(int64_t j, int64_t columns) const {
    const int64_t filled = round_up(columns, f.gemm.columns);
    const Columns block{rows.s, kv_head, j, columns, filled};
    const float *k = nullptr, *v = nullptr;
    if (f.bf16) {
      const Bf16Rows k_rows = bf16_rows_of(f, block, f.p.k, f.a.k, as_bf16(m.k), f.head);
      const Bf16Rows v_rows = bf16_rows_of(f, block, f.p.v, f.a.v, as_bf16(m.v), f.value);
      f.bf16->pack_transposed(k_rows.first, k_rows.pitch, filled, f.head, as_bf16(m.k_packed), kBf16Lines * f.head);
      f.bf16->pack(v_rows.first, v_rows.pitch, filled, f.value, as_bf16(m.v_packed), kBf16Lines * filled);
    } else {
      k = floats_of(f, block, f.p.k, f.a.k, m.k, f.head);
      v = floats_of(f, block, f.p.v, f.a.v, m.v, f.value);
      if (count > kFewRows) {
        pack_transposed(f, k, filled, f.head, m.k_packed);
        pack_plain(f, v, filled, f.value, m.v_packed);
      }
    }
    for (int64_t r = 0; r < count; r += f.block) {
      const int64_t n = std::min(f.block, count - r);
      const AttentionRange any = seen_by_any(r, n);
      const int64_t from = std::max<int64_t>(any.begin - j, 0) / f.gemm.columns * f.gemm.columns;
      const int64_t to = round_up(std::min(any.end - j, columns), f.gemm.columns);
      if (from < to) tile({r, n, j, from, to, filled}, k, v);
    }
  }

  // The tile of rows [r, r + n) and columns [j + from, j + to) of a block of columns, of which `filled` are packed.
  struct Tile {
    int64_t r, n, j, from, to, filled;
  };
  void tile(const Tile& t, const float* k, const float* v) const {
    const bool few = t.n <= kFewRows && !f.bf16;
    const int64_t panel = f.gemm.columns, columns = t.to - t.from, lines = round_up(t.n, kBf16Lines);
    float *const q = m.q + t.r * f.head, *const o = m.o + t.r * f.value, *const products = m.products + t.from;
    if (f.bf16)
      f.bf16->multiply({as_bf16(m.q) + t.r * f.head, f.head, as_bf16(m.k_packed) + t.from * f.head, kBf16Lines * f.head,
                        products, kPitch, lines, columns, f.head, false});
    else if (few) f.loops.score_rows({t.n, columns, f.head, q, k + t.from * f.head, products, kPitch});
    else
      multiply(f, {q, f.head, 1, m.k_packed + t.from * f.head, panel, panel * f.head, products, kPitch}, t.n, columns,
               f.head, false);
    for (int64_t i = 0; i < t.n; ++i) {
      const int64_t r = t.r + i;
      const FlashRow row = rows.row(first + r, seen(r), t.j, t.to, m.kept);
      if (row.begin >= row.end) {
        std::memset(products + i * kPitch, 0, size_t(columns) * sizeof(float));
        continue;
      }
      const float factor = f.loops.forward(f.scores, row, m.products + i * kPitch, t.from, t.to, m.sums[r]);
      if (factor != 1) f.loops.multiply_by(o + i * f.value, factor, f.value);
    }
    if (f.bf16) {
      f.bf16->round(products, kPitch, lines, columns, as_bf16(m.rounded), kPitch);
      f.bf16->multiply({as_bf16(m.rounded), kPitch, as_bf16(m.v_packed) + t.from * kBf16Lines, kBf16Lines * t.filled, o,
                        f.value, lines, f.value, columns, true});
    } else if (few) f.loops.value_rows({t.n, columns, f.value, o, v + t.from * f.value, products, kPitch});
    else
      multiply(f, {products, kPitch, 1, m.v_packed + t.from * panel, panel, panel * t.filled, o, f.value}, t.n, f.value,
               columns, true);
  }
};

// Writes row r of o and lse from sums of all columns.
void finish_row(const FlashCall& f, const Rows& rows, int64_t r, FlashSums sums, const float* o) {
  float largest = sums.largest, total = sums.sum;
  float factor = 1;
  if (rows.has_sink(r)) {
    const float sink = rows.sink(r);
    largest = max_or_nan(largest, sink);
    if (largest == -INFINITY) largest = 0;
    factor = std::exp(sums.largest - largest);
    total = total * factor + std::exp(sink - largest);
  }
  rows.lse(r) = total == 0 ? -INFINITY : largest + std::log(total);
  factor = total == 0 ? 0 : factor * (float(f.a.keep) / total);
  f.loops.narrow[int64_t(f.p.o.dtype)](o, factor, f.p.value_size(), const_cast<void*>(rows.q_row(f.p.o, f.a.o, r)),
                                       f.p.o.stride[3]);
}

// The results of one part of the columns: the sums of its rows, and their o before the division.
struct Part {
  FlashSums* sums;
  float* o;
  Part(const FlashCall& f, int64_t rows, Arena arena)
      : sums(reinterpret_cast<FlashSums*>(arena.take(2 * rows))), o(arena.take(rows * f.value)) {}
  static int64_t bytes(const FlashCall& f, int64_t rows) {
    return Arena::bytes(2 * rows) + Arena::bytes(rows * f.value);
  }
};

// Joins the parts of a head of k, and writes its rows of o and lse. Part 0 receives the sums.
template <class PartOf> void join(const FlashCall& f, const Rows& rows, int64_t parts, PartOf part_of) {
  for (int64_t r = 0; r < rows.count(); ++r) {
    const Part first = part_of(0);
    float* const o = first.o + r * f.value;
    float largest = -INFINITY, total = 0;
    for (int64_t i = 0; i < parts; ++i) largest = max_or_nan(largest, part_of(i).sums[r].largest);
    const float less = largest == -INFINITY ? 0 : largest;
    for (int64_t i = 0; i < parts; ++i) {
      const Part part = part_of(i);
      if (part.sums[r].sum == 0) continue;  // the part has no visible column
      const float factor = std::exp(part.sums[r].largest - less);
      total += part.sums[r].sum * factor;
      if (i == 0) f.loops.multiply_by(o, factor, f.value);
      else f.loops.add(part.o + r * f.value, factor, o, f.value);
    }
    finish_row(f, rows, r, {largest, total}, o);
  }
}

}  // namespace

FlashMemory forward_memory(const AttentionProblem& p, int64_t threads) {
  const FlashCall f{p, {}};
  const Division division(f, threads);
  const bool divided = division.parts > 1;
  return {Buffers::bytes(f, division.most_rows(f)), divided ? Part::bytes(f, Division::padded(f, division.rows)) : 0,
          threads, divided ? p.batch() * p.kv_heads() * division.parts : 0};
}

void flash_forward(const AttentionProblem& p, const AttentionArgs& a, const FlashMemory& memory, void* workspace) {
  const FlashCall f{p, a};
  const Division division(f, memory.threads);
  const int64_t heads = p.batch() * p.kv_heads(), parts = division.parts;
  const auto rows_of = [&](int64_t head) {
    return Rows{f, minidnn::attention::sequence(p, a, head / p.kv_heads()), head % p.kv_heads() * f.group, f.group};
  };
  const auto part_of = [&](int64_t head, int64_t part) {
    return Part(f, Division::padded(f, division.rows), Arena(memory.slot(workspace, head * parts + part)));
  };
  cpu::parallel_items(heads * division.items_of_head * parts, [&](int64_t item, int64_t thread) {
    const int64_t part = item % parts, of_head = item / parts % division.items_of_head,
                  head = item / parts / division.items_of_head;
    const Rows rows = rows_of(head);
    // The last rows come first, because causal rows take longer the later they are.
    const int64_t first = (division.items_of_head - 1 - of_head) * division.rows_of_item(f);
    const int64_t count = std::min(division.rows_of_item(f), rows.count() - first);
    if (count <= 0) return;
    Buffers buffers(f, division.most_rows(f), Arena(memory.thread(workspace, thread)));
    if (parts > 1) {
      const Part result = part_of(head, part);
      buffers.sums = result.sums;
      buffers.o = result.o;
    }
    const AttentionRange columns{parts > 1 ? part * kPartColumns : 0,
                                 parts > 1 ? (part + 1) * kPartColumns : p.kv_size()};
    ForwardItem{f, rows, head % p.kv_heads(), first, count, columns, buffers}.run();
    if (parts == 1)
      for (int64_t r = 0; r < count; ++r) finish_row(f, rows, first + r, buffers.sums[r], buffers.o + r * f.value);
  });
  if (parts > 1)
    cpu::parallel_items(heads, [&](int64_t head, int64_t) {
      join(f, rows_of(head), parts, [&](int64_t part) { return part_of(head, part); });
    });
}

}  // namespace minidnn::cpu::attention
