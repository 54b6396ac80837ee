// SPDX-License-Identifier: Apache-2.0
// Tests of the host code in cpp/core: 16-bit floats, layouts, views, overlap, the allocator, the thread pool, handles.
// Results for many small random problems are compared with simple, slow definitions. A fixed seed makes the problems
// the same every time.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <future>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "cpp/core/cpu/thread_pool.h"
#include "cpp/core/cpu/thread_team.h"
#include "cpp/core/dlpack.h"
#include "cpp/core/handle.h"
#include "cpp/core/host_device/fast_divmod.h"
#include "cpp/transform/transform_math.h"
#include "tests/cpp/check.h"

using namespace minidnn;

static std::mt19937_64 random_bits(20240607);
static int64_t pick(int64_t low, int64_t high) { return low + int64_t(random_bits() % uint64_t(high - low + 1)); }

static std::string text_of(const TensorDesc& d) { return cat(shape_text(d), " strides [", join(strides_of(d)), "]"); }

// Tests of the conversions of float16 and bfloat16.

struct Format {
  int exponent_bits, mantissa_bits;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint16_t infinity() const { return uint16_t(((1 << exponent_bits) - 1) << mantissa_bits); }
  // Returns the value of a 16-bit float, by the definition of IEEE 754.
  double value(uint16_t bits) const {
    double sign = bits & 0x8000 ? -1 : 1;
    int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1), mantissa = bits & ((1 << mantissa_bits) - 1);
    if (exponent == (1 << exponent_bits) - 1) return mantissa ? NAN : sign * INFINITY;
    double fraction = std::ldexp(double(mantissa), -mantissa_bits) + (exponent ? 1 : 0);
    return sign * std::ldexp(fraction, std::max(exponent, 1) - bias());
  }
  // Returns the bits of the 16-bit float nearest to v. Ties round to even. A number becomes infinity if it rounds to
  // the power of two after the largest finite value.
  uint16_t nearest(long double v) const {
    uint16_t sign = std::signbit(v) ? 0x8000 : 0;
    long double magnitude = std::fabs(v);
    auto at = [&](int bits) {
      return bits < infinity() ? (long double)value(uint16_t(bits)) : std::ldexp(1.0L, bias() + 1);
    };
    int low = 0, high = infinity();  // a binary search with at(low) <= magnitude
    if (magnitude >= at(high)) return sign | infinity();
    while (high - low > 1) {
      int middle = (low + high) / 2;
      (at(middle) <= magnitude ? low : high) = middle;
    }
    long double below = magnitude - at(low), above = at(high) - magnitude;
    return sign | uint16_t(below < above || (below == above && low % 2 == 0) ? low : high);
  }
};
constexpr Format kFloat16{5, 10}, kBfloat16{8, 7};

template <class T> static void test_half(const Format& format, const char* name) {
  for (int bits = 0; bits < 0x10000; ++bits) {  // every 16-bit value is converted to float and back
    T h;
    h.bits = uint16_t(bits);
    double want = format.value(uint16_t(bits)), got = float(h);
    CHECK(std::isnan(want) ? std::isnan(got) : want == got && std::signbit(want) == std::signbit(got), name, " ", bits,
          ": ", got);
    T back = T(float(h));
    CHECK(std::isnan(want) ? std::isnan(float(back)) : back.bits == bits, name, " ", bits, " -> ", back.bits);
  }
  auto same = [&](float v) {
    T got = T(v);
    uint16_t want = format.nearest(v);
    CHECK(got.bits == want, name, " of ", v, ": ", got.bits, ", want ", want);
  };
  // Checks floats on both sides of each midpoint of two adjacent 16-bit values, where the rounded result changes.
  for (int bits = 0; bits < format.infinity(); ++bits) {
    double low = format.value(uint16_t(bits));
    double high = bits + 1 < format.infinity() ? format.value(uint16_t(bits + 1)) : std::ldexp(1.0, format.bias() + 1);
    auto middle = float((low + high) / 2);
    for (float v : {middle, std::nextafterf(middle, 0), std::nextafterf(middle, INFINITY)}) {
      same(v);
      same(-v);
    }
  }
  for (float v : {0.f, -0.f, INFINITY, -INFINITY, 3.4e38f, 1e-45f, -1e-45f}) same(v);
  for (uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xff800001u, 0x7fffffffu})
    CHECK(std::isnan(float(T(detail::float_of(nan)))), name, nan);
  for (int i = 0; i < 1000000; ++i) {
    float v = detail::float_of(uint32_t(random_bits()));
    if (!std::isnan(v)) same(v);
  }

  // double, int32 and int64 are converted by to_odd(), so that they are rounded once and not twice.
  auto wide = [&](auto v) {
    T got = cast<T>(v);
    uint16_t want = format.nearest((long double)v);
    CHECK(got.bits == want, name, " of ", double(v), " (", sizeof v, " bytes): ", got.bits, ", want ", want);
  };
  for (int i = 0; i < 200000; ++i) {
    int bits = int(pick(0, format.infinity() - 2));
    double middle = (format.value(uint16_t(bits)) + format.value(uint16_t(bits + 1))) / 2;
    for (double v : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, 1e300), middle * (1 + 0x1p-30),
                     middle * (1 - 0x1p-30)}) {
      wide(v);
      wide(-v);
    }
    uint64_t any = random_bits();
    double d;
    std::memcpy(&d, &any, sizeof d);
    if (!std::isnan(d)) wide(d);
    wide(int32_t(any) >> pick(0, 31));
    wide(int64_t(any) >> pick(0, 63));
    // `tie` is the midpoint of two adjacent bfloat16 values: an odd integer of 9 bits times a power of two.
    auto tie = int64_t((256 + 2 * pick(0, 127) + 1)) << pick(0, 54);
    for (int64_t v : {tie, tie - 1, tie + 1}) {
      wide(v);
      wide(-v);
      wide(int32_t(v));
    }
  }
  for (int64_t v : {INT64_MIN, INT64_MAX, INT64_MIN + 1, int64_t(0), int64_t(1) << 53, (int64_t(1) << 53) + 1}) wide(v);
}

