"""A second, slow implementation of splitjit: tests compare unusual calls with it.

Each function takes the arguments of the function that it models. The model of an operator takes
the operator's attributes and its inputs. A function returns the parts as views made by NumPy, or
raises `Refused`. The model does not say why it refuses.
"""

import itertools
import math
import operator
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

MAX_PARTS = 2**31 - 1
NUMBERS = "?bhilqBHILQefdFD"
STRINGS = "OUT"
INTEGERS = "bhilqBHILQ"


class Refused(Exception):
    """Raised if splitjit must raise a SplitError."""


def check(condition):
    if not condition:
        raise Refused


def integer(value):
    check(type(value) is not bool)
    try:
        return operator.index(value)
    except Exception:
        raise Refused from None


def integers(values):
    try:
        if isinstance(values, np.ndarray):
            check(values.dtype.kind in "iu")
            values = values.tolist()
        check(isinstance(values, Sequence) and not isinstance(values, (str, bytes, bytearray)))
        return [integer(value) for value in values]
    except Exception:
        raise Refused from None


def count(value):
    number = integer(value)
    check(1 <= number <= MAX_PARTS)
    return number


def array(x):
    try:
        return np.asanyarray(x) if isinstance(x, np.ma.MaskedArray) else np.asarray(x)
    except Exception:
        raise Refused from None


def axis_of(axis, rank):
    index = integer(axis)
    check(-rank <= index < rank)
    return index % rank


def integer_input(value, chars, ranks):
    """Return an operator's input as integers; it is an int, a list, or an array of a given type."""
    if type(value) is int and 0 in ranks:
        return value
    if issubclass(type(value), (list, tuple)) and 1 in ranks:
        return integers(value)
    value = np.asarray(array(value))
    check(value.ndim in ranks and value.dtype.char in chars)
    return value.tolist()


