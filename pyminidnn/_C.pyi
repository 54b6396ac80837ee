"""
The C++ side of pyminidnn. Use the package: its functions check, convert and document.
"""
from __future__ import annotations
import collections.abc
import numpy
import typing
import typing_extensions
from pyminidnn.dtypes import DType
from pyminidnn.options import Activation, AttentionAlign, AttentionLayout, ConvMode, DTypeLike, Family, IndexDType, Layout, LayoutName, LossReduction, Math, PadMode, Pointwise, PoolMode, ReduceMode, RnnLayout, RnnMode
__all__: list[str] = ['BoundCall', 'DTypeError', 'DeviceError', 'DeviceTensor', 'EngineReport', 'Error', 'Graph', 'Handle', 'IndexingError', 'KernelSpec', 'NotSupported', 'OutOfMemory', 'Recorder', 'RecordingPause', 'Report', 'ShapeError', 'activation_backward', 'activation_forward', 'adaptive_pool_backward', 'adaptive_pool_forward', 'array_text', 'attention_backward', 'attention_decode', 'attention_forward', 'batch_norm_backward', 'batch_norm_forward_inference', 'batch_norm_forward_training', 'bytes_text', 'cache_folder', 'cache_stats', 'check_costs', 'clear_costs', 'clear_tuning', 'compile_kernel', 'compile_region', 'concat', 'conv_backward_bias', 'conv_backward_data', 'conv_backward_filter', 'conv_forward', 'conv_forward_statistics', 'cost_kind', 'costs_text', 'cpu_isa', 'cpu_isas', 'cpu_peak_gflop_s', 'cross_entropy_backward', 'cross_entropy_forward', 'ctc_loss_backward', 'ctc_loss_forward', 'cuda_device_count', 'device_info', 'driver_version', 'dropout', 'dry_run', 'dtypes', 'elements_at', 'empty_cache', 'engines', 'entered_handle', 'exchanged', 'exchanged_operands', 'families', 'fill_normal', 'fill_uniform', 'flattened', 'from_cuda_array_interface', 'from_dlpack', 'full', 'gather', 'gather_backward', 'holds', 'import_costs', 'import_tuning', 'integer', 'integers', 'itemsizes', 'layer_norm_backward', 'layer_norm_forward', 'lcn_backward', 'lcn_forward', 'lrn_backward', 'lrn_forward', 'manifest', 'matmul', 'max_text_precision', 'memory_stats', 'number', 'nvrtc_info', 'pad', 'philox', 'pointwise', 'pointwise_names', 'pool_backward', 'pool_forward', 'pool_forward_with_indices', 'promoted', 'recorded_number', 'recording', 'reduce', 'reinterpret', 'reset_peak_memory', 'rnn_backward_data', 'rnn_backward_weights', 'rnn_forward', 'rnn_pack', 'rnn_unpack', 'run_graph', 'set_allocator_checks', 'set_dtype_objects', 'set_log_level', 'set_nvrtc_finder', 'set_package_folder', 'set_search_path', 'set_work_divisor', 'share_memory', 'softmax_backward', 'softmax_forward', 'storage', 'synchronize', 'transform', 'tuning_text', 'why_no_costs', 'why_no_cuda', 'why_no_log', 'why_no_nvrtc', 'why_no_tuning']
class Error(Exception):
    """
    The base class of the errors of this package.
    """
class ShapeError(Error, ValueError):
    """
    A shape, size or value does not fit; also a ValueError.
    """
class DTypeError(Error, TypeError):
    """
    An argument has a wrong dtype or type; also a TypeError.
    """
class IndexingError(Error, IndexError):
    """
    An index is beyond its dimension, or there are too many; also an IndexError.
    """
class NotSupported(Error, NotImplementedError):
    """
    No engine supports the call. The text has the reason of each engine; also a NotImplementedError.
    """
class DeviceError(Error, RuntimeError):
    """
    A device is absent, is not the one of another argument, or failed; also a RuntimeError.
    """
class OutOfMemory(Error, MemoryError):
    """
    A device does not have the memory that a call needs; also a MemoryError.
    """
class Handle:
    """
    Where and how calls run. `with handle:` makes the handle the current one of this thread for the device.
    """
    def __enter__(self) -> Handle:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __init__(self, device: str = 'cpu', *, stream: typing.Any = None, max_workspace: int | None = None, deterministic: bool = False, math: Math = 'tf32', threads: int | None = None, max_plans: int = 4096) -> None:
        """
        device         "cpu", "cuda" or "cuda:<index>"
        stream         CUDA only: an int, a torch or CuPy stream, anything with __cuda_stream__; None is the default stream
        max_workspace  bytes a call may use in addition to its tensors; None: no limit
        deterministic  forbid engines whose results vary from run to run
        math           float32 products: "tf32" may use TF32 tensor cores, "ieee" never does
        threads        CPU only: the most in a call; None: as OMP_NUM_THREADS says, else all cores. Results are the same
        max_plans      plans kept for each kind of problem; beyond it the least recently used are dropped

        Raises DeviceError when there is no such device, ShapeError for an unknown math mode.
        """
    def __reduce__(self, protocol: typing.SupportsIndex = 4) -> typing.Any:
        ...
    def __reduce_ex__(self, protocol: typing.SupportsIndex = 4) -> typing.Any:
        ...
    def __repr__(self) -> str:
        ...
    def close(self) -> None:
        """
        Drops the plans of the handle; using the handle again raises DeviceError.
        """
    def synchronize(self) -> None:
        """
        Waits until all work given to the handle's stream is done.
        """
    @property
    def closed(self) -> bool:
        """
        Whether close() was called.
        """
    @property
    def deterministic(self) -> bool:
        """
        Whether engines are excluded whose results vary from run to run.
        """
    @property
    def device(self) -> str:
        """
        "cpu" or "cuda:<index>".
        """
    @property
    def math(self) -> Math:
        """
        "tf32" if float32 products may use TF32 tensor cores, else "ieee".
        """
    @property
    def max_plans(self) -> int:
        """
        The most plans that are kept for each kind of problem.
        """
    @property
    def max_workspace(self) -> int | None:
        """
        The most bytes that a call may use in addition to its tensors; None: no limit.
        """
    @property
    def stream(self) -> int:
        """
        The stream's address; 0 for the default stream and on the CPU.
        """
    @property
    def threads(self) -> int | None:
        """
        The most CPU threads of a call; None: as OMP_NUM_THREADS says, else all cores.
        """
