// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: Philox 4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), and
// distributions made from its 32-bit words. The random number of an element depends only on the seed, the offset, and
// the index of the element in row-major order. It does not depend on the layout, the device or the number of threads.
#pragma once
#include "cpp/core/host_device/desc.h"
#include "cpp/core/host_device/half.h"
#include "cpp/core/host_device/maths.h"

namespace minidnn {

struct Four {
  uint32_t word[4];
};

struct WideProduct {
  MINIDNN_HD static uint64_t of(uint32_t a, uint32_t b) { return uint64_t(a) * b; }
};

// The keys of the ten rounds.
struct PhiloxKeys {
  static constexpr int kRounds = 10;
  uint32_t first[kRounds], second[kRounds];

  PhiloxKeys() = default;
  MINIDNN_HD PhiloxKeys(uint32_t key0, uint32_t key1) {
#ifdef __CUDACC__
#pragma unroll
#endif
    for (uint32_t round = 0; round < kRounds; ++round) {
      first[round] = key0 + round * 0x9E3779B9u;
      second[round] = key1 + round * 0xBB67AE85u;
    }
  }
  MINIDNN_HD explicit PhiloxKeys(uint64_t seed) : PhiloxKeys(uint32_t(seed), uint32_t(seed >> 32)) {}
};

// `Product` has the function that multiplies two 32-bit numbers.
template <class Product = WideProduct> MINIDNN_HD Four philox(Four counter, const PhiloxKeys& keys) {
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int round = 0; round < PhiloxKeys::kRounds; ++round) {
    const uint64_t a = Product::of(0xD2511F53u, counter.word[0]), b = Product::of(0xCD9E8D57u, counter.word[2]);
    counter = {{uint32_t(b >> 32) ^ counter.word[1] ^ keys.first[round], uint32_t(b),
                uint32_t(a >> 32) ^ counter.word[3] ^ keys.second[round], uint32_t(a)}};
  }
  return counter;
}

enum class Random : int64_t { uniform, normal, dropout };

struct RandomProblem {
  Random kind{};
  // The descriptors of the input and the result. x is used only for dropout. x and `out` have the same shape and dtype,
  // and any strides.
  TensorDesc x, out;
};

struct RandomArgs {
  const void* x = nullptr;
  void* out = nullptr;
  uint64_t seed = 0, offset = 0;
  // Uniform: an element is min(most, low + width * u) with u in [0, 1). Normal: `low` is the mean, and `width` the
  // standard deviation. Dropout: `width` is the factor of the elements that are kept.
  double low = 0, width = 1;
  // For dropout: elements whose random word is less than this threshold become 0.
  uint64_t threshold = 0;
  // The largest number below the upper bound, which rounding could otherwise reach.
  double most = INFINITY;
};

namespace detail {

// These functions convert 32-bit random words to fractions. fraction() returns a number in [0, 1) with as many random
// bits as its type can represent. above_zero() returns a number in (0, 1].
MINIDNN_HD float fraction(uint32_t w, float) { return float(w >> 8) * 0x1p-24f; }
MINIDNN_HD float above_zero(uint32_t w, float) { return float(w) * 0x1p-32f + 0x1p-33f; }
MINIDNN_HD double fraction(uint32_t high, uint32_t low) { return double((uint64_t(high) << 32 | low) >> 11) * 0x1p-53; }

// The sine and the cosine of the angle 2 pi w / 2^32, where w is a random word.
struct SineCosine {
  float sine, cosine;
};
MINIDNN_HD SineCosine sine_and_cosine(uint32_t w) {
  const uint32_t quarter = (w + (1u << 29)) >> 30;
  // The factor 1.46291807927e-9 is 2 pi / 2^32. The angle x is in [-pi / 4, pi / 4].
  const float x = float(int32_t(w - (quarter << 30))) * 1.46291807927e-9f, s = x * x;
  const float sine = x * (1 + s * (-1.0f / 6 + s * (1.0f / 120 + s * (-1.0f / 5040 + s * (1.0f / 362880)))));
  const float cosine = 1 + s * (-0.5f + s * (1.0f / 24 + s * (-1.0f / 720 + s * (1.0f / 40320))));
  const float a = quarter & 1 ? cosine : sine, b = quarter & 1 ? -sine : cosine;
  return {quarter & 2 ? -a : a, quarter & 2 ? -b : b};
}

// Two normally distributed random numbers (mean 0, standard deviation 1), made from two random words by the method of
// Box and Muller (1958).
struct TwoNormals {
  float first, second;
};
MINIDNN_HD TwoNormals two_normals(uint32_t u, uint32_t v) {
  const float radius = maths::sqrt(-2 * maths::log(above_zero(u, 0.0f)));
  const SineCosine point = sine_and_cosine(v);
  return {radius * point.cosine, radius * point.sine};
}
// The two float64 numbers of a normal distribution that four random words make.
MINIDNN_HD void two_normals(const RandomArgs& a, const Four& w, double* y) {
  const double u = fraction(w.word[0], w.word[1]), v = fraction(w.word[2], w.word[3]);
  const double radius = a.width * maths::sqrt(-2 * maths::log(1 - u)), angle = 6.28318530717958647693 * v;
  y[0] = a.low + radius * ::cos(angle);
  y[1] = a.low + radius * ::sin(angle);
}

}  // namespace detail

