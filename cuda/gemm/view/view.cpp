// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm/view/view.h"

#include <vector>

namespace minidnn {

void join(GemmIndex& index, std::initializer_list<GemmStrides*> tensors) {
  // the dimension of the joined index that the loop fills, from last to first
  int64_t to = kDigits - 1;
  bool any = false;
  GemmIndex joined;
  joined.size = index.size;
  std::vector<GemmStrides> strides(tensors.size());
  for (int64_t j = kDigits - 1; j >= 0; --j) {
    if (index.digit[j] == 1) continue;
    bool joins = any;
    size_t i = 0;
    for (GemmStrides* w : tensors) {
      const GemmStrides& s = strides[i++];
      joins = joins && w->of[j] == s.of[to] * joined.digit[to];
    }
    if (joins) {
      joined.digit[to] *= index.digit[j];
      continue;
    }
    if (any) --to;
    any = true;
    joined.digit[to] = index.digit[j];
    i = 0;
    for (GemmStrides* w : tensors) strides[i++].of[to] = w->of[j];
  }
  joined.first = to;
  index = joined;
  size_t i = 0;
  for (GemmStrides* w : tensors) *w = strides[i++];
}

}  // namespace minidnn