class DeviceTensor:
    """
    An n-dimensional array on the CPU or a GPU, uninitialised when made: DeviceTensor((8, 3, 32, 32), layout="NHWC").

    Logical dimensions are N, C, spatial... in every layout; a layout is a stride order. Copies of the object share memory.
    """
    __array_priority__: typing.ClassVar[int] = 1000
    __dlpack_c_exchange_api__: typing.ClassVar[typing.Any]
    def __abs__(self) -> DeviceTensor:
        """
        abs(self)
        """
    def __add__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self+value.
        """
    def __and__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self&value.
        """
    def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> typing.Any:
        ...
    def __array_namespace__(self, *, api_version: str | None = None) -> typing.Any:
        """
        The functions of the Python array API standard, as a module (pyminidnn.array_api).

                api_version  None or a version of the standard; NotSupported for versions later than 2024.12

        """
    def __bool__(self) -> bool:
        """
        True if self else False
        """
    def __complex__(self) -> complex:
        ...
    def __contains__(self, value: typing.Any) -> bool:
        ...
    def __copy__(self) -> DeviceTensor:
        ...
    def __deepcopy__(self, memo: typing.Any) -> DeviceTensor:
        ...
    def __dlpack__(self, *, stream: typing.Any = None, max_version: typing.Any = None, dl_device: typing.Any = None, copy: bool | None = None) -> typing_extensions.CapsuleType:
        ...
    def __dlpack_device__(self) -> tuple[int, int]:
        ...
    def __eq__(self, value: object) -> DeviceTensor: # type: ignore[override]
        """
        Return self==value.
        """
    def __float__(self) -> float:
        """
        float(self)
        """
    def __floordiv__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self//value.
        """
    def __format__(self, spec: str) -> str:
        ...
    def __ge__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self>=value.
        """
    def __getitem__(self, key: typing.Any) -> DeviceTensor:
        """
        Return self[key].
        """
    def __gt__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self>value.
        """
    def __hash__(self) -> int:
        """
        Return hash(self).
        """
    def __iadd__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self+=value.
        """
    def __iand__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self&=value.
        """
    def __ifloordiv__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self//=value.
        """
    def __ilshift__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self<<=value.
        """
    def __imod__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self%=value.
        """
    def __imul__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self*=value.
        """
    def __index__(self) -> int:
        """
        Return self converted to an integer, if self is suitable for use as an index into a list.
        """
    def __init__(self, shape: int | collections.abc.Sequence[int], *, dtype: DTypeLike = 'float32', layout: Layout | None = None, device: str = 'cpu') -> None:
        ...
    def __int__(self) -> int:
        """
        int(self)
        """
    def __invert__(self) -> DeviceTensor:
        """
        ~self
        """
    def __ior__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self|=value.
        """
    def __ipow__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self**=value.
        """
    def __irshift__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self>>=value.
        """
    def __isub__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self-=value.
        """
    def __iter__(self) -> typing.Iterator[DeviceTensor]:
        ...
    def __itruediv__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self/=value.
        """
    def __ixor__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self^=value.
        """
    def __jax_array__(self) -> typing.Any:
        """
        The tensor as an array of JAX, for jax.numpy.asarray(t). It may share the memory of the tensor.
        """
    def __le__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self<=value.
        """
    def __len__(self) -> int:
        ...
    def __lshift__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self<<value.
        """
    def __lt__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self<value.
        """
    def __matmul__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self@value.
        """
    def __mod__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self%value.
        """
    def __mul__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self*value.
        """
    def __ne__(self, value: object) -> DeviceTensor: # type: ignore[override]
        """
        Return self!=value.
        """
    def __neg__(self) -> DeviceTensor:
        """
        -self
        """
    def __or__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self|value.
        """
    def __pos__(self) -> DeviceTensor:
        """
        +self
        """
    def __pow__(self, value: typing.Any) -> DeviceTensor:
        """
        Return pow(self, value, mod).
        """
    def __radd__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value+self.
        """
    def __rand__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value&self.
        """
    def __reduce__(self) -> typing.Any:
        ...
    def __reduce_ex__(self, protocol: typing.SupportsIndex) -> typing.Any:
        ...
    def __repr__(self) -> str:
        ...
    def __rfloordiv__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value//self.
        """
    def __rlshift__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value<<self.
        """
    def __rmatmul__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value@self.
        """
    def __rmod__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value%self.
        """
    def __rmul__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value*self.
        """
    def __ror__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value|self.
        """
    def __rpow__(self, value: typing.Any) -> DeviceTensor:
        """
        Return pow(value, self, mod).
        """
    def __rrshift__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value>>self.
        """
    def __rshift__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self>>value.
        """
    def __rsub__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value-self.
        """
    def __rtruediv__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value/self.
        """
    def __rxor__(self, value: typing.Any) -> DeviceTensor:
        """
        Return value^self.
        """
    def __setitem__(self, key: typing.Any, value: typing.Any) -> None:
        """
        Set self[key] to value.
        """
    def __str__(self) -> str:
        ...
    def __sub__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self-value.
        """
    def __truediv__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self/value.
        """
    def __xor__(self, value: typing.Any) -> DeviceTensor:
        """
        Return self^value.
        """
    def _description(self) -> str:
        """
        The tensor without its values, for error texts.
        """
    def _permute(self, axes: int | collections.abc.Sequence[int]) -> DeviceTensor:
        ...
    def _reshape(self, shape: int | collections.abc.Sequence[int]) -> DeviceTensor:
        ...
    def all(self, axis: int | typing.Sequence[int] | None = None, *, keepdims: bool = False) -> DeviceTensor:
        """
        reduce(self, "all", axis=axis, keepdims=keepdims)
        """
    def any(self, axis: int | typing.Sequence[int] | None = None, *, keepdims: bool = False) -> DeviceTensor:
        """
        reduce(self, "any", axis=axis, keepdims=keepdims)
        """
    def argmax(self, axis: int | typing.Sequence[int] | None = None, *, keepdims: bool = False) -> DeviceTensor:
        """
        reduce(self, "argmax", axis=axis, keepdims=keepdims)
        """
    def argmin(self, axis: int | typing.Sequence[int] | None = None, *, keepdims: bool = False) -> DeviceTensor:
        """
        reduce(self, "argmin", axis=axis, keepdims=keepdims)
        """
    def as_strided(self, shape: int | collections.abc.Sequence[int], strides: int | collections.abc.Sequence[int], offset: int = 0) -> DeviceTensor:
        """
        A view of the tensor's memory with any strides, in elements, that stays inside it.
        """
    def astype(self, dtype: DTypeLike, *, copy: bool = True) -> DeviceTensor:
        """
        The elements cast to `dtype`, as in to(). copy=False: the tensor itself, if it has the dtype already.
        """
    def clone(self) -> DeviceTensor:
        """
        copy(), by torch's name.
        """
    def contiguous(self) -> DeviceTensor:
        """
        The tensor in row-major order; itself if it is stored so.
        """
    def copy(self) -> DeviceTensor:
        """
        A new tensor with the same elements, on the same device.
        """
    def cpu(self) -> DeviceTensor:
        """
        The tensor on the CPU; itself if it is there already.
        """
    def cuda(self, index: int = 0) -> DeviceTensor:
        """
        The tensor on GPU `index`; itself if it is there already.
        """
    def fill_(self, value: typing.Any) -> DeviceTensor:
        """
        Sets all elements to `value`; returns the tensor.
        """
    def flatten(self) -> DeviceTensor:
        """
        A copy of the elements in one dimension, in row-major order.
        """
    def is_contiguous(self) -> bool:
        """
        Whether the elements are stored in row-major order, without gaps.
        """
    def item(self) -> typing.Any:
        """
        The one element as a Python bool, int or float. Waits for the GPU. ShapeError if there is not one element.
        """
    def max(self, axis: int | typing.Sequence[int] | None = None, *, keepdims: bool = False) -> DeviceTensor:
        """
        reduce(self, "max", axis=axis, keepdims=keepdims)
        """
    def mean(self, axis: int | typing.Sequence[int] | None = None, *, keepdims: bool = False) -> DeviceTensor:
        """
        reduce(self, "mean", axis=axis, keepdims=keepdims)
        """
    def min(self, axis: int | typing.Sequence[int] | None = None, *, keepdims: bool = False) -> DeviceTensor:
        """
        reduce(self, "min", axis=axis, keepdims=keepdims)
        """
    def numpy(self) -> numpy.ndarray:
        """
        A NumPy array: a view of a CPU tensor, a copy of a GPU tensor (waits for its stream).
        """
    def permute(self, *axes: typing.Any) -> DeviceTensor:
        """
        A view whose dimension i is dimension axes[i] of this tensor; negative axes count from the end.
        """
    def prod(self, axis: int | typing.Sequence[int] | None = None, *, keepdims: bool = False) -> DeviceTensor:
        """
        reduce(self, "prod", axis=axis, keepdims=keepdims)
        """
    def ravel(self) -> DeviceTensor:
        """
        The elements in one dimension, in row-major order: a view where strides allow, else a copy.
        """
    def reshape(self, *shape: typing.Any) -> DeviceTensor:
        """
        The same elements in row-major order under another shape, ints or a sequence.

                It is a view where strides allow, else a copy. One size may be -1, which stands for the size that the others
                imply.

        """
    def squeeze(self, axis: int | typing.Sequence[int] | None = None) -> DeviceTensor:
        """
        A view without the dimensions of one element: all of them, or those of `axis`.
        """
    def sum(self, axis: int | typing.Sequence[int] | None = None, *, keepdims: bool = False) -> DeviceTensor:
        """
        reduce(self, "sum", axis=axis, keepdims=keepdims)
        """
    def to(self, target: typing.Any = None, *, device: str | None = None, dtype: DTypeLike | None = None, layout: Layout | None = None, copy: bool = False) -> DeviceTensor:
        """
        The tensor on another device, of another dtype or in another layout; itself if it is that already.

        target  a device or a dtype: to("cuda:0") is to(device="cuda:0")
        copy  a new tensor in any case
        Casts to a floating dtype round to nearest even. From a float to an integer they truncate and saturate, and NaN gives 0.
        From an integer to a narrower one they keep the low bits. To bool: "not zero".
        A copy to or from a GPU has ended when this method returns.
        """
    def to_device(self, device: str, *, stream: typing.Any = None) -> DeviceTensor:
        """
        The tensor on `device`; itself if it is there already.

                stream  CUDA only: the stream of `device` that copies, as in Handle(); None: that of the current handle

        """
    def tolist(self) -> typing.Any:
        """
        The elements as Python numbers, in nested lists. Waits for the GPU.
        """
    def transpose(self, *axes: typing.Any) -> DeviceTensor:
        """
        A view with the dimensions in the order of `axes`, or in reverse order without axes.
        """
    def unsqueeze(self, axis: int) -> DeviceTensor:
        """
        A view with a dimension of one element before dimension `axis`; -1 adds it at the end.
        """
    @property
    def T(self) -> DeviceTensor:
        """
        A view with the dimensions in reverse order.
        """
    @property
    def __cuda_array_interface__(self) -> dict:
        ...
    @property
    def _recorded(self) -> bool:
        ...
    @property
    def data_ptr(self) -> int:
        """
        The address of the first element, an int.
        """
    @property
    def device(self) -> str:
        """
        'cpu' or 'cuda:<index>'.
        """
    @property
    def dtype(self) -> DType:
        """
        The type of the elements, such as pyminidnn.float32, which equals 'float32'.
        """
    @property
    def itemsize(self) -> int:
        """
        The bytes of an element.
        """
    @property
    def layout(self) -> LayoutName:
        """
        'NCHW', 'NHWC' and their 1-D and 3-D forms, 'contiguous' for other ranks, else 'strided'.
        """
    @property
    def mT(self) -> DeviceTensor:
        """
        A view with the last two dimensions swapped.
        """
    @property
    def nbytes(self) -> int:
        """
        The number of elements times their size in bytes.
        """
    @property
    def ndim(self) -> int:
        """
        The number of dimensions.
        """
    @property
    def read_only(self) -> bool:
        """
        Whether the tensor is a view of memory that must not be written. It cannot be `out`.
        """
    @property
    def shape(self) -> tuple:
        """
        The sizes of the dimensions, a tuple.
        """
    @property
    def size(self) -> int:
        """
        The number of elements.
        """
    @property
    def strides(self) -> tuple:
        """
        Strides in elements, as in torch; the strides of NumPy are in bytes.
        """
