// SPDX-License-Identifier: Apache-2.0
// graph_rows: a region of a graph whose results depend on single rows. The struct Region is generated
// (cpp/graph/row_source.h) and follows this file in the program. It has no address arithmetic and no loop:
//   Loads, Stores        the dtypes of dense tensors; RowLoads and RowStores: of tensors with one element for each row
//   Columns              the dtypes of tensors with one element for each column, which are loaded when they are used
//   Broadcast            the dtypes of other tensors, which are loaded when they are used
//   Statistics           the statistics of a row (row_statistics.cuh), in their order
//   kVectors, kWidth     a thread has at most kVectors vectors of kWidth elements of a row
//   kKept                the number of values of each element that stay in registers, kRowNumbers: those of each row
//   before(row, args)                  computes numbers of a row that depend on no statistic
//   keep(Stage<k>, lane, args)         computes values that are kept, before statistic k
//   value(Stage<k>, lane, args)        returns what an element contributes to statistic k
//   after(Stage<k>, row, s, args)      computes numbers of the row from statistic k, and stores results of the row
//   of(lane, args)                     computes the results of an element
// - Work division: rows::shape_of() (cuda/rows/rows_params.h). 1 to 640 threads, or a cluster, share a row, which
//   stays in registers from its only read to its only write.
// - kByVectors: rows have whole vectors, and tensors are aligned. If not, neighbouring threads have neighbouring
//   elements.
// - Bytes: each dense tensor is read once or written once.
// - Numerics: float32 sums in a fixed order, first over the elements of a thread, then by a tree.
#include "cuda/graph/region_tensors.cuh"
#include "cuda/graph/row_reduction_params.h"
#include "cuda/graph/row_statistics.cuh"