def sizes_of(
    length, split=None, num_outputs=None, num_splits=None, indices=None, num_sections=None
):
    rules = (split, num_outputs, num_splits, indices, num_sections)
    check(sum(rule is not None for rule in rules) == 1)
    if indices is not None:
        cuts = [0]
        for index in integers(indices):
            cuts.append(len(range(length)[:index]))
            check(cuts[-1] >= cuts[-2])
        return [b - a for a, b in itertools.pairwise([*cuts, length])]
    if num_sections is not None:
        n = count(num_sections)
        check_memory(n)
        return [len(range(i, length, n)) for i in range(n)]
    if split is None:
        n = count(num_splits if num_outputs is None else num_outputs)
        chunk = Fraction(length, n)
        if num_outputs is not None:
            chunk = math.ceil(chunk)
        check(chunk.denominator == 1)
        check_memory(n)
        return [int(min(max(length - i * chunk, 0), chunk)) for i in range(n)]
    try:
        sizes = integers(split)
    except Refused:
        chunk = integer(split)
        check(chunk >= 1)
        check_memory(-(-length // chunk))
        return [min(chunk, length - start) for start in range(0, length, chunk)]
    if sizes.count(-1) == 1:
        rest = length - sum(size for size in sizes if size != -1)
        sizes = [rest if size == -1 else size for size in sizes]
    check(all(size >= 0 for size in sizes))
    check(sum(sizes) == length)
    return sizes


def check_memory(parts):
    check(parts <= MAX_PARTS)
    if parts > 10**7:
        raise MemoryError


def parts_of(x, axis, *rule, **rules):
    axis = axis_of(axis, x.ndim)
    parts, start = [], 0
    for size in sizes_of(x.shape[axis], *rule, **rules):
        parts.append(x[(slice(None),) * axis + (slice(start, start + size),)])
        start += size
    return parts


def split(x, split=None, axis=0, out=None, copy=True, **rules):
    x = array(x)
    parts = parts_of(x, axis, split, **rules)
    check(copy is True or (copy is False and out is None))
    if out is not None:
        check_out(x, parts, out)
    return parts


def check_out(x, parts, out):
    try:
        check(isinstance(out, Sequence))
        out = list(out)
    except Exception:
        raise Refused from None
    check(all(issubclass(type(part), np.ndarray) for part in out))
    out = [np.asarray(part) for part in out]
    check([part.shape for part in out] == [part.shape for part in parts])
    check(all(part.dtype == x.dtype and part.flags.writeable for part in out))
    taken = set(bytes_of(x))
    for part in out:
        for byte in bytes_of(part):
            check(byte not in taken)
            taken.add(byte)


def bytes_of(x):
    """Return the addresses of all bytes of all elements."""
    starts = np.array(x.ctypes.data)
    for extent, stride in zip((*x.shape, x.itemsize), (*x.strides, 1), strict=True):
        starts = np.add.outer(starts, np.arange(extent) * stride)
    return starts.ravel().tolist()


def version_of(opset, versions):
    opset = integer(opset)
    check(opset >= versions[0])
    return max(version for version in versions if version <= opset)


def tensor(x, chars, bfloat16=False):
    x = array(x)
    check(x.dtype.char in chars or (bfloat16 and x.dtype.name == "bfloat16"))
    return x


def onnx_split(
    input, split=None, *, opset=18, axis=None, attribute=None, num_outputs=None, outputs=None
):
    version = version_of(opset, (1, 2, 11, 13, 18))
    axis = 0 if axis is None else integer(axis)
    if outputs is not None:
        outputs = count(outputs)
    if num_outputs is not None:
        check(version == 18)
        num_outputs = count(num_outputs)
        check(outputs is None or num_outputs >= outputs)
    lengths = None
    if attribute is not None:
        check(version < 13)
        lengths = integers(attribute)
        check(lengths and outputs in (None, len(lengths)))
    x = tensor(input, "efd" if version == 1 else NUMBERS + STRINGS, bfloat16=version >= 13)
    if split is not None:
        check(version not in (2, 11) and num_outputs is None)
        given = float_lengths(split, x.dtype) if version == 1 else integer_input(split, "lq", (1,))
        check(lengths in (None, given) and given and outputs in (None, len(given)))
        lengths = given
    check(lengths is None or -1 not in lengths)
    num_splits = outputs if version < 18 and lengths is None else None
    return parts_of(x, axis, lengths, num_outputs, num_splits)[:outputs]


def float_lengths(split, dtype):
    if not issubclass(type(split), (list, tuple)):
        split = np.asarray(array(split))
        check(split.ndim == 1 and split.dtype.char == dtype.char)
    lengths = []
    try:
        for length in split:
            is_float = isinstance(length, (float, np.floating))
            lengths.append(integer(int(length) if is_float and length.is_integer() else length))
    except Exception:
        raise Refused from None
    return lengths


def onnx_split_to_sequence(input, split=None, *, opset=11, axis=0, keepdims=1):
    version = version_of(opset, (11, 24))
    axis, keepdims = integer(axis), integer(keepdims)
    check(keepdims in (0, 1))
    x = tensor(input, NUMBERS + STRINGS, bfloat16=version == 24)
    if split is None:
        parts = parts_of(x, axis, 1)
        return parts if keepdims else [part.squeeze(axis) for part in parts]
    lengths = integer_input(split, "ilq", (0, 1))
    check(not isinstance(lengths, list) or -1 not in lengths)
    return parts_of(x, axis, lengths)


def openvino_split(data, axis, *, num_splits):
    num_splits = count(num_splits)
    return parts_of(array(data), integer_input(axis, INTEGERS, (0,)), None, None, num_splits)


def openvino_variadic_split(data, axis, split_lengths):
    x = array(data)
    axis = integer_input(axis, INTEGERS, (0, 1))
    if isinstance(axis, list):
        check(len(axis) == 1)
        (axis,) = axis
    lengths = integer_input(split_lengths, INTEGERS, (1,))
    if -1 in lengths:
        rest = x.shape[axis_of(axis, x.ndim)] - sum(lengths) - 1
        lengths = [rest if length == -1 else length for length in lengths]
    return parts_of(x, axis, lengths)