class EngineReport:
    """
    What one engine reports for one problem.
    """
    def __reduce__(self, protocol: typing.SupportsIndex = 4) -> typing.Any:
        ...
    def __reduce_ex__(self, protocol: typing.SupportsIndex = 4) -> typing.Any:
        ...
    @property
    def config(self) -> str:
        """
        The config that would run, or that was fastest.
        """
    @property
    def configs(self) -> list[str]:
        """
        All configs of the engine for the problem, best guess first.
        """
    @property
    def cost_factor(self) -> float:
        """
        The factor in estimate_us that 'pyminidnn calibrate' has measured, or 1.
        """
    @property
    def estimate_us(self) -> float:
        """
        The expected time in microseconds.
        """
    @property
    def measured_us(self) -> float:
        """
        0 if the engine was not measured.
        """
    @property
    def measurements(self) -> list[tuple[str, float]]:
        """
        Every measured config with its time in microseconds.
        """
    @property
    def name(self) -> str:
        """
        Such as 'cuda.softmax.persistent_rows'.
        """
    @property
    def revision(self) -> int:
        """
        Increases when the engine changes; older tuning records are then ignored.
        """
    @property
    def traits(self) -> list:
        """
        Any of 'nondeterministic', 'reduced precision' and 'needs jit'.
        """
    @property
    def why_not(self) -> str:
        """
        Empty if the engine supports the problem, else one sentence that says why not.
        """
    @property
    def workspace_bytes(self) -> int:
        """
        Bytes that the call needs in addition to its tensors.
        """