namespace minidnn {

template <int k> struct Stage {};

template <int k, class List> struct TypeAt;
template <int k, class T, class... Rest> struct TypeAt<k, Types<T, Rest...>> : TypeAt<k - 1, Types<Rest...>> {};
template <class T, class... Rest> struct TypeAt<0, Types<T, Rest...>> {
  using type = T;
};
template <class... T> __device__ constexpr int count_of(Types<T...>) { return int(sizeof...(T)); }
// The number of reductions of the statistics before number k.
template <int k, class List> __device__ constexpr int reductions_before() {
  if constexpr (k == 0) return 0;
  else return reductions_before<k - 1, List>() + TypeAt<k - 1, List>::type::kReductions;
}

// The numbers of a row. All threads of the row have them.
template <class Region> struct RowValues {
  Tensors<1, 1, typename Region::RowLoads> loads;
  float number[Region::kRowNumbers > 0 ? Region::kRowNumbers : 1];
};

// Reads the numbers of a row.
template <class Region> struct RowReader {
  RowValues<Region>& values;

  template <int k> __device__ __forceinline__ float row() const { return values.number[k]; }
  template <int k> __device__ __forceinline__ auto row_load() const {
    auto& t = tensor<k>(values.loads);
    using T = typename Decay<decltype(t)>::type;
    return value_of<T>(t.vectors[0].get(0));
  }
};

// A row, as the functions of Region see it.
template <class Region> struct RowView : RowReader<Region> {
  const RowGrid& g;
  const RowArgs& args;
  int64_t number_of_row;
  int64_t first;  // the number of the row's first element
  bool stores;    // whether this thread stores results of the row

  template <int k> __device__ __forceinline__ void put(float v) const { this->values.number[k] = v; }
  template <int k, class T> __device__ __forceinline__ void store(float v) const {
    if (!stores) return;
    const int64_t at = g.plain_row_stores >> k & 1 ? number_of_row : offset_of(g, g.row_store[k], first);
    static_cast<T*>(args.row_store[k])[at] = T(v);
  }
};

// Element i of vector v of a row.
template <class Region, int kVectors, int kWidth> struct RowLane : RowReader<Region> {
  Tensors<kVectors, kWidth, typename Region::Loads>& loads;
  Tensors<1, kWidth, typename Region::Columns>& columns;
  Tensors<1, kWidth, typename Region::Broadcast>& broadcasts;
  Tensors<1, kWidth, typename Region::Stores>& stores;
  float (&kept_values)[Region::kKept > 0 ? Region::kKept : 1][kVectors][kWidth];
  const RandomWords<Region::kRandoms, kWidth>& words;
  int v, i;

  template <int k> __device__ __forceinline__ auto load() const { return element(tensor<k>(loads), v); }
  template <int k> __device__ __forceinline__ auto column() const { return element(tensor<k>(columns), 0); }
  template <int k> __device__ __forceinline__ auto broadcast() const { return element(tensor<k>(broadcasts), 0); }
  template <int k, class A> __device__ __forceinline__ void store(A value) const {
    auto& t = tensor<k>(stores);
    using T = typename Decay<decltype(t)>::type;
    t.vectors[0].put(i, Stored<T>(value));
  }
  template <int k> __device__ __forceinline__ uint32_t random() const { return words.of[k][i]; }
  template <int k> __device__ __forceinline__ float kept() const { return kept_values[k][v][i]; }
  template <int k> __device__ __forceinline__ void keep(float value) const { kept_values[k][v][i] = value; }

 private:
  template <class Tensor> __device__ __forceinline__ auto element(Tensor& t, int vector) const {
    return value_of<typename Tensor::type>(t.vectors[vector].get(i));
  }
};

// The part of a row that a thread has.
template <class Region, bool kByVectors> class RowKernel {
 public:
  static constexpr int kWidth = Region::kWidth;
  static constexpr int kVectors = kByVectors ? Region::kVectors : row_vectors_without_alignment(Region::kVectors);
  using Statistics = typename Region::Statistics;
  static constexpr int kStatistics = count_of(Statistics{});
  using Team = rows::RowTeam<reductions_before<kStatistics, Statistics>()>;
  using Lane = RowLane<Region, kVectors, kWidth>;
  using Row = RowView<Region>;

  __device__ __forceinline__ RowKernel(const RowGrid& g, const RowArgs& args)
      : g_(g), args_(args), team_(g.rows), exists_(team_.row < g.rows.rows) {
    first_ = (exists_ ? team_.row : 0) * g.rows.cols;
    column_ = team_.chunk * (team_.threads * kVectors * kWidth) + team_.rank * (kByVectors ? kWidth : 1);
  }

  __device__ __forceinline__ void run() {
    load_dense(loads_);
    load_rows(values_.loads);
    const Row row{{values_}, g_, args_, team_.row, first_, exists_ && team_.chunk == 0 && team_.rank == 0};
    Region::before(row, args_);
    statistics<0>(row);
    each_element<true, true>([&](const Lane& lane) { Region::of(lane, args_); });
  }

 private:
  // The column of element i of vector v, and whether the row has it.
  __device__ __forceinline__ int column(int v, int i) const {
    return column_ + (kByVectors ? v * team_.threads * kWidth + i : (v * kWidth + i) * team_.threads);
  }
  __device__ __forceinline__ bool has(int v, int i) const {
    return exists_ && column(v, kByVectors ? 0 : i) < g_.rows.cols;
  }

  template <int k = 0, class Lists> __device__ __forceinline__ void load_dense(Lists& to) {
    if constexpr (requires { to.rest; }) {
      using T = Stored<typename Lists::type>;
      const T* from = static_cast<const T*>(args_.load[k]) + first_;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (kByVectors) {
          if (has(v, 0)) to.vectors[v] = Vec<T, kWidth>::load(from + column(v, 0));
        } else {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) to.vectors[v].put(i, has(v, i) ? from[column(v, i)] : T());
        }
      }
      load_dense<k + 1>(to.rest);
    }
  }

  template <int k = 0, class Lists> __device__ __forceinline__ void load_rows(Lists& to) {
    if constexpr (requires { to.rest; }) {
      using T = Stored<typename Lists::type>;
      int64_t at = exists_ ? team_.row : 0;
      if (!(g_.plain_row_loads >> k & 1)) at = offset_of(g_, g_.row_load[k], first_);
      to.vectors[0].put(0, static_cast<const T*>(args_.row_load[k])[at]);
      load_rows<k + 1>(to.rest);
    }
  }

  template <int k = 0, class Lists> __device__ __forceinline__ void load_columns(int v, Lists& to) {
    if constexpr (requires { to.rest; }) {
      using T = Stored<typename Lists::type>;
      const T* from = static_cast<const T*>(args_.column[k]);
      if constexpr (kByVectors) to.vectors[0] = Vec<T, kWidth>::load(from + column(v, 0));
      else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) to.vectors[0].put(i, has(v, i) ? from[column(v, i)] : T());
      }
      load_columns<k + 1>(v, to.rest);
    }
  }
  template <int k = 0, class Lists> __device__ __forceinline__ void load_broadcasts(int v, Lists& to) {
    if constexpr (requires { to.rest; }) {
      using T = Stored<typename Lists::type>;
      const T* from = static_cast<const T*>(args_.broadcast[k]);
      auto offset = [&](int i) { return offset_of(g_, g_.broadcast[k], first_ + column(v, i)); };
      if (kByVectors && g_.broadcast_varies[k]) to.vectors[0] = Vec<T, kWidth>::load(from + offset(0));
      else if (kByVectors) {
        const T value = from[offset(0)];
#pragma unroll
        for (int i = 0; i < kWidth; ++i) to.vectors[0].put(i, value);
      } else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) to.vectors[0].put(i, has(v, i) ? from[offset(i)] : T());
      }
      load_broadcasts<k + 1>(v, to.rest);
    }
  }

  // Calls f(lane) for each element that the thread has. If kStores is true, each vector is stored. If kAll is true, f
  // is also called for elements of a vector that the row does not have.
  template <bool kAll, bool kStores, class F> __device__ __forceinline__ void each_element(const F& f) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!has(v, 0)) continue;
      Tensors<1, kWidth, typename Region::Columns> columns;
      Tensors<1, kWidth, typename Region::Broadcast> broadcasts;
      Tensors<1, kWidth, typename Region::Stores> stores;
      RandomWords<Region::kRandoms, kWidth> words;
      load_columns(v, columns);
      load_broadcasts(v, broadcasts);
      random_words<Region, kWidth, kByVectors>(args_, first_ + column(v, 0), team_.threads, words);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        if (kAll || kByVectors || has(v, i))
          f(Lane{{values_}, loads_, columns, broadcasts, stores, kept_, words, v, i});
      if constexpr (kStores) store_vector(v, stores);
    }
  }
  // Passes to a function what each element contributes to statistic k.
  template <int k> struct Contributions {
    RowKernel& kernel;
    template <class Take> __device__ __forceinline__ void operator()(const Take& take) const {
      kernel.each_element<false, false>([&](const Lane& lane) { take(Region::value(Stage<k>{}, lane, kernel.args_)); });
    }
  };

  template <int k> __device__ __forceinline__ void statistics(const Row& row) {
    if constexpr (k < kStatistics) {
      if constexpr (requires(const Lane& lane) { Region::keep(Stage<k>{}, lane, args_); })
        each_element<true, false>([&](const Lane& lane) { Region::keep(Stage<k>{}, lane, args_); });
      using Statistic = typename TypeAt<k, Statistics>::type;
      const auto result =
          Statistic::template of<reductions_before<k, Statistics>()>(team_, args_.per_col, Contributions<k>{*this});
      Region::after(Stage<k>{}, row, result, args_);
      statistics<k + 1>(row);
    }
  }

  template <int k = 0, class Lists> __device__ __forceinline__ void store_vector(int v, const Lists& from) {
    if constexpr (requires { from.rest; }) {
      using T = Stored<typename Lists::type>;
      T* to = static_cast<T*>(args_.store[k]) + first_;
      if constexpr (kByVectors) *reinterpret_cast<Vec<T, kWidth>*>(to + column(v, 0)) = from.vectors[0];
      else {
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
          if (has(v, i)) to[column(v, i)] = from.vectors[0].get(i);
      }
      store_vector<k + 1>(v, from.rest);
    }
  }

  const RowGrid& g_;
  const RowArgs& args_;
  const Team team_;
  const bool exists_;
  int64_t first_;
  int column_;
  Tensors<kVectors, kWidth, typename Region::Loads> loads_;
  RowValues<Region> values_;
  float kept_[Region::kKept > 0 ? Region::kKept : 1][kVectors][kWidth];
};

// The number of threads whose registers must fit an SM, which limits the registers of a thread: to Region::kRegisters
// or, without vectors, 80. sm_120 needs up to 96 for the same code.
template <class Region, bool kByVectors> __device__ constexpr int threads_of_registers() {
#if __CUDA_ARCH__ >= 1200
  return kMostRowThreads;
#else
  return kByVectors && Region::kRegisters == 64 ? 1024 : 768;
#endif
}

template <class Region, bool kByVectors>
__global__ void __launch_bounds__(threads_of_registers<Region, kByVectors>())
    graph_rows(const __grid_constant__ RowGrid g, const __grid_constant__ RowArgs args) {
  RowKernel<Region, kByVectors>(g, args).run();
}

}  // namespace minidnn
