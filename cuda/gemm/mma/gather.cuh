// SPDX-License-Identifier: Apache-2.0
// Slices of operands in shared memory, and the copies that fill them, for mma/kernel.cu. mma_params.h has the index
// arithmetic.
//
// A slice of an operand has 64 bytes along k for each row of a tile. If the operand is contiguous along k, a line of
// the slice is 64 bytes of one row. If the operand is contiguous along rows, a line is all rows of the tile at one k.
// The chunks of 16 bytes in a line are permuted, so that accesses to shared memory have no bank conflicts.
#pragma once
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/gemm/mma/mma_params.h"

namespace minidnn {

// A slice of an operand in shared memory: kRows rows with 64 bytes along k each. If kAlongK, a line of the slice is one
// row. If not, a line is all rows at one k.
template <class T, int kRows, bool kAlongK> struct Slice {
  static constexpr int kK = kSliceBytes / int(sizeof(T)), kBytes = kRows * kSliceBytes;
  static constexpr int kLineBytes = kAlongK ? kSliceBytes : kRows * int(sizeof(T)), kLines = kBytes / kLineBytes;

  // Returns the offset in the slice of byte `at` of line `line`. A slice has 64 bytes along k of some rows. A line is
  // one row or, if not kAlongK, all rows at one k. The chunks of 16 bytes in a line are permuted by an XOR that depends
  // on the line. This avoids bank conflicts for ldmatrix and for 32-bit loads.
  static __device__ __forceinline__ uint32_t byte_offset(int line, int at) {
    int exchange = kLineBytes == 64 ? line / 2 % 4 : !kAlongK && sizeof(T) == 4 ? line % 4 * 2 : line % 8;
    return line * kLineBytes + ((at / 16 ^ exchange) * 16 + at % 16);
  }

  // Returns the offset in a slice (64 bytes along k of some rows) from which this lane reads the warp's first fragment:
  // the first 16 rows of the warp, and the first 32 bytes along k. load() adds the offset of the fragment that it
  // reads.
  static __device__ __forceinline__ uint32_t lane_offset(int first_row, bool as_b) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
    // This lane passes to ldmatrix the address of one row of an 8-row by 16-byte matrix. In the fragment (16 rows with
    // 32 bytes along k), the matrix begins at row `row` and at byte 16 * k along k.
    const int row = (as_b ? high : low) * 8, k = as_b ? low : high;
    if constexpr (kAlongK) return byte_offset(first_row + row + lane % 8, k * 16);
    else if constexpr (sizeof(T) == 2) return byte_offset(k * 8 + lane % 8, (first_row + row) * 2);
    else return byte_offset(lane % 4, (first_row + lane / 4) * 4);
  }
  // Loads a fragment: rows 16 * block to 16 * block + 15 of the warp, and 32 bytes along k from byte 32 * step on. The
  // offset of the fragment within a line is combined with lane_offset by XOR, because byte_offset() permutes the
  // 16-byte chunks of a line by an XOR, too.
  static __device__ __forceinline__ void load(uint32_t (&f)[4], uint32_t slice, uint32_t lane_offset, int block,
                                              int step, bool as_b) {
    if constexpr (kAlongK) {
      ldmatrix_x4(f, slice + (lane_offset ^ (step * 32)) + block * 16 * kLineBytes);
    } else if constexpr (sizeof(T) == 2) {
      ldmatrix_x4_trans(f, slice + (lane_offset ^ (block * 32)) + step * 16 * kLineBytes);
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int row = as_b ? w / 2 : w % 2, k = as_b ? w % 2 : w / 2;
        f[w] = ld_shared_b32(slice + (lane_offset ^ (block * 64 + row * 32)) + (step * 8 + k * 4) * kLineBytes);
      }
    }
  }
};

// The slice of k (64 bytes) that is fetched next. `a` and `b` are the byte offsets of the slice's first k in operands a
// and b. `at` are the coordinates of this k: the values of the digits (dimensions) of index k.
struct SliceIterator {
  int64_t a, b;
  // The bit masks that tell whether elements are inside the tensor: mask_a for operand a, mask_b for operand b. All k
  // of a slice (64 bytes along k) have the same mask.
  uint32_t mask_a, mask_b;
  uint32_t left;  // the number of values of k that are left, from the slice's first k to the last k
  GemmCoordinates32 at;
  // The number of slices of k (64 bytes each), from this one on, until digit (dimension) 2 of index k changes.
  uint32_t inner_left;