class Report:
    """
    How one problem would run: each engine with a refusal or a cost, and the chosen engine.
    """
    def __reduce__(self, protocol: typing.SupportsIndex = 4) -> typing.Any:
        ...
    def __reduce_ex__(self, protocol: typing.SupportsIndex = 4) -> typing.Any:
        ...
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def chosen(self) -> str:
        """
        The name of the engine that would run.
        """
    @property
    def device(self) -> str:
        """
        'cpu' or 'cuda:<index>'.
        """
    @property
    def engines(self) -> list[EngineReport]:
        """
        An EngineReport for each engine of the family.
        """
    @property
    def family(self) -> str:
        """
        Such as 'softmax'.
        """
    @property
    def not_kept(self) -> str:
        """
        After find(): why the result is not in the tuning file, or "".
        """
    @property
    def problem(self) -> str:
        """
        The problem as text, a case line.
        """
class KernelSpec:
    """
    One kernel instantiation of the manifest.
    """
    def __reduce__(self, protocol: typing.SupportsIndex = 4) -> typing.Any:
        ...
    def __reduce_ex__(self, protocol: typing.SupportsIndex = 4) -> typing.Any:
        ...
    @property
    def file(self) -> str:
        ...
    @property
    def kernel(self) -> str:
        ...
    @property
    def min_arch(self) -> int:
        ...
class Graph:
    """
    Recorded calls, which can run many times.
    """
    def bytes_of_temporaries(self, handle: Handle | None) -> int:
        """
        The bytes of the temporaries that a run stores.
        """
    def choose_plans(self, handle: Handle | None, only_regions: bool = False) -> None:
        ...
    def constant(self, buffer: typing.SupportsInt | typing.SupportsIndex) -> DeviceTensor:
        """
        The memory of a constant, as bytes.
        """
    def contents(self) -> dict:
        """
        What a file of the graph has, as plain numbers and texts.
        """
    def regions(self, handle: Handle | None) -> list[list[int]]:
        """
        The indices of the nodes of each region, in the order in which they run.
        """
    def source(self, region: int | None, handle: Handle | None) -> str:
        ...
    def text(self) -> str:
        ...
    def why(self, handle: Handle | None) -> str:
        ...
    @property
    def arena_bytes(self) -> int:
        ...
    @property
    def device(self) -> str:
        ...
    @property
    def dynamic(self) -> list[str]:
        ...
    @property
    def inputs(self) -> list:
        ...
    @property
    def nodes(self) -> list:
        ...
    @property
    def outputs(self) -> list:
        ...
class RecordingPause:
    """
    In a `with` block, calls of this thread run at once, also in a recording.
    """
    def __enter__(self) -> None:
        ...
    def __exit__(self, *args: typing.Any) -> None:
        ...
    def __init__(self) -> None:
        ...
