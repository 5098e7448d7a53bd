"""The copy loops, compiled by Numba on first use and cached on disk.

A kernel gets addresses, extents and byte strides that were checked before. It
never raises and never sees a Python object.

The layout it copies is that of `splitjit.layout.CopyLayout`. Every part is a
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
from numba import carray, cfunc, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

# Columns of the table of parts, one row a part. The extents and the target's
# strides of the part follow behind TARGET, as many as the layout has dims.
SOURCE, TARGET, RUN, NBYTES, DIMS = range(5)

_LINE = 64  # bytes of a cache line, and of the widest vector
_LANE = ir.IntType(64)
_BLOCK = 1 << 17  # bytes of source that stay in a core's L2 cache while all parts take theirs
_STAGE = 1 << 14  # bytes that are gathered in the L1 cache before they are streamed out
_BATCH = 1 << 9  # of them at a time, so that fetching, gathering and storing overlap
_AHEAD = 1 << 12  # bytes of source that are fetched ahead where it is read in order
_STEPS_AHEAD = 16  # likewise, where a transposed source is read in steps
_STAGED = 1 << 11  # longest run that is gathered
_LONG = 1 << 9  # shortest run that memcpy copies

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


def _store(builder, value, pointer, nbytes, stream):
    store = builder.store(value, pointer, align=nbytes if stream else 1)
    if stream:
        one = ir.Constant(ir.IntType(32), 1)
        store.set_metadata("nontemporal", builder.module.add_metadata([one]))


def _mover(nbytes, stream=False):
    """Make the intrinsic that moves one word of some bytes, aligned or not.

    If `stream`, it goes past the cache, and the target must be aligned to it.
    """

    @intrinsic
    def move(typingctx, target, source):
        def codegen(context, builder, signature, args):
            word = ir.IntType(8 * nbytes) if nbytes <= 8 else ir.VectorType(_LANE, nbytes // 8)
            value = builder.load(_pointer(builder, args[1], word), align=1)
            _store(builder, value, _pointer(builder, args[0], word), nbytes, stream)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp), codegen

    return move


def _dealer(parts, nbytes, stream):
    """Make the intrinsic that deals out a line's worth of items to each part.

    Item by item, the source goes to the parts in turn, ``a0 b0 c0 a1 b1 c1 …``;
    each part is stored at `offset` from the address that its row of the table
    has, past the cache if `stream`, which takes aligned lines.
    """

    @intrinsic
    def deal(typingctx, table, stride, offset, source):
        def codegen(context, builder, signature, args):
            table, stride, offset, source = args
            items = _LINE // nbytes
            dealt = ir.VectorType(ir.IntType(8 * nbytes), parts * items)
            line = ir.VectorType(ir.IntType(8 * nbytes), items)
            value = builder.load(_pointer(builder, source, dealt), align=1)
            for part in range(parts):
                places = [part + parts * i for i in range(items)]
                mask = ir.Constant(ir.VectorType(ir.IntType(32), items), places)
                taken = builder.shuffle_vector(value, ir.Constant(dealt, ir.Undefined), mask)
                target = builder.load(_pointer(builder, table, ir.IntType(64)))
                target = _pointer(builder, builder.add(target, offset), line)
                _store(builder, taken, target, _LINE, stream)
                table = builder.add(table, stride)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp, types.intp), codegen

    return deal


_move_line = _mover(_LINE)
_stream_line = _mover(_LINE, stream=True)


@intrinsic
def _prefetch(typingctx, address):
    """Ask for a cache line, into the L2 cache; an address that is nobody's does no harm."""

    def codegen(context, builder, signature, args):
        byte, int32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, int32, int32, int32])
        )
        read, near, data = (ir.Constant(int32, value) for value in (0, 2, 1))
        builder.call(function, [_pointer(builder, args[0], ir.IntType(8)), read, near, data])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@intrinsic
def _array_at(typingctx, address):
    """Make a pointer to integers of an address."""

    def codegen(context, builder, signature, args):
        return _pointer(builder, args[0], ir.IntType(64))

    return types.CPointer(types.int64)(types.intp), codegen


@intrinsic
def _stack(typingctx):
    """Reserve the staging buffer on the thread's stack, aligned to a line."""

    def codegen(context, builder, signature, args):
        with builder.goto_entry_block():
            buffer = builder.alloca(ir.ArrayType(ir.IntType(8), _STAGE + 2 * _LINE))
        buffer.align = _LINE
        return builder.ptrtoint(buffer, ir.IntType(64))

    return types.intp(), codegen