// Tests of the division by constants (FastDivmod and LongDivisor).

static void test_divisor() {
  for (int i = 0; i < 1000000; ++i) {
    // The dividend and the divisor are random numbers of 1 to 31 bits. Every third dividend is a multiple of the
    // divisor, or one less than a multiple.
    uint32_t by = std::max<uint32_t>(uint32_t(random_bits() >> 33) >> pick(0, 30), 1);
    uint32_t n = uint32_t(random_bits() >> 33) >> pick(0, 30);
    if (i % 3 == 0) n = std::max<uint32_t>(n / by * by, 1) - uint32_t(i % 2);
    if (i % 1000 == 0) n = 0x7fffffff;
    uint32_t rest = n;
    int32_t digit = FastDivmod(by).divmod(rest);
    CHECK(rest == n / by && digit == int32_t(n % by), n, " / ", by, " gives ", rest, " and ", digit);
  }
  for (int i = 0; i < 20000; ++i) {
    const int64_t by = pick(2, int64_t(1) << pick(2, 30)), most = int64_t((uint64_t(1) << 63) / uint64_t(by));
    int64_t n = pick(0, int64_t(1) << pick(1, 40));
    if (i % 3 == 0) n = std::max<int64_t>(n / by * by, 1) - i % 2;
    if (i % 100 == 0) n = most;
    n = std::min(n, most);
    const int64_t got = LongDivisor(by).quotient(n);
    CHECK(got == n / by, n, " / ", by, " gives ", got);
  }
}

// Tests of layouts.

static TensorDesc desc_of(const Shape& shape, const Shape& strides) {
  return strided(DType::int8, shape, strides, "test");
}

// Returns the offsets of all elements of a tensor, in row-major order of its shape.
static std::vector<int64_t> offsets(const TensorDesc& d) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < d.numel(); ++i) all.push_back(d.offset_of(i));
  return all;
}

static Shape random_shape(int64_t rank, int64_t least, int64_t most) {
  Shape shape;
  for (int64_t i = 0; i < rank; ++i) shape.push_back(pick(least, most));
  return shape;
}

// Returns a random slice of a dense array with permuted dimensions, like NumPy's a[1:4:2].T. `at` receives the offset
// of the first element of the slice.
static TensorDesc random_slice(const TensorDesc& whole, int64_t& at) {
  TensorDesc d = whole;
  at = 0;
  for (int i = 0; i < d.rank; ++i) {
    if (d.shape[i] == 0) continue;
    int64_t first = pick(0, d.shape[i] - 1), step = pick(1, 2), n = pick(0, (d.shape[i] - 1 - first) / step) + 1;
    at += d.stride[i] * first;
    if (pick(0, 3) == 0) {
      at += d.stride[i] * step * (n - 1);
      step = -step;
    }  // reverses the dimension, as a negative step does in NumPy
    d.shape[i] = n;
    d.stride[i] *= step;
  }
  return d;
}

static void test_layout_names() {
  Shape shape{2, 3, 4, 5};
  TensorDesc first = dense(DType::float32, shape, Layout::channels_first, "test"),
             last = dense(DType::float32, shape, Layout::channels_last, "test");
  CHECK(strides_of(first)[1] == 20 && strides_of(last)[1] == 1 && strides_of(last)[3] == 3 && strides_of(last)[0] == 60,
        text_of(last));
  CHECK(layout_name(first) == "NCHW" && layout_name(last) == "NHWC", layout_name(first), layout_name(last));
  CHECK(problem_text(last) == "2x3x4x5:nhwc" && problem_text(first) == "2x3x4x5", problem_text(last));
  CHECK(layout_name(dense(DType::int8, Shape{2, 3, 4}, Layout::channels_last, "test")) == "NWC");
  CHECK(layout_name(dense(DType::int8, Shape{2, 3, 4, 5, 6}, Layout::channels_last, "test")) == "NDHWC");
  CHECK(layout_name(dense(DType::int8, Shape{2, 1, 4, 5}, Layout::channels_last, "test")) == "NCHW",
        "one channel is dense in both");
  CHECK(layout_name(dense(DType::int8, Shape{2, 3}, Layout::channels_last, "test")) == "contiguous");
  CHECK(problem_text(desc_of({4, 5}, {1, 4})) == "4x5:s1,4" && problem_text(desc_of({}, {})) == "scalar");
  CHECK(layout_from("NWC", 3) == Layout::channels_last && layout_from("contiguous", 2) == Layout::channels_first);
  CHECK(has(error_of<ShapeError>([] { layout_from("NHWC", 3); }), "use 'NCW', 'NWC' or 'contiguous'"));

  CHECK(preferred_layout(desc_of(shape, {120, 1, 30, 6})) == Layout::channels_last, "channels last with gaps");
  CHECK(preferred_layout(desc_of(shape, {20, 0, 5, 1})) == Layout::channels_first, "a channel repeated over NCHW");
  CHECK(preferred_layout(desc_of(shape, {12, 1, 3, 0})) == Layout::channels_last, "a column repeated over NHWC");
  CHECK(preferred_layout(desc_of(shape, {0, 0, 0, 0})) == Layout::channels_first);
}

static void test_layout_errors() {
  auto dense_error = [](const Shape& shape) {
    return error_of<ShapeError>([&] { dense(DType::float64, shape, Layout::channels_first, "empty:"); });
  };
  CHECK(dense_error({2, -1}) == "empty: [2, -1] has a negative size in dimension 1", dense_error({2, -1}));
  CHECK(has(dense_error(Shape(9, 1)), "has 9 dimensions; at most 8"));
  CHECK(has(dense_error({int64_t(1) << 31, int64_t(1) << 31}), "is larger than 2^63 bytes"));
  CHECK(has(dense_error({0, int64_t(1) << 62, 2}), "is larger than 2^63 bytes"),
        "zero elements do not excuse strides that overflow");
  auto strided_error = [](const Shape& shape, const Shape& strides, DType t = DType::int8) {
    return error_of<ShapeError>([&] { strided(t, shape, strides, "as_strided:"); });
  };
  CHECK(has(strided_error({2, 3}, {1}), "has 2 dimensions, strides [1] have 1"));
  for (int64_t stride : {INT64_MIN, INT64_MIN + 1, INT64_MAX, int64_t(1) << 62})
    CHECK(has(strided_error({5}, {stride}), "reaches beyond 2^63 bytes"), stride, " ", strided_error({5}, {stride}));
  CHECK(has(strided_error({2}, {int64_t(1) << 61}, DType::float64), "reaches beyond"));
  CHECK(has(strided_error({2, 2}, {int64_t(3) << 61, int64_t(3) << 61}), "reaches beyond"));
  CHECK(strided_error({2}, {INT64_MAX - 1}) == "no error", strided_error({2}, {INT64_MAX - 1}));
}

