"""The copy loops, compiled by Numba on first use and cached on disk.

A kernel gets addresses, extents and byte strides that were checked before. It
never raises and never sees a Python object.

The layout it copies is that of `splitjit.arrays.CopyLayout`. Every part is a
nest of `extents` around *runs* of bytes that are contiguous on both sides:

    part p:   for i in extents[0]: for j in extents[1]: …
                  run bytes  from  source + sum(i * source_strides[…])
                             to    target + sum(i * target_strides[…])

so that position ``b`` of a part's bytes is byte ``b % run`` of run ``b // run``.

One signature per function, and one function per cache file: processes that
save several signatures of one function at once can misfile them. And all in
this file: Numba's cache does not notice changes of callees elsewhere.
"""

from __future__ import annotations

import functools
import logging

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

# Columns of the table of parts, one row a part. The extents and the target's
# strides of the part follow behind TARGET, as many as the layout has dims.
SOURCE, TARGET, RUN, NBYTES, DIMS = range(5)

# A value of each word's type: Numba compiles the loops below once for each.
_WORD1, _WORD2, _WORD4, _WORD8 = np.uint8(0), np.uint16(0), np.uint32(0), np.uint64(0)
_WORD16 = np.complex128(0)

_LINE = 64  # bytes of a cache line, and of the widest vector
_BLOCK = 1 << 18  # bytes of source that stay in a core's L2 cache while all parts take theirs
_GROUP = 16  # lines of a transposed copy that are walked side by side

_log = logging.getLogger(__name__)


def _pointer(builder, address, element):
    return builder.inttoptr(address, element.as_pointer())


@intrinsic
def _copy_bytes(typingctx, target, source, nbytes):
    """Move bytes as C's memcpy does."""

    def codegen(context, builder, signature, args):
        byte = ir.IntType(8)
        target, source = (_pointer(builder, address, byte) for address in args[:2])
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


@intrinsic
def _copy_word(typingctx, word, target, source):
    """Move one word, aligned or not."""

    def codegen(context, builder, signature, args):
        width = context.get_abi_sizeof(context.get_data_type(signature.args[0]))
        element = ir.IntType(8 * width)
        value = builder.load(_pointer(builder, args[2], element), align=1)
        builder.store(value, _pointer(builder, args[1], element), align=1)
        return context.get_dummy_value()

    return types.void(word, types.intp, types.intp), codegen


@intrinsic
def _stream_line(typingctx, target, source):
    """Move a cache line past the cache to an aligned target."""

    def codegen(context, builder, signature, args):
        line = ir.VectorType(ir.IntType(64), _LINE // 8)
        value = builder.load(_pointer(builder, args[1], line), align=1)
        store = builder.store(value, _pointer(builder, args[0], line), align=_LINE)
        one = ir.Constant(ir.IntType(32), 1)
        store.set_metadata("nontemporal", builder.module.add_metadata([one]))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), codegen


@intrinsic
def _fence(typingctx):
    """Make streamed stores visible to other threads."""

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@njit
def _stream_bytes(target, source, nbytes):
    head = min(-target % _LINE, nbytes)
    _copy_bytes(target, source, head)
    tail = head + (nbytes - head) // _LINE * _LINE
    for k in range(head, tail, _LINE):
        _stream_line(target + k, source + k)
    _copy_bytes(target + tail, source + tail, nbytes - tail)


@njit
def _copy_piece(stream, target, source, nbytes):
    if stream:
        _stream_bytes(target, source, nbytes)
    else:
        _copy_bytes(target, source, nbytes)


@njit
def _copy_words(word, width, target, source, run, lines, target_line, source_line):
    """Copy one run, word by word, from each of several lines."""
    for _ in range(lines):
        b = 0
        while b < run:
            _copy_word(word, target + b, source + b)
            b += width
        target += target_line
        source += source_line


@njit
def _copy_runs(
    width,
    stream,
    target,
    source,
    run,
    count,
    lines,
    target_step,
    source_step,
    target_line,
    source_line,
):
    """Copy runs that lie evenly spaced, by the loop that suits their length."""
    for _ in range(count):
        if run >= _LINE:
            _copy_piece(stream, target, source, run)
        elif width == 1:
            _copy_words(_WORD1, width, target, source, run, lines, target_line, source_line)
        elif width == 2:
            _copy_words(_WORD2, width, target, source, run, lines, target_line, source_line)
        elif width == 4:
            _copy_words(_WORD4, width, target, source, run, lines, target_line, source_line)
        elif width == 8:
            _copy_words(_WORD8, width, target, source, run, lines, target_line, source_line)
        else:
            _copy_words(_WORD16, width, target, source, run, lines, target_line, source_line)
        target += target_step
        source += source_step


