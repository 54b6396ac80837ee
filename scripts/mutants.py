# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Planted mistakes, which scripts/mutate.py builds into the library to measure whether the tests notice them.

A mutant replaces one expression. `old` is a text that occurs once in the file. Guillemets mark the expression in it;
without them, the expression is all of `old`. `new` is the wrong expression, of the same type. The first letter of a
name is its class:

a  partition: how work is divided into blocks, sections and ranges of threads
b  arithmetic and rounding
c  checks of arguments
d  choice of an engine, tuning, plan cache, allocator, handles
e  the Python functions and the exchange of memory with other libraries
f  recordings and graphs

AUDIT is the list of an audit on 2026-11-23 (commit 65f99a2), in which the tests killed 48 of 69. LATER was written
afterwards, from the sources, without looking at the tests; A34 and A35 undo two repairs. The code has changed since the
audit: D01, D03, D04 and D05 plant the same mistake where it is possible today.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str  # path of the file: below cpp/ for C++ and CUDA, below pyminidnn/ for Python
    old: str
    new: str
    what: str

    @property
    def letter(self) -> str:
        return self.name[0].lower()


# fmt: off
AUDIT = [
    Mutant(
        "A01", "conv/cpu/implicit_gemm/implicit_gemm.cpp", "std::min(end, (row / plane + 1) * plane)", "end",
        "a block that spans two images reads pixels past the end of a plane",
    ),
    Mutant(
        "A02", "conv/cpu/depthwise/direct_nchw.cpp",
        "pixel = at.at[3] * b.line_chunk, pixels = «std::min(b.line_chunk, b.count[2] - pixel)»", "b.line_chunk",
        "filter gradient: the last segment of a long line is not shortened",
    ),
    Mutant(
        "A03", "conv/cpu/depthwise/grouped_nhwc.cpp", "std::min(all, (chunk + 1) * lines_of_chunk)", "(chunk + 1) * lines_of_chunk",
        "filter gradient: the last part of the lines is not shortened",
    ),
    Mutant(
        "A04", "conv/cpu/implicit_gemm/implicit_gemm_filter.cpp", "(pixel + begin - span.begin) * kernel.rows",
        "(pixel + begin) * kernel.rows", "where the second segment of a line starts in the packed slice",
    ),
    Mutant(
        "A05", "conv/cpu/winograd/winograd.cpp", "patches + «first * chunk_tiles * pitch»",
        "chunk * ceil_div(tile_lines, chunks) * chunk_tiles * pitch", "where a chunk of uneven length starts",
    ),
    Mutant(
        "A06", "conv/im2col.cpp", "first * «g.residual.image» * out_size", "g.y.image",
        "the second chunk of images reads its residual at y's image stride",
    ),
    Mutant(
        "A07", "matmul/cpu/packed_tiling.cpp", "size_t(std::min<int64_t>(d.sm_count, «blocks»))", "s.batch * blocks_down",
        "scratch memory for fewer threads than take blocks",
    ),
    Mutant(
        "A08", "pooling/cpu/nhwc.cpp", "min_of(c.chunk.channels, c.p.x.shape[1] - chunk.first_channel)",
        "c.chunk.channels", "the last chunk of channels is not shortened",
    ),
    Mutant(
        "A09", "softmax/cpu/vectorized.cpp", "static_cast<char*>(workspace) + «thread * scratch»", "thread / 2 * scratch",
        "two threads share scratch memory",
    ),
    Mutant(
        "A10", "batch_norm/cpu/vectorized.cpp", "(c.tile_by_thread ? «kKinds * line» : 0)", "line",
        "the results of two tiles overlap between threads",
    ),
    Mutant(
        "A11", "layer_norm/cpu/contiguous_rows.cpp", "std::fill_n(of_section, «2 * n», Acc(0))", "n",
        "layer norm backward: the sums of dbias are not cleared",
    ),
    Mutant(
        "A12", "layer_norm/cpu/strided_axis.cpp", "double(block(i).rows)", "double(c.section)",
        "the last section joins with the weight of a whole one",
    ),
    Mutant(
        "A13", "reduce/cpu/vectorized_isa.cpp", "value[0], «begin + index[0]»", "index[0]",
        "argmax along rows: indices of the second 65536 elements count from 0",
    ),
    Mutant(
        "A14", "gather/cpu/contiguous_rows.cpp", "o.order[j] * g.span + c", "o.order[j] * g.span",
        "gather_backward: the second 512 columns are read from the first",
    ),
    Mutant(
        "A15", "core/cpu/thread_pool.cpp", "Job{n, grain, 1, call, body}", "Job{n / chunks * chunks, grain, 1, call, body}",
        "while the pool is busy, the items beyond equal shares are left out",
    ),
    Mutant(
        "A16", "reduce/cpu/vectorized.cpp", "span * t.n + at", "span * t.n", "argmax in chunks: indices of a chunk count from 0"
    ),
    Mutant(
        "A17", "pad/cpu/contiguous_rows.cpp", "begin - line * width", "0",
        "a thread that starts inside a line starts at the first column",
    ),
    Mutant(
        "A18", "conv/cpu/implicit_gemm/small_channel_filter.cpp", "line + pixel > 0", "line > 0",
        "the second slice of the first line overwrites the sums of the first",
    ),
    Mutant(
        "A19", "conv/cpu/implicit_gemm/implicit_gemm.cpp", "some.size() > 1 || panel == block.panel", "panel == block.panel",
        "strided backward_data by panels: the next panel uses the rows of the last phase",
    ),
    Mutant(
        "A20", "conv/cpu/depthwise/direct_nchw.cpp", "std::min(units, (at.at[0] + 1) * bands_of_chunk)",
        "(at.at[0] + 1) * bands_of_chunk", "filter gradient: the last part of the bands is not shortened",
    ),
    Mutant(
        "A21", "lrn/cpu/spatial_window.cpp", "y = «at % height»", "i % height",
        "which row of the image a segment belongs to, where rows are cut",
    ),
    Mutant(
        "A22", "lrn/cpu/cross_channel.cpp", "std::min(most, plane - first)", "most",
        "lrn NCHW: the last segment of positions is not shortened",
    ),
    Mutant(
        "A23", "conv/cpu/to_nhwc.cpp", "std::min(chunk, pixels - first)", "chunk",
        "copy to channels last: the last segment of an image is not shortened",
    ),
    Mutant(
        "A24", "random/cpu/vectorized.cpp", "min_of(n, end * block)", "end * block", "the last block is not shortened"
    ),
    Mutant(
        "A25", "pooling/cpu/max_with_indices.cpp", "min_of(c.channels, p.x.shape[1] - first)", "c.channels",
        "max pooling by indices, NHWC: the last block of channels is as wide as a whole one",
    ),
    Mutant(
        "B01", "simd/channel_norm_isa.cpp", "1 / maths::sqrt(var[i] + eps)", "1 / (maths::sqrt(var[i]) + eps)",
        "batch norm: eps outside of the root",
    ),
    Mutant(
        "B02", "layer_norm/cpu/strided_axis.cpp", "parameter(a.bias, i, 0) - rest * factor[i]", "parameter(a.bias, i, 0)",
        "group norm NHWC: the rounding error of the mean is dropped",
    ),
    Mutant(
        "B03", "reduce/cpu/vectorized_isa.cpp", "i + kShortSum * kChains * kFloats", "i + 4096 * kChains * kFloats",
        "float32 partial sums of 4096 terms instead of 32",
    ),
    Mutant(
        "B04", "gather/cpu/contiguous_rows.cpp", "sums[k] += «line[k]»", "Sum(T(sums[k] + line[k])) - sums[k]",
        "gather_backward: sums in the 16 bits of the operands",
    ),
    Mutant(
        "B05", "loss/cpu/targets.h", "float(«count»)", "p.rows()",
        "cross entropy backward: the mean counts ignored rows too",
    ),
    # Mutant B06 (a deliberate error in the library) was replaced, because no test could notice its first version: in lp
    # pooling, a division by the norm of a window of zeros still gave 0.
    Mutant(
        "B06", "pooling/cpu/max_with_indices.cpp", "v != v && largest[i] == largest[i]", "false",
        "max pooling with indices in float64: a NaN is not the maximum",
    ),
    Mutant(
        "B07", "core/host_device/team.h", "error == error ? error : T{}", "T{}", "the rounding errors of the sum are dropped"
    ),
    Mutant(
        "B08", "softmax/cpu/log_gradient.h", "return «y == -INFINITY ? 0 : gradient»", "gradient",
        "log softmax backward: masked elements get dy",
    ),
    Mutant(
        "B09", "batch_norm/cpu/vectorized.cpp", "t.var[i] * unbiased", "t.var[i]",
        "batch norm: running_var moves by the biased variance",
    ),
    Mutant(
        "B10", "layer_norm/cpu/contiguous_rows_isa.cpp", "shift * sums.first * 2 > sums.squares", "false",
        "layer norm: a row whose first elements mislead is not summed again",
    ),
    Mutant(
        "B11", "simd/channel_norm_isa.cpp", "away * sums[c] * 2 > squares[c]", "false",
        "batch norm: a channel whose first elements mislead is not summed again",
    ),
    Mutant(
        "B12", "pooling/cpu/nhwc_transposed_isa.cpp", "else «total[k].add(v)»", "void(total[k].sum += v)",
        "global average: the rounding errors of the sum are dropped",
    ),
    Mutant(
        "B13", "batch_norm/cpu/vectorized.cpp", "t.slope[i] = A(«scale / n * inv_std»)", "scale / n",
        "batch norm backward: one term lacks the second factor inv_std",
    ),
    Mutant(
        "C01", "conv/conv.cpp", '{"bias", «b»}}, {{"residual"', "w", "conv_forward: out may overlap the bias"
    ),
    Mutant(
        "C02", "batch_norm/batch_norm.cpp", '{"running_mean", «*running.mean»}}', "scale",
        "batch norm: running_var may share memory with running_mean",
    ),
    Mutant("C03", "pooling/pooling.cpp", '{"y", «y»}, y_shape', "dy", "pool_backward: the shape of y is not checked"),
    Mutant(
        "C04", "loss/loss.cpp", "t.desc.dtype == want.dtype", "true",
        "cross_entropy_backward: the dtype of dy and lse is not checked",
    ),
    Mutant(
        "C05", "conv/conv.cpp", "x[2 + i] <= most", "x[2 + i] <= most + 1",
        "conv_backward_data: x_shape may be one too large",
    ),
    Mutant(
        "C06", "pad/pad.cpp", "PadMode::reflect ? «n - 1»", "n", "pad reflect: a width may be as large as the size"
    ),
    Mutant(
        "C07", "gather/gather.cpp", "like the result of gather\");\n  «check_indices(p, index)»", "void()",
        "gather_backward: indices are not checked",
    ),
    Mutant(
        "C08", "gather/gather.cpp", '{"x", x}, {"index", «index»}', "x", "gather: out may overlap the index"
    ),
    Mutant(
        "C09", "batch_norm/batch_norm.cpp", '{"var", «var»}},', "mean", "batch norm inference: out may overlap var"
    ),
    Mutant(
        "C10", "loss/loss.cpp", '{"lse", «lse»}}', "target", "cross_entropy_backward: out may overlap lse"
    ),
    Mutant(
        "C11", "conv/conv.cpp", '{of_result, {"residual", «*residual»}}', "of_result.tensor",
        "conv_forward: the dtype of the residual is not checked",
    ),
    Mutant("C12", "pooling/pooling.cpp", '{"y", «y»}, {"indices"', "dy", "pool_backward: out may overlap y"),
    Mutant(
        "D01", "engine/engine.h", "cache->find(p, algo, stale)", 'cache->find(p, "", stale)',
        "the plan cache is read without algo in the key",
    ),
    Mutant(
        "D02", "engine/engine.h", 'name.ends_with("." + engine)', "name.ends_with(engine)",
        "algo='gemm' means implicit_gemm",
    ),
    Mutant(
        "D03", "engine/engine.h", 'cat(" threads=", o.threads)', "std::string()",
        "what find() chose under a handle of few threads serves all calls",
    ),
    Mutant(
        "D04", "engine/engine.h", "std::exchange(it->second.choice, std::move(choice))", "std::move(choice)",
        "find() does not replace the plan that calls use",
    ),
    Mutant(
        "D05", "engine/engine.h", "all = {named}",
        "std::rotate(all.begin(), std::ranges::find(all, named), all.end()), all",
        "find() measures other configs than the one that algo names, and chooses among them",
    ),
    Mutant(
        "D06", "engine/engine.h", "bytes > h.options().max_workspace",
        "!names_config(algo) && bytes > h.options().max_workspace",
        "max_workspace is ignored where algo names a config",
    ),
    Mutant(
        "D07", "engine/engine.h", "h.cache<PlanCache<P>>()",
        "[] { static const auto all = std::make_shared<PlanCache<P>>(); return all; }()",
        "one plan cache for all handles, whatever their options",
    ),
    Mutant(
        "D08", "engine/engine.h", "limit(«h.options().threads»)", "DryRun::current() ? 0 : h.options().threads",
        "find() under a handle of few threads measures with all",
    ),
    Mutant(
        "E01", "pyminidnn/ops/softmax.py", "y: ArrayLike,\n    *,\n    axis: int = «1»", "-1",
        "softmax_backward: default axis -1",
    ),
    Mutant(
        "E02", "pyminidnn/ops/batch_norm.py", "var: ArrayLike,\n    *,\n    eps: float = «1e-5»", "1e-3",
        "batch_norm_forward_inference: default eps 1e-3",
    ),
    Mutant(
        "E03", "bindings/exchange_py.cpp", 'return «copy.value_or(false)» ? a.attr("copy")() : a', "false",
        "__array__(copy=True) gives a view",
    ),
    Mutant("E04", "core/dlpack.cpp", "(«copied» ? DLPACK_FLAG_BITMASK_IS_COPIED : 0)", "false", "DLPack: IS_COPIED is never set"),
    Mutant(
        "E05", "bindings/exchange_py.cpp", "byte_strides(t.desc), «t.storage->read_only»", "false",
        "memoryview() of a read-only tensor is writable",
    ),
    Mutant(
        "E06", "pyminidnn/ops/layer_norm.py", '"group_norm_forward", "group", «groups»', "groups or x.shape[1]",
        "group_norm: groups=0 means instance norm",
    ),
    Mutant(
        "E07", "bindings/exchange_py.cpp",
        'integer_pair(max_version, "__dlpack__: max_version").first >= DLPACK_MAJOR_VERSION',
        'integer_pair(max_version, "__dlpack__: max_version").first > DLPACK_MAJOR_VERSION',
        "__dlpack__(max_version=(1, x)) gives a capsule of before 1.0",
    ),
    Mutant(
        "E08", "bindings/exchange_py.cpp", 'if («t.storage->read_only») a.attr("setflags")', "false",
        "numpy() of a read-only tensor is writable",
    ),
    Mutant(
        "E09", "pyminidnn/conversion.py", "copy is False and result.data_ptr != tensor.data_ptr", "False",
        "asarray(copy=False) copies where it must",
    ),
    Mutant(
        "E10", "pyminidnn/ops/lrn.py",
        "k: float = «1.0»,\n    algo: str | None = None,\n    out: ArrayLike | None = None,\n    handle: Handle | None = None,\n) -> DeviceTensor | tuple",
        "2.0", "lcn_backward: default k differs from lcn_forward's"
    ),
    Mutant(
        "E11", "pyminidnn/ops/pooling.py",
        "def global_pool_backward(\n    dy: ArrayLike,\n    x: ArrayLike,\n    y: ArrayLike,\n    *,\n    mode: PoolMode = «\"max\"»",
        '"avg"', "global_pool_backward: default mode avg",
    ),
    Mutant(
        "E12", "bindings/exchange_py.cpp", "moved(from_capsule(capsule), target, «copy.value_or(false)»)", "false",
        "from_dlpack(copy=True) of an array shares memory",
    ),
]