static void test_layout_by_brute_force() {
  int exact = 0, overlapping = 0;
  for (int round = 0; round < 40000; ++round) {
    int64_t rank = pick(0, 4);
    Shape shape = random_shape(rank, round % 7 ? 1 : 0, 4), strides = random_shape(rank, -9, 9);
    TensorDesc d = desc_of(shape, strides);
    // Every second test takes a permuted dense array, perhaps sliced with a step. Such layouts are more common than
    // random strides.
    if (round % 2) {
      int64_t at;
      TensorDesc whole = dense(DType::int8, random_shape(rank, 1, 5),
                               pick(0, 1) ? Layout::channels_last : Layout::channels_first, "test");
      d = random_slice(whole, at);
    }
    std::vector<int64_t> all = offsets(d);
    auto [low, high] = std::minmax_element(all.begin(), all.end());
    Extent e = extent(d);
    if (all.empty()) CHECK(e.begin == 0 && e.end == 0);
    else CHECK(e.begin == *low && e.end == *high + 1, text_of(d), " ", e.begin, " ", e.end);

    std::set<int64_t> distinct(all.begin(), all.end());
    bool packed = all.empty() || (distinct.size() == all.size() && *low == 0 && *high == int64_t(all.size()) - 1);
    CHECK(is_dense(d) == packed, text_of(d));
    bool overlaps = distinct.size() != all.size();
    CHECK(!overlaps || overlaps_itself(d), text_of(d));
    if (round % 2) CHECK(overlaps_itself(d) == overlaps, "slices are judged exactly: ", text_of(d));

    bool row_major = true;
    for (size_t i = 0; i < all.size(); ++i) row_major &= all[i] == int64_t(i);
    CHECK(is_row_major(d) == row_major, text_of(d));
    TensorDesc like = dense_like(d, DType::float16, "test");
    CHECK(is_dense(like) && same_shape(like, d) && like.dtype == DType::float16, text_of(like));
    if (is_row_major(d) || layout_name(d) == "NHWC" || (is_dense(d) && (rank < 3 || rank > 5)))
      CHECK(same_strides(like, d), text_of(d), " -> ", text_of(like));

    // `a` and `b` are two slices of one array, or two tensors with random strides.
    TensorDesc whole = dense(DType::int8, random_shape(rank, 1, 6), Layout::channels_first, "test");
    int64_t a_at = 0, b_at = pick(-20, 20);
    TensorDesc a = d, b = desc_of(random_shape(rank, 1, 3), random_shape(rank, -9, 9));
    bool one_array = round % 4 < 2;
    if (one_array) {
      a = random_slice(whole, a_at);
      b = random_slice(whole, b_at);
    }
    std::vector<int64_t> of_a = offsets(a), of_b = offsets(b);
    std::set<int64_t> in_a;
    for (int64_t i : of_a) in_a.insert(i + a_at);
    bool overlap = std::any_of(of_b.begin(), of_b.end(), [&](int64_t i) { return in_a.count(i + b_at); });
    bool result = may_overlap(a, b, b_at - a_at);
    CHECK(!overlap || result, text_of(a), " and ", text_of(b), " ", b_at - a_at, " apart");
    CHECK(may_overlap(b, a, a_at - b_at) == result, "either way round");
    bool agree = one_array;
    for (int i = 0; i < rank; ++i) agree &= a.stride[i] == b.stride[i] || a.shape[i] == 1 || b.shape[i] == 1;
    if (!agree) continue;
    CHECK(result == overlap, "exact: ", text_of(a), " and ", text_of(b), " ", b_at - a_at, " apart");
    ++exact;
    overlapping += overlap;
  }
  CHECK(exact > 5000 && overlapping > 1000 && exact - overlapping > 500, exact, " ", overlapping);
}

static void test_views() {
  int views = 0, copies = 0;
  for (int round = 0; round < 30000; ++round) {
    int64_t at, rank = pick(0, 4);
    TensorDesc whole = dense(DType::int8, random_shape(rank, 1, 6),
                             pick(0, 1) ? Layout::channels_last : Layout::channels_first, "test");
    TensorDesc d = pick(0, 1) ? whole : random_slice(whole, at);
    // Another shape with the same number of elements: the prime factors of this number, distributed over the dimensions
    // at random.
    Shape shape;
    for (int64_t n = d.numel(), f = 2; n > 1; ++f)
      for (; n % f == 0; n /= f) {
        if (shape.empty() || (pick(0, 1) && shape.size() < 7))
          shape.insert(shape.begin() + pick(0, int64_t(shape.size())), f);
        else shape[size_t(pick(0, int64_t(shape.size()) - 1))] *= f;
      }
    if (pick(0, 3) == 0 && shape.size() < 8) shape.insert(shape.begin() + pick(0, int64_t(shape.size())), 1);

    // The expected strides, if a view exists. A stride is the offset of the second element of a dimension minus the
    // offset of its first element.
    std::vector<int64_t> want = offsets(d);
    Shape strides;
    for (size_t k = 0; k < shape.size(); ++k) {
      int64_t inner = 1;
      for (size_t j = k + 1; j < shape.size(); ++j) inner *= shape[j];
      strides.push_back(shape[k] > 1 ? want[size_t(inner)] - want[0] : 0);
    }
    bool possible = offsets(desc_of(shape, strides)) == want;
    TensorDesc got;
    bool result = can_view_as(d, shape, "view:", &got);
    CHECK(result == possible, text_of(d), " as ", shape_text(shape));
    if (result)
      CHECK(offsets(got) == want && std::ranges::equal(shape_of(got), shape), text_of(d), " as ", text_of(got));
    ++(result ? views : copies);
  }
  CHECK(views > 1000 && copies > 1000, views, " ", copies);
  TensorDesc ignored;
  CHECK(!can_view_as(desc_of({2, 3}, {3, 1}), Shape{7}, "view:", &ignored));
  CHECK(can_view_as(desc_of({2, 0}, {3, 1}), Shape{0, 5}, "view:", &ignored));
  Tensor t = empty(desc_of({2, 3}, {1, 2}), Place{}, nullptr, "test", "t");
  CHECK(has(error_of<ShapeError>([&] { view_as(t, Shape{6}, "reshape:"); }), "reshape: [6] cannot be a view of "));
  CHECK(has(error_of<ShapeError>([&] { view_as(t, Shape{5}, "reshape:"); }), "which has another number of elements"));
}