// The random words of elements 4 * group to 4 * group + 3.
MINIDNN_HD Four random_words(uint64_t seed, uint64_t offset, uint64_t group) {
  return philox({{uint32_t(group), uint32_t(group >> 32), uint32_t(offset), uint32_t(offset >> 32)}}, PhiloxKeys(seed));
}
// The word by which dropout_forward keeps or drops an element.
MINIDNN_HD uint32_t dropout_word(uint64_t seed, uint64_t offset, uint64_t element) {
  return random_words(seed, offset, element / 4).word[element % 4];
}

// Computes the numbers of elements 4 * group to 4 * group + 3 of the result. For dropout, x has the same elements of
// the input.
template <Random kind, class A> MINIDNN_HD void random_four(const RandomArgs& a, uint64_t group, const A* x, A* y) {
  auto words = [&](uint64_t at) { return random_words(a.seed, a.offset, at); };
  if constexpr (kind == Random::dropout) {
    const Four w = words(group);
    for (int i = 0; i < 4; ++i) y[i] = uint64_t(w.word[i]) < a.threshold ? A(0) : x[i] * A(a.width);
    // float64 numbers take two random words per element.
  } else if constexpr (sizeof(A) == 8) {
    for (int i = 0; i < 4; i += 2) {
      const Four w = words(2 * group + uint64_t(i / 2));
      if constexpr (kind == Random::uniform) {
        y[i] = min_of(a.low + a.width * detail::fraction(w.word[0], w.word[1]), a.most);
        y[i + 1] = min_of(a.low + a.width * detail::fraction(w.word[2], w.word[3]), a.most);
      } else {
        detail::two_normals(a, w, y + i);
      }
    }
  } else {
    const Four w = words(group);
    if constexpr (kind == Random::uniform) {
      for (int i = 0; i < 4; ++i) y[i] = min_of(A(a.low) + A(a.width) * detail::fraction(w.word[i], 0.0f), A(a.most));
    } else {
      for (int i = 0; i < 4; i += 2) {
        const detail::TwoNormals z = detail::two_normals(w.word[i], w.word[i + 1]);
        y[i] = A(a.low) + A(a.width) * z.first;
        y[i + 1] = A(a.low) + A(a.width) * z.second;
      }
    }
  }
}

// Computes and stores elements 4 * group to 4 * group + 3 of the result. The last group may have fewer. `dense` is true
// if x and the result are row-major.
template <Random kind, class T>
MINIDNN_HD void random_elements(const RandomProblem& p, const RandomArgs& a, int64_t group, int64_t n, bool dense) {
  using A = Accumulator<T>;
  A x[4] = {}, y[4];
  const int count = int(min_of<int64_t>(4, n - 4 * group));
  if constexpr (kind == Random::dropout)
    for (int i = 0; i < 4; ++i)
      if (i < count) x[i] = A(static_cast<const T*>(a.x)[dense ? 4 * group + i : p.x.offset_of(4 * group + i)]);
  random_four<kind>(a, uint64_t(group), x, y);
  for (int i = 0; i < 4; ++i)
    if (i < count) static_cast<T*>(a.out)[dense ? 4 * group + i : p.out.offset_of(4 * group + i)] = T(y[i]);
}

}  // namespace minidnn
