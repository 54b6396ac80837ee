// SPDX-License-Identifier: Apache-2.0
// Random numbers by SIMD vectors. One loop computes 32-bit words of the generator Philox, one counter per lane, and a
// second loop converts them to numbers. The build forbids fused multiply-adds in this file, so the numbers have the
// same bits as those of random_math.h on every machine.
#include "cpp/random/cpu/vectorized_kernel.h"
#include "cpp/simd/convert.h"

namespace minidnn::MINIDNN_ISA {
namespace {

using Wide = Vector<uint64_t>;
constexpr int64_t kCounters = kLanes<uint64_t>;
static_assert(kStep % (4 * kCounters) == 0);

// Multiplies the lower 32 bits of each lane of a by the lower 32 bits of the same lane of b. The products have 64 bits.
MINIDNN_HD Wide product(Wide a, Wide b) {
// Each intrinsic is a single instruction. Without the intrinsics, GCC 12 emits three multiplications.
#if defined(__AVX512F__)
  return (Wide)__builtin_ia32_pmuludq512_mask((Vector<int32_t>)a, (Vector<int32_t>)b, (Vector<long long>)a, -1);
#elif defined(__AVX2__)
  return (Wide)__builtin_ia32_pmuludq256((Vector<int32_t>)a, (Vector<int32_t>)b);
#elif defined(__SSE2__)
  return (Wide)__builtin_ia32_pmuludq128((Vector<int32_t>)a, (Vector<int32_t>)b);
#else
  return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

// Computes n words of Philox for consecutive counters from `group` on, where n is a multiple of kStep. Each 64-bit lane
// has one word in its lower 32 bits. A shift gives the upper half of a product, without a shuffle.
void words_of(const RandomArgs& a, uint64_t group, uint32_t* words, int64_t n) {
  constexpr uint64_t kWord = 0xffffffff;
  const Wide by0 = Wide{} + 0xD2511F53u, by2 = Wide{} + 0xCD9E8D57u;
  Wide counter, first, second;
  for (int i = 0; i < kCounters; ++i) {
    counter[i] = group + uint64_t(i);
    first[i] = uint64_t(i % 2 * kCounters + i / 2);
    second[i] = first[i] + kCounters / 2;
  }
  for (int64_t i = 0; i < n; i += 4 * kCounters, counter += uint64_t(kCounters)) {
    Wide word0 = counter, word1 = counter >> 32, word2 = Wide{} + a.offset, word3 = word2 >> 32;
    Wide key0 = Wide{} + a.seed, key1 = key0 >> 32;
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const Wide from0 = product(word0, by0), from2 = product(word2, by2);
      word0 = (from2 >> 32) ^ word1 ^ key0;
      word1 = from2;
      word2 = (from0 >> 32) ^ word3 ^ key1;
      word3 = from0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    const Wide low = (word0 & kWord) | word1 << 32, high = (word2 & kWord) | word3 << 32;
    const Wide ordered[] = {__builtin_shuffle(low, high, first), __builtin_shuffle(low, high, second)};
    __builtin_memcpy(words + i, ordered, sizeof ordered);
  }
}

template <Random kind> struct Numbers;

template <> struct Numbers<Random::uniform> {
  static void make(const RandomArgs& a, const uint32_t* words, const float*, float* y, int64_t n) {
    const float low = float(a.low), width = float(a.width), most = float(a.most);
    n &= -kStep;
    for (int64_t i = 0; i < n; ++i) y[i] = min_of(low + width * detail::fraction(words[i], 0.0f), most);
  }
  static void make(const RandomArgs& a, const uint32_t* words, const double*, double* y, int64_t n) {
    const double low = a.low, width = a.width, most = a.most;
    n &= -kStep;
    for (int64_t i = 0; i < n; ++i) y[i] = min_of(low + width * detail::fraction(words[2 * i], words[2 * i + 1]), most);
  }
};
template <> struct Numbers<Random::normal> {
  static void make(const RandomArgs& a, const uint32_t* words, const float*, float* y, int64_t n) {
    const float mean = float(a.low), deviation = float(a.width);
    n &= -kStep;
    for (int64_t i = 0; i < n; i += 2) {
      const detail::TwoNormals z = detail::two_normals(words[i], words[i + 1]);
      y[i] = mean + deviation * z.first;
      y[i + 1] = mean + deviation * z.second;
    }
  }
  static void make(const RandomArgs& a, const uint32_t* words, const double*, double* y, int64_t n) {
    n &= -kStep;
    for (int64_t i = 0; i < n; i += 2)
      detail::two_normals(a, {words[2 * i], words[2 * i + 1], words[2 * i + 2], words[2 * i + 3]}, y + i);
  }
};
template <> struct Numbers<Random::dropout> {
  template <class A> static void make(const RandomArgs& a, const uint32_t* words, const A* x, A* y, int64_t n) {
    const A factor = A(a.width);
    // The largest random word whose element becomes 0. It is not used if `threshold` is 0.
    const uint32_t last = uint32_t(a.threshold - 1);
    const bool drops_any = a.threshold > 0;
    n &= -kStep;
#pragma GCC ivdep  // y is x itself or does not overlap x
    for (int64_t i = 0; i < n; ++i) y[i] = drops_any & (words[i] <= last) ? A(0) : x[i] * factor;
  }
};

template <Random kind, class T> void loop(const RandomArgs& a, bool non_temporal, int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  // float64 numbers take two random words per element.
  constexpr int64_t kWords = kind != Random::dropout && sizeof(A) == 8 ? 2 : 1;
  alignas(64) uint32_t words[kWords * kSpan];
  alignas(64) A widened[kSpan];
  write_all<Order::memory>(static_cast<T*>(a.out), end - begin, non_temporal,
                           [&](int64_t i, int64_t count, A* y) __attribute__((always_inline)) {
                             const A* x = nullptr;
                             const int64_t whole = whole_steps(count);
                             if constexpr (kind == Random::dropout)
                               x = read_span<Order::memory>(static_cast<const T*>(a.x) + i, widened, count);
                             words_of(a, uint64_t(begin + i) * kWords / 4, words, kWords * whole);
                             Numbers<kind>::make(a, words, x, y, whole);
                           });
  if (non_temporal) store_fence();
}

}  // namespace

#define MINIDNN_RANDOM(kind) \
  {loop<Random::kind, float>, loop<Random::kind, double>, loop<Random::kind, float16>, loop<Random::kind, bfloat16>}

extern const RandomKernels random_kernels;
const RandomKernels random_kernels = {{MINIDNN_RANDOM(uniform), MINIDNN_RANDOM(normal), MINIDNN_RANDOM(dropout)}};

}  // namespace minidnn::MINIDNN_ISA