static void test_shared_memory() {
  Tensor a = empty(dense(DType::int32, Shape{4, 6}, Layout::channels_first, "test"), Place{}, nullptr, "test", "a");
  Tensor b = a;
  auto* base = static_cast<int32_t*>(a.data);
  a.desc = strided(DType::int32, Shape{4, 3}, Shape{6, 1}, "test");
  b.desc = a.desc;
  b.data = base + 3;
  CHECK(!share_memory(a, b), "left and right half of the columns");
  b.data = base + 2;
  CHECK(share_memory(a, b), "a column in common");
  b.data = reinterpret_cast<char*>(base) + 14;
  CHECK(share_memory(a, b), "bytes in common, if no element");
  b.desc = strided(DType::int8, Shape{4, 3}, Shape{6, 1}, "test");
  b.data = base + 3;
  CHECK(share_memory(a, b), "elements of two sizes are not compared one by one");
  b.data = base + 24;
  CHECK(!share_memory(a, b), "behind it");
}

// Tests of the allocator.

// A fake device memory for tests of the allocator. It allocates host memory, and counts or records every operation.
struct FakeMemory final : Memory {
  size_t capacity = size_t(1) << 30, used = 0;
  int allocations = 0, releases = 0, synchronisations = 0, stream_waits = 0;
  std::map<void*, size_t> live;
  std::vector<std::pair<uintptr_t, uintptr_t>> orders;
  ~FakeMemory() override {  // frees the memory that the allocator still caches
    for (auto& [p, bytes] : live) std::free(p);
  }
  void* allocate(size_t bytes, Stream) override {
    if (used + bytes > capacity) return nullptr;
    void* p = std::malloc(1);
    live[p] = bytes;
    used += bytes;
    ++allocations;
    return p;
  }
  void release(void* p, size_t bytes, Stream) noexcept override {
    CHECK(live.count(p) && live[p] == bytes, "released once, with its size");
    live.erase(p);
    used -= bytes;
    ++releases;
    std::free(p);
  }
  void release_idle(void* p, size_t bytes) noexcept override {
    CHECK(synchronisations > 0, "only after the device was waited for");
    release(p, bytes, nullptr);
  }
  void copy(void*, const void*, size_t, Stream) override {}
  void fill(void*, int, size_t, Stream) override {}
  void synchronize(Stream) override { ++stream_waits; }
  void synchronize_all() override { ++synchronisations; }
  size_t free_bytes() override { return capacity - used; }
  bool reaches(const void*) override { return true; }
  bool order(Stream a, Place, Stream b) override {
    if (a == b) return true;
    if (capture(a).id != capture(b).id) return false;
    orders.emplace_back(reinterpret_cast<uintptr_t>(a), reinterpret_cast<uintptr_t>(b));
    return true;
  }

  // captures: the graph into which each stream is being captured. owned: the objects that each graph owns.
  std::map<Stream, uint64_t> captures;
  std::map<uint64_t, std::vector<std::pair<void*, void (*)(void*)>>> owned;
  bool gives = true;
  Capture capture(Stream s) noexcept override {
    auto found = captures.find(s);
    if (found == captures.end()) return {};
    return {found->second, &owned[found->second]};
  }
  void give(void* graph, void* object, void (*drop)(void*)) override {
    if (!gives) {
      drop(object);
      throw DeviceError("the graph takes nothing");
    }
    static_cast<std::vector<std::pair<void*, void (*)(void*)>>*>(graph)->emplace_back(object, drop);
  }
  void destroy_graph(uint64_t id) {
    std::thread([&] {
      for (auto [object, drop] : owned[id]) drop(object);
    }).join();
    owned.erase(id);
  }
};
static Stream stream(uintptr_t number) { return reinterpret_cast<Stream>(number); }
static std::string what() { return "test: memory"; }

static void test_allocator() {
  FakeMemory memory;
  Allocator a({}, memory, int64_t(memory.capacity));
  {
    auto x = a.allocate(1000, stream(1), what);
    void* block = x->data;
    CHECK(x->bytes == 1024 && a.stats().allocated_bytes == 1024, x->bytes, ": an eighth of 512, added up");
    auto y = a.allocate(961, stream(1), what);
    CHECK(y->data != block);
    x.reset();
    CHECK(a.stats().cached_bytes == 1024 && a.stats().allocated_bytes == 1024);
    auto z = a.allocate(970, stream(1), what);
    CHECK(z->data == block && a.stats().cached_bytes == 0, "its block is handed out again");
    z.reset();
    auto other = a.allocate(1000, stream(2), what);
    CHECK(other->data != block, "but not on another stream");
    CHECK(a.stats().allocations == 4 && a.stats().device_allocations == 3, a.stats().allocations);
    CHECK(a.stats().peak_allocated_bytes == 2048, a.stats().peak_allocated_bytes);
    a.reset_peak();
    auto empty = a.allocate(0, stream(1), what);
    CHECK(empty->data == nullptr && a.stats().allocations == 4 && a.stats().peak_allocated_bytes == 2048,
          "no bytes, no block");
  }
  CHECK(a.stats().allocated_bytes == 0 && a.stats().cached_bytes == 3072, a.stats().cached_bytes);
  a.release_cached();
  CHECK(memory.live.empty() && a.stats().cached_bytes == 0, a.stats().cached_bytes);
  CHECK(memory.synchronisations == 1 && memory.stream_waits == 0, "the device is waited for, no stream is asked");

  for (size_t bytes : {1, 511, 512, 513, 576, 577, 1023, 1024, 1025, 65537, 1 << 20}) {
    auto x = a.allocate(bytes, stream(1), what);
    CHECK(x->bytes >= bytes && x->bytes <= std::max<size_t>(512, bytes + bytes / 8), bytes, " -> ", x->bytes);
  }
}

