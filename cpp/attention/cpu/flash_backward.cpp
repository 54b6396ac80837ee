// SPDX-License-Identifier: Apache-2.0
// The backward pass of cpu.attention.flash. An item of work is one head of k, or a part of its blocks of columns. For
// each block of columns it walks over the row blocks that see it, computes their probabilities and gradients of scores,
// and adds the three products dv += p^T d_o, dk += dz^T q and dq += dz k. Sums of dq stay in the memory of the item.
// The sums of several parts are added in order.
#include "cpp/attention/cpu/flash.h"

namespace minidnn::cpu::attention {
namespace {

constexpr int64_t kWantedItems = 16, kMostParts = 8;
constexpr int64_t kColumns = kBackwardColumns;

// The number of items of each head of k. The problem alone determines it, since dq is the sum of their sums.
int64_t parts_of(const AttentionProblem& p) {
  const int64_t heads = std::max<int64_t>(p.batch() * p.kv_heads(), 1);
  return std::clamp<int64_t>(std::min(kWantedItems / heads, ceil_div(p.kv_size(), 2 * kColumns)), 1, kMostParts);
}
int64_t rows_of(const FlashCall& f) { return round_up(std::max<int64_t>(f.group * f.p.q_size(), 1), f.block); }

// The memory of a thread.
struct Buffers {
  float *q, *d_o, *k, *v, *k_transposed, *v_transposed, *k_packed, *dk, *dv, *p, *dz, *kept, *lse, *delta, *bias;
  float *q_transposed, *do_transposed, *rounded, *packed;  // of products of bfloat16
  // Takes the pieces from an arena, or counts their bytes if `arena` is null.
  int64_t bytes = 0;
  Buffers(const FlashCall& f, Arena* arena) {
    const auto take = [&](float*& piece, int64_t floats) {
      bytes += Arena::bytes(floats);
      piece = arena ? arena->take(floats) : nullptr;
    };
    for (float** piece : {&k, &k_transposed, &k_packed, &dk}) take(*piece, kColumns * f.head);
    for (float** piece : {&v, &v_transposed, &dv}) take(*piece, kColumns * f.value);
    take(q, kBlockRows * f.head);
    take(d_o, kBlockRows * f.value);
    for (float** piece : {&p, &dz}) take(*piece, kBlockRows * kPitch);
    take(bias, f.p.dbias.rank ? kBlockRows * kPitch : 0);
    take(kept, kFlashColumns);
    take(lse, rows_of(f));
    take(delta, rows_of(f));
    const int64_t of_products = f.bf16 ? kBf16BlockRows / 2 : 0;
    take(q_transposed, of_products * f.head);
    take(do_transposed, of_products * f.value);
    take(rounded, of_products * kPitch);
    take(packed, of_products * kColumns);
  }
};

// The tiles of some rows and one head of k.
struct Tiles {
  const FlashCall& f;
  const Rows& rows;
  int64_t kv_head;
  const Buffers& m;

