"""Values that most arguments must refuse, and a few valid ones."""

import array
import collections
import decimal
import enum

import ml_dtypes
import numpy as np


def fail(*_, **__):
    raise RuntimeError("foreign")


def foreign(*methods, base=object, name="Foreign", **others):
    """Make an instance of a new class, in which the named methods raise an error."""
    return type(name, (base,), {**dict.fromkeys(methods, fail), **others})()


def released():
    view = memoryview(b"ab")
    view.release()
    return view


class Size(enum.IntEnum):
    TWO = 2


class BadMessage(Exception):
    __str__ = fail


def raise_bad_message(*_, **__):
    raise BadMessage


HOSTILE = [
    *[lambda value=value: value for value in (
        None, True, False, 0, 1, 2, 3, -1, -7, 2**31 - 1, 2**31, 2**63, -(2**63), 10**5000,
        -(10**5000), 2.0, -0.0, float("nan"), float("inf"), 1e300, 2j, "", "2", "24", "f4", b"",
        b"\2\4", bytearray(b"\2\4"), ..., slice(2), NotImplemented, int, np.ndarray, len, {2: 4},
        {2, 4}, frozenset(), range(4), range(0), decimal.Decimal(2), Size.TWO, (), [],
        (2, 4), [2, 4], [2.0, 4.0], [True, 5], [None, 6], ["2", "4"], [-1, 7], [4, -1], [2, 3],
        [2**63, 6 - 2**63], [10**5000], [-(10**5000), -1], [[2, 4]], [[2], [4, 1]], [0] * 10**5,
        np.datetime64(2, "s"), np.bool_(True), np.int8(2), np.uint64(2**64 - 1), np.float16(2),
        np.str_("2"), np.void(b"ab"), ml_dtypes.bfloat16(2), ml_dtypes.int4(2), np.dtype("f4"),
        np.array(2), np.array(2, ">u2"), np.array(2.0), np.array(True), np.array("2"),
        np.array(None), np.array([[2, 4]]), np.array(["2", "4"]), np.array([2, 4], object),
        np.array([2, 4], ml_dtypes.int4), np.array([2, 4], "m8[s]"), np.array([True] * 6),
        np.array([[]]), np.ma.array([2, 4], mask=[True, False]),
        np.rec.array([(2, 4)]), *(np.array([2, 4], code) for code in "bBhHiIqQefd"),
        np.broadcast_to(0, 6), np.array([np.nan, 6]), np.zeros((2, 0)), memoryview(b"\2\4"),
        array.array("q", [2, 4]), array.array("d", [2, 4]), collections.deque([2, 4]),
        collections.UserList([2, 4]), collections.UserString("24"),
        collections.namedtuple("Pair", "a b")(2, 4),
        0.0, -2, 6, 6.0, 3j, "0", b"24", [0], [0, 0], [True], [2, 2], [-2, 8], [4, 4, -1],
        [-1, 4, -1], [2.0, 4], [2.5, 3.5], [float("nan"), 6], [float("inf"), float("-inf")],
        [10**5000, -1], [2**64, 6 - 2**64], [2**63 - 1] * 2, [*[2**63 - 1] * 2, 8],
        [*[2**63 - 1] * 2, -1], [[1], [1, 2]], [np.array([2, 4]), 1], np.float32(0), np.float32(1),
        np.int32(2), np.int64(2), [np.int32(2), np.int32(4)], np.bool_(False), np.zeros(()),
        np.zeros((1, 1)), np.array([0]), np.array(6), np.array([2, 4], bool),
        np.array([2, 4], ">i8"), np.array([*[2**63 - 1] * 2, 8]), np.array([-(2**63), 6]),
        np.array([2**64 - 1, 7], np.uint64), np.array([6, np.nan], "f4"), np.array([np.inf], "f4"),
        np.array([-1, 7], "f4"), np.array([3.4e38] * 2, "f4"), np.array([5e-324, 6]),
    )],
    object,
    lambda: iter([2, 4]),
    lambda: (n for n in (2, 4)),
    lambda: foreign(__index__=lambda self: 2),
    lambda: foreign(__index__=lambda self: 2.0),
    lambda: foreign("__index__"),
    lambda: foreign("__array__"),
    lambda: foreign("__array__", "__repr__", "__str__"),
    lambda: foreign(__array__=raise_bad_message),
    lambda: foreign(__array__=lambda *_, **__: 2),
    lambda: foreign(__array__=lambda *_, **__: np.array([2, 4])),
    lambda: foreign("tolist", dtype=np.dtype("i8")),
    lambda: foreign(tolist=lambda self: 2, ndim=1),
    lambda: foreign(dtype=property(fail), ndim=property(fail), shape=property(fail)),
    lambda: foreign("__getattribute__"),
    lambda: foreign("__len__", "__getitem__", base=collections.abc.Sequence),
    lambda: foreign("__getitem__", base=collections.abc.Sequence, __len__=lambda self: 2),
    lambda: foreign("__iter__", base=list),
    lambda: foreign("__iter__", "__len__", "__getitem__", base=tuple),
    lambda: foreign("__eq__", "__bool__", __hash__=object.__hash__, __index__=lambda self: 1),
    lambda: foreign("is_integer", "__float__", "__int__", base=float),
    lambda: foreign("__array_finalize__", name="array"),
    lambda: foreign(name="list"),
    lambda: foreign(name="int"),
    lambda: foreign("__eq__", "__ne__", "tolist", base=np.ndarray, __new__=lambda cls: np.ones(
        2, int).view(cls)),
    released,
]  # fmt: skip
"""Functions that each make a new value per call, because reading changes some values."""