static void test_captured_graphs() {
  FakeMemory memory;
  Allocator a({}, memory, int64_t(memory.capacity));
  auto allocate = [&](uintptr_t on) { return a.allocate(1024, stream(on), what); };
  auto allocated = [&] { return a.stats().allocated_bytes; };
  allocate(1);
  auto before = allocate(1), unused = allocate(1), elsewhere = allocate(1);
  void *cached = allocate(1)->data, *input = before->data, *other = unused->data, *waits = elsewhere->data;
  elsewhere->used_on(nullptr);

  memory.captures[stream(1)] = 7;
  auto kept = allocate(1);
  CHECK(kept->data != cached, "a free block is not for a graph");
  void* workspace = allocate(1)->data;
  CHECK(workspace != cached && allocate(1)->data == workspace, "the next call has the same workspace");
  CHECK(a.allocate(2048, stream(1), what)->data != workspace && allocate(2)->data != workspace);
  before->used_on(stream(1));
  before->used_on(stream(1));
  before.reset();
  unused.reset();
  elsewhere.reset();
  void* output = kept->data;
  CHECK(allocated() == 4 * 1024 + 1024, allocated(),
        ": kept, the workspaces and the input; what the graph does not use is free");
  memory.captures.clear();

  // A captured graph may run at any time, so no memory that it uses may be allocated again.
  std::vector<std::shared_ptr<Storage>> others;
  for (int i = 0; i < 8; ++i) others.push_back(allocate(1));
  auto handed_out = [&](void* p) { return std::ranges::count(others, p, [](const auto& s) { return s->data; }) == 1; };
  CHECK(handed_out(cached) && handed_out(other) && !handed_out(workspace) && !handed_out(input));
  CHECK(!handed_out(waits), "a stream being captured could not be told to wait for the default stream");
  kept.reset();
  for (int i = 0; i < 4; ++i) others.push_back(allocate(1));
  CHECK(!handed_out(output), "a tensor of the graph, freed after the capture");

  // Streams 1 and 2 are captured into one graph. The tensor `shared` is allocated on stream 1 and used on stream 2.
  auto both = allocate(1);
  memory.captures[stream(1)] = memory.captures[stream(2)] = 8;
  auto shared = allocate(1);
  shared->used_on(stream(2));
  shared->settle_before(stream(2));
  both->used_on(stream(2));
  CHECK(memory.orders.size() == 1 && memory.orders[0] == std::pair(uintptr_t(1), uintptr_t(2)), memory.orders.size());
  void* on_two = shared->data;
  shared.reset();
  CHECK(allocate(1)->data != on_two, "what another stream uses waits for the end of the graph");
  memory.captures.clear();
  void* in_both = both->data;
  both.reset();

  memory.destroy_graph(7);
  others.clear();
  const int64_t of_the_second = allocated();
  CHECK(of_the_second == 3 * 1024, of_the_second);
  for (int i = 0; i < 20; ++i) others.push_back(allocate(1));
  CHECK(handed_out(workspace) && handed_out(input) && handed_out(output), "memory of a graph that is gone");
  CHECK(!handed_out(on_two) && !handed_out(in_both));
  others.clear();
  memory.destroy_graph(8);
  CHECK(allocated() == 0, allocated());

  // First, a tensor outlives the graph that owned its memory. Then, a graph fails to take ownership of memory.
  memory.captures[stream(1)] = 9;
  auto last = allocate(1);
  memory.destroy_graph(9);
  memory.captures.clear();
  CHECK(allocated() == 1024 && last->data, allocated());
  last.reset();
  CHECK(allocated() == 0, allocated());
  memory.captures[stream(1)] = 10;
  memory.gives = false;
  CHECK(error_of<DeviceError>([&] { allocate(1); }) == "the graph takes nothing");
  CHECK(allocated() == 0, allocated());
}

// The stream handle 2 is CUDA's per-thread default stream: a separate stream on each thread.
static void test_per_thread_default_stream() {
  FakeMemory memory;
  Allocator a({}, memory, int64_t(memory.capacity));
  auto allocate = [&] { return a.allocate(1024, stream(2), what); };
  CHECK(thread_of(stream(1)) == 0 && thread_of(nullptr) == 0 && thread_of(stream(2)) == thread_of(stream(2)));
  void* here = allocate()->data;
  std::shared_ptr<Storage> dropped_here;
  std::promise<void> allocated, dropped;
  std::thread other([&] {
    void* there = allocate()->data;
    CHECK(there != here && allocate()->data == there, "each thread has blocks of its own");
    dropped_here = allocate();
    allocated.set_value();
    dropped.get_future().wait();
    CHECK(allocate()->data != there, "what another thread dropped waits until the device has been waited for");
  });
  allocated.get_future().wait();
  CHECK(allocate()->data == here);
  dropped_here->settle_before(stream(3));
  CHECK(memory.synchronisations == 1 && memory.orders.empty(), "another thread's stream has no name here");
  dropped_here.reset();
  dropped.set_value();
  other.join();
}

