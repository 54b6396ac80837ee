// SPDX-License-Identifier: Apache-2.0
// Transposes a tensor. x is contiguous along the dimension `columns`, y is contiguous along the dimension `lines`. T is
// an integer of the elements' size.
// Grid: one block of 256 threads for each tile (tiled_params.h). A block transposes its tile in shared memory. It loads
// and stores words of at most 16 bytes. The size of a word is the largest power of two that divides all addresses of x
// (for loads) or of y (for stores). Each instruction of a warp accesses whole cache lines of 128 bytes. x is read once
// and y is written once. A block has 8 KB of loads in flight (16 KB for 8-bit elements); an SM runs 8 blocks at the
// same time.
// Elements shorter than 4 bytes are first packed in registers: a 4-byte word gets the elements of adjacent lines.
//
// In shared memory, a column of the tile is divided into units of 16 bytes, which are swizzled to avoid bank conflicts:
//   tile[column][u ^ (column / kVector)] = unit u of the column
#include "cuda/transform/tiled_params.h"

namespace minidnn {
namespace {

union Vector {
  uint4 whole;
  uint2 halves[2];
  uint32_t words[4];
  uint16_t shorts[8];
  uint8_t bytes[16];
};

__device__ __forceinline__ Vector load_narrow(const void* from, int bytes) {
  Vector v;
  if (bytes == 8) {
    v.halves[0] = static_cast<const uint2*>(from)[0];
    v.halves[1] = static_cast<const uint2*>(from)[1];
  } else if (bytes == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v.words[i] = static_cast<const uint32_t*>(from)[i];
  } else if (bytes == 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint16_t* two = static_cast<const uint16_t*>(from) + 2 * i;
      v.words[i] = two[0] | uint32_t(two[1]) << 16;
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint8_t* four = static_cast<const uint8_t*>(from) + 4 * i;
      v.words[i] = four[0] | uint32_t(four[1]) << 8 | uint32_t(four[2]) << 16 | uint32_t(four[3]) << 24;
    }
  }
  return v;
}
__device__ __forceinline__ void store_narrow(void* to, const Vector& v, int bytes) {
  if (bytes == 8) {
    static_cast<uint2*>(to)[0] = v.halves[0];
    static_cast<uint2*>(to)[1] = v.halves[1];
  } else if (bytes == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) static_cast<uint32_t*>(to)[i] = v.words[i];
  } else if (bytes == 2) {
#pragma unroll
    for (int i = 0; i < 8; ++i) static_cast<uint16_t*>(to)[i] = uint16_t(v.words[i / 2] >> i % 2 * 16);
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) static_cast<uint8_t*>(to)[i] = uint8_t(v.words[i / 4] >> i % 4 * 8);
  }
}

// Loads the first n elements of a 16-byte vector one by one. This is for the edge of a tensor, where fewer elements are
// left than a vector has.
template <class T> __device__ __forceinline__ Vector load_first(const T* from, int n) {
  Vector v{};
#pragma unroll
  for (int i = 0; i < 16 / int(sizeof(T)); ++i)
    if (i < n) {
      if constexpr (sizeof(T) == 8) {
        const uint64_t e = from[i];
        v.words[2 * i] = uint32_t(e);
        v.words[2 * i + 1] = uint32_t(e >> 32);
      } else {
        constexpr int kOf = 4 / sizeof(T);
        v.words[i / kOf] |= uint32_t(from[i]) << i % kOf * (8 * int(sizeof(T)) % 32);
      }
    }
  return v;
}
template <class T> __device__ __forceinline__ void store_first(T* to, const Vector& v, int n) {
#pragma unroll
  for (int i = 0; i < 16 / int(sizeof(T)); ++i)
    if (i < n) {
      if constexpr (sizeof(T) == 8) {
        to[i] = v.words[2 * i] | uint64_t(v.words[2 * i + 1]) << 32;
      } else {
        constexpr int kOf = 4 / sizeof(T);
        to[i] = T(v.words[i / kOf] >> i % kOf * (8 * int(sizeof(T)) % 32));
      }
    }
}

// Transposes one vector of each of kJoined adjacent lines into shared memory. Element i of each vector goes to the i-th
// column from `to` on. Elements shorter than 4 bytes are packed: a 4-byte word has an element of each of these lines.
template <int kItem, int kJoined>
__device__ __forceinline__ void scatter_to_columns(char* to, const Vector (&in)[kJoined]) {
  // the distance of neighbouring columns in shared memory, in bytes
  constexpr int kNext = 8 * TiledShape<kItem>::kStack * 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (kItem == 8) {
      if (i % 2 == 0) *reinterpret_cast<uint2*>(to + i / 2 * kNext) = in[0].halves[i / 2];
    } else if constexpr (kItem == 4) {
      *reinterpret_cast<uint32_t*>(to + i * kNext) = in[0].words[i];
    } else if constexpr (kItem == 2) {
      const uint32_t a = in[0].words[i], b = in[1].words[i];
      *reinterpret_cast<uint32_t*>(to + 2 * i * kNext) = __byte_perm(a, b, 0x5410);
      *reinterpret_cast<uint32_t*>(to + (2 * i + 1) * kNext) = __byte_perm(a, b, 0x7632);
    } else {
      const uint32_t a = in[0].words[i], b = in[1].words[i], d = in[2].words[i], e = in[3].words[i];
      const uint32_t ab = __byte_perm(a, b, 0x5140), de = __byte_perm(d, e, 0x5140);
      const uint32_t fg = __byte_perm(a, b, 0x7362), hi = __byte_perm(d, e, 0x7362);
      *reinterpret_cast<uint32_t*>(to + 4 * i * kNext) = __byte_perm(ab, de, 0x5410);
      *reinterpret_cast<uint32_t*>(to + (4 * i + 1) * kNext) = __byte_perm(ab, de, 0x7632);
      *reinterpret_cast<uint32_t*>(to + (4 * i + 2) * kNext) = __byte_perm(fg, hi, 0x5410);
      *reinterpret_cast<uint32_t*>(to + (4 * i + 3) * kNext) = __byte_perm(fg, hi, 0x7632);
    }
  }
}

}  // namespace

