// SPDX-License-Identifier: Apache-2.0
// Parameters that the kernels of cuda.attention.mma and cuda.attention.mma_backward share. This file does not use the
// standard library, because kernels include it.
#pragma once
#include "cpp/attention/attention_math.h"
#include "cpp/core/host_device/fast_divmod.h"

namespace minidnn {

// A tensor [B, H, S, D] that is contiguous along D. Strides are in elements. Packed sequences have the batch stride 0.
struct AttentionStrides {
  int64_t batch = 0, head = 0, row = 0;

  AttentionStrides() = default;
  MINIDNN_HD AttentionStrides(const TensorDesc& d, bool packed)
      : batch(packed ? 0 : d.stride[0]), head(d.stride[1]), row(d.stride[2]) {}
};

constexpr int64_t kMmaMostRows = int64_t(1) << 28;  // of a sequence; sums of positions then fit in 32 bits
constexpr int32_t kNoLimit = 1 << 29;               // a window of this size hides nothing

// The options that a kernel is compiled for, as a sum. A call need not use them.
enum ScoreOption : int { kBias = 1, kAlibi = 2, kSoftcap = 4, kDropout = 8, kAllOptions = 15 };

// What decides which scores exist, and what is added to them (AttentionProblem).
struct AttentionScoreParams {
  int32_t batch = 0, heads = 0, kv_heads = 0;
  FastDivmod group;                 // the heads of q that share a head of k
  int32_t q_size = 0, kv_size = 0;  // the most rows of a sequence
  int32_t q_rows = 0, kv_rows = 0;  // the rows of packed tensors
  int32_t left = 0, right = 0;      // kNoLimit: no limit
  int32_t packed = 0, bottom_right = 0, has_q_lengths = 0, has_kv_lengths = 0;
  int32_t has_softcap = 0, has_sink = 0, has_dropout = 0;
  int32_t alibi = 0;       // the rank of the slopes
  int32_t bias_bytes = 0;  // of an element: 0 no bias, 1 bool, 2 the dtype of q, 4 float32
  // 1 if neighbouring columns are neighbours in memory, and pairs of them, or groups of eight, at multiples of their size
  int32_t bias_pairs = 0, bias_vectors = 0;
  int64_t bias[4]{};       // its strides in elements; 0 where it is broadcast
  int64_t random_row = 0;  // groups of four random words of a row of scores

  AttentionScoreParams() = default;
  MINIDNN_HD explicit AttentionScoreParams(const AttentionProblem& p)
      : batch(int32_t(p.batch())),
        heads(int32_t(p.heads())),
        kv_heads(int32_t(p.kv_heads())),
        group(p.heads() / p.kv_heads()),
        q_size(int32_t(p.q_size())),
        kv_size(int32_t(p.kv_size())),
        q_rows(int32_t(p.q.shape[2])),
        kv_rows(int32_t(p.k.shape[2])),
        left(p.left < 0 ? kNoLimit : int32_t(p.left)),
        right(p.right < 0 ? kNoLimit : int32_t(p.right)),
        packed(int32_t(p.packed)),
        bottom_right(int32_t(p.bottom_right)),
        has_q_lengths(int32_t(p.has_q_lengths)),
        has_kv_lengths(int32_t(p.has_kv_lengths)),
        has_softcap(int32_t(p.has_softcap)),
        has_sink(int32_t(p.has_sink)),
        has_dropout(int32_t(p.has_dropout)),
        alibi(int32_t(p.alibi)),
        random_row((p.kv_size() + 3) / 4) {
    if (!p.bias.rank) return;
    bias_bytes = p.bias.dtype == DType::boolean ? 1 : p.bias.dtype == DType::float32 ? 4 : 2;
    for (int i = 0; i < 4; ++i) bias[i] = p.bias.shape[i] == 1 ? 0 : p.bias.stride[i];
    bias_pairs = bias[3] == 1 && (bias[0] | bias[1] | bias[2]) % 2 == 0;
    bias_vectors = bias[3] == 1 && (bias[0] | bias[1] | bias[2]) % 8 == 0;
  }
};

// The tile of a block of a forward kernel. D and Dv of a problem are at most `head` and `value`. A warp has
// 16 * fragments rows. If along_columns is set, all warps have the same rows and divide the columns.
struct AttentionTile {
  int head, value, columns, warps, fragments;
  int stages;  // tiles of k and v in shared memory; with one, k and v are copied in turns
  int blocks;  // that an SM is to run at the same time, which limits the registers
  bool along_columns;
  bool extras;    // whether scores may be other than scale q k^T with a scale above 0
  int bytes = 2;  // of an element

  MINIDNN_HD constexpr bool pages() const { return extras || along_columns; }  // whether k and v may have pages
  MINIDNN_HD constexpr int threads() const { return 32 * warps; }
  MINIDNN_HD constexpr int rows() const { return 16 * fragments * (along_columns ? 1 : warps); }
  MINIDNN_HD constexpr int warp_columns() const { return along_columns ? columns / warps : columns; }
  // The bytes of a row in shared memory: whole groups of 128 bytes.
  MINIDNN_HD constexpr int k_pitch() const { return (head * bytes + 127) / 128 * 128; }
  MINIDNN_HD constexpr int v_pitch() const { return (value * bytes + 127) / 128 * 128; }
  MINIDNN_HD constexpr int q_bytes() const { return rows() * k_pitch(); }
  MINIDNN_HD constexpr int stage_bytes() const { return columns * (k_pitch() + v_pitch()); }
  MINIDNN_HD constexpr int smem_bytes() const { return q_bytes() + stages * stage_bytes(); }
};

// The parameters of a forward kernel. Row r of a tile's heads is row r / pack of q, of head r % pack of the tile.
struct AttentionForwardParams {
  AttentionScoreParams scores;
  AttentionStrides q, k, v, o;
  int32_t head_size = 0, value_size = 0;
  FastDivmod pack;          // the heads that share a tile: 1, or all heads of a group
  FastDivmod head_batches;  // batch * heads / pack
  FastDivmod heads;         // heads / pack
  int32_t blocks = 1;       // tiles of rows of a sequence
  int32_t splits = 1;       // parts of the columns, at most kAttentionMostSplits
  int32_t least_tiles = 1;  // of columns in a part
  int32_t in_cluster = 0;   // 1 if the parts are the blocks of a cluster, which add their sums in shared memory
  int32_t pages_of_sequence = 0, pages = 0;
  FastDivmod page_size;
};

// With several parts of the columns, each part writes its sums to the workspace, and a second kernel adds them. The
// workspace is `sums` [parts, B H Sq, Dv], then `ends` [parts, B H Sq]: the maximum of the scores and the sum of the
// exponentials.
constexpr int kAttentionMostSplits = 256;
struct AttentionPartials {
  float* sums = nullptr;
  float* ends = nullptr;
};

}  // namespace minidnn
