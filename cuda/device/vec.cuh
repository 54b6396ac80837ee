// SPDX-License-Identifier: Apache-2.0
// Vec: neighbouring elements of a tensor that a thread loads or stores in one access. The access usually has 16 bytes.
#pragma once
#include "cuda/device/ptx/ld_st.cuh"
#include "cuda/device/ptx/math.cuh"

namespace minidnn {

template <int kBytes> struct BitsOf;
template <> struct BitsOf<1> {
  using type = uint8_t;
};
template <> struct BitsOf<2> {
  using type = uint16_t;
};
template <> struct BitsOf<4> {
  using type = uint32_t;
};
template <> struct BitsOf<8> {
  using type = uint64_t;
};

// the number of elements of T in 16 bytes
template <class T> constexpr int kVecWidth = 16 / int(sizeof(T));

// N elements of T, packed in 32-bit words. The compiler would use a whole register for each element of an array T[N].
template <class T, int N = kVecWidth<T>> struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Vec {
  static constexpr int kBytes = N * int(sizeof(T)), kBits = 8 * int(sizeof(T));
  using Bits = typename BitsOf<sizeof(T)>::type;
  using Word = typename BitsOf<(kBytes < 4 ? kBytes : sizeof(T) == 8 ? 8 : 4)>::type;
  static constexpr int kPerWord = int(sizeof(Word) / sizeof(T)), kWords = kBytes / int(sizeof(Word));
  Word word[kWords];

  // The address `from` is a multiple of the size of the Vec in bytes. The overload with an L2 eviction policy reads
  // global memory.
  __device__ __forceinline__ static Vec load(const void* from) { return *static_cast<const Vec*>(from); }
  __device__ __forceinline__ static Vec load(const void* from, CachePolicy policy) {
    static_assert(kBytes == 16 || kBytes == 8);
    if constexpr (kBytes == 16)
      return __builtin_bit_cast(Vec, ld_global_cache_hint(policy, static_cast<const uint4*>(from)));
    else return __builtin_bit_cast(Vec, ld_global_cache_hint(policy, static_cast<const uint2*>(from)));
  }
  // Stores the Vec to global memory in one instruction (ptx/ld_st.cuh). The address `to` is a multiple of the size of
  // the Vec in bytes.
  __device__ __forceinline__ void store(void* to) const {
    static_assert(kWords == 1 || (sizeof(Word) == 4 && (kBytes == 16 || kBytes == 8)));
    if constexpr (kWords == 1) *static_cast<Vec*>(to) = *this;
    else if constexpr (kBytes == 16) st_global_v4(to, {word[0], word[1], word[2], word[3]});
    else st_global_v2(to, {word[0], word[1]});
  }

  __device__ __forceinline__ float operator[](int i) const { return float(get(i)); }
  __device__ __forceinline__ T get(int i) const {
    return __builtin_bit_cast(T, Bits(word[i / kPerWord] >> (i % kPerWord * kBits)));
  }
  // Sets element i. The calls must have the order i = 0, 1, 2 and so on, because setting the first element of a word
  // clears the other elements of that word.
  __device__ __forceinline__ void put(int i, T v) {
    const Word bits = Word(__builtin_bit_cast(Bits, v));
    if (i % kPerWord == 0) word[i / kPerWord] = bits;
    else word[i / kPerWord] |= bits << (i % kPerWord * kBits);
  }
  __device__ __forceinline__ static Vec filled(Word w) {
    Vec v;
#pragma unroll
    for (int i = 0; i < kWords; ++i) v.word[i] = w;
    return v;
  }

  // pack() converts N floats to a Vec, and unpack() converts a Vec to N floats. They are written without loops, which
  // would change how the compiler treats the loops of the caller.
  __device__ __forceinline__ void unpack(float* f) const {
    unpack_word(word[0], f);
    if constexpr (kWords > 1) unpack_word(word[1], f + kPerWord);
    if constexpr (kWords > 2) {
      unpack_word(word[2], f + 2 * kPerWord);
      unpack_word(word[3], f + 3 * kPerWord);
    }
    static_assert(kWords == 1 || kWords == 2 || kWords == 4);
  }
  __device__ __forceinline__ static Vec pack(const float* f) {
    static_assert(kWords == 1 || kWords == 2 || kWords == 4);
    if constexpr (N == 1) return {__builtin_bit_cast(Bits, T(f[0]))};
    else if constexpr (kWords == 1) return {pack_word(f)};
    else if constexpr (kWords == 2) return {pack_word(f), pack_word(f + kPerWord)};
    else return {pack_word(f), pack_word(f + kPerWord), pack_word(f + 2 * kPerWord), pack_word(f + 3 * kPerWord)};
  }

 private:
  __device__ __forceinline__ static uint32_t pack_word(const float* f) {
    if constexpr (sizeof(T) == 4) return __float_as_uint(f[0]);
    else return cvt_rn_x2(T(), f[0], f[1]);
  }
  __device__ __forceinline__ static void unpack_word(uint32_t w, float* f) {
    if constexpr (sizeof(T) == 4) f[0] = __uint_as_float(w);
    else unpack_pair(T(), w, f);
  }
  __device__ __forceinline__ static void unpack_pair(bfloat16, uint32_t w, float* f) {
    f[0] = __uint_as_float(w << 16);
    f[1] = __uint_as_float(w & 0xffff0000);
  }
  __device__ __forceinline__ static void unpack_pair(float16, uint32_t w, float* f) {
    float16 low, high;
    low.bits = uint16_t(w);
    high.bits = uint16_t(w >> 16);
    f[0] = float(low);
    f[1] = float(high);
  }
};

// A 32-bit word that consists of -inf: one float, or two 16-bit numbers.
template <class T> constexpr uint32_t kMinusInfinity = 0xff800000;
template <> constexpr uint32_t kMinusInfinity<bfloat16> = 0xff80ff80;
template <> constexpr uint32_t kMinusInfinity<float16> = 0xfc00fc00;

// Returns N elements of the concatenation of `low` and `high`, beginning with element `first`, where 0 <= first < N.
template <class T, int N>
__device__ __forceinline__ Vec<T, N> extract(const Vec<T, N>& low, const Vec<T, N>& high, uint32_t first) {
  constexpr int kWords = N * int(sizeof(T)) / 4;
  uint32_t word[2 * kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    word[i] = low.word[i];
    word[kWords + i] = high.word[i];
  }
  const uint32_t words = first * uint32_t(sizeof(T)) / 4;
#pragma unroll
  for (int step = kWords / 2; step > 0; step /= 2) {
#pragma unroll
    for (int i = 0; i + step < 2 * kWords; ++i) word[i] = words & uint32_t(step) ? word[i + step] : word[i];
  }
  Vec<T, N> v;
#pragma unroll
  for (int i = 0; i < kWords; ++i)
    v.word[i] = sizeof(T) == 2 ? __funnelshift_r(word[i], word[i + 1], first % 2 * 16) : word[i];
  return v;
}

}  // namespace minidnn