@intrinsic
def _fence(typingctx):
    """Make streamed stores visible to other threads."""

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def _out_of_line(typingctx):
    """Keep the calling function out of its callers: inlined, it is optimized in each anew."""

    def codegen(context, builder, signature, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen


def _runs_of(nbytes):
    """Make the loop for runs of `nbytes` to 2 * `nbytes` - 1: one word, or two that overlap."""
    move = _mover(nbytes)

    @njit
    def copy(target, source, run, count, target_step, source_step):
        _out_of_line()
        last = run - nbytes
        if last == 0:
            for _ in range(count):
                move(target, source)
                target += target_step
                source += source_step
        else:
            for _ in range(count):
                move(target, source)
                move(target + last, source + last)
                target += target_step
                source += source_step

    return copy


_runs_of_1, _runs_of_2, _runs_of_4 = _runs_of(1), _runs_of(2), _runs_of(4)
_runs_of_8, _runs_of_16, _runs_of_32 = _runs_of(8), _runs_of(16), _runs_of(32)


@njit
def _move_runs(target, source, run, count, target_step, source_step):
    """Copy runs that lie evenly spaced, by ordinary stores and the widest word that fits."""
    _out_of_line()
    if run >= _LONG:
        for _ in range(count):
            _copy_bytes(target, source, run)
            target += target_step
            source += source_step
    elif run >= _LINE:
        last = run - _LINE
        for _ in range(count):
            for k in range(0, last, _LINE):
                _move_line(target + k, source + k)
            _move_line(target + last, source + last)
            target += target_step
            source += source_step
    elif run >= 32:
        _runs_of_32(target, source, run, count, target_step, source_step)
    elif run >= 16:
        _runs_of_16(target, source, run, count, target_step, source_step)
    elif run >= 8:
        _runs_of_8(target, source, run, count, target_step, source_step)
    elif run >= 4:
        _runs_of_4(target, source, run, count, target_step, source_step)
    elif run >= 2:
        _runs_of_2(target, source, run, count, target_step, source_step)
    else:
        _runs_of_1(target, source, run, count, target_step, source_step)


@njit
def _stream_bytes(target, source, nbytes):
    """Copy bytes past the cache; its partial lines at both ends through it."""
    _out_of_line()
    head = min(-target % _LINE, nbytes)
    _copy_bytes(target, source, head)
    tail = head + (nbytes - head) // _LINE * _LINE
    for k in range(head, tail, _LINE):
        _stream_line(target + k, source + k)
    _copy_bytes(target + tail, source + tail, nbytes - tail)


@njit
def _stream_runs(stage, ahead, target, source, run, count, source_step):
    """Copy short runs to a contiguous target past the cache.

    They are gathered in the staging buffer, which stays in the L1 cache, at the
    target's offset from a cache line; full lines of it are streamed out, and
    what is left of the last one moves to the front.
    """
    _out_of_line()
    batch = max(_BATCH // run, 1)
    fill = target % _LINE
    line = target - fill
    skip = fill
    while count > 0:
        n = min(batch, count)
        if ahead:
            for k in range(ahead, ahead + n * run, _LINE):
                _prefetch(k)
            ahead += n * run
        _move_runs(stage + fill, source, run, n, run, source_step)
        source += n * source_step
        count -= n
        fill += n * run
        first = 0
        if skip and fill >= _LINE:
            _copy_bytes(line + skip, stage + skip, _LINE - skip)
            first = _LINE
            skip = 0
        full = fill // _LINE * _LINE
        for k in range(first, full, _LINE):
            _stream_line(line + k, stage + k)
        if full:
            _move_line(stage, stage + full)
            line += full
            fill -= full
    _copy_bytes(line + skip, stage + skip, fill - skip)


@njit
def _flush(stream, target, stage, nbytes):
    """Move gathered bytes to where they belong."""
    if stream:
        _stream_bytes(target, stage, nbytes)
    else:
        _copy_bytes(target, stage, nbytes)


def _deal_of(parts, nbytes):
    """Make the loop that deals out lines of single items to the parts."""
    deal = _dealer(parts, nbytes, stream=False)
    deal_past_cache = _dealer(parts, nbytes, stream=True)

    @njit
    def loop(stream, table, stride, offset, source, lines):
        _out_of_line()
        if stream:
            for _ in range(lines):
                for part in range(parts):
                    _prefetch(source + _AHEAD + part * _LINE)
                deal_past_cache(table, stride, offset, source)
                offset += _LINE
                source += parts * _LINE
        else:
            for _ in range(lines):
                deal(table, stride, offset, source)
                offset += _LINE
                source += parts * _LINE

    return loop


_deal_2x1, _deal_2x2, _deal_2x4 = _deal_of(2, 1), _deal_of(2, 2), _deal_of(2, 4)
_deal_3x1, _deal_3x2, _deal_3x4 = _deal_of(3, 1), _deal_of(3, 2), _deal_of(3, 4)
_deal_4x1, _deal_4x2, _deal_4x4 = _deal_of(4, 1), _deal_of(4, 2), _deal_of(4, 4)
_deal_8x1, _deal_8x2 = _deal_of(8, 1), _deal_of(8, 2)


@njit
def _deinterleave(stream, target, source, parts, first, last):
    """Copy the items [first, last) of parts that take the source's items in turn."""
    _out_of_line()
    n = parts.shape[0]
    item = parts[0, RUN]
    row = n * item
    source += parts[0, SOURCE]
    # Lines can be streamed where those of all parts begin at the same item.
    skew = -(target + parts[0, TARGET] + first * item) % _LINE
    aligned = skew % item == 0
    for p in range(1, n):
        aligned = aligned and (parts[p, TARGET] - parts[0, TARGET]) % _LINE == 0
    stream = stream and aligned
    head = min(skew // item, last - first) if stream else 0
    start = first + head
    lines = (last - start) * item // _LINE
    stop = start + lines * _LINE // item
    for p in range(n):
        t = target + parts[p, TARGET]
        s = source + p * item
        _move_runs(t + first * item, s + first * row, item, head, item, row)
        _move_runs(t + stop * item, s + stop * row, item, last - stop, item, row)
    table = parts.ctypes.data + 8 * TARGET
    stride = 8 * parts.shape[1]
    offset = target + start * item
    s = source + start * row
    kind = 10 * n + item  # those of splitjit.layout.INTERLEAVED
    if kind == 21:
        _deal_2x1(stream, table, stride, offset, s, lines)
    elif kind == 22:
        _deal_2x2(stream, table, stride, offset, s, lines)
    elif kind == 24:
        _deal_2x4(stream, table, stride, offset, s, lines)
    elif kind == 31:
        _deal_3x1(stream, table, stride, offset, s, lines)
    elif kind == 32:
        _deal_3x2(stream, table, stride, offset, s, lines)
    elif kind == 34:
        _deal_3x4(stream, table, stride, offset, s, lines)
    elif kind == 41:
        _deal_4x1(stream, table, stride, offset, s, lines)
    elif kind == 42:
        _deal_4x2(stream, table, stride, offset, s, lines)
    elif kind == 44:
        _deal_4x4(stream, table, stride, offset, s, lines)
    elif kind == 81:
        _deal_8x1(stream, table, stride, offset, s, lines)
    else:
        _deal_8x2(stream, table, stride, offset, s, lines)


@njit
def _transpose(
    stream, stage, target, source, run, lines, count, target_line, source_line, source_step
):
    """Copy a strip of lines that lie side by side in the source and apart in the target.

    The source is walked across the lines, so that each of its cache lines is
    read once; a stretch of each line is gathered before it is written.
    """
    _out_of_line()
    step = _STAGE // lines // _LINE * _LINE
    batch = step // run
    hop = max(_LINE, source_line)
    for start in range(0, count, batch):
        n = min(batch, count - start)
        for i in range(n):
            s = source + (start + i) * source_step
            ahead = s + _STEPS_AHEAD * source_step  # steps that are far apart nothing else foresees
            end = ahead + lines * source_line
            while ahead < end:
                _prefetch(ahead)
                ahead += hop
            _move_runs(stage + i * run, s, run, lines, step, source_line)
        for k in range(lines):
            _flush(stream, target + k * target_line + start * run, stage + k * step, n * run)


@njit
def _copy_runs(stream, stage, ahead, target, source, run, count, target_step, source_step):
    """Copy runs that lie evenly spaced."""
    if stream and run <= _STAGED and target_step == run:
        _stream_runs(stage, ahead, target, source, run, count, source_step)
    elif stream and run >= _LONG:
        for _ in range(count):
            _stream_bytes(target, source, run)
            target += target_step
            source += source_step
    else:
        _move_runs(target, source, run, count, target_step, source_step)


@njit
def _copy_range(stream, stage, ahead, target, source, source_strides, part, first, last):
    """Copy the bytes [first, last) of a part."""
    _out_of_line()
    dims = source_strides.size
    extents = part[DIMS : DIMS + dims]
    target_strides = part[DIMS + dims : DIMS + 2 * dims]
    run = part[RUN]
    inner = dims - 1
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
        if offset or whole == 0:  # a piece of a run
            piece = min(run - offset, last - first)
            _flush(stream, t, s, piece)
            first += piece
        elif (
            dims > 1
            and run < _LINE
            and start == 0
            and whole >= 2 * left
            and target_strides[inner] == run
            and abs(source_strides[inner - 1]) < abs(source_strides[inner])
        ):
            lines = min(max(_LINE // run, 8), whole // left, extents[inner - 1] - start_line)
            _transpose(
                stream, stage, t, s, run, lines, left,
                target_strides[inner - 1], source_strides[inner - 1], source_strides[inner],
            )  # fmt: skip
            first += lines * left * run
        else:
            count = min(left, whole)
            _copy_runs(
                stream, stage, ahead, t, s, run, count, target_strides[inner], source_strides[inner]
            )
            first += count * run


def _copy_share(
    task, tasks, stream, target, source, dims, source_strides, count, parts, runs, interleaved
):
    """Copy what falls to one of the tasks.

    Where all parts have `runs` runs, as when an inner axis is split, a task
    takes the same runs of every part, a block at a time, so that the source
    is read once. Otherwise, one part after another, it takes an even share
    of the bytes, cut anywhere.
    """
    _out_of_line()
    source_strides = carray(_array_at(source_strides), (dims,))
    parts = carray(_array_at(parts), (count, DIMS + 2 * dims))
    stage = _stack()
    nowhere = np.intp(0)  # no literal: to Numba that is a type, for which all would compile anew
    if runs >= 32 * tasks or (runs and tasks == 1):
        row = 0
        for p in range(parts.shape[0]):
            row += parts[p, RUN]
        block = max(1, _BLOCK // max(row, 1))
        last = runs * (task + 1) // tasks
        # Rows that follow each other are fetched a block ahead, in order, while the
        # parts take theirs in strides that no hardware foresees.
        follow = stream and source_strides.size == 1 and source_strides[0] == row
        for i in range(runs * task // tasks, last, block):
            j = min(i + block, last)
            if interleaved:
                _deinterleave(stream, target, source, parts, i, j)
                continue
            ahead = source + parts[0, SOURCE] + j * row if follow and j + block <= last else nowhere
            for p in range(parts.shape[0]):
                run = parts[p, RUN]
                _copy_range(
                    stream, stage, ahead, target, source, source_strides, parts[p], i * run, j * run
                )
                if ahead:
                    ahead += (j - i) * run
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
            _copy_range(stream, stage, nowhere, target, source, source_strides, parts[p], a, b)
            start += nbytes
    if stream:
        _fence()


_COPY_SHARE = types.void(
    types.intp,  # task
    types.intp,  # tasks
    types.intp,  # stream, a truth value
    types.intp,  # target
    types.intp,  # source
    types.intp,  # dims
    types.intp,  # source_strides, an address
    types.intp,  # count
    types.intp,  # parts, an address
    types.intp,  # runs
    types.intp,  # interleaved, a truth value
)


@intrinsic
def _call(typingctx, function, task, tasks, layout):
    """Call a compiled `_copy_share` by its address."""

    def codegen(context, builder, signature, args):
        function, task, tasks, layout = args
        values = [task, tasks, *cgutils.unpack_tuple(builder, layout)]
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        builder.call(_pointer(builder, function, kind), values)
        return context.get_dummy_value()

    return types.void(function, types.intp, types.intp, layout), codegen


def _serial(function, tasks, layout):
    for task in range(tasks):
        _call(function, task, tasks, layout)


def _parallel(function, tasks, layout):
    for task in prange(tasks):
        _call(function, task, tasks, layout)


_LAUNCH = types.void(types.intp, types.intp, types.UniTuple(types.intp, len(_COPY_SHARE.args) - 2))


@functools.cache
def copy_function():
    """Compile the copy itself, or load it from the cache.

    It is compiled once for both kernels, which call it by its address: Numba
    would optimize it anew in each.
    """
    return compile_cached(cfunc, _COPY_SHARE, _copy_share, error_model="numpy")


@functools.cache
def copy_kernel(parallel):
    """Compile a kernel, or load it from the cache.

    Parameters
    ----------
    parallel : bool
        Whether its tasks are run on Numba's threads, or one after another.

    Returns
    -------
    callable
        ``kernel(address of copy_function(), tasks, (stream, target, source,
        dims, source_strides, count, parts, runs, interleaved))``, all integers
    """
    return compile_cached(
        njit, _LAUNCH, _parallel if parallel else _serial, parallel=parallel, nogil=True
    )


def compile_cached(decorator, signature, function, **options):
    """Compile a function for one signature, or load it from the cache.

    Parameters
    ----------
    decorator : callable
        One of Numba's: njit, jit or cfunc.
    signature : tuple or Numba signature
        The only one.
    function : function
        At the top of its module, which is what the cache looks at.
    **options
        Of the decorator.

    Returns
    -------
    callable
        What the decorator makes of it.
    """
    try:
        return decorator(signature, cache=True, **options)(function)
    except Exception:  # an unwritable, full or damaged cache, which must not fail a split
        _log.debug("compiling %s without a cache", function.__name__, exc_info=True)
        return decorator(signature, **options)(function)