static void test_allocator_keeps_a_fraction() {
  FakeMemory memory;
  memory.capacity = 64 << 20;
  Allocator a({}, memory, int64_t(memory.capacity));
  std::vector<std::shared_ptr<Storage>> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(a.allocate(1 << 20, stream(1), what));
  blocks.clear();
  CHECK(a.stats().cached_bytes == 8 << 20 && memory.used == 8 << 20, "an eighth is kept, not ", a.stats().cached_bytes);
}

static void test_allocator_out_of_memory() {
  FakeMemory memory;
  memory.capacity = 100 << 20;
  Allocator a({}, memory, int64_t(memory.capacity));
  auto x = a.allocate(96 << 20, stream(1), what);
  auto kept = a.allocate(1 << 20, stream(1), what);
  kept.reset();
  AllocatorStats before = a.stats();
  auto refused = [&](size_t bytes) { return error_of<OutOfMemory>([&] { a.allocate(bytes, stream(1), what); }); };
  std::string text = refused(size_t(1) << 50);
  CHECK(text == "test: memory needs 1125.9 TB on cpu; 3.1 MB are free", text);
  for (size_t bytes : {size_t(1) << 50, size_t(1) << 63, SIZE_MAX}) refused(bytes);
  AllocatorStats after = a.stats();
  CHECK(std::memcmp(&before, &after, sizeof before) == 0, "the impossible leaves no trace: ", after.cached_bytes, " ",
        after.allocations);
  auto y = a.allocate(4 << 20, stream(1), what);  // this allocation fits only after the cached block is released
  CHECK(y && a.stats().cached_bytes == 0);
  CHECK(has(refused(4 << 20), "test: memory needs 4.2 MB"));
  y.reset();
  CHECK(a.allocate(4 << 20, stream(1), what)->data, "and it goes on");
}

static void test_allocator_streams() {
  FakeMemory memory;
  Allocator a({}, memory, int64_t(memory.capacity));
  using Orders = std::vector<std::pair<uintptr_t, uintptr_t>>;
  auto owner = std::make_shared<int>();
  for (uintptr_t s = 1; s < 1000; ++s) own_stream(stream(s), owner);
  auto x = a.allocate(1, stream(1), what);
  for (int i = 0; i < 3; ++i) {
    x->used_on(stream(1));
    x->used_on(stream(2));
    x->used_on(stream(3));
  }
  x->settle_before(stream(2));
  CHECK((memory.orders == Orders{{1, 2}, {3, 2}}), memory.orders.size(), ": the taker waits for all others");
  memory.orders.clear();
  x.reset();
  CHECK((memory.orders == Orders{{2, 1}, {3, 1}}), memory.orders.size(), ": reuse waits for those that used it");

  auto shared = a.allocate(1, stream(1), what);
  // Four threads use one tensor at the same time, each on its own streams, like calls that read the same weights.
  std::vector<std::thread> threads;
  for (uintptr_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (uintptr_t s = 2; s < 200; ++s) shared->used_on(stream(s * 4 + t));
    });
  for (auto& t : threads) t.join();
  memory.orders.clear();
  shared.reset();
  CHECK(memory.orders.size() == 4 * 198, memory.orders.size());

  std::weak_ptr<int> alive = owner;
  owner.reset();
  CHECK(!alive.expired(), "a free block keeps its stream");
  a.release_cached();
  CHECK(alive.expired(), "and lets it go with its memory");
}

static void test_allocator_and_streams_without_an_owner() {
  FakeMemory memory;
  Allocator a({}, memory, int64_t(memory.capacity));
  auto x = a.allocate(1000, stream(5001), what);
  void* block = x->data;
  x->used_on(stream(5002));  // stream 5002 stands for the stream of a DLPack consumer, which may destroy it at any time
  x.reset();
  CHECK(memory.orders.empty(), "it is not asked");
  CHECK(a.stats().cached_bytes == 1024 && a.stats().allocated_bytes == 0, a.stats().cached_bytes);
  auto y = a.allocate(1000, stream(5001), what);
  CHECK(y->data != block && memory.synchronisations == 0, "the block is set aside");
  y.reset();
  std::vector<std::shared_ptr<Storage>> many;
  for (int i = 0; i < 64 && memory.synchronisations == 0; ++i) {
    many.push_back(a.allocate(memory.capacity / 256, stream(5001), what));
    many.back()->used_on(stream(5002));
    many.back().reset();
  }
  CHECK(memory.synchronisations == 1, "until much has gathered, and the device was waited for");
  auto again = a.allocate(1000, stream(5001), what), other = a.allocate(1000, stream(5001), what);
  CHECK(again->data == block || other->data == block, "then it is handed out again");
  again.reset();
  other.reset();
  a.release_cached();
  CHECK(memory.live.empty() && a.stats().cached_bytes == 0 && memory.stream_waits == 0, memory.live.size());
}

static void test_allocator_on_threads() {
  Allocator& a = allocator_of({});
  a.release_cached();
  AllocatorStats before = a.stats();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random{uint64_t(t)};
      std::vector<std::shared_ptr<Storage>> mine;
      for (int i = 0; i < 5000; ++i) {
        size_t bytes = 1 + random() % 5000;
        mine.push_back(a.allocate(bytes, nullptr, what));
        std::memset(mine.back()->data, t + 1, bytes);
        if (mine.size() > 8) {
          auto& gone = mine[random() % mine.size()];
          auto* p = static_cast<unsigned char*>(gone->data);
          CHECK(p[0] == t + 1, "a block is one thread's at a time");
          gone = mine.back();
          mine.pop_back();
        }
        if (i % 1000 == 0) a.release_cached();
      }
    });
  for (auto& t : threads) t.join();
  AllocatorStats after = a.stats();
  CHECK(after.allocated_bytes == before.allocated_bytes && after.allocations == before.allocations + 20000,
        after.allocated_bytes);
  CHECK(after.cached_bytes >= 0 && after.device_allocations > before.device_allocations);
}

// Tests of the thread pool.

static int64_t sum_to(int64_t n, int64_t grain) {
  std::vector<std::atomic<int>> visits(static_cast<size_t>(n));
  std::atomic<int64_t> total = 0;
  cpu::parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    CHECK(0 <= begin && begin < end && end <= n && (end - begin >= grain || n < grain), begin, " ", end, " of ", n,
          " by ", grain);
    for (int64_t i = begin; i < end; ++i) {
      total += i;
      ++visits[size_t(i)];
    }
  });
  for (auto& v : visits) CHECK(v == 1, "each item once");
  return total;
}