  // Computes delta = sum of d_o o, and reads lse, for the rows [first, first + count). They go to element r - `at`.
  void read_rows(int64_t first, int64_t count, int64_t at) const {
    for (int64_t r = first; r < first + count; ++r) {
      m.lse[r - at] = -INFINITY;
      m.delta[r - at] = 0;
      const AttentionRange seen = rows.seen(r);
      if (seen.begin >= seen.end) continue;
      m.lse[r - at] = rows.lse(r);
      rows.widen(f.p.o, f.a.o, r, m.q, f.value);
      rows.widen(f.p.d_o, f.a.d_o, r, m.d_o, f.value);
      m.delta[r - at] = f.loops.dot(m.q, m.d_o, f.value);
    }
  }
  // Converts and packs columns [j, j + columns) of k and v.
  void read_columns(int64_t j, int64_t columns) const {
    const int64_t width = round_up(columns, kColumnUnit);
    const Columns block{rows.s, kv_head, j, columns, width};
    if (f.bf16) {
      const Bf16Rows k = bf16_rows_of(f, block, f.p.k, f.a.k, as_bf16(m.k), f.head);
      const Bf16Rows v = bf16_rows_of(f, block, f.p.v, f.a.v, as_bf16(m.v), f.value);
      f.bf16->pack_transposed(k.first, k.pitch, width, f.head, as_bf16(m.k_transposed), kBf16Lines * f.head);
      f.bf16->pack_transposed(v.first, v.pitch, width, f.value, as_bf16(m.v_transposed), kBf16Lines * f.value);
      f.bf16->pack(k.first, k.pitch, width, f.head, as_bf16(m.k_packed), kBf16Lines * width);
      return;
    }
    const float* const k = floats_of(f, block, f.p.k, f.a.k, m.k, f.head);
    const float* const v = floats_of(f, block, f.p.v, f.a.v, m.v, f.value);
    pack_transposed(f, k, width, f.head, m.k_transposed);
    pack_transposed(f, v, width, f.value, m.v_transposed);
    pack_plain(f, k, width, f.head, m.k_packed);
  }
  // The columns of the tile of rows [r, r + n) and columns [j, j + columns), from j on, that a row sees. They are
  // rounded to whole panels. `at` is as in read_rows.
  AttentionRange seen(int64_t r, int64_t n, int64_t j, int64_t columns) const {
    AttentionRange all{INT64_MAX, 0};
    for (int64_t i = r; i < r + n; ++i) {
      const AttentionRange range = rows.seen(i);
      if (range.begin < range.end) all = {std::min(all.begin, range.begin), std::max(all.end, range.end)};
    }
    return {std::max<int64_t>(all.begin - j, 0) / f.gemm.columns * f.gemm.columns,
            round_up(std::min(all.end - j, columns), f.gemm.columns)};
  }
  // Returns rows [r, r + n) of q or d_o, with zeros in rows that see nothing, which may hold anything, and in rows up to
  // a multiple of those of a product.
  const float* read(const TensorDesc& d, const void* data, int64_t r, int64_t n, int64_t at, float* buffer,
                    int64_t padded) const {
    const auto is_read = [&](int64_t i) { return i < n && m.lse[r + i - at] != -INFINITY; };
    bool in_place = is_floats(d, padded) && rows.group == 1 && n % f.gemm.rows == 0;
    for (int64_t i = 0; in_place && i < n; ++i) in_place = is_read(i);
    if (in_place) return static_cast<const float*>(rows.q_row(d, data, r));
    for (int64_t i = 0; i < round_up(n, f.gemm.rows); ++i)
      if (is_read(i)) rows.widen(d, data, r + i, buffer + i * padded, padded);
      else std::memset(buffer + i * padded, 0, size_t(padded) * sizeof(float));
    return buffer;
  }
  // The same for bfloat16: the rows up to a multiple of kBf16Steps go to `to`.
  void read_bf16(const TensorDesc& d, const void* data, int64_t r, int64_t n, int64_t at, bfloat16* to,
                 int64_t padded) const {
    for (int64_t i = 0; i < round_up(n, kBf16Steps); ++i) {
      bfloat16* const row = to + i * padded;
      if (i < n && m.lse[r + i - at] != -INFINITY)
        copy_bf16(rows.q_row(d, data, r + i), d.stride[3], d.shape[3], row, padded);
      else std::memset(static_cast<void*>(row), 0, size_t(padded) * sizeof *row);
    }
  }
  struct Operands {
    const float *q, *d_o;
  };
  // Computes p and dz of a tile, whose columns `to` are those of seen(). Rows that see nothing are zeros. `bias`
  // receives the gradients of scores if it is not null. Returns the rows of q and d_o, unless they are bfloat16.
  Operands scores(int64_t r, int64_t n, int64_t at, int64_t j, int64_t columns, AttentionRange to, float* bias) const {
    const int64_t wide = to.end - to.begin, panel = f.gemm.columns, width = round_up(columns, kColumnUnit);
    Operands of{};
    if (f.bf16) {
      bfloat16 *const q = as_bf16(m.q), *const d_o = as_bf16(m.d_o);
      read_bf16(f.p.q, f.a.q, r, n, at, q, f.head);
      read_bf16(f.p.d_o, f.a.d_o, r, n, at, d_o, f.value);
      const int64_t lines = round_up(n, kBf16Lines);
      f.bf16->multiply({q, f.head, as_bf16(m.k_transposed) + to.begin * f.head, kBf16Lines * f.head, m.p + to.begin,
                        kPitch, lines, wide, f.head, false});
      f.bf16->multiply({d_o, f.value, as_bf16(m.v_transposed) + to.begin * f.value, kBf16Lines * f.value,
                        m.dz + to.begin, kPitch, lines, wide, f.value, false});
    } else {
      of = {read(f.p.q, f.a.q, r, n, at, m.q, f.head), read(f.p.d_o, f.a.d_o, r, n, at, m.d_o, f.value)};
      multiply(f, {of.q, f.head, 1, m.k_transposed + to.begin * f.head, panel, panel * f.head, m.p + to.begin, kPitch},
               n, wide, f.head, false);
      multiply(
          f, {of.d_o, f.value, 1, m.v_transposed + to.begin * f.value, panel, panel * f.value, m.dz + to.begin, kPitch},
          n, wide, f.value, false);
    }
    for (int64_t i = 0; i < n; ++i) {
      float *const p = m.p + i * kPitch, *const dz = m.dz + i * kPitch;
      const float lse = m.lse[r + i - at];
      const FlashRow row = rows.row(r + i, rows.seen(r + i), j, std::min(columns, to.end), m.kept);
      if (row.begin >= row.end || lse == -INFINITY) {
        std::memset(p, 0, size_t(width) * sizeof(float));
        std::memset(dz, 0, size_t(width) * sizeof(float));
        continue;
      }
      f.loops.backward(f.scores, row, p, dz, width, {lse, m.delta[r + i - at], bias ? bias + i * kPitch : nullptr});
    }
    return of;
  }
};

struct BackwardItem {
  const FlashCall& f;
  const Tiles& tiles;
  const Buffers& m;
  float* dq;  // sums [rows, f.head]