template <class T> __global__ void __launch_bounds__(kTiledThreads)
    transform_tiled(const __grid_constant__ TiledCopy c, const T* x, T* y) {
  constexpr int kItem = sizeof(T);
  using Shape = TiledShape<kItem>;
  // The number of lines (rows of x) whose elements are packed into one word.
  constexpr int kJoined = kItem < 4 ? 4 / kItem : 1;
  constexpr int kUnits = 8 * Shape::kStack, kGroups = Shape::kLines / kJoined, kRows = kTiledThreads / 8,
                kLoads = kGroups / kRows;
  __shared__ uint4 tile[Shape::kColumns][kUnits];

  uint32_t rest = blockIdx.x;
  int64_t line, column;
  if (c.lines_first) {
    line = c.line_tiles.divmod(rest);
    column = c.column_tiles.divmod(rest);
  } else {
    column = c.column_tiles.divmod(rest);
    line = c.line_tiles.divmod(rest);
  }
  line *= Shape::kLines;
  column *= Shape::kColumns;
#pragma unroll
  for (int k = 0; k < kTiledOuters; ++k) {
    const int64_t i = k < kTiledOuters - 1 ? c.outer[k].divmod(rest) : int64_t(rest);
    x += i * c.x_outer[k];
    y += i * c.y_outer[k];
  }
  x += line * c.x_line + column;
  y += column * c.y_column + line;
  const int lines = int(min_of(c.lines - line, int64_t(Shape::kLines))),
            columns = int(min_of(c.columns - column, int64_t(Shape::kColumns)));

  const int vector = threadIdx.x % 8, row = threadIdx.x / 8;
  const bool whole = lines == Shape::kLines && columns == Shape::kColumns;
  Vector in[kLoads][kJoined];
  // Complete tiles have a separate loop without conditions. Its code is short, and no branch separates its loads.
  if (whole && c.x_bytes == 16) {
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
#pragma unroll
      for (int j = 0; j < kJoined; ++j)
        in[k][j].whole =
            *reinterpret_cast<const uint4*>(x + ((k * kRows + row) * kJoined + j) * c.x_line + vector * Shape::kVector);
  } else {
    const int here = columns - vector * Shape::kVector;
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
#pragma unroll
      for (int j = 0; j < kJoined; ++j) {
        const int l = (k * kRows + row) * kJoined + j;
        const T* from = x + l * c.x_line + vector * Shape::kVector;
        in[k][j].whole = uint4{0, 0, 0, 0};
        if (l >= lines || here <= 0) continue;
        if (here < Shape::kVector) in[k][j] = load_first(from, here);
        else if (c.x_bytes == 16) in[k][j].whole = *reinterpret_cast<const uint4*>(from);
        else in[k][j] = load_narrow(from, int(c.x_bytes));
      }
  }
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    // The offset in a column of the tile at which this thread stores its elements, in bytes.
    const int byte = (k * kRows + row) * (kItem < 4 ? 4 : kItem);
    char* to = reinterpret_cast<char*>(&tile[vector * Shape::kVector][byte / 16 ^ vector]) + byte % 16;
    scatter_to_columns<kItem>(to, in[k]);
  }
  __syncthreads();
  constexpr int kStores = Shape::kColumns * kUnits / kTiledThreads, kColumnStep = kTiledThreads / kUnits;
  const int unit = threadIdx.x % kUnits, col = threadIdx.x / kUnits, l = unit * Shape::kVector;
  y += col * c.y_column + l;
  auto stored = [&](int k) { return tile[col + k * kColumnStep][unit ^ (col + k * kColumnStep) / Shape::kVector]; };
  if (whole && c.y_bytes == 16) {
#pragma unroll
    for (int k = 0; k < kStores; ++k) *reinterpret_cast<uint4*>(y + k * kColumnStep * c.y_column) = stored(k);
    return;
  }
  if (l >= lines) return;
#pragma unroll
  for (int k = 0; k < kStores; ++k) {
    if (col + k * kColumnStep >= columns) return;
    Vector v;
    v.whole = stored(k);
    T* to = y + k * kColumnStep * c.y_column;
    if (lines - l < Shape::kVector) store_first(to, v, lines - l);
    else if (c.y_bytes == 16) *reinterpret_cast<uint4*>(to) = v.whole;
    else store_narrow(to, v, int(c.y_bytes));
  }
}

}  // namespace minidnn