class Recorder:
    """
    Writes calls of one thread down as a graph.
    """
    def __init__(self, device: str | None, handle: Handle | None, where: collections.abc.Callable, rounding_each: bool) -> None:
        ...
    def buffer(self, name: str, is_input: bool, bytes: int, residue: int, read_only: bool) -> DeviceTensor:
        """
        Adds a buffer. Returns all of it, as bytes.
        """
    def buffer_number(self, tensor: DeviceTensor) -> int:
        """
        The number of the buffer of a tensor.
        """
    def dynamic(self, name: str) -> int:
        ...
    def enter(self) -> None:
        ...
    def finish(self, rewrites: bool = True) -> Graph:
        ...
    def input(self, name: str, shape: int | collections.abc.Sequence[int], dtype: DTypeLike, layout: Layout | None, strides: int | collections.abc.Sequence[int] | None) -> DeviceTensor:
        ...
    def input_view(self, name: str, view: DeviceTensor) -> None:
        ...
    def inputs_like(self, names: collections.abc.Sequence[str], samples: collections.abc.Sequence[DeviceTensor]) -> list[DeviceTensor]:
        ...
    def last_node(self) -> dict:
        ...
    def leave(self) -> None:
        ...
    def node_count(self) -> int:
        ...
    def output(self, name: str, tensor: DeviceTensor) -> None:
        ...
    def rename(self, tensor: DeviceTensor, name: str) -> None:
        """
        Names the buffer of a tensor.
        """
    def rewritten(self, rewrites: str) -> None:
        """
        Says which rewrites made the last node.
        """
    def set_numbers(self, args: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], dynamic: collections.abc.Sequence[typing.Annotated[collections.abc.Sequence[int], "FixedSize(3)"]]) -> None:
        """
        Sets the numbers among the Args of the last call.
        """
class BoundCall:
    """
    A graph with all its tensors, its workspace and its plans.
    """
    def __init__(self, graph: Graph, handle: Handle | None, inputs: collections.abc.Sequence[DeviceTensor], outputs: collections.abc.Sequence[DeviceTensor | None], numbers: int | collections.abc.Sequence[int]) -> None:
        ...
    def run(self) -> None:
        ...
    @property
    def results(self) -> list[DeviceTensor]:
        ...
