# SPDX-License-Identifier: Apache-2.0
"""Error texts. Each names the public function that was called, the argument, what was found and what is accepted.

Most checks know all of this and write the whole text. explained() completes the texts of the other checks: every error
of _C passes through it before the caller sees it. refusal() is for checks in Python that public functions share.
"""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import re
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FrameType
from typing import Any

from . import _C
from ._C import DeviceTensor, DTypeError, Error, Handle, NotSupported, ShapeError

# The length of the longest sequence that is accepted as an argument, so that an endless sequence does not fill the
# memory.
MOST_ELEMENTS = 2**20


class _Repr(reprlib.Repr):
    def repr_DeviceTensor(self, tensor: DeviceTensor, level: int) -> str:  # without its values
        return tensor._description()


_repr = _Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 80


def short(value: Any) -> str:
    """repr(value) for any value, in one line of at most 80 characters, plus escapes; a tensor without its values."""
    try:
        text = " ".join(_repr.repr(value).split())
    except Exception:  # repr() fails, for example for an int with too many digits
        text = f"<{type(value).__name__}>"
    text = text if len(text) <= 80 else f"{text[:76]} ..."
    return text.encode("utf-8", "backslashreplace").decode()


def refusal(kind: type[Error], value: Any, text: str) -> Error:
    """An error about `value`, an argument of the public function or part of one. `text` follows the argument's name."""
    call, arguments = _public_call()
    return kind(f"{call or 'the tensor'}: {_name_of([value], arguments) or 'an argument'} {text}")


def explained(
    error: Exception, function: str, signature: str, positional: tuple[Any, ...], keywords: dict[str, Any]
) -> Exception:
    """The exception that the caller sees for an `error` raised by _C.function(*positional, **keywords)."""
    refused = isinstance(error, TypeError) and str(error).startswith(f"{function}(): incompatible ")
    if not refused and not isinstance(error, Error):
        return error  # an object that the caller passed has raised this error
    call, arguments = _public_call()
    if function == "__init__":
        function = type(positional[0]).__name__
    # pybind11 calls the parameter of a property's getter arg0.
    wanted = parameters(signature.replace("(arg0: ", "(self: ", 1))
    try:
        bound = inspect.Signature(wanted).bind(*positional, **keywords).arguments
    # bind() raises TypeError if the number or the names of the arguments are wrong. Only calls of methods get here; for
    # functions, Python itself has refused such arguments.
    except TypeError as mismatch:
        names = [p.name for p in wanted if p.name != "self"]
        return DTypeError(f"{function}: {mismatch}; the arguments are {', '.join(names) or 'none'}")
    # An error text that already begins with the name of the function or of its class keeps this name. All other texts
    # get the name of the function.
    heads = {call}
    if not call:
        call, arguments = function, {n: v for n, v in bound.items() if n != "self"}
        heads = {call, type(positional[0]).__name__ if positional else ""}
    if refused:
        return _misfit(call, arguments, wanted, bound)
    text = str(error)
    head, colon, rest = text.partition(": ")
    if head in heads:
        call, text = head, _first_word_renamed(rest, bound, arguments)
    elif colon and head.isidentifier() and head not in arguments:  # `head` is the name of an internal function
        text = _renamed(rest, bound, arguments)
    if isinstance(error, NotSupported):
        text = _unknown_engine(text, bound.get("algo")) or text
    for value in bound.values():
        if isinstance(value, str) and len(value) > 80:
            text = text.replace(value, short(value)[1:-1])
    result = type(error)(f"{call}: {text}")
    if error.__cause__ is not None:
        result.__cause__ = error.__cause__
    return result