  template <class T> __device__ __forceinline__ void begin(const MmaParams& p, uint32_t first_slice) {
    constexpr uint32_t kK = kSliceBytes / sizeof(T);
    at = p.k.coordinates(first_slice * kK);
    a = offset_of(p.a.k, at) * int64_t(sizeof(T));
    b = offset_of(p.b.k, at) * int64_t(sizeof(T));
    left = p.k.size - first_slice * kK;
    inner_left = p.inner_slices - (p.inner_slices < kNoCarry ? at.at[3] / kK : 0);
    find_masks(p);
  }
  template <class T> __device__ __forceinline__ void advance(const MmaParams& p) {
    left -= kSliceBytes / sizeof(T);
    if (--inner_left > 0) {
      a += p.a.advance[3];
      b += p.b.advance[3];
      return;
    }
    inner_left = p.inner_slices;
    if (++at.at[2] < p.k.by[1].divisor) {
      a += p.a.advance[2];
      b += p.b.advance[2];
    } else {
      at.at[2] = 0;
      if (++at.at[1] < p.k.by[0].divisor) {
        a += p.a.advance[1];
        b += p.b.advance[1];
      } else {
        at.at[1] = 0;
        ++at.at[0];
        a += p.a.advance[0];
        b += p.b.advance[0];
      }
    }
    find_masks(p);
  }

 private:
  __device__ __forceinline__ void find_masks(const MmaParams& p) {
    mask_a = kKExists | (p.a.window.on ? tap_bits(p.a.window, at) : 0);
    mask_b = kKExists | (p.b.window.on ? tap_bits(p.b.window, at) : 0);
  }
};

// What a copy needs to know about the k of one slice (64 bytes along k) of an operand. If the kernel has computed an
// offset and a mask (GatherEntry) for each k (GatherOperand::table), `entries` are those of the slice. If not, `offset`
// is the byte offset of the slice's first k, `mask` is the one mask that all k of the slice have, and `left` is the
// number of values of k from the slice's first k to the end of index k.
struct SliceAt {
  const GatherEntry* entries;
  int64_t offset;
  uint32_t mask, left;
};