def activation_backward(dy: DeviceTensor, x: DeviceTensor, y: DeviceTensor, mode: Activation, alpha: typing.SupportsFloat | typing.SupportsIndex | None, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def activation_forward(x: DeviceTensor, mode: Activation, alpha: typing.SupportsFloat | typing.SupportsIndex | None, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def adaptive_pool_backward(dy: DeviceTensor, x: DeviceTensor, y: DeviceTensor, size: typing.Any, mode: PoolMode, norm: int, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def adaptive_pool_forward(x: DeviceTensor, size: typing.Any, mode: PoolMode, norm: int, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def array_text(tensor: DeviceTensor, *, options: typing.Any, scientific_from: typing.SupportsFloat | typing.SupportsIndex, summarize: bool, prefix_width: int) -> str:
    """
    The elements of a CPU tensor as numpy.array2string() writes them with these options.
    """
def attention_backward(do: DeviceTensor, q: DeviceTensor, k: DeviceTensor, v: DeviceTensor, o: DeviceTensor, lse: DeviceTensor, scale: typing.SupportsFloat | typing.SupportsIndex | None, causal: bool, align: AttentionAlign, left: int | None, right: int | None, bias: DeviceTensor | None, alibi: DeviceTensor | None, sink: DeviceTensor | None, softcap: typing.SupportsFloat | typing.SupportsIndex, dropout: typing.SupportsFloat | typing.SupportsIndex, seed: int, offset: int, q_lengths: DeviceTensor | None, kv_lengths: DeviceTensor | None, cu_q: DeviceTensor | None, cu_kv: DeviceTensor | None, max_q: int | None, max_kv: int | None, layout: AttentionLayout, bias_gradient: bool, algo: str | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor, DeviceTensor | None, DeviceTensor | None]:
    ...
def attention_decode(q: DeviceTensor, k_cache: DeviceTensor, v_cache: DeviceTensor, lengths: DeviceTensor, scale: typing.SupportsFloat | typing.SupportsIndex | None, left: int | None, alibi: DeviceTensor | None, sink: DeviceTensor | None, softcap: typing.SupportsFloat | typing.SupportsIndex, layout: AttentionLayout, pages: DeviceTensor | None, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor]:
    ...
def attention_forward(q: DeviceTensor, k: DeviceTensor, v: DeviceTensor, scale: typing.SupportsFloat | typing.SupportsIndex | None, causal: bool, align: AttentionAlign, left: int | None, right: int | None, bias: DeviceTensor | None, alibi: DeviceTensor | None, sink: DeviceTensor | None, softcap: typing.SupportsFloat | typing.SupportsIndex, dropout: typing.SupportsFloat | typing.SupportsIndex, seed: int, offset: int, q_lengths: DeviceTensor | None, kv_lengths: DeviceTensor | None, cu_q: DeviceTensor | None, cu_kv: DeviceTensor | None, max_q: int | None, max_kv: int | None, layout: AttentionLayout, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor]:
    ...
def batch_norm_backward(dy: DeviceTensor, x: DeviceTensor, scale: DeviceTensor, saved_mean: DeviceTensor, saved_inv_std: DeviceTensor, per_activation: bool, y: DeviceTensor | None, activation: Activation | None, dresidual: bool, algo: str | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor, DeviceTensor | None]:
    ...
def batch_norm_forward_inference(x: DeviceTensor, scale: DeviceTensor, bias: DeviceTensor, mean: DeviceTensor, var: DeviceTensor, eps: typing.SupportsFloat | typing.SupportsIndex, per_activation: bool, activation: Activation | None, residual: DeviceTensor | None, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def batch_norm_forward_training(x: DeviceTensor, scale: DeviceTensor, bias: DeviceTensor, running_mean: DeviceTensor | None, running_var: DeviceTensor | None, momentum: typing.SupportsFloat | typing.SupportsIndex, eps: typing.SupportsFloat | typing.SupportsIndex, per_activation: bool, activation: Activation | None, residual: DeviceTensor | None, algo: str | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    ...
def bytes_text(bytes: typing.SupportsFloat | typing.SupportsIndex) -> str:
    """
    A number of bytes for people: "233.5 kB".
    """
def cache_folder() -> str:
    ...
def cache_stats() -> dict:
    ...
def check_costs(text: str) -> None:
    """
    Raises ShapeError if a line is no cost factor.
    """
def clear_costs() -> None:
    """
    Deletes all cost factors, also in the cache folder.
    """
def clear_tuning() -> None:
    """
    Deletes all tuning records, also in the cache folder.
    """
def compile_kernel(spec: KernelSpec, arch: str, folder: str | None) -> None:
    """
    Compiles a kernel into `folder`, in the layout of packaged cubins, or into the user's cache if `folder` is None.
    """
def compile_region(source: str, arch: str, by_vectors: bool = True) -> bytes:
    """
    Compiles the text of Graph.source(), and returns the cubin. by_vectors: whether rows have whole vectors.
    """
def concat(tensors: collections.abc.Sequence[DeviceTensor], axis: int, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def conv_backward_bias(dy: DeviceTensor, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def conv_backward_data(dy: DeviceTensor, w: DeviceTensor, x_shape: int | collections.abc.Sequence[int], stride: typing.Any, padding: typing.Any, dilation: typing.Any, groups: int, mode: ConvMode, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def conv_backward_filter(dy: DeviceTensor, x: DeviceTensor, w_shape: int | collections.abc.Sequence[int], stride: typing.Any, padding: typing.Any, dilation: typing.Any, groups: int, mode: ConvMode, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def conv_forward(x: DeviceTensor, w: DeviceTensor, bias: DeviceTensor | None, residual: DeviceTensor | None, stride: typing.Any, padding: typing.Any, dilation: typing.Any, groups: int, activation: Activation | None, mode: ConvMode, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def conv_forward_statistics(x: DeviceTensor, w: DeviceTensor, bias: DeviceTensor | None, residual: DeviceTensor | None, stride: typing.Any, padding: typing.Any, dilation: typing.Any, groups: int, activation: Activation | None, mode: ConvMode, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor]:
    ...
def cost_kind(problem: str) -> str:
    """
    The kind of a problem by which cost factors are kept.
    """
def costs_text() -> str:
    """
    All cost factors, a line each.
    """
def cpu_isa() -> str:
    """
    The one that CPU engines use: the best, or what PYMINIDNN_CPU_ISA names.
    """
def cpu_isas() -> list:
    """
    The instruction sets of this machine that CPU engines are compiled for, the best first.
    """
def cpu_peak_gflop_s() -> float:
    """
    Measures the float32 peak of all threads, by multiply-adds in registers.
    """
def cross_entropy_backward(dy: DeviceTensor, x: DeviceTensor, target: DeviceTensor, lse: DeviceTensor, axis: int, ignore_index: int, label_smoothing: typing.SupportsFloat | typing.SupportsIndex, reduction: LossReduction, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def cross_entropy_forward(x: DeviceTensor, target: DeviceTensor, axis: int, ignore_index: int, label_smoothing: typing.SupportsFloat | typing.SupportsIndex, reduction: LossReduction, algo: str | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor]:
    ...
def ctc_loss_backward(dloss: DeviceTensor, x: DeviceTensor, targets: DeviceTensor, input_lengths: DeviceTensor, target_lengths: DeviceTensor, saved: collections.abc.Sequence[DeviceTensor], blank: int, reduction: LossReduction, zero_infinity: bool, logits: bool, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def ctc_loss_forward(x: DeviceTensor, targets: DeviceTensor, input_lengths: DeviceTensor, target_lengths: DeviceTensor, blank: int, reduction: LossReduction, zero_infinity: bool, logits: bool, algo: str | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor, DeviceTensor | None]:
    ...
def cuda_device_count() -> int:
    ...
def device_info(device: str) -> dict:
    """
    Model, architecture and rates as estimates use them; units are SMs on a GPU, threads on the CPU.
    """
def driver_version() -> str:
    """
    The CUDA version of the driver; "0.0" without one.
    """
def dropout(x: DeviceTensor, p: typing.SupportsFloat | typing.SupportsIndex, seed: int, offset: int, backward: bool, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def dry_run(call: collections.abc.Callable, purpose: str, progress: typing.Any = None) -> list[Report]:
    """
    Reports on all problems that the call would run; the call itself is not run. The purpose is 'explain', 'find' (measures, and records the fastest) or 'calibrate' (measures engines that are not slow, and records nothing). progress(problem, done, total) is called after each measured config.
    """
def elements_at(tensor: DeviceTensor, offset: int, dtype: str, shape: int | collections.abc.Sequence[int], strides: int | collections.abc.Sequence[int]) -> DeviceTensor:
    """
    Elements in a tensor of bytes, from byte `offset`.
    """
def empty_cache(device: str) -> None:
    """
    Returns the device's free blocks to the system, and drops the plans that calls without a handle have made there.
    """
def engines(family: str, cuda: bool) -> list:
    ...
def entered_handle() -> Handle:
    """
    The innermost handle entered on this thread, or None.
    """
def exchanged(x: typing.Any, handle: Handle | None) -> DeviceTensor | None:
    """
    An array of another library as a tensor, by DLPack's C exchange; None if the exchange cannot take it.
    """
def exchanged_operands(arrays: tuple[typing.Any, ...], out: typing.Any, handle: Handle | None) -> tuple[typing.Any, ...] | None:
    """
    The operands of a function as tensors, by DLPack's C exchange; None stays None. The result is None if the exchange cannot take an array, or if an array must be copied to another device.
    """
def families() -> list[Family]:
    ...
def fill_normal(out: DeviceTensor, seed: int, offset: int, mean: typing.SupportsFloat | typing.SupportsIndex, std: typing.SupportsFloat | typing.SupportsIndex, algo: str | None, handle: Handle | None) -> None:
    ...
def fill_uniform(out: DeviceTensor, seed: int, offset: int, low: typing.SupportsFloat | typing.SupportsIndex, high: typing.SupportsFloat | typing.SupportsIndex, algo: str | None, handle: Handle | None) -> None:
    ...
def flattened(arguments: typing.Any, convert: collections.abc.Callable) -> tuple:
    """
    The tensors of nested arguments, and a key: calls with equal keys can share a recording. convert(x) returns x as a tensor, or None if x is no array.
    """
def from_cuda_array_interface(x: typing.Any, handle: Handle | None) -> DeviceTensor:
    ...
def from_dlpack(x: typing.Any, *, device: str | None = None, copy: bool | None = None, handle: Handle | None = None) -> DeviceTensor:
    ...
def full(shape: int | collections.abc.Sequence[int], value: typing.Any, *, dtype: DTypeLike, layout: Layout | None = None, device: str) -> DeviceTensor:
    ...
def gather(x: DeviceTensor, index: DeviceTensor, axis: int, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def gather_backward(dy: DeviceTensor, index: DeviceTensor, x_shape: int | collections.abc.Sequence[int], axis: int, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def holds(dtype: str, value: typing.Any) -> bool:
    """
    Whether an int is a value of an integer dtype.
    """
def import_costs(text: str, replace: bool) -> int:
    """
    Adds the cost factors of costs_text(), and returns their number.
    """
def import_tuning(text: str, replace: bool) -> int:
    """
    Adds the records of tuning_text(), and returns their number.
    """
def integer(value: int) -> int:
    ...
def integers(values: int | collections.abc.Sequence[int]) -> list[int]:
    ...
def layer_norm_backward(call: str, kind: str, axis_or_groups: int, dy: DeviceTensor, x: DeviceTensor, scale: DeviceTensor | None, mean: DeviceTensor | None, inv_std: DeviceTensor, algo: str | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor | None]:
    ...
def layer_norm_forward(call: str, kind: str, axis_or_groups: int, x: DeviceTensor, scale: DeviceTensor | None, bias: DeviceTensor | None, eps: typing.SupportsFloat | typing.SupportsIndex, algo: str | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor | None, DeviceTensor]:
    ...
def lcn_backward(dy: DeviceTensor, x: DeviceTensor, means: DeviceTensor | None, size: int, alpha: typing.SupportsFloat | typing.SupportsIndex, beta: typing.SupportsFloat | typing.SupportsIndex, k: typing.SupportsFloat | typing.SupportsIndex, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor | None]:
    ...
def lcn_forward(x: DeviceTensor, means: DeviceTensor | None, size: int, alpha: typing.SupportsFloat | typing.SupportsIndex, beta: typing.SupportsFloat | typing.SupportsIndex, k: typing.SupportsFloat | typing.SupportsIndex, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def lrn_backward(dy: DeviceTensor, x: DeviceTensor, size: int, alpha: typing.SupportsFloat | typing.SupportsIndex, beta: typing.SupportsFloat | typing.SupportsIndex, k: typing.SupportsFloat | typing.SupportsIndex, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def lrn_forward(x: DeviceTensor, size: int, alpha: typing.SupportsFloat | typing.SupportsIndex, beta: typing.SupportsFloat | typing.SupportsIndex, k: typing.SupportsFloat | typing.SupportsIndex, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def manifest() -> list[KernelSpec]:
    """
    All kernels that plans of the engines can load.
    """
def matmul(a: DeviceTensor, b: DeviceTensor, transpose_a: bool, transpose_b: bool, alpha: typing.SupportsFloat | typing.SupportsIndex, beta: typing.SupportsFloat | typing.SupportsIndex, c: DeviceTensor | None, bias: DeviceTensor | None, activation: Activation | None, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def memory_stats(device: str) -> dict:
    ...
def number(value: typing.SupportsFloat | typing.SupportsIndex) -> float:
    ...
def nvrtc_info() -> tuple[str, int, int]:
    ...
def pad(x: DeviceTensor, widths: typing.Any, mode: PadMode, value: typing.SupportsFloat | typing.SupportsIndex, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def philox(counter: typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(4)"], key: typing.Annotated[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], "FixedSize(2)"]) -> typing.Annotated[list[int], "FixedSize(4)"]:
    """
    Philox 4x32-10, for tests against published vectors.
    """
def pointwise(op: Pointwise, a: DeviceTensor, b: DeviceTensor | None, c: DeviceTensor | None, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def pointwise_names() -> list[str]:
    ...
def pool_backward(dy: DeviceTensor, x: DeviceTensor, y: DeviceTensor, window: typing.Any, mode: PoolMode, norm: int, stride: typing.Any, padding: typing.Any, dilation: typing.Any, ceil_mode: bool, indices: DeviceTensor | None, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def pool_forward(x: DeviceTensor, window: typing.Any, mode: PoolMode, norm: int, stride: typing.Any, padding: typing.Any, dilation: typing.Any, ceil_mode: bool, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def pool_forward_with_indices(x: DeviceTensor, window: typing.Any, index_dtype: IndexDType, stride: typing.Any, padding: typing.Any, dilation: typing.Any, ceil_mode: bool, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor]:
    ...
def promoted(a: str, b: str) -> str:
    """
    The dtype of a result of two dtypes, as in NumPy; int32 stands for NumPy's int16.
    """
def recorded_number(value: typing.SupportsFloat | typing.SupportsIndex, dtype: DTypeLike, device: str) -> DeviceTensor:
    """
    A floating tensor without dimensions that is a constant number of the recording.
    """
def recording() -> bool:
    """
    Whether this thread records a graph.
    """
def reduce(x: DeviceTensor, mode: ReduceMode, axis: typing.Any, keepdims: bool, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def reinterpret(x: DeviceTensor, dtype: DTypeLike) -> DeviceTensor:
    """
    The same bytes under another dtype of the same size.
    """
def reset_peak_memory(device: str) -> None:
    ...
def rnn_backward_data(dy: DeviceTensor, dhn: DeviceTensor | None, dcn: DeviceTensor | None, y: DeviceTensor, weights: collections.abc.Sequence[DeviceTensor], reserve: DeviceTensor, mode: RnnMode, hidden_size: int, layers: int, bidirectional: bool, bias: bool, h0: DeviceTensor | None, c0: DeviceTensor | None, lengths: DeviceTensor | None, batch_sizes: DeviceTensor | None, batch: int | None, reset_after: bool, dropout: typing.SupportsFloat | typing.SupportsIndex, seed: int, offset: int, clip: typing.SupportsFloat | typing.SupportsIndex | None, layout: RnnLayout, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor | None, DeviceTensor]:
    ...
def rnn_backward_weights(x: DeviceTensor, h0: DeviceTensor | None, y: DeviceTensor, dgates: DeviceTensor, reserve: DeviceTensor, mode: RnnMode, hidden_size: int, layers: int, bidirectional: bool, bias: bool, lengths: DeviceTensor | None, batch_sizes: DeviceTensor | None, batch: int | None, reset_after: bool, dropout: typing.SupportsFloat | typing.SupportsIndex, seed: int, offset: int, layout: RnnLayout, flat: bool, accumulate: bool, algo: str | None, out: collections.abc.Sequence[DeviceTensor], handle: Handle | None) -> list[DeviceTensor]:
    ...
def rnn_forward(x: DeviceTensor, weights: collections.abc.Sequence[DeviceTensor], mode: RnnMode, hidden_size: int, layers: int, bidirectional: bool, bias: bool, h0: DeviceTensor | None, c0: DeviceTensor | None, lengths: DeviceTensor | None, batch_sizes: DeviceTensor | None, batch: int | None, reset_after: bool, dropout: typing.SupportsFloat | typing.SupportsIndex, seed: int, offset: int, clip: typing.SupportsFloat | typing.SupportsIndex | None, training: bool, layout: RnnLayout, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> tuple[DeviceTensor, DeviceTensor, DeviceTensor | None, DeviceTensor | None]:
    ...
def rnn_pack(weights: collections.abc.Sequence[DeviceTensor], mode: RnnMode, hidden_size: int, layers: int, bidirectional: bool, bias: bool, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def rnn_unpack(tensor: DeviceTensor, mode: RnnMode, hidden_size: int, layers: int, bidirectional: bool, bias: bool) -> list[DeviceTensor]:
    ...
def run_graph(graph: Graph, inputs: collections.abc.Sequence[DeviceTensor], numbers: int | collections.abc.Sequence[int]) -> list[DeviceTensor]:
    """
    Runs a graph once. Returns its outputs.
    """
def set_allocator_checks(*, exact: bool = False, poison: typing.SupportsInt | typing.SupportsIndex = -1) -> None:
    """
    For tests: blocks have exact sizes and are not cached; a byte fills each block when it is allocated and freed.
    """
def set_dtype_objects(objects: tuple) -> None:
    """
    What DeviceTensor.dtype returns, in the order of `dtypes`.
    """
def set_log_level(level: str) -> None:
    """
    Replaces PYMINIDNN_LOG, in the same words: 'off', 'info' (a line on stderr per call with its engine) or 'debug' (also why not the others), and 'us', 'nvtx', 'file=PATH', separated by commas. ShapeError for other words.
    """
def set_nvrtc_finder(find: typing.Any) -> None:
    """
    `find` returns the path of libnvrtc, or "". It must not raise.
    """
def set_package_folder(folder: str, packages: collections.abc.Sequence[str]) -> None:
    """
    The folder that has cpp/, cuda/ and perhaps cubins/, and further folders that have <arch>/<key>.cubin.
    """
def set_search_path(folders: collections.abc.Sequence[str]) -> None:
    ...
def set_work_divisor(divisor: int) -> None:
    """
    For tests, before the first call: CPU engines make chunks of work smaller than usual by this factor.
    """
def share_memory(a: DeviceTensor, b: DeviceTensor) -> bool:
    ...
def softmax_backward(dy: DeviceTensor, y: DeviceTensor, axis: int, log: bool, scale: typing.SupportsFloat | typing.SupportsIndex, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def softmax_forward(x: DeviceTensor, axis: int, log: bool, scale: typing.SupportsFloat | typing.SupportsIndex, mask: DeviceTensor | None, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def storage(tensor: DeviceTensor) -> DeviceTensor:
    """
    All memory of a tensor, as bytes.
    """
def synchronize(device: str | None = None) -> None:
    """
    Waits until all work on a device is done, also that of other streams and libraries.

    device  "cuda:<index>", or "cpu", whose calls end with their work; None: every GPU that this process has used

    Raises DeviceError.
    """
def transform(x: DeviceTensor, alpha: typing.SupportsFloat | typing.SupportsIndex, beta: typing.SupportsFloat | typing.SupportsIndex, dtype: DTypeLike | None, layout: Layout | None, algo: str | None, out: DeviceTensor | None, handle: Handle | None) -> DeviceTensor:
    ...
def tuning_text() -> str:
    """
    All tuning records, a line each.
    """
def why_no_costs() -> str:
    """
    Why cost factors are kept in memory only, or "".
    """
def why_no_cuda() -> str:
    ...
def why_no_log() -> str:
    """
    Why PYMINIDNN_LOG is not valid, or "".
    """
def why_no_nvrtc() -> str:
    ...
def why_no_tuning() -> str:
    """
    Why results of find() are kept in memory only, or "".
    """
dtypes: tuple = ('float32', 'float64', 'float16', 'bfloat16', 'int8', 'uint8', 'int32', 'int64', 'bool')
itemsizes: tuple = (4, 8, 2, 2, 1, 1, 4, 8, 1)
max_text_precision: int = 100