  void run(int64_t part, int64_t parts) const {
    const Rows& rows = tiles.rows;
    const int64_t count = rows.count(), columns = f.p.packed ? rows.s.kv_length : f.p.kv_size();
    tiles.read_rows(0, count, 0);
    std::memset(dq, 0, size_t(round_up(count, f.block) * f.head) * sizeof(float));
    if (f.bf16) f.bf16->begin();
    for (int64_t j = part * kColumns; j < columns; j += parts * kColumns) {
      const int64_t width = round_up(std::min(kColumns, columns - j), kColumnUnit);
      std::memset(m.dk, 0, size_t((f.bf16 ? kColumns : width) * f.head) * sizeof(float));
      std::memset(m.dv, 0, size_t((f.bf16 ? kColumns : width) * f.value) * sizeof(float));
      const int64_t valid = std::min(kColumns, rows.s.kv_length - j);
      if (valid > 0) column_block(j, valid);
      const float *const dk = rows_of_sums(m.dk, f.head, m.k), *const dv = rows_of_sums(m.dv, f.value, m.v);
      for (int64_t i = 0; i < std::min(kColumns, columns - j); ++i) {
        write(f.p.dk, f.a.dk, j + i, dk + i * f.head, float(f.a.scale));
        write(f.p.dv, f.a.dv, j + i, dv + i * f.value, float(f.a.keep));
      }
    }
    if (f.bf16) f.bf16->end();
  }
  // Returns the sums of a block of columns as rows [kColumns, size]. Products of bfloat16 add to [size, kColumns].
  const float* rows_of_sums(const float* sums, int64_t size, float* buffer) const {
    if (!f.bf16) return sums;
    gemm_kernels().transpose(sums, kColumns, size, kColumns, buffer, size);
    return buffer;
  }

  void write(const TensorDesc& d, void* data, int64_t j, const float* from, float factor) const {
    char* const base = static_cast<char*>(data);
    const int64_t offset = minidnn::attention::kv_row<char>(d, base, f.p, f.a, tiles.rows.s, tiles.kv_head, j) - base;
    f.loops.narrow[int64_t(d.dtype)](from, factor, d.shape[3], base + offset * int64_t(itemsize(d.dtype)), d.stride[3]);
  }

  void column_block(int64_t j, int64_t columns) const {
    bool is_read = false;
    for (int64_t r = 0; r < tiles.rows.count(); r += f.block) {
      const int64_t n = std::min(f.block, tiles.rows.count() - r);
      const AttentionRange to = tiles.seen(r, n, j, columns);
      if (to.begin >= to.end) continue;
      if (!is_read) tiles.read_columns(j, columns);
      is_read = true;
      const Tiles::Operands rows = tiles.scores(r, n, 0, j, columns, to, nullptr);
      if (f.bf16) {
        add_bf16(r, n, to, round_up(columns, kColumnUnit));
        continue;
      }
      const int64_t panel = f.gemm.columns, first = to.begin / f.gemm.rows * f.gemm.rows, wide = to.end - first;
      multiply(f, {m.p + first, 1, kPitch, rows.d_o, f.value, panel, m.dv + first * f.value, f.value}, wide, f.value, n,
               true);
      multiply(f, {m.dz + first, 1, kPitch, rows.q, f.head, panel, m.dk + first * f.head, f.head}, wide, f.head, n,
               true);
      multiply(f,
               {m.dz + to.begin, kPitch, 1, m.k_packed + to.begin * panel, panel,
                panel * round_up(columns, kColumnUnit), dq + r * f.head, f.head},
               n, f.head, to.end - to.begin, true);
    }
  }