// Copies the slices (64 bytes along k each) of an operand from global to shared memory. Each thread copies several
// vectors of a slice. A vector has 16 bytes if kWide. If not kWide, it has 2, 4, 8 or 16 bytes (GatherOperand::width).
// cp.async can not copy vectors of 2 bytes. For such vectors, start() loads them into registers, and finish() stores
// them to shared memory one iteration later.
template <class T, int kRows, int kThreads, bool kAlongK, bool kWide> class Gather {
 public:
  using Slice = minidnn::Slice<T, kRows, kAlongK>;
  // The numbers of GatherEntry objects (an offset and a mask each) in shared memory. kRowEntries is the number of
  // objects for the rows of a tile. kKEntries is the number of objects for one slice of k (64 bytes), if
  // GatherOperand::table is set.
  static constexpr int kRowEntries = kAlongK ? kRows : 0, kKEntries = kAlongK && kWide ? kSliceBytes / 16 : Slice::kK;

  // Computes the offsets and masks of the tile's rows. The caller must then execute a block-wide barrier and call
  // begin(). If kWide, no function reads `rows` after begin().
  __device__ __forceinline__ void prepare(const GatherIndex& index, const GatherOperand& o, uint32_t first_row,
                                          GatherEntry* rows) {
    width_ = kWide ? 16 : o.width;
    rows_ = rows;
    if constexpr (kAlongK) {
      for (int r = threadIdx.x; r < kRows; r += kThreads) rows[r] = row_entry(index, o, sizeof(T), first_row + r);
    } else {
      const uint32_t per_line = Slice::kLineBytes / width_, across = kWide ? per_line : min_of(per_line, 32u);
#pragma unroll
      for (uint32_t u = 0; u < kKept; ++u) {
        const uint32_t unit = (threadIdx.x & (across - 1)) + u * across;
        if (unit < per_line)
          kept_[u] = row_entry(index, o, sizeof(T), first_row + unit * (width_ / uint32_t(sizeof(T))));
      }
    }
  }
  __device__ __forceinline__ void begin(const char* data) {
    data_ = reinterpret_cast<int64_t>(data);
    if constexpr (kAlongK && kWide)
#pragma unroll
      for (int r = 0; r < kKept; ++r) kept_[r] = rows_[Vectors<16>::line(r)];
  }

  __device__ __forceinline__ void start(uint32_t slice, const GatherOperand& o, const SliceAt& at) {
    if constexpr (kWide) {
      copy<16>(slice, o, at);
    } else {
      if (width_ == 16) copy<16>(slice, o, at);
      else if (width_ == 8) copy<8>(slice, o, at);
      else if (sizeof(T) == 4 || width_ == 4) copy<4>(slice, o, at);
      else if constexpr (sizeof(T) == 2)
        each<2>(o, at, [&](int u, int r, const char* from, bool exists) {
          element_[u][r] = exists ? *reinterpret_cast<const uint16_t*>(from) : uint16_t(0);
        });
    }
  }
  __device__ __forceinline__ void finish(uint32_t slice) {
    if constexpr (kElements)
      if (width_ == 2)
#pragma unroll
        for (int u = 0; u < Vectors<2>::kVectorsOfLine; ++u)
#pragma unroll
          for (int r = 0; r < Vectors<2>::kLinesOfThread; ++r)
            st_shared_b16(slice + Vectors<2>::smem_offset(u, r), element_[u][r]);
  }

 private:
  static constexpr bool kElements = !kWide && sizeof(T) == 2;
  // The vectors of a slice (64 bytes along k of some rows) that this thread copies: kVectorsOfLine vectors in each of
  // kLinesOfThread lines. A line is one row or, if not kAlongK, all rows at one k.
  template <int kWidth> struct Vectors {
    static constexpr int kPerLine = Slice::kLineBytes / kWidth, kMost = kAlongK ? 8 : 32;
    static constexpr int kAcross = kWide || kPerLine < kMost ? kPerLine : kMost, kDown = kThreads / kAcross;
    static constexpr int kVectorsOfLine = kPerLine / kAcross, kLinesOfThread = Slice::kLines / kDown;
    static_assert(kThreads % kAcross == 0 && kVectorsOfLine * kAcross == kPerLine &&
                  kLinesOfThread * kDown == Slice::kLines && kLinesOfThread > 0);
    static __device__ __forceinline__ int unit(int u) { return threadIdx.x % kAcross + u * kAcross; }
    static __device__ __forceinline__ int line(int r) { return threadIdx.x / kAcross + r * kDown; }
    static __device__ __forceinline__ uint32_t smem_offset(int u, int r) {
      // If kDown is a multiple of eight, byte_offset() permutes the 16-byte chunks in the same way for all lines (of
      // the slice) that this thread copies.
      if constexpr (kDown % 8 == 0)
        return Slice::byte_offset(line(0), unit(u) * kWidth) + r * kDown * Slice::kLineBytes;
      else return Slice::byte_offset(line(r), unit(u) * kWidth);
    }
  };
  // The number of GatherEntry objects (an offset and a mask each) of rows that this thread keeps in registers.
  static constexpr int kKept = kAlongK ? (kWide ? Vectors<16>::kLinesOfThread : 1) : kWide ? 1 : 4;

  template <int kWidth>
  __device__ __forceinline__ void copy(uint32_t slice, const GatherOperand& o, const SliceAt& at) {
    each<kWidth>(o, at, [&](int u, int r, const char* from, bool exists) {
      cp_async<kWidth, true>(slice + Vectors<kWidth>::smem_offset(u, r), from, exists);
    });
  }

  // Calls f(u, r, from, exists) for each vector u of each line r that this thread copies. A line is one row or, if not
  // kAlongK, all rows at one k. `from` is the address of the vector in global memory, and `exists` says whether its
  // elements are inside the tensor. All offsets and masks are read from shared memory before the first call of f(): the
  // compiler does not move these reads across the asm statements in f().
  template <int kWidth, class F>
  __device__ __forceinline__ void each(const GatherOperand& o, const SliceAt& at, F&& f) {
    using Layout = Vectors<kWidth>;
    constexpr int kKs = kAlongK ? Layout::kVectorsOfLine : Layout::kLinesOfThread,
                  kOfRows = kAlongK ? Layout::kLinesOfThread : Layout::kVectorsOfLine;
    static_assert(kAlongK || kOfRows <= kKept);
    GatherEntry k[kKs], row[kOfRows];
#pragma unroll
    for (int i = 0; i < kOfRows; ++i) row[i] = kAlongK && !kWide ? rows_[Layout::line(i)] : kept_[i < kKept ? i : 0];
    const int first =
        // The first k of the slice that this thread copies.
        kAlongK ? Layout::unit(0) * (kWidth / int(sizeof(T))) : Layout::line(0);
    constexpr int kStep = kAlongK ? Layout::kAcross * (kWidth / int(sizeof(T))) : Layout::kDown;
    if (o.table) {
#pragma unroll
      for (int i = 0; i < kKs; ++i) k[i] = at.entries[kAlongK && kWide ? Layout::unit(i) : first + i * kStep];
    } else {
#pragma unroll
      for (int i = 0; i < kKs; ++i)
        k[i] = {at.offset + (first + i * kStep) * o.k_step, first + i * kStep < at.left ? at.mask : kNothing};
    }
#pragma unroll
    for (int i = 0; i < kKs; ++i) k[i].offset += data_;
#pragma unroll
    for (int u = 0; u < Layout::kVectorsOfLine; ++u)
#pragma unroll
      for (int r = 0; r < Layout::kLinesOfThread; ++r) {
        const GatherEntry &of_row = row[kAlongK ? r : u], &of_k = k[kAlongK ? u : r];
        f(u, r, reinterpret_cast<const char*>(of_row.offset + of_k.offset), (of_row.mask & of_k.mask) == 0);
      }
  }

  int64_t data_;
  const GatherEntry* rows_;
  GatherEntry kept_[kKept];
  uint32_t width_;
  using Elements = Vectors<kElements ? 2 : 16>;
  uint16_t element_[kElements ? Elements::kVectorsOfLine : 1][kElements ? Elements::kLinesOfThread : 1];
};

}  // namespace minidnn