static void test_parallel_for() {
  for (int64_t n : {0, 1, 2, 7, 100, 1000, 4096})
    for (int64_t grain : {1, 3, 64, 5000}) CHECK(sum_to(n, grain) == n * (n - 1) / 2, n, " ", grain);
  cpu::parallel_for(5, 0, [](int64_t, int64_t) {});
  cpu::parallel_for(-5, 1, [](int64_t, int64_t) { CHECK(false, "nothing to do"); });
  std::atomic<int> inner = 0;
  cpu::parallel_for(64, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) cpu::parallel_for(10, 1, [&](int64_t b, int64_t e) { inner += int(e - b); });
  });
  CHECK(inner == 640, inner.load());
  // These jobs are short, so that workers wake up late and take part in the next job.
  for (int round = 0; round < 20000; ++round) {
    std::atomic<int> seen = 0;
    cpu::parallel_for(8, 1, [&](int64_t b, int64_t e) { seen += int(e - b); });
    CHECK(seen == 8, seen.load());
  }
}

static int most_at_once() {
  std::atomic<int> now = 0, most = 0;
  cpu::parallel_for(16, 1, [&](int64_t, int64_t) {
    const int n = ++now;
    for (int seen = most; seen < n && !most.compare_exchange_weak(seen, n);) {}
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    --now;
  });
  return most;
}
static void test_parallel_limit() {
  for (int most : {1, 2, 3}) {
    const cpu::ThreadLimit limit(most);
    CHECK(most_at_once() <= most, "more threads than allowed");
    std::atomic<int64_t> used = 0;
    cpu::parallel_items(100, [&](int64_t, int64_t thread) { used |= int64_t(1) << thread; });
    CHECK(used < int64_t(1) << most, "thread indices are below the limit");
  }
  CHECK(most_at_once() > 1, "the limit ends with its object");
}

// Another thread keeps a core busy, so that threads of the pool are suspended at any place. An earlier thread pool lost
// a chunk (part of a job) once in four million jobs: it closed a job while a suspended thread had taken a chunk, but
// not computed it.
static void test_parallel_crowded() {
  std::atomic<bool> stop = false;
  std::thread crowd([&] {
    while (!stop) {}
  });
  for (auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5); std::chrono::steady_clock::now() < end;)
    for (int round = 0; round < 1000; ++round) {
      std::atomic<int> seen = 0;
      cpu::parallel_for(64, 1, [&](int64_t b, int64_t e) { seen += int(e - b); });
      CHECK(seen == 64, seen.load());
    }
  stop = true;
  crowd.join();
}

// Members write to their own numbers, wait, and read those of all others. There are more members than cores, and another
// thread keeps a core busy, so that members are suspended while others wait for them.
static void check_team(int most, double patience_us, int steps, int* largest = nullptr) {
  std::vector<int64_t> numbers(size_t(2 * most), -1);
  std::atomic<int> calls = 0, all = 0;
  cpu::Barrier barrier;
  cpu::parallel_team(most, patience_us, [&](int member, int members) {
    CHECK(0 <= member && member < members && members <= most, member, " of ", members);
    ++calls;
    all = members;
    for (int step = 0; step < steps; ++step) {
      int64_t* const now = numbers.data() + step % 2 * most;
      now[member] = step + member;
      barrier.wait(members);
      for (int i = 0; i < members; ++i) CHECK(now[i] == step + i, now[i], " of member ", i, " in step ", step);
    }
  });
  CHECK(calls == all, calls.load(), " calls for ", all.load(), " members");
  if (largest) *largest = std::max(*largest, all.load());
}
static void test_teams() {
  int largest = 0;
  for (int round = 0; round < 20; ++round) check_team(4, 1e5, 100, &largest);
  CHECK(largest == 4, "threads that have time join; most were ", largest);
  for (int most : {1, 2, 3, 4, 9}) check_team(most, 200, 300);
  for (int round = 0; round < 2000; ++round) check_team(4, 0, 3);  // late threads find the team closed
  {
    const cpu::ThreadLimit limit(2);
    largest = 0;
    check_team(4, 1000, 10, &largest);
    CHECK(largest <= 2, largest);
  }
  cpu::parallel_for(8, 1, [&](int64_t, int64_t) {
    int inner = 0;
    check_team(4, 1e6, 3, &inner);
    CHECK(inner == 1, "inside of another call, a thread is alone");
  });
  std::atomic<bool> stop = false;
  std::thread crowd([&] {
    while (!stop) {}
  });
  for (int round = 0; round < 20; ++round) check_team(4, 1e4, 200);
  stop = true;
  crowd.join();
  std::vector<std::thread> callers;  // the pool works for one of them
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([] {
      for (int round = 0; round < 50; ++round) check_team(4, 100, 20);
    });
  for (std::thread& t : callers) t.join();
}

static void test_parallel_exceptions() {
  for (int round = 0; round < 200; ++round) {
    std::string text = error_of<ShapeError>([] {
      cpu::parallel_for(1000, 1, [](int64_t begin, int64_t) {
        if (begin >= 500) throw ShapeError("from a chunk");
      });
    });
    CHECK(text == "from a chunk", text);
    CHECK(sum_to(100, 1) == 4950, "the pool works on");
  }
  std::string text = error_of<ShapeError>([] {
    cpu::parallel_for(
        8, 1, [](int64_t, int64_t) { cpu::parallel_for(8, 1, [](int64_t, int64_t) { throw ShapeError("nested"); }); });
  });
  CHECK(text == "nested", text);
}

static void test_parallel_callers() {
  std::vector<std::thread> callers;
  std::atomic<int64_t> total = 0;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) total += sum_to(300, 10);
    });
  for (auto& t : callers) t.join();
  CHECK(total == 4 * 500 * (300 * 299 / 2), total.load());
}