def _renamed(text: str, bound: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Replaces the argument names of an internal function in `text` by those of the public function."""
    text = _first_word_renamed(text, bound, arguments)
    if mentions(text, arguments):
        return text
    name = _name_of([v for n, v in bound.items() if n != "self"][:1], arguments)
    return f"{name}: {text}" if name else text


def _first_word_renamed(text: str, bound: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    word = text.partition(" ")[0]
    if word in bound and (word not in arguments or bound[word] is not arguments[word]):
        return (_name_of([bound[word]], arguments) or word) + text[len(word) :]
    return text


def mentions(text: str, names: Iterable[str]) -> bool:
    """Whether `text` mentions one of these arguments. The article "a" does not count as the argument a."""
    return any(re.search(rf"\b{name}\b" + r"(?=:|=| is| must| has)" * (name == "a"), text) for name in names)


def _public_call() -> tuple[str, Mapping[str, Any]]:
    """The name and the arguments of the public function that the user called; "" and {} for a method of _C.

    The function is found on the stack: among the frames of this package above the current one, the outermost frame of a
    public function, or of a method that is written in Python. explain() and find() do not count: they call a function
    for the user.
    """
    modules = [sys.modules.get(f"{__package__}.{name}") for name in ("functional", "array_api")]
    scopes = [vars(sys.modules[__package__]), vars(DeviceTensor), *(vars(m) for m in modules if m)]
    name, arguments = "", {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and in_package(frame):
        code = frame.f_code
        if any(_code_of(scope.get(code.co_name)) is code for scope in scopes):
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            name, arguments = code.co_name, {n: frame.f_locals[n] for n in names}
        if name and code.co_name == "<lambda>":
            break
        frame = frame.f_back
    return name, arguments


def in_package(frame: FrameType) -> bool:
    """Whether the code of the frame is in this package."""
    return f"{frame.f_globals.get('__package__')}.".startswith(f"{__package__}.")


def _code_of(function: Any) -> CodeType | None:
    return getattr(getattr(function, "__wrapped__", function), "__code__", None)


def reporting(function: Callable[..., Any], names: Mapping[str, str]) -> Callable[..., Any]:
    """The function, whose errors have its own name and the names of its arguments.

    names  the name of an argument of `function`, for each name that inner functions give it
    """
    call, own = function.__name__, list(inspect.signature(function).parameters)
    # A single letter counts as the name of an argument only if one of these words follows it.
    follows = {inner: r"(?=:|=| is| must| has| have| and| \[)" * (len(inner) == 1) for inner in names}

    @functools.wraps(function)
    def wrapper(*positional: Any, **keywords: Any) -> Any:
        try:
            return function(*positional, **keywords)
        except Error as error:
            head, colon, rest = str(error).partition(": ")
            text = rest if colon and head.isidentifier() and head not in own else str(error)
            for inner, outer in names.items():
                if inner not in own and outer in own:
                    text = re.sub(rf"\b{inner}\b{follows[inner]}", outer, text)
            text = text if not own or mentions(text, own) else f"{own[0]}: {text}"
            raise type(error)(f"{call}: {text}").with_traceback(error.__traceback__) from error.__cause__

    return wrapper


def _name_of(values: Iterable[Any], arguments: Mapping[str, Any]) -> str | None:
    """The name of the first argument that is one of these objects (by identity), or a list, tuple or dict with one."""
    for value in values:
        for name, given in arguments.items():
            held = given.values() if isinstance(given, dict) else given if isinstance(given, (list, tuple)) else ()
            if given is value or any(v is value for v in held):
                return "the tensor" if name == "self" else name
    return None


def parameters(signature: str) -> list[inspect.Parameter]:
    """The parameters in a signature of pybind11, "(x: pyminidnn._C.DeviceTensor, axis: int = 1) -> ..."."""
    (function,) = ast.parse(f"def f{signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    given, empty = function.args, inspect.Parameter.empty
    found = []

    def add(a: ast.arg, kind: Any, default: Any) -> None:
        annotation = ast.unparse(a.annotation) if a.annotation else "object"
        found.append(inspect.Parameter(a.arg, kind, default=default, annotation=annotation))

    required = len(given.args) - len(given.defaults)
    for i, a in enumerate(given.args):
        add(a, inspect.Parameter.POSITIONAL_OR_KEYWORD, empty if i < required else None)
    if given.vararg:
        add(given.vararg, inspect.Parameter.VAR_POSITIONAL, empty)
    for a, value in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        add(a, inspect.Parameter.KEYWORD_ONLY, None if value else empty)
    return found


def _misfit(
    call: str, arguments: Mapping[str, Any], wanted: list[inspect.Parameter], bound: Mapping[str, Any]
) -> Error:
    """The error for a call that pybind11 refused. It names the first argument that its caster cannot read."""
    for p in wanted:
        if p.name not in bound or (bound[p.name] is None and "None" in p.annotation):
            continue
        value = bound[p.name]
        if p.name == "self":
            kind = getattr(_C, p.annotation.rpartition(".")[2])
            if not isinstance(value, kind):
                return DTypeError(f"{call}: self must be a {kind.__name__}; got {short(value)}")
            continue
        what, limits, read = _TYPES[p.annotation.removesuffix(" | None")]
        try:
            read(value)
        except Exception as error:
            out_of_limits = isinstance(error, (ValueError, OverflowError))
            name = p.name if p.name in arguments else _name_of([value], arguments) or p.name
            text = f"{call}: {name} must be {what}{limits if out_of_limits else ''}; got {short(value)}"
            return (ShapeError if out_of_limits else DTypeError)(text)
    return DTypeError(f"{call}: one of {', '.join(arguments)} changed during the call")


# Each function _read_... reads an argument as pybind11's type caster of the extension does. It raises TypeError for a
# wrong type, and ValueError or OverflowError for a value out of range.


def _read_int(value: Any) -> None:
    if not -(2**63) <= operator.index(value) < 2**63:
        raise ValueError


def _read_ints(value: Any) -> None:
    try:
        _read_int(value)
    except TypeError:
        if isinstance(value, (str, bytes, dict)) or not hasattr(type(value), "__getitem__"):
            raise
        for count, v in enumerate(value):
            _read_int(v)
            if count == MOST_ELEMENTS:
                raise ValueError from None


def _read_number(value: Any) -> None:
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError
    float(value)


def _read_bool(value: Any) -> None:
    if not hasattr(type(value), "__bool__"):
        raise TypeError
    bool(value)


def _read_text(value: Any) -> None:
    _of(str)(value)
    if "\0" in value:
        raise ValueError
    value.encode()


def _of(*types: type) -> Callable[[Any], None]:
    def read(value: Any) -> None:
        if not isinstance(value, types):
            raise TypeError

    return read


def _read_tensors(value: Any) -> None:
    for v in value:
        _of(DeviceTensor)(v)


# For each type of a parameter: the words for it in error texts, the limits of its values, and the function that reads
# an argument. The text names the limits only if a value exceeds them.
_INT64 = " from -2^63 to 2^63 - 1"
_TYPES: dict[str, tuple[str, str, Callable[[Any], None]]] = {
    "int": ("an int", _INT64, _read_int),
    "int | collections.abc.Sequence[int]": ("an int or a sequence of ints", f"{_INT64}, at most 2^20", _read_ints),
    "typing.SupportsFloat | typing.SupportsIndex": ("a number", " that float64 holds", _read_number),
    "bool": ("True or False", "", _read_bool),
    "str": ("a str", " without NUL and lone surrogates", _read_text),
    "pyminidnn._C.DeviceTensor": ("an array", "", _of(DeviceTensor)),
    "collections.abc.Sequence[pyminidnn._C.DeviceTensor]": ("a sequence of arrays", "", _read_tensors),
    "pyminidnn._C.Handle": ("a pyminidnn.Handle or None", "", _of(Handle, type(None))),
    "object": ("any object", "", lambda _: None),
}


def _unknown_engine(text: str, algo: str | None) -> str | None:
    """The text that says `algo` names no engine, or None if some engine was refused for another reason."""
    first, *reasons = text.splitlines()
    names = [r.partition(": ")[0].strip() for r in reasons if r.endswith(f": algo='{algo}' selects another engine")]
    if not algo or not names or len(names) < len(reasons):
        return None
    import difflib

    near = difflib.get_close_matches(algo.partition(":")[0], names + [n.rpartition(".")[2] for n in names])
    guess = f"near ones: {', '.join(near)}; " if near else ""
    problem = first.removeprefix("no engine can run ")
    return f"algo={short(algo)} names no engine for {problem}; {guess}the engines are {', '.join(names)}"