LATER = [
    # Mutant A26 (a deliberate error in the library) was replaced, because no test could notice its first version:
    # results of panels (packed rows of a matrix) past the last one are not stored.
    Mutant(
        "A26", "conv/cpu/implicit_gemm/implicit_gemm.cpp", "rows.count = «std::min(block.rows, g.images * volume(phase.count) - block.row)»",
        "block.rows", "the last block of rows is not shortened",
    ),
    Mutant(
        "A27", "conv/cpu/depthwise/grouped_nhwc.cpp", "end - first == rows ? rows : 1", "rows",
        "the last lines are computed as a whole group of lines",
    ),
    Mutant(
        "A28", "batch_norm/cpu/vectorized.cpp", "min_of(c.section, c.rows - row)", "c.section",
        "batch norm: the last section of rows is not shortened",
    ),
    Mutant(
        "A29", "reduce/cpu/vectorized.cpp", "min_of(t.chunk, t.n - at)", "t.chunk", "the last chunk of a row is not shortened"
    ),
    Mutant(
        "A30", "softmax/cpu/vectorized.cpp", "ceil_div(c.inner, c.width)", "c.inner / c.width",
        "the last, narrower strip is left out",
    ),
    Mutant(
        "A31", "matmul/cpu/packed.cpp", "from + n > 0", "n > 0",
        "the second slice of k overwrites the sums of the first",
    ),
    Mutant(
        "A32", "gather/cpu/contiguous_rows.cpp", "outer * g.indices * g.span", "outer * g.rows * g.span",
        "gather_backward along an inner axis reads dy by the rows of x",
    ),
    Mutant(
        "A33", "layer_norm/cpu/contiguous_rows.cpp", "rows * (section + 1) / sections", "rows / sections * (section + 1)",
        "layer norm backward: the rows beyond equal sections are left out",
    ),
    Mutant(
        "A34", "pooling/cpu/nchw_isa.cpp", "row <= (rows.end - 1 - first) / down", "false",
        "undoes 33dc521: a shorter last slab keeps the windows of the slab before it",
    ),
    Mutant(
        "A35", "batch_norm/cpu/vectorized_tiling.cpp", "if («c.chunks > 1») c.section = longest", "c.chunks > 1 && !in_memory_order",
        "undoes 4d1d7c7: inference writes one element of each section of a large plane",
    ),
    Mutant(
        "B14", "layer_norm/cpu/strided_axis.cpp", "-inv_std * of_dy / n", "-inv_std * of_dy / double(c.plane)",
        "group norm NHWC backward: the mean of dy divides by one channel's elements",
    ),
    Mutant(
        "B15", "loss/cpu/vectorized_isa.cpp", "1 - smoothing + each", "1 - smoothing",
        "cross entropy backward: the target lacks its share of the smoothing",
    ),
    Mutant(
        "B16", "simd/channel_norm_isa.cpp", "between = «joined * weight»", "n * weight",
        "batch norm: the variance between sections has the weight of the wrong section",
    ),
    Mutant(
        "B17", "lrn/cpu/spatial_window.cpp", "each(a, w.ahead, «w.behind»", "w.ahead",
        "lcn backward: windows of even size reach as far ahead as behind",
    ),
    Mutant("B18", "matmul/cpu/packed.cpp", "f.beta = «float(args.beta)»", "1.0f", "beta counts as 1"),
    Mutant(
        "B19", "reduce/cpu/vectorized.cpp", "p.x.numel() / outputs", "t.n",
        "a mean over dimensions that do not join divides by the innermost alone",
    ),
    Mutant(
        "C13", "batch_norm/batch_norm.cpp", 'check_shape(me, {"dy", «dy»}, shape_of(x.desc)', "x",
        "batch_norm_backward: the shape of dy is not checked",
    ),
    Mutant(
        "C14", "matmul/matmul.cpp",
        'check_shape(me, {"bias", *options.bias}, length, cat("for ", n, " columns").c_str())', "void()",
        "matmul: the length of the bias is not checked",
    ),
    Mutant("C15", "engine/op.cpp", "!out->storage->read_only", "true", "out may be read-only"),
    Mutant(
        "C16", "transform/concat.cpp", "!share_memory(y, tensors[i])", "i > 0 || !share_memory(y, tensors[i])",
        "concat: out may overlap all tensors but the first",
    ),
    Mutant(
        "C17", "core/dlpack.cpp", "m->version.major == DLPACK_MAJOR_VERSION", "true",
        "from_dlpack: any major version of DLPack is read",
    ),
    Mutant(
        "D09", "engine/report.cpp", "e.revision != line.revision", "false",
        "a tuning record of another revision of an engine is used",
    ),
    Mutant(
        "D10", "engine/report.cpp", "e.measured_us > 0 ? e.measured_us : e.estimate_us", "e.estimate_us",
        "find() measures, and chooses by the estimates",
    ),
    Mutant(
        "D11", "core/device/allocator.cpp", "stats_.cached_bytes -= «int64_t(size)»", "int64_t(0)",
        "a block taken from the cache still counts as cached",
    ),
    Mutant(
        "D12", "core/handle.cpp", "handle = «entered[i].get()»", "entered[0].get()",
        "the outermost handle serves, not the innermost",
    ),
    Mutant(
        "D13", "engine/records.cpp", "!other || !records.contains(other->first)", "other && !records.contains(other->first)",
        "replacing a tuning record deletes the lines that this version cannot read",
    ),
    Mutant(
        "D14", "engine/records.cpp", "«++generation_»;\n  if (std::string why", "generation_ + 0",
        "plans of other handles do not notice what find() recorded",
    ),
    Mutant(
        "E13", "bindings/exchange_py.cpp", "if («!copy.value_or(true)») throw", "false",
        "__array__(dtype, copy=False) copies",
    ),
    Mutant("E14", "core/dlpack.cpp", "d.data ? d.byte_offset : 0", "0", "from_dlpack ignores byte_offset"),
    Mutant(
        "E15", "pyminidnn/ops/layer_norm.py", '"instance_norm_backward", "instance", 0, dy, x, scale, mean, inv_std, «algo»',
        "None", "instance_norm_backward ignores algo",
    ),
    Mutant(
        "E16", "pyminidnn/ops/transform.py", "-(-(last - first) // by)", "(last - first) // by",
        "slice: a step that does not divide the range loses the last element",
    ),
    Mutant(
        "E17", "pyminidnn/ops/pooling.py", "_C.adaptive_pool_forward(x, 1, mode, «norm»", "2",
        "global_pool_forward ignores norm",
    ),
    Mutant(
        "E18", "bindings/c_exchange_py.cpp", "header && «header->version.major != DLPACK_MAJOR_VERSION»", "false",
        "the C exchange: a table of any major version is used",
    ),
    Mutant(
        "E19", "bindings/c_exchange_py.cpp", "!type->is_of_torch || !is_refused_of_torch(x)", "true",
        "the C exchange takes torch tensors that require grad",
    ),
    Mutant(
        "E20", "bindings/exchange_py.cpp", "if («!error.matches(PyExc_Exception)») throw;  // for example", "false",
        "an interrupt during the C exchange is reported as a failure",
    ),
    Mutant(
        "F01", "graph/arena.cpp", "tensors[k].first <= t.last && «t.first <= tensors[k].last»",
        "t.first < tensors[k].last", "a node's result may overwrite its last input",
    ),
    Mutant(
        "F02", "graph/graph.cpp", "used[i] = «buffers[i].is_output» ||", "false",
        "nodes that only an output needs are left out",
    ),
    Mutant(
        "F04", "graph/recorder.cpp", "if («recorded->recorder != id_») throw", "false",
        "a stand-in of another recording is taken for one of this recording",
    ),
    Mutant(
        "F05", "graph/bound_call.cpp", "«b.named->view.buffer == buffer» || !share_memory", "true",
        "an input that the graph writes may share memory with another input",
    ),
    Mutant(
        "F06", "graph/bound_call.cpp", "!b.written() || !t.storage->read_only", "true",
        "a graph writes a read-only input",
    ),
    Mutant(
        "F07", "graph/graph_py.cpp", "py::int_(std::bit_cast<uint64_t>(PyFloat_AS_DOUBLE(value.ptr())))", "value",
        "a fused function takes 0.0 for -0.0",
    ),
    Mutant(
        "F08", "graph/graph_py.cpp", "if («!share_memory(t, tensors[k])») continue;", "true",
        "a fused function does not notice that two arguments share memory",
    ),
    Mutant(
        "F09", "graph/bound_call.cpp", "uint64_t(arguments_.numbers[size_t(d.number)]) + «uint64_t(d.plus)»", "0",
        "an int that is added to a dynamic number is lost",
    ),
    Mutant(
        "F20", "graph/library_call.cpp", "if («!v.internal()») return cat(v.name, \" is used outside", "false",
        "a value that others read is absorbed and not stored",
    ),
    Mutant(
        "F21", "graph/library_call.cpp", "p.value == out_->value && «!call_->may_overwrite(p, &n == &region_.nodes[anchor_])»", "false",
        "the result of a fused call may overwrite an operand",
    ),
    Mutant(
        "F22", "graph/absorbing.cpp", "set(offsetof(MatmulArgs, beta), constant(«1»))", "0.5", "c is added with a wrong factor",
    ),
    Mutant(
        "F23", "graph/absorbing.cpp", "if («p.activation != Activation::identity») return already_activated(p.activation, \"its residual\")", "false",
        "the residual of a convolution is added before the activation, though it was recorded behind",
    ),
    Mutant(
        "F24", "graph/groups.cpp", "if («behind[i] && before[i]») all.push_back(int(i));", "std::ranges::count(a, int(i)) > 0 || std::ranges::count(b, int(i)) > 0",
        "nodes between two nodes of a region are left out, so groups depend on each other",
    ),
    Mutant(
        "F25", "graph/order.cpp", "for (const Use& u : «p.writes ? uses[m] : writes[m]»)", "writes[m]",
        "a write does not wait for earlier reads",
    ),
    Mutant(
        "F26", "graph/make_region.cpp", "return «uses_.at(v.buffer) == b.uses - (served == recomputed_.served.end() ? 0 : served->second)»;", "true", "a value that another region reads is internal",
    ),
    Mutant(
        "F27", "graph/unfused.cpp", "v.readers.empty() ? v.writer : «v.readers.back()»", "v.writer",
        "an internal value of a region gives its memory away before it is read",
    ),
    Mutant(
        "B70", "attention/attention_math.h", "if (p.bottom_right) s.shift = «s.kv_length - s.q_length»;", "0",
        "align='bottom_right' is ignored",
    ),
    Mutant(
        "B71", "attention/attention_math.h", "smaller(s.kv_length, at + p.right + «1»)", "0",
        "a row does not see the last column of its window",
    ),
    Mutant(
        "B72", "attention/attention_math.h", "T(of_v[e++] * «Acc(a.keep)»)", "Acc(1)", "dropout: dv lacks the factor 1 / (1 - p)",
    ),
    Mutant(
        "B73", "attention/attention_math.h", "probability * («of_p - delta»)", "of_p", "the gradient of a score lacks delta",
    ),
    Mutant(
        "B74", "attention/attention_math.h", "if (has_sink) sum += «maths::exp(sink - largest)»;", "Acc(0)", "lse lacks the sink",
    ),
    Mutant(
        "B75", "attention/attention_math.h", "«is_kept(p, a, s.b, h, i, j)»;\n  Acc of_p", "true", "backward does not see dropout",
    ),
    Mutant(
        "C70", "attention/attention.cpp", "p.kv_heads() > 0 && «p.heads() % p.kv_heads() == 0»", "true",
        "heads of q need not be a multiple of those of k",
    ),
    Mutant(
        "C71", "attention/attention.cpp", "«f.lse.desc.dtype == p.lse.dtype», me", "true", "attention_backward: the dtype of lse is not checked",
    ),
    Mutant(
        "C72", "attention/attention.cpp", "!out || «!share_memory(made, o.tensor)»", "true", "out may overlap an operand",
    ),
]
