"""The words that kernels get from Python and from users' compiled code.

Each field of a tuple here is one machine integer. Compiled code reads the words in memory, one
after another.
"""

from __future__ import annotations

from typing import NamedTuple

from splitjit._plan.rules import FAULTS


class Arguments(NamedTuple):
    """The arguments of a copy loop; each is one machine integer.

    Attributes
    ----------
    stream : int
        1 if stores of full cache lines bypass the cache, else 0.
    target : int
        The address that the target offsets of the layout record are relative to: the
        start of a block, or 0 if they are addresses.
    source : int
        The address of the first element of the source.
    layout : int
        The address of the layout record.
    """

    stream: int
    target: int
    source: int
    layout: int


class LayoutRequest(NamedTuple):
    """What the layouter lays out; each field is one machine integer.

    Attributes
    ----------
    rank, axis, count, itemsize : int
        The rank of all arrays, the axis of the split, the number of parts, the bytes of an item.
    shape, sizes : int
        The addresses of the source's shape, which its strides follow, and of the length of each
        part.
    targets : int
        The address of the first part's address, which its shape and strides follow; 0 for
        C-contiguous parts that lie one after another in a block.
    pitch : int
        The distance in bytes between two parts in this table.
    stream_short_runs, stream_long_runs : int
        The sizes in bytes from which on stores bypass the cache.
    record : int
        The address to which the layout record is written; see `most_words`.
    """

    rank: int
    axis: int
    count: int  # type: ignore[assignment]  # not the method of tuples
    itemsize: int
    shape: int
    sizes: int
    targets: int
    pitch: int
    stream_short_runs: int
    stream_long_runs: int
    record: int


class Expected(NamedTuple):
    """What the builtin functions of a `Copy` expect of arrays; each field is an integer.

    Attributes
    ----------
    array_type, list_type, dtype : int
        Addresses of `numpy.ndarray`, of `list`, and of the dtype of all arrays.
    rank, axis, count : int
        The rank of all arrays, the axis of the split, the number of parts.
    start, stop : int
        The byte range of the source, relative to its first element.
    stream : int
        See `Arguments.stream`.
    loop : int
        The address of the loop, or 0 if Python code copies.
    fresh : int
        The address of the layout record of fresh parts. Target offsets are relative to the
        start of their block.
    into : int
        The address of a layout record to which `into` writes the outputs' addresses. No other
        thread runs while a call uses it.
    nbytes : int
        The bytes of memory for small fresh parts, with room to align the block.
    blocks, byte : int
        The addresses of the block record, and of NumPy's uint8 dtype.
    new_array, set_base : int
        The addresses of NumPy's functions `PyArray_NewFromDescr` and `PyArray_SetBaseObject`.
    shape, sizes : int
        The addresses of the source's shape, which its strides follow, and of the length of each
        part.
    none : int
        The address of None, the result of a call that copies nothing.
    loops : int
        For arrays of new shapes: the address of the addresses of the loops, in the order of
        `splitjit._abi.kernels.LOOPS`; 0 for loops that are not loaded.
    """

    array_type: int
    list_type: int
    dtype: int
    rank: int
    axis: int
    count: int  # type: ignore[assignment]  # not the method of tuples
    start: int
    stop: int
    stream: int
    loop: int
    fresh: int
    into: int
    nbytes: int
    blocks: int
    byte: int
    new_array: int
    set_base: int
    shape: int
    sizes: int
    none: int
    loops: int


class Leases(NamedTuple):
    """What `splitjit._kernels.blocks.lease` needs; each field is one machine integer.

    Attributes
    ----------
    array_type, byte, new_array, set_base : int
        As in `Expected`.
    blocks : int
        The address of the block record.
    error, message : int
        The addresses of the type and of the text of the error if memory runs out.
    """

    array_type: int
    byte: int
    new_array: int
    set_base: int
    blocks: int
    error: int
    message: int


class Call(NamedTuple):
    """A call of `splitjit.split` in users' compiled code; each field is one machine integer.

    Attributes
    ----------
    x : int
        The address of the source, a Numba array.
    rank, axis : int
        The rank of all arrays, and the axis of the split.
    rule : int
        The kind of the rule: its index in `splitjit._plan.rules.PARAMETERS`.
    values, number, step : int
        The address of the first integer of the rule's value, the number of integers, and their
        stride in bytes.
    width : int
        The bytes of each integer; negative if unsigned.
    parts : int
        The address of the parts: Numba arrays, one after another.
    number_of_parts : int
        The number of given parts.
    first, second, third : int
        The answer: values for a fault's text.
    count : int
        The answer: the number of parts.
    memory : int
        The address of the functions' working memory, or 0.
    """

    x: int
    rank: int
    axis: int
    rule: int
    values: int
    number: int
    step: int
    width: int
    parts: int
    number_of_parts: int
    first: int
    second: int
    third: int
    count: int  # type: ignore[assignment]  # not the method of tuples
    memory: int


class Functions(NamedTuple):
    """The table that users' compiled code calls through; each field is one machine integer.

    Attributes
    ----------
    version : int
        Identifies the code behind the addresses, and the fields of `Call`.
    measure, make_parts, copy_parts : int
        The addresses of the functions of `splitjit._kernels.njit_split`.
    lay_out : int
        The address of `splitjit._kernels.layouter.lay_out`.
    loops : int
        The address of the loops' addresses, as in `Expected`.
    share, team : int
        The addresses of `splitjit._kernels.team.share` and of the team record.
    take_block, free_block, clear : int
        The addresses of the functions of `splitjit._kernels.blocks`.
    blocks : int
        The address of the block record.
    numba : int
        The address of Numba's struct `NRT_api_functions`.
    stream_short_runs, stream_long_runs : int
        The sizes in bytes from which on stores bypass the cache.
    most_parts : int
        The most parts for which there is memory.
    """

    version: int
    measure: int
    make_parts: int
    copy_parts: int
    lay_out: int
    loops: int
    share: int
    team: int
    take_block: int
    free_block: int
    clear: int
    blocks: int
    numba: int
    stream_short_runs: int
    stream_long_runs: int
    most_parts: int


CALL, FUNCTIONS_AT = Call(*range(len(Call._fields))), Functions(*range(len(Functions._fields)))
EXPECTED = Expected(*range(len(Expected._fields)))
"""The index of each field."""


RULE_FAULT = 1
OUTS_FAULT = 1 + RULE_FAULT + max(max(texts) for texts in FAULTS.values())
"""Faults in compiled code: 1 is a fault of the axis, 2 and up of the rule, 7 and up of the
outputs."""
