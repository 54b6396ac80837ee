// SPDX-License-Identifier: Apache-2.0
// alpha, or beta, with a block for each sequence. A thread has one blank and the label behind it, as numbers m 2^e in
// registers. A label gets the states before it by a shuffle.
// - The warps follow each other through the steps: a step of a warp needs nothing of the warps behind it. So a warp
//   computes kSteps steps while the warp behind it computes the kSteps before these, and the block has one barrier for
//   kSteps steps. A warp stores its last label of each step for the next warp.
// - beta is alpha of the reversed sequence. So backward runs the same recursion from the last step and label.
// - Grid: a block for each sequence. Block: at most 16 warps. More labels are computed in several strips.
// - Shared memory: 15 KB. The scores of kSteps steps are read kSteps steps ahead, and fetched into the L2 before.
// - Bytes: x at the labels and the blank; two floats for each state and step are written.
// - Numerics: those of ctc_math.h in float32. Numbers are normalised every kSteps steps. Exponents end at 2^29.
#include "cuda/ctc/wavefront_params.h"
#include "cuda/device/ptx/cvta.cuh"
#include "cuda/device/ptx/griddep.cuh"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vec.cuh"

namespace minidnn {
namespace {

using Number = CtcWideNumber;

constexpr int kSteps = 16;
constexpr int kFetched = 3 * kSteps;  // the steps by which scores are fetched into the L2 ahead
// The exponent of 0, and the least exponent of other numbers. Differences and sums of two exponents do not overflow.
constexpr int32_t kZeroExponent = -(1 << 29);
constexpr int32_t kNever = -(1 << 30);

struct Team : BlockReduce {
  __device__ void sync() { __syncthreads(); }
};

// Returns 2^(biased - 127) for biased <= 254. It is 0 for biased <= 0.
__device__ __forceinline__ float power(int32_t biased) { return __int_as_float(max_of(biased, 0) << 23); }
// As ctc::exponential().
__device__ __forceinline__ Number exponential(float x) {
  constexpr float kRound = 0x1.8p23f;  // the last bits of x + kRound are the nearest integer to x
  const float shifted = fmaf(x, float(ctc::kLog2E), kRound), n = shifted - kRound;
  const float rest = fmaf(n, -float(ctc::kLn2Low), fmaf(n, -float(ctc::kLn2High), x));
  const Number v{ex2_approx_ftz(rest * float(ctc::kLog2E)), __float_as_int(shifted) - __float_as_int(kRound)};
  const bool usual = fabsf(x) <= float(ctc::kMostLog), small = x < 0;
  return {usual ? v.m : small ? 0.0f : ctc::nan<float>(), usual ? v.e : small ? kNever : 0};
}
__device__ __forceinline__ Number product(Number a, Number b) { return {a.m * b.m, max_of(a.e + b.e, kZeroExponent)}; }
// Returns the same number with m in [0.5, 1), or 0.
__device__ __forceinline__ Number normalized(Number v) {
  const int32_t bits = __float_as_int(v.m), shift = (bits >> 23) - 126;
  if (!(v.m > 0 && v.m < INFINITY)) return {v.m, v.m == 0 ? kZeroExponent : 0};
  return {__int_as_float(bits - (shift << 23)), max_of(min_of(v.e + shift, -kZeroExponent), kZeroExponent)};
}

struct States {
  Number blank, label;
};
// Returns the sums over a state and the states before it. `before` is the label before the blank. A path may go from
// there to the label of `v` if skip is 0; else skip is kNever.
__device__ __forceinline__ States sums(const States& v, Number before, int32_t skip) {
  const int32_t e = max_of(v.blank.e, before.e), bias = 127 - e;
  const int32_t all_e = max_of(max_of(v.blank.e, v.label.e), before.e + skip), all_bias = 127 - all_e;
  const float both = v.blank.m * power(v.blank.e + bias) + before.m * power(before.e + bias);
  const float all = v.label.m * power(v.label.e + all_bias) + v.blank.m * power(v.blank.e + all_bias) +
                    before.m * power(before.e + all_bias + skip);
  return {{both, e}, {all, all_e}};
}

// The element at `from` plus `index` times `step` bytes.
template <class T> __device__ __forceinline__ T* at(T* from, int32_t index, int32_t step) {
  return reinterpret_cast<T*>(mad_wide(index, step, reinterpret_cast<int64_t>(from)));
}
// If the condition is false, v keeps its value.
template <class T> __device__ __forceinline__ void load_if(bool condition, const T* from, T& v) {
  auto bits = __builtin_bit_cast(typename BitsOf<sizeof(T)>::type, v);
  ld_global_nc_if(condition, from, bits);
  v = __builtin_bit_cast(T, bits);
}
__device__ __forceinline__ void store_if(bool condition, float* to, float v) {
  st_global_if(condition, to, __float_as_uint(v));
}

// Returns the rank of label i, whose class is `own`, among the labels in the order of their classes.
__device__ int32_t rank_of(const CtcProblem& p, const CtcArgs& a, const CtcSequence& s, int32_t i, int32_t own) {
  __shared__ int32_t classes[32 * kCtcMostWarps];
  int32_t rank = 0;
  for (int32_t begin = 0; begin < s.labels; begin += int32_t(blockDim.x)) {
    const int32_t j = begin + int32_t(threadIdx.x), count = int32_t(min_of(s.labels - begin, int64_t(blockDim.x)));
    __syncthreads();  // other threads may still read the classes before
    if (j < s.labels) classes[threadIdx.x] = int32_t(ctc::class_of(p, a, s, s.labels + 1 + j));
    __syncthreads();
#pragma unroll 4
    for (int32_t k = 0; k < count; ++k) rank += classes[k] < own || (classes[k] == own && begin + k < i);
  }
  return rank;
}

struct Shared {
  float4 of_step[2][kCtcMostWarps][kSteps];     // for each warp: p of the blank as m and e, and lse
  Number passed[2][kCtcMostWarps + 1][kSteps];  // for each warp: the last label of the warp before
};

// A thread of a sequence. Step i is t = i forward, and t = steps - 1 - i backward.
template <class T, bool kBackward> struct Recursion {
  const CtcProblem& p;
  const CtcArgs& a;
  const CtcSequence& s;
  const CtcWorkspace& w;
  Shared& shared;
  int32_t lane, warp, warps, steps, labels, chunks;
  int32_t sign, x_step, row_step;  // the direction, and the bytes from one step to the next one, in x and in alpha
  // Elements of the first step.
  const T* x;
  const float* lse;
  int64_t row;
  Number* edges;
  // What a strip has. Addresses are those of the first step of a chunk.
  int32_t first, own, skip;
  int32_t blank_steps, label_steps;  // the steps for which the thread has a blank and a label
  const T* x_label;
  float *blank_m, *blank_e, *label_m, *label_e;  // of the next step
  States v;
  Number carry;
  // All loads of a chunk are made at the beginning of the chunk before. A load in each step would be waited for too
  // early, because a warp cannot wait for some of its loads only.
  T scores[kSteps], next_scores[kSteps];
  // What all threads need of one step. A lane loads it.
  T next_blank;
  float next_lse;
  Number next_edge;

  __device__ Recursion(const CtcProblem& problem, const CtcArgs& args, const CtcSequence& sequence,
                       const CtcWorkspace& workspace, Shared& memory)
      : p(problem), a(args), s(sequence), w(workspace), shared(memory) {
    lane = int32_t(threadIdx.x % 32);
    warp = shuffle(int32_t(threadIdx.x) / 32, 0);  // so that the compiler knows that all lanes have the same
    warps = int32_t(blockDim.x) / 32;
    steps = int32_t(s.steps);
    labels = int32_t(s.labels);
    chunks = (steps + kSteps - 1) / kSteps;
    sign = kBackward ? -1 : 1;
    x_step = sign * int32_t(p.x.stride[0]) * int32_t(sizeof(T));
    row_step = sign * int32_t(s.states()) * 4;
    const int64_t t = kBackward ? s.steps - 1 : 0;
    x = static_cast<const T*>(a.x) + t * p.x.stride[0] + s.b * p.x.stride[1];
    lse = static_cast<const float*>(a.lse) + t * p.batch() + s.b;
    row = s.alpha + t * s.states();
    edges = w.edges + s.b * p.steps();
  }

  // Begins a strip. Backward numbers blanks and labels from the end.
  __device__ void begin(int32_t first_of_strip) {
    first = first_of_strip;
    const int32_t i = first + int32_t(threadIdx.x);
    const int32_t blank = kBackward ? labels - i : i, label = kBackward ? blank - 1 : i;
    own = i < labels ? int32_t(ctc::class_of(p, a, s, labels + 1 + label)) : int32_t(p.blank);
    skip = ctc::skips(p, a, s, kBackward ? blank : label) ? 0 : kNever;
    blank_steps = i <= labels ? steps : 0;
    label_steps = i < labels ? steps : 0;
    x_label = x + own * p.x.stride[2];
    float* const m = (kBackward ? w.beta : static_cast<float*>(a.alpha)) + row;
    float* const e = (kBackward ? w.beta_exponents : static_cast<float*>(a.exponents)) + row;
    blank_m = m + blank;
    blank_e = e + blank;
    label_m = m + labels + 1 + label;
    label_e = e + labels + 1 + label;
    if constexpr (kBackward) {
      const int32_t rank = rank_of(p, a, s, label, own);
      if (i < labels) w.sorted[s.first + rank] = {own, label};
    }
    // What comes before the first step: a path is before the first label.
    v = {{i == 0 ? 1.0f : 0.0f, i == 0 ? 0 : kZeroExponent}, {0, kZeroExponent}};
    carry = next_edge = {0, kZeroExponent};
    next_blank = T{};
    next_lse = 0;
    if (warp >= active()) return;
#pragma unroll
    for (int u = 0; u < kSteps; ++u) next_scores[u] = T{};
    load_scores(0, 0);
    load_for_all(lane);
    share(0, 1);
    __syncwarp();
  }
  // The warps that have states in this strip.
  __device__ int32_t active() const { return min_of(warps, (labels - first) / 32 + 1); }

  // Loads scores of the chunk that begins with `step`, whose first step is `ahead` steps behind the addresses.
  __device__ __forceinline__ void load_scores(int32_t step, int32_t ahead) {
#pragma unroll
    for (int u = 0; u < kSteps; ++u) load_if(u < steps - step, at(x_label, u + ahead, x_step), next_scores[u]);
  }
  __device__ __forceinline__ void load_for_all(int32_t i) {
    if (lane >= kSteps || i >= steps) return;
    next_blank = x[i * (sign * p.x.stride[0]) + p.blank * p.x.stride[2]];
    if (p.logits) next_lse = lse[i * (sign * p.batch())];
    if (warp == 0 && first > 0) next_edge = edges[i];
  }
  // Stores what load_for_all() has loaded.
  __device__ __forceinline__ void share(int32_t chunk, int32_t buffer) {
    if (lane >= kSteps) return;
    const Number p_blank = exponential(float(next_blank) - next_lse);
    shared.of_step[chunk % 2][warp][lane] = {p_blank.m, __int_as_float(p_blank.e), next_lse, 0};
    if (warp == 0) shared.passed[buffer][0][lane] = next_edge;
  }

  // Computes the steps of a chunk. Buffers of shared.passed alternate from tick to tick.
  __device__ __forceinline__ void compute(int32_t chunk, int32_t tick) {
    const int32_t step = chunk * kSteps;
    Number(*const before)[kSteps] = shared.passed[(tick + 1) % 2];
    Number(*const after)[kSteps] = shared.passed[tick % 2] + 1;
#pragma unroll
    for (int u = 0; u < kSteps; ++u) scores[u] = next_scores[u];
    load_scores(step + kSteps, kSteps);
    load_for_all(step + kSteps + lane);
    Number incoming[kSteps];
#pragma unroll
    for (int u = 0; u < kSteps; ++u) incoming[u] = before[warp][u];
    const bool fetches = step + kFetched + kSteps <= steps;
    const uint32_t outgoing = cvta_to_shared(after[warp]);
    States next = probabilities(chunk, 0);
#pragma unroll
    for (int u = 0; u < kSteps; ++u) {
      const States now = next;
      const Number edge = u == 0 ? carry : incoming[max_of(u - 1, 0)];
      Number last{shuffle_up(v.label.m, 1), shuffle_up(v.label.e, 1)};
      // The exponentials do not depend on the states, so they fill the time in which the sums wait for each other.
      if (u + 1 < kSteps) next = probabilities(chunk, u + 1);
      last.m = lane == 0 ? edge.m : last.m;
      last.e = lane == 0 ? edge.e : last.e;
      const States sum = sums(v, last, skip);
      v.blank = product(sum.blank, now.blank);
      v.label = product(sum.label, now.label);
      st_shared_v2_if(lane == 31, outgoing + u * sizeof(Number), __float_as_uint(v.label.m), uint32_t(v.label.e));
      store(step, u, kBackward ? sum : v);
      prefetch_global_l2_if(fetches, at(x_label, kFetched + u, x_step));
    }
    share(chunk + 1, tick % 2);
    carry = incoming[kSteps - 1];
    v.blank = normalized(v.blank);
    v.label = normalized(v.label);
    x_label = at(x_label, kSteps, x_step);
    if (first + int32_t(blockDim.x) <= labels && warp == warps - 1) {
      __syncwarp();
      if (lane < kSteps && step + lane < steps) edges[step + lane] = after[warp][lane];
    }
  }
  // Moves an address to the next step. It keeps its registers: while a store has not read its address yet, a warp that
  // writes to the same registers has to wait.
  __device__ __forceinline__ void advance(float*& address) const {
    int64_t at = reinterpret_cast<int64_t>(address);
    add_s64(at, row_step);
    address = reinterpret_cast<float*>(at);
  }
  // Returns p of the blank and of the label in step u of a chunk.
  __device__ __forceinline__ States probabilities(int32_t chunk, int u) const {
    const float4 of_all = shared.of_step[chunk % 2][warp][u];
    return {{of_all.x, __float_as_int(of_all.y)}, exponential(float(scores[u]) - of_all.z)};
  }
  // Stores states of step u.
  __device__ __forceinline__ void store(int32_t step, int32_t u, const States& states) {
    const bool blank = u < blank_steps - step, label = u < label_steps - step;
    store_if(blank, blank_m, states.blank.m);
    store_if(blank, blank_e, float(states.blank.e));
    store_if(label, label_m, states.label.m);
    store_if(label, label_e, float(states.label.e));
    for (float** pointer : {&blank_m, &blank_e, &label_m, &label_e}) advance(*pointer);
  }

  __device__ void run() {
    for (int32_t strip = 0; strip <= labels; strip += int32_t(blockDim.x)) {
      begin(strip);
      const int32_t ticks = chunks + active() - 1;
      for (int32_t tick = 0; tick < ticks; ++tick) {
        const int32_t chunk = tick - warp;
        if (warp < active() && 0 <= chunk && chunk < chunks) compute(chunk, tick);
        __syncthreads();
      }
    }
  }
};

}  // namespace

template <class T> __global__ void __launch_bounds__(32 * kCtcMostWarps)
    ctc_alpha(const __grid_constant__ CtcProblem p, CtcArgs a, void* workspace) {
  griddep_wait();
  Team team;
  const CtcSequence s = ctc::sequence(p, a, blockIdx.x, team);
  const CtcWorkspace w = CtcWorkspace::of(p, workspace);
  __shared__ Shared shared;
  Recursion<T, false>(p, a, s, w, shared).run();
  const bool valid = ctc::valid(p, a, s, team);
  if (threadIdx.x == 0) ctc_losses<float>(p, a, workspace)[s.b] = ctc_loss(p, s, ctc::probability<float>(a, s), valid);
}

template <class T> __global__ void __launch_bounds__(32 * kCtcMostWarps)
    ctc_beta(const __grid_constant__ CtcProblem p, CtcArgs a, void* workspace) {
  griddep_wait();
  Team team;
  const CtcSequence s = ctc::sequence(p, a, blockIdx.x, team);
  const CtcWorkspace w = CtcWorkspace::of(p, workspace);
  const float g = ctc_gradient<float>(p, a, s, team);
  const float whole = ctc::probability<float>(a, s).e;
  if (threadIdx.x == 0) w.sequences[s.b] = {s.first, int32_t(s.labels), g, whole, 0};
  __shared__ Shared shared;
  if (g != 0 && g == g) Recursion<T, true>(p, a, s, w, shared).run();
}

}  // namespace minidnn