struct Numbers final : HandleCache {
  std::vector<int> values = std::vector<int>(100, 7);
};

static void test_fork() {
  CHECK(sum_to(1000, 1) == 499500);
  std::atomic<bool> stop = false;
  auto handle = std::make_shared<Handle>(Place{}, nullptr, HandleOptions{});
  auto use_cache = [&] {  // locks a cache of the handle for reading, then for writing
    auto cache = handle->cache<Numbers>();
    { std::shared_lock lock(cache->mutex); }
    std::unique_lock lock(cache->mutex);
    return cache->values[0] == 7;
  };
  // Threads that use the pool, the allocator and the handle while the process forks. With AddressSanitizer there are
  // none, because the runtime of GCC 12 does not lock its own mutexes in fork(): the child may wait for ever in malloc.
  std::vector<std::thread> busy;
  const int threads = dlsym(RTLD_DEFAULT, "__asan_init") ? 0 : 2;
  for (int t = 0; t < threads; ++t)
    busy.emplace_back([&] {
      while (!stop) {
        sum_to(64, 1);
        allocator_of({}).allocate(4096, nullptr, what);
        use_cache();
        Handle passing(Place{}, nullptr, HandleOptions{});
      }
    });
  for (int round = 0; round < 20; ++round) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20);  // if the child deadlocks, the alarm ends it after 20 s, and the parent reports this
      bool right = sum_to(1000, 1) == 499500 && allocator_of({}).allocate(4096, nullptr, what)->data && use_cache();
      _exit(right && failures == 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child ", round, " ended with ", status);
  }
  stop = true;
  for (auto& t : busy) t.join();
  CHECK(sum_to(1000, 1) == 499500, "the parent's pool works on");
}

// Tests of handles.

static void test_handles() {
  auto h = std::make_shared<Handle>(Place{}, nullptr, HandleOptions{});
  auto other = std::make_shared<Handle>(Place{}, nullptr, HandleOptions{});
  Handle& fallback = handle_for(nullptr, {}, "test", "x");
  CHECK(&fallback == &handle_for(nullptr, {}, "test", "x"), "one default for a thread");
  CHECK(&handle_for(h, {}, "test", "x") == h.get(), "the given one first");
  enter(h);
  enter(other);
  enter(h);
  CHECK(entered_handle() == h && &handle_for(nullptr, {}, "test", "x") == h.get());
  CHECK(has(error_of<DeviceError>([&] { leave(*other); }), "not the innermost one"));
  leave(*h);
  CHECK(entered_handle() == h, "the one that was left out of order is off the stack");
  enter(other);
  std::thread([&] {
    CHECK(!entered_handle() && &handle_for(nullptr, {}, "test", "x") != other.get(),
          "entering is a thread's own affair");
    CHECK(&handle_for(nullptr, {}, "test", "x") != &fallback, "a thread has its own default");
    CHECK(has(error_of<DeviceError>([&] { leave(*other); }), "not the innermost one"));
  }).join();
  other->close();
  CHECK(
      has(error_of<DeviceError>([&] { handle_for(nullptr, {}, "relu", "x"); }), "relu: the handle for cpu is closed"));
  CHECK(has(error_of<DeviceError>([&] { enter(other); }), "is closed"));
  leave(*other);
  leave(*h);
  CHECK(has(error_of<DeviceError>([&] { handle_for(h, {true, 0}, "relu", "x"); }),
            "relu: x is on cuda:0, the handle is for cpu"));

  CHECK(h->cache<Numbers>() == h->cache<Numbers>() && h->cache<Numbers>() != other->cache<Numbers>());
  for (int round = 0; round < 50; ++round) {
    auto shared = std::make_shared<Handle>(Place{}, nullptr, HandleOptions{});
    std::thread user([&] {
      for (int i = 0; i < 200; ++i) {
        auto numbers = shared->cache<Numbers>();
        CHECK(std::accumulate(numbers->values.begin(), numbers->values.end(), 0) == 700);
      }
    });
    shared->close();  // closes the handle while another thread uses it
    user.join();
  }
}

static void test_names() {
  for (DType t : kDTypes) {
    CHECK(find_dtype(name(t)) == t && find_dtype(short_name(t)) == t, name(t));
    CHECK(itemsize(t) >= 1 && itemsize(t) <= 8 && (epsilon(t) > 0) == is_floating(t), name(t));
  }
  CHECK(!find_dtype("float128") && !find_dtype(""));
  CHECK(dtype_names() == "float32, float64, float16, bfloat16, int8, uint8, int32, int64, bool", dtype_names());
  CHECK(place_from("cpu") == Place{} && place_from("cuda") == (Place{true, 0}) &&
        place_from("cuda:3") == (Place{true, 3}));
  for (const char* wrong : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "cpu:0"})
    CHECK(has(error_of<DeviceError>([&] { place_from(wrong); }), "must be 'cpu', 'cuda' or 'cuda:<index>'"), wrong);
  CHECK(bytes_text(999) == "999 bytes" && bytes_text(1000) == "1.0 kB" && bytes_text(822083584) == "822.1 MB");
}

int main() {
  setenv("OMP_NUM_THREADS", "4", 1);  // four threads even on a machine with one core, so that the thread pool is tested
  test_names();
  test_half<float16>(kFloat16, "float16");
  test_half<bfloat16>(kBfloat16, "bfloat16");
  test_divisor();
  test_layout_names();
  test_layout_errors();
  test_layout_by_brute_force();
  test_views();
  test_shared_memory();
  test_allocator();
  test_allocator_keeps_a_fraction();
  test_captured_graphs();
  test_per_thread_default_stream();
  test_allocator_out_of_memory();
  test_allocator_streams();
  test_allocator_and_streams_without_an_owner();
  test_allocator_on_threads();
  test_parallel_for();
  test_parallel_limit();
  test_parallel_crowded();
  test_teams();
  test_parallel_exceptions();
  test_parallel_callers();
  test_fork();
  test_handles();
  std::cout << (failures ? cat(failures.load(), " failures") : "all right") << std::endl;
  return failures != 0;
}