@njit
def _copy_range(width, stream, target, source, source_strides, part, first, last):
    """Copy the bytes [first, last) of a part."""
    dims = source_strides.size
    extents = part[DIMS : DIMS + dims]
    target_strides = part[DIMS + dims : DIMS + 2 * dims]
    run = part[RUN]
    inner = dims - 1
    one, zero = np.intp(1), np.intp(0)  # variables: a literal is a type, and compiles anew
    while first < last:
        index = first // run
        offset = first - index * run
        # Where run `index` lies; `left` runs of its line begin there.
        t = target + part[TARGET] + offset
        s = source + part[SOURCE] + offset
        left = extents[inner]
        start = 0
        lines = index
        for d in range(inner, -1, -1):
            outer = lines // extents[d]
            i = lines - outer * extents[d]
            t += i * target_strides[d]
            s += i * source_strides[d]
            if d == inner:
                left -= i
                start = i
            elif d == inner - 1:
                start_line = i
            lines = outer
        whole = (last - first) // run
        if offset or whole == 0:
            piece = min(run - offset, last - first)
            _copy_piece(stream and piece >= _LINE, t, s, piece)
            first += piece
        elif (
            dims > 1
            and run == width
            and start == 0
            and whole >= 2 * left
            and abs(source_strides[inner - 1]) < abs(source_strides[inner])
        ):
            lines = min(_GROUP, whole // left, extents[inner - 1] - start_line)
            _copy_runs(
                width, stream, t, s, run, left, lines, target_strides[inner], source_strides[inner],
                target_strides[inner - 1], source_strides[inner - 1],
            )  # fmt: skip
            first += lines * left * run
        else:
            count = min(left, whole)
            _copy_runs(
                width,
                stream,
                t,
                s,
                run,
                count,
                one,
                target_strides[inner],
                source_strides[inner],
                zero,
                zero,
            )
            first += count * run


@njit
def _copy_share(width, stream, target, source, source_strides, parts, runs, task, tasks):
    """Copy what falls to one of the tasks.

    Where all parts have `runs` runs, as when an inner axis is split, a task
    takes the same runs of every part, a block at a time, so that the source
    is read once. Otherwise, one part after another, it takes an even share
    of the bytes, cut anywhere.
    """
    if runs >= 32 * tasks or (runs and tasks == 1):
        row = 0
        for p in range(parts.shape[0]):
            row += parts[p, RUN]
        block = max(1, _BLOCK // max(row, 1))
        last = runs * (task + 1) // tasks
        for i in range(runs * task // tasks, last, block):
            j = min(i + block, last)
            for p in range(parts.shape[0]):
                run = parts[p, RUN]
                _copy_range(
                    width, stream, target, source, source_strides, parts[p], i * run, j * run
                )
    else:
        total = 0
        for p in range(parts.shape[0]):
            total += parts[p, NBYTES]
        first = total * task // tasks
        last = total * (task + 1) // tasks
        start = 0
        for p in range(parts.shape[0]):
            nbytes = parts[p, NBYTES]
            # Both sides of a cut round it alike; the ends of a part are exact.
            a = min(max(first - start, 0) // _LINE * _LINE, nbytes)
            b = min(max(last - start, 0) // _LINE * _LINE, nbytes)
            if last - start >= nbytes:
                b = nbytes
            if first - start >= nbytes:
                a = nbytes
            _copy_range(width, stream, target, source, source_strides, parts[p], a, b)
            start += nbytes
    if stream:
        _fence()


def _serial(width, stream, target, source, source_strides, parts, runs, tasks):
    _copy_share(width, stream, target, source, source_strides, parts, runs, np.intp(0), tasks)


def _parallel(width, stream, target, source, source_strides, parts, runs, tasks):
    for task in prange(tasks):
        _copy_share(width, stream, target, source, source_strides, parts, runs, task, tasks)


_SIGNATURE = types.void(
    types.intp,  # width
    types.boolean,  # stream
    types.intp,  # target
    types.intp,  # source
    types.Array(types.int64, 1, "C"),  # source_strides
    types.Array(types.int64, 2, "C"),  # parts
    types.intp,  # runs
    types.intp,  # tasks
)


@functools.cache
def copy_kernel(parallel):
    """Compile the copy kernel, or load it from the cache.

    Parameters
    ----------
    parallel : bool
        Whether it runs its tasks on Numba's threads, or is for one task only.

    Returns
    -------
    callable
        ``kernel(width, stream, target, source, source_strides, parts, runs, tasks)``
    """
    function = _parallel if parallel else _serial
    options = {"parallel": parallel, "nogil": True, "error_model": "numpy"}
    try:
        return njit(_SIGNATURE, cache=True, **options)(function)
    except Exception:  # an unwritable, full or damaged cache, which must not fail a split
        _log.debug("compiling %s without a cache", function.__name__, exc_info=True)
        return njit(_SIGNATURE, **options)(function)