  // Adds the products of a tile, of bfloat16: dv^T += d_o^T p, dk^T += q^T dz, dq += dz k.
  void add_bf16(int64_t r, int64_t n, AttentionRange to, int64_t width) const {
    const int64_t steps = round_up(n, kBf16Steps), wide = to.end - to.begin, panel = kBf16Lines * kBf16BlockRows;
    float *const p = m.p + to.begin, *const dz = m.dz + to.begin;
    for (int64_t i = n; i < steps; ++i) {
      std::memset(p + i * kPitch, 0, size_t(wide) * sizeof *p);
      std::memset(dz + i * kPitch, 0, size_t(wide) * sizeof *dz);
    }
    const auto add = [&](float* rows, int64_t size, float* transposed, const float* weights, float* sums) {
      f.bf16->transpose(as_bf16(rows), size, steps, size, as_bf16(transposed), kBf16BlockRows);
      f.bf16->round_packed(weights, kPitch, steps, wide, as_bf16(m.packed), panel);
      f.bf16->multiply({as_bf16(transposed), kBf16BlockRows, as_bf16(m.packed), panel, sums + to.begin, kColumns, size,
                        wide, steps, true});
    };
    add(m.d_o, f.value, m.do_transposed, p, m.dv);
    add(m.q, f.head, m.q_transposed, dz, m.dk);
    f.bf16->round(dz, kPitch, steps, wide, as_bf16(m.rounded), kPitch);
    f.bf16->multiply({as_bf16(m.rounded), kPitch, as_bf16(m.k_packed) + to.begin * kBf16Lines, kBf16Lines * width,
                      dq + r * f.head, f.head, steps, f.head, wide, true});
  }
};

// Writes rows of dq: the sums of the parts.
void write_dq(const FlashCall& f, const Rows& rows, int64_t first, int64_t count, int64_t parts,
              const FlashMemory& memory, void* workspace, int64_t slot) {
  for (int64_t r = first; r < first + count; ++r) {
    float* const sum = static_cast<float*>(memory.slot(workspace, slot)) + r * f.head;
    for (int64_t part = 1; part < parts; ++part)
      f.loops.add(static_cast<float*>(memory.slot(workspace, slot + part)) + r * f.head, 1, sum, f.head);
    f.loops.narrow[int64_t(f.p.dq.dtype)](sum, float(f.a.scale), f.p.head_size(),
                                          const_cast<void*>(rows.q_row(f.p.dq, f.a.dq, r)), f.p.dq.stride[3]);
  }
}

// The gradient of the bias: the gradients of all scores to which an element was added. An item computes the elements of
// a row block, or all rows if the bias has one row, of one entry of its batch and one of its heads.
struct BiasItem {
  const FlashCall& f;
  const Buffers& m;
  int64_t batch, head, block;  // the batch entry and the head of the bias, and the block of rows

  void run() const {
    const AttentionProblem& p = f.p;
    const TensorDesc& d = p.dbias;
    const bool one_row = d.shape[2] == 1, one_column = d.shape[3] == 1;
    if (f.bf16) f.bf16->begin();
    const int64_t first = block * f.block, rows = one_row ? 1 : std::min(f.block, p.q_size() - first);
    CompensatedSum<float> of_row[kBlockRows];
    for (int64_t j = 0; j < p.kv_size(); j += kColumns) {
      CompensatedSum<float> of_column[kColumns];
      const int64_t columns = std::min(kColumns, p.kv_size() - j);
      std::memset(m.bias, 0, size_t(kBlockRows * kPitch) * sizeof(float));
      for (int64_t r = first; r < (one_row ? p.q_size() : first + 1); r += f.block) {
        add_tiles(r, j);
        if (!one_row) break;
        for (int64_t i = 0; i < kBlockRows; ++i)
          for (int64_t c = 0; c < columns; ++c) of_column[c].add(m.bias[i * kPitch + c]);
        std::memset(m.bias, 0, size_t(kBlockRows * kPitch) * sizeof(float));
      }
      if (one_row)
        for (int64_t c = 0; c < columns; ++c) m.bias[c] = of_column[c].value();
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t c = 0; c < columns; ++c) {
          if (one_column) of_row[i].add(m.bias[i * kPitch + c]);
          else write(first + i, j + c, m.bias[i * kPitch + c]);
        }
    }
    for (int64_t i = 0; one_column && i < rows; ++i) write(first + i, 0, of_row[i].value());
    if (f.bf16) f.bf16->end();
  }

