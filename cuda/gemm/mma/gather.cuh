// SPDX-License-Identifier: Apache-2.0
// Slices of operands in shared memory, and the copies that fill them, for mma/kernel.cu. mma_params.h has the index
// arithmetic.
//
// A slice is 64 bytes along k for each row of a tile, for example 128 rows x 32 values of float16. If the operand is
// contiguous along k, a line of the slice is one row (64 bytes). If it is contiguous along rows, a line is all rows at
// one k. The 16-byte chunks of a line are permuted against bank conflicts.
#pragma once
#include "cuda/device/ptx/cp_async.cuh"
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/device/ptx/ldmatrix.cuh"
#include "cuda/gemm/mma/mma_params.h"

namespace minidnn {

// A slice in shared memory. A line is one row if kAlongK, else all rows at one k.
template <class T, int kRows, bool kAlongK> struct Slice {
  static constexpr int kK = kSliceBytes / int(sizeof(T)), kBytes = kRows * kSliceBytes;
  static constexpr int kLineBytes = kAlongK ? kSliceBytes : kRows * int(sizeof(T)), kLines = kBytes / kLineBytes;

  // The offset of byte `at` of a line. An XOR permutes the 16-byte chunks of a line, which avoids bank conflicts.
  static __device__ __forceinline__ uint32_t byte_offset(int line, int at) {
    int exchange = kLineBytes == 64 ? line / 2 % 4 : !kAlongK && sizeof(T) == 4 ? line % 4 * 2 : line % 8;
    return line * kLineBytes + ((at / 16 ^ exchange) * 16 + at % 16);
  }

  // The offset from which this lane reads the warp's first fragment (16 rows x 32 bytes along k). load() adds the
  // offset of its fragment.
  static __device__ __forceinline__ uint32_t lane_offset(int first_row, bool as_b) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2, high = lane / 16;
    // The lane's 8-row by 16-byte matrix of ldmatrix begins at this row, and at byte 16 * k along k.
    const int row = (as_b ? high : low) * 8, k = as_b ? low : high;
    if constexpr (kAlongK) return byte_offset(first_row + row + lane % 8, k * 16);
    else if constexpr (sizeof(T) == 2) return byte_offset(k * 8 + lane % 8, (first_row + row) * 2);
    else return byte_offset(lane % 4, (first_row + lane / 4) * 4);
  }
  // Loads a fragment: 16 rows from row 16 * block of the warp on, and 32 bytes along k from byte 32 * step on. Offsets
  // within a line are combined by XOR, like the permutation in byte_offset().
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

// The slice that is fetched next: byte offsets of its first k in operands a and b, and the coordinates of this k.
struct SliceIterator {
  int64_t a, b;
  // The masks of k in both operands (see mma_params.h). All k of a slice have the same mask.
  uint32_t mask_a, mask_b;
  uint32_t left;  // the number of values of k from here to the end
  GemmCoordinates32 at;
  // The number of slices until the next carry into dimension 2 of k.
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

// The k of a slice. If GatherOperand::table, `entries` has an offset and a mask for each k. If not, `offset` and `mask`
// are those of the slice's first k, and `left` is the number of values of k from there to the end.
struct SliceAt {
  const GatherEntry* entries;
  int64_t offset;
  uint32_t mask, left;
};

// Copies slices of an operand to shared memory, in vectors of 16 bytes if kWide, else of 2 to 16 bytes. cp.async cannot
// copy 2 bytes: start() loads them into registers, and finish() stores them one iteration later.
template <class T, int kRows, int kThreads, bool kAlongK, bool kWide> class Gather {
 public:
  using Slice = minidnn::Slice<T, kRows, kAlongK>;
  // The numbers of offsets and masks in shared memory for the rows of a tile, and for the k of a slice.
  static constexpr int kRowEntries = kAlongK ? kRows : 0, kKEntries = kAlongK && kWide ? kSliceBytes / 16 : Slice::kK;

  // Computes the offsets and masks of rows. A block-wide barrier and begin() must follow. If kWide, `rows` is not read
  // after begin().
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
  // The vectors of a slice that this thread copies: kVectorsOfLine vectors in each of kLinesOfThread lines.
  template <int kWidth> struct Vectors {
    static constexpr int kPerLine = Slice::kLineBytes / kWidth, kMost = kAlongK ? 8 : 32;
    static constexpr int kAcross = kWide || kPerLine < kMost ? kPerLine : kMost, kDown = kThreads / kAcross;
    static constexpr int kVectorsOfLine = kPerLine / kAcross, kLinesOfThread = Slice::kLines / kDown;
    static_assert(kThreads % kAcross == 0 && kVectorsOfLine * kAcross == kPerLine &&
                  kLinesOfThread * kDown == Slice::kLines && kLinesOfThread > 0);
    static __device__ __forceinline__ int unit(int u) { return threadIdx.x % kAcross + u * kAcross; }
    static __device__ __forceinline__ int line(int r) { return threadIdx.x / kAcross + r * kDown; }
    static __device__ __forceinline__ uint32_t smem_offset(int u, int r) {
      // If kDown is a multiple of eight, the permutation is the same in all lines of this thread.
      if constexpr (kDown % 8 == 0)
        return Slice::byte_offset(line(0), unit(u) * kWidth) + r * kDown * Slice::kLineBytes;
      else return Slice::byte_offset(line(r), unit(u) * kWidth);
    }
  };
  // The number of row offsets and masks that this thread keeps in registers.
  static constexpr int kKept = kAlongK ? (kWide ? Vectors<16>::kLinesOfThread : 1) : kWide ? 1 : 4;

  template <int kWidth>
  __device__ __forceinline__ void copy(uint32_t slice, const GatherOperand& o, const SliceAt& at) {
    each<kWidth>(o, at, [&](int u, int r, const char* from, bool exists) {
      cp_async<kWidth, true>(slice + Vectors<kWidth>::smem_offset(u, r), from, exists);
    });
  }

  // Calls f(u, r, address, exists) for each vector u of each line r of this thread. All offsets and masks are read
  // first, because the compiler does not move loads across the asm in f().
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
        // the thread's first k in the slice
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