  void write(int64_t row, int64_t column, float v) const {
    const TensorDesc& d = f.p.dbias;
    const int64_t offset = batch * d.stride[0] + head * d.stride[1] + row * d.stride[2] + column * d.stride[3];
    f.loops.narrow[int64_t(d.dtype)](&v, 1, 1, const_cast<void*>(at(d, f.a.dbias, offset)), 1);
  }

  // Adds the tiles of rows from r and columns from j of all sequences and heads that use this part of the bias.
  void add_tiles(int64_t r, int64_t j) const {
    const AttentionProblem& p = f.p;
    const TensorDesc& d = p.dbias;
    for (int64_t b = 0; b < p.batch(); ++b)
      for (int64_t h = 0; h < p.heads(); ++h) {
        if ((d.shape[0] != 1 && b != batch) || (d.shape[1] != 1 && h != head)) continue;
        const Rows rows{f, minidnn::attention::sequence(p, f.a, b), h, 1};
        const Tiles tiles{f, rows, p.kv_head_of(h), m};
        const int64_t n = std::min(f.block, rows.count() - r), columns = std::min(kColumns, rows.s.kv_length - j);
        if (n <= 0 || columns <= 0) continue;
        const AttentionRange to = tiles.seen(r, n, j, columns);
        if (to.begin >= to.end) continue;
        tiles.read_rows(r, n, r);
        tiles.read_columns(j, columns);
        tiles.scores(r, n, r, j, columns, to, m.bias);
      }
  }
};

}  // namespace

FlashMemory backward_memory(const AttentionProblem& p, int64_t threads) {
  const FlashCall f{p, {}};
  const int64_t parts = parts_of(p);
  return {Buffers(f, nullptr).bytes, Arena::bytes(rows_of(f) * f.head), threads,
          parts == 1 ? threads : p.batch() * p.kv_heads() * parts};
}

void flash_backward(const AttentionProblem& p, const AttentionArgs& a, const FlashMemory& memory, void* workspace) {
  const FlashCall f{p, a};
  const int64_t heads = p.batch() * p.kv_heads(), parts = parts_of(p);
  const auto buffers_of = [&](int64_t thread) {
    Arena arena(memory.thread(workspace, thread));
    return Buffers(f, &arena);
  };
  const auto rows_of_head = [&](int64_t head) {
    return Rows{f, minidnn::attention::sequence(p, a, head / p.kv_heads()), head % p.kv_heads() * f.group, f.group};
  };
  cpu::parallel_items(heads * parts, [&](int64_t item, int64_t thread) {
    const int64_t head = item / parts, slot = parts == 1 ? thread : item;
    const Rows rows = rows_of_head(head);
    const Buffers buffers = buffers_of(thread);
    const Tiles tiles{f, rows, head % p.kv_heads(), buffers};
    BackwardItem{f, tiles, buffers, static_cast<float*>(memory.slot(workspace, slot))}.run(item % parts, parts);
    if (parts == 1) write_dq(f, rows, 0, rows.count(), 1, memory, workspace, slot);
  });
  if (parts > 1) {
    constexpr int64_t kRows = 256;  // rows of dq that a thread writes at once
    const int64_t blocks = ceil_div(rows_of(f), kRows);
    cpu::parallel_items(heads * blocks, [&](int64_t item, int64_t) {
      const int64_t head = item / blocks, first = item % blocks * kRows;
      const Rows rows = rows_of_head(head);
      write_dq(f, rows, first, std::min(kRows, rows.count() - first), parts, memory, workspace, head * parts);
    });
  }
  if (!p.dbias.rank) return;
  const int64_t blocks = p.dbias.shape[2] == 1 ? 1 : ceil_div(p.q_size(), f.block);
  cpu::parallel_items(p.dbias.shape[0] * p.dbias.shape[1] * blocks, [&](int64_t item, int64_t thread) {
    const Buffers buffers = buffers_of(thread);
    BiasItem{f, buffers, item / blocks / p.dbias.shape[1], item / blocks % p.dbias.shape[1], item % blocks}.run();
  });
}

}  // namespace minidnn::cpu::attention
