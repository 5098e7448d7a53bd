"""The copy loops, compiled by Numba on first use and cached on disk.

A kernel gets addresses, extents and byte strides that were checked before. It
never raises and never sees a Python object.

The layout it copies is that of `splitjit._core.layout.CopyLayout`. Every part is a
nest of `extents` around *runs* of bytes that are contiguous on both sides:

    part p:   for i in extents[0]: for j in extents[1]: …
                  run bytes  from  source + sum(i * source_strides[…])
                             to    target + sum(i * target_strides[…])

so that position ``b`` of a part's bytes is byte ``b % run`` of run ``b // run``.

One signature per function, and one function per cache file: processes that
save several signatures of one function at once can misfile them. And all in
this file: Numba's cache does not notice changes of callees elsewhere. See
`_named`, too.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import sys
from pathlib import Path

import llvmlite
import numba
import numpy as np
from llvmlite import ir
from numba import cfunc, njit, prange, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

# Columns of the table of parts, one row a part. The extents and the target's
# strides of the part follow behind TARGET, as many as the layout has dims.
SOURCE, TARGET, RUN, NBYTES, DIMS = range(5)

_LINE = 64  # bytes of a cache line, and of the widest vector
_LANE = ir.IntType(64)
_PAGE = 1 << 12  # bytes between borders across which a store takes a hundred times as long
BLOCK = 1 << 17  # bytes of source that stay in a core's L2 cache while all parts take theirs
_STAGE = 1 << 15  # bytes that are gathered in the L1 cache before they are streamed out
_BATCH = 1 << 9  # of them at a time, so that fetching, gathering and storing overlap
_AHEAD = 1 << 12  # bytes of source that are fetched ahead where it is read in order
_STRIP = 1 << 7  # bytes that a transposed source has of a strip at each step
_BROAD = 1 << 10  # the same, if its runs are longer than a cache line
_TILE = 16  # bytes of the vectors in which tiles of it are transposed
_FAR = 1 << 9  # bytes between runs that hardware does not fetch ahead
_STAGED = 1 << 11  # longest run that is gathered
_LONG = 1 << 9  # shortest run that is streamed to a target with gaps

_log = logging.getLogger(__name__)


def _named(function, tag=""):
    """Give a function a name that no other code has, in this process or a cache.

    To the linker, code of the same name, number and signature is the same
    code, and each process counts the numbers anew. So what one process saved
    may take the place of what another one saved, or compiled: functions that a
    factory makes for words of one size and another, or those of two versions
    of this package. The name tells both apart, and finds its own cache file:
    Numba's index of those tells versions apart, too, but where processes race
    or one is killed, the numbered file that it refers to can be another's.
    """
    function.__qualname__ = f"{function.__name__}{tag}_{_digest(function.__module__)}"
    return function


@functools.cache
def _digest(module):
    """Tell apart all that must not be run in place of each other: source, compiler, processor."""
    module = sys.modules[module]
    try:
        source = module.__spec__.loader.get_data(module.__file__)
    except OSError:  # a frozen application: there Numba looks at the executable
        source = b""
    target = cpu_target.target_context.codegen().magic_tuple()
    identity = repr((source, numba.__version__, llvmlite.__version__, target))
    return hashlib.sha256(identity.encode()).hexdigest()[:16]


def _jit(function=None, *, tag="", **options):
    """Compile a function on its first call, as `njit` does."""
    if function is None:
        return functools.partial(_jit, tag=tag, **options)
    return njit(**options)(_named(function, tag))


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


def _reserve(nbytes, alignment):
    """Make the intrinsic that reserves memory on the thread's stack."""

    @intrinsic
    def reserve(typingctx):
        def codegen(context, builder, signature, args):
            with builder.goto_entry_block():
                buffer = builder.alloca(ir.ArrayType(ir.IntType(8), nbytes))
            buffer.align = alignment
            return builder.ptrtoint(buffer, ir.IntType(64))

        return types.intp(), codegen

    return reserve


_stack = _reserve(_STAGE + 2 * _LINE, _PAGE)  # the staging buffer
_RANK = 64  # dims that NumPy allows
scratch = _reserve(8 * (DIMS + 6 * _RANK), _LINE)


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

    @_jit(tag=nbytes)
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


@_jit
def _move_runs(target, source, run, count, target_step, source_step):
    """Copy runs that lie evenly spaced, by ordinary stores and the widest word that fits."""
    _out_of_line()
    if run >= _LINE:  # memcpy is no faster, and slower where the target's pages are new
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


@_jit
def _stream_bytes(target, source, nbytes):
    """Copy bytes past the cache; its partial lines at both ends through it."""
    _out_of_line()
    head = min(-target % _LINE, nbytes)
    if head:
        _copy_bytes(target, source, head)
    tail = head + (nbytes - head) // _LINE * _LINE
    for k in range(head, tail, _LINE):
        _stream_line(target + k, source + k)
    if tail < nbytes:
        _copy_bytes(target + tail, source + tail, nbytes - tail)


@_jit(inline="always")
def _stream_runs(stage, ahead, target, source, run, count, source_step):
    """Copy short runs to a contiguous target past the cache.

    They are gathered in the staging buffer, which stays in the L1 cache, at the
    target's offset from a cache line; full lines of it are streamed out, and
    what is left of the last one moves to the front.
    """
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
        elif abs(source_step) >= _FAR:
            for s in range(n):
                s = source + (n + s) * source_step
                for k in range(s, s + run, _LINE):
                    _prefetch(k)
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


@_jit(inline="always")
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

    @_jit(tag=f"_{parts}x{nbytes}")
    def loop(stream, table, stride, offset, source, lines):
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


_move_1, _move_2, _move_4 = _mover(1), _mover(2), _mover(4)
_deal_2x1, _deal_2x2, _deal_2x4 = _deal_of(2, 1), _deal_of(2, 2), _deal_of(2, 4)
_deal_3x1, _deal_3x2, _deal_3x4 = _deal_of(3, 1), _deal_of(3, 2), _deal_of(3, 4)
_deal_4x1, _deal_4x2, _deal_4x4 = _deal_of(4, 1), _deal_of(4, 2), _deal_of(4, 4)
_deal_8x1, _deal_8x2 = _deal_of(8, 1), _deal_of(8, 2)


@_jit
def _move_items(target, source, item, count, target_step, source_step):
    """Copy single items of 1, 2 or 4 bytes."""
    for _ in range(count):
        if item == 1:
            _move_1(target, source)
        elif item == 2:
            _move_2(target, source)
        else:
            _move_4(target, source)
        target += target_step
        source += source_step


def _deal_share(task, tasks, stream, target, source, dims, source_strides, count, parts, runs):
    """Copy what falls to one of the tasks, of parts that take the source's items in turn."""
    first = runs * task // tasks
    last = runs * (task + 1) // tasks
    columns = DIMS + 2 * dims
    table = parts + 8 * TARGET
    parts = _array_at(parts)
    item = parts[RUN]
    row = count * item
    source += parts[SOURCE]
    # Lines can be streamed where those of all parts begin at the same item.
    skew = -(target + parts[TARGET] + first * item) % _LINE
    aligned = skew % item == 0
    for p in range(1, count):
        aligned = aligned and (parts[p * columns + TARGET] - parts[TARGET]) % _LINE == 0
    stream = stream and aligned
    head = min(skew // item, last - first) if stream else 0
    start = first + head
    lines = (last - start) * item // _LINE
    stop = start + lines * _LINE // item
    for p in range(count):
        t = target + parts[p * columns + TARGET]
        s = source + p * item
        _move_items(t + first * item, s + first * row, item, head, item, row)
        _move_items(t + stop * item, s + stop * row, item, last - stop, item, row)
    offset = target + start * item
    s = source + start * row
    kind = 10 * count + item  # those of splitjit._core.layout.INTERLEAVED
    if kind == 21:
        _deal_2x1(stream, table, 8 * columns, offset, s, lines)
    elif kind == 22:
        _deal_2x2(stream, table, 8 * columns, offset, s, lines)
    elif kind == 24:
        _deal_2x4(stream, table, 8 * columns, offset, s, lines)
    elif kind == 31:
        _deal_3x1(stream, table, 8 * columns, offset, s, lines)
    elif kind == 32:
        _deal_3x2(stream, table, 8 * columns, offset, s, lines)
    elif kind == 34:
        _deal_3x4(stream, table, 8 * columns, offset, s, lines)
    elif kind == 41:
        _deal_4x1(stream, table, 8 * columns, offset, s, lines)
    elif kind == 42:
        _deal_4x2(stream, table, 8 * columns, offset, s, lines)
    elif kind == 44:
        _deal_4x4(stream, table, 8 * columns, offset, s, lines)
    elif kind == 81:
        _deal_8x1(stream, table, 8 * columns, offset, s, lines)
    else:
        _deal_8x2(stream, table, 8 * columns, offset, s, lines)
    if stream:
        _fence()


def _tile_of(nbytes):
    """Make the loop that gathers a strip of items that are neighbours at each step."""
    n = _TILE // nbytes

    @intrinsic
    def transpose(typingctx, target, target_line, source, source_step):
        def codegen(context, builder, signature, args):
            target, target_line, source, source_step = args
            kind = ir.VectorType(ir.IntType(8 * nbytes), n)
            rows = []
            for _ in range(n):
                rows.append(builder.load(_pointer(builder, source, kind), align=1))
                source = builder.add(source, source_step)
            pairs = [[i // 2 + i % 2 * n + half for i in range(n)] for half in (0, n // 2)]
            masks = [ir.Constant(ir.VectorType(ir.IntType(32), n), places) for places in pairs]
            for _ in range(n.bit_length() - 1):
                rows = [
                    builder.shuffle_vector(rows[i], rows[i + n // 2], mask)
                    for i in range(n // 2)
                    for mask in masks
                ]
            for row in rows:
                _store(builder, row, _pointer(builder, target, kind), nbytes, False)
                target = builder.add(target, target_line)
            return context.get_dummy_value()

        return types.void(types.intp, types.intp, types.intp, types.intp), codegen

    @_jit(tag=nbytes)
    def gather(stage, pitch, ahead, source, lines, steps, source_step):
        _out_of_line()
        beside = lines * nbytes
        for _ in range(steps // n):
            for _ in range(n):
                for k in range(0, beside, _LINE):
                    _prefetch(ahead + k)
                ahead += source_step
            for k in range(0, lines - n, n):
                transpose(stage + k * pitch, pitch, source + k * nbytes, source_step)
            k = lines - n  # again some of the lines before, where lines are no multiple of n
            transpose(stage + k * pitch, pitch, source + k * nbytes, source_step)
            stage += n * nbytes
            source += n * source_step

    return gather


_gather_1, _gather_2, _gather_4 = _tile_of(1), _tile_of(2), _tile_of(4)
_gather_8, _gather_16 = _tile_of(8), _tile_of(16)


@_jit(inline="always")
def _gather(stage, pitch, ahead, source, run, lines, steps, source_line, source_step):
    """Gather a strip of lines that lie side by side in the source, each `pitch` bytes."""
    done = 0
    if source_line == run and lines * run >= _TILE and _TILE % run == 0:
        done = steps - steps % (_TILE // run)
        if run == 1:
            _gather_1(stage, pitch, ahead, source, lines, steps, source_step)
        elif run == 2:
            _gather_2(stage, pitch, ahead, source, lines, steps, source_step)
        elif run == 4:
            _gather_4(stage, pitch, ahead, source, lines, steps, source_step)
        elif run == 8:
            _gather_8(stage, pitch, ahead, source, lines, steps, source_step)
        else:
            _gather_16(stage, pitch, ahead, source, lines, steps, source_step)
    stage += done * run
    source += done * source_step
    steps -= done
    if lines * run < _LINE:
        for k in range(lines):
            _move_runs(stage + k * pitch, source + k * source_line, run, steps, run, source_step)
    else:
        ahead += done * source_step
        for i in range(steps):
            for k in range(0, lines * run, _LINE):
                _prefetch(ahead + i * source_step + k)
            _move_runs(stage + i * run, source + i * source_step, run, lines, pitch, source_line)


@_jit(inline="always")
def _offset(index, dims, extents, strides):
    """Tell where the lines of an index into the outer dims begin."""
    offset = 0
    for d in range(dims - 3, -1, -1):
        outer = index // extents[d]
        offset += (index - outer * extents[d]) * strides[d]
        index = outer
    return offset


@_jit(inline="always")
def _row(parts, dims, part):
    """Point to the row of a part in the table, to its extents and its strides."""
    row = parts + 8 * part * (DIMS + 2 * dims)
    return _array_at(row), _array_at(row + 8 * DIMS), _array_at(row + 8 * (DIMS + dims))


@_jit(inline="always")
def _end_of_band(parts, dims, count, first, source_line):
    """Count on while the lines of one part lie beside those of the one before."""
    row, extents, _ = _row(parts, dims, first)
    for part in range(first + 1, count):
        beside = row[SOURCE] + extents[dims - 2] * source_line
        next_row, next_extents, _ = _row(parts, dims, part)
        if next_row[SOURCE] != beside or next_row[RUN] != row[RUN]:
            return part
        for d in range(dims):
            if d != dims - 2 and next_extents[d] != extents[d]:
                return part
        row, extents = next_row, next_extents
    return count


@_jit(inline="always")
def _transpose_band(
    stream, target, source, dims, source_strides, parts, part, lines, width, batch, first, last
):
    """Copy the pieces [first, last) of a band: of each batch of steps, strip by strip."""
    stage = _stack()
    row, extents, strides = _row(parts, dims, part)
    run, steps = row[RUN], extents[dims - 1]
    source += row[SOURCE]
    source_line, source_step = source_strides[dims - 2], source_strides[dims - 1]
    strips = -(-lines // width)
    batches = -(-steps // batch)
    p, line = part, 0
    strip = first % strips
    for _ in range(strip * width):
        line += 1
        if line == extents[dims - 2]:
            p, line = p + 1, 0
            row, extents, strides = _row(parts, dims, p)
    for piece in range(first, last):
        index = piece // strips // batches
        start = piece // strips % batches * batch
        n = min(batch, steps - start)
        wide = min(width, lines - strip * width)
        s = source + strip * width * source_line + start * source_step
        s += _offset(index, dims, extents, source_strides)
        # The next strip, or further on in the only one.
        ahead = s + (wide * source_line if strips > 1 else _AHEAD)
        _gather(stage, batch * run, ahead, s, run, wide, n, source_line, source_step)
        for k in range(wide):
            t = target + row[TARGET] + _offset(index, dims, extents, strides)
            t += line * strides[dims - 2] + start * run
            _flush(stream, t, stage + k * batch * run, n * run)
            line += 1
            if line == extents[dims - 2]:
                p, line = p + 1, 0
                if strip * width + k + 1 == lines:
                    p = part
                row, extents, strides = _row(parts, dims, p)
        strip = strip + 1 if strip + 1 < strips else 0


def _transpose_share(task, tasks, stream, target, source, dims, source_strides, count, parts, runs):
    """Copy what falls to one of the tasks, of parts whose runs are far apart in the source.

    The last two dims are *lines* and *steps*: lines lie side by side in the
    source and apart in the target, steps the other way round. Lines of
    neighbouring parts are one band, cut into strips; of a strip, a batch of
    steps is gathered in the staging buffer at a time, so that source and
    target are moved by whole cache lines.
    """
    source_strides = _array_at(source_strides)
    source_line = source_strides[dims - 2]
    total = 0
    for turn in range(2):  # count all pieces, then copy those of the task
        seen = 0
        part = 0
        while part < count:
            row, extents, _ = _row(parts, dims, part)
            end = _end_of_band(parts, dims, count, part, source_line)
            last_row, last_extents, _ = _row(parts, dims, end - 1)
            lines = (last_row[SOURCE] - row[SOURCE]) // source_line + last_extents[dims - 2]
            run, steps = row[RUN], extents[dims - 1]
            width = min(max((_STRIP if run < _LINE else _BROAD) // run, 1), lines)
            batch = _STAGE // (width * run)
            if batch > _LINE:
                batch -= batch % _LINE
            pieces = row[NBYTES] // (run * steps * extents[dims - 2])
            pieces *= -(-lines // width) * -(-steps // batch)
            first = min(max(total * task // tasks - seen, 0), pieces)
            last = min(max(total * (task + 1) // tasks - seen, 0), pieces)
            if turn and first < last:
                _transpose_band(
                    stream, target, source, dims, source_strides, parts, part, lines, width, batch,
                    first, last,
                )  # fmt: skip
            seen += pieces
            part = end
        total = seen
    if stream:
        _fence()


@_jit(inline="always")
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


@_jit(inline="always")
def _copy_range(stream, stage, ahead, target, source, dims, source_strides, part, first, last):
    """Copy the bytes [first, last) of a part."""
    row = _array_at(part)
    extents = _array_at(part + 8 * DIMS)
    target_strides = _array_at(part + 8 * (DIMS + dims))
    run = row[RUN]
    inner = dims - 1
    while first < last:
        index = first // run
        offset = first - index * run
        # Where run `index` lies; `left` runs of its line begin there.
        t = target + row[TARGET] + offset
        s = source + row[SOURCE] + offset
        left = extents[inner]
        lines = index
        for d in range(inner, -1, -1):
            outer = lines // extents[d]
            i = lines - outer * extents[d]
            t += i * target_strides[d]
            s += i * source_strides[d]
            if d == inner:
                left -= i
            lines = outer
        whole = (last - first) // run
        if offset or whole == 0:  # a piece of a run
            piece = min(run - offset, last - first)
            _flush(stream, t, s, piece)
            first += piece
        else:
            count = min(left, whole)
            _copy_runs(
                stream, stage, ahead, t, s, run, count, target_strides[inner], source_strides[inner]
            )
            first += count * run


def _copy_share(task, tasks, stream, target, source, dims, source_strides, count, parts, runs):
    """Copy what falls to one of the tasks.

    Where all parts have `runs` runs, as when an inner axis is split, a task
    takes the same runs of every part, a block at a time, so that the source
    is read once. Otherwise, one part after another, it takes an even share
    of the bytes, cut anywhere.
    """
    columns = 8 * (DIMS + 2 * dims)
    source_strides = _array_at(source_strides)
    stage = _stack()
    row = total = 0
    for p in range(count):
        part = _array_at(parts + p * columns)
        row += part[RUN]
        total += part[NBYTES]
    by_rows = runs >= 32 * tasks or (runs and tasks == 1)
    if by_rows:
        first, last = runs * task // tasks, runs * (task + 1) // tasks
        block = max(1, BLOCK // max(row, 1))
    else:
        first, last = total * task // tasks, total * (task + 1) // tasks
        block = max(last - first, 1)
    # Rows that follow each other are fetched a block ahead, in order, while the
    # parts take theirs in strides that no hardware foresees.
    follow = by_rows and stream and dims == 1 and source_strides[0] == row
    begin = source + _array_at(parts)[SOURCE]
    for i in range(first, last, block):
        j = min(i + block, last)
        ahead = begin + j * row if follow and j + block <= last else np.intp(0)
        start = 0
        for p in range(count):
            part = parts + p * columns
            run, nbytes = _array_at(part)[RUN], _array_at(part)[NBYTES]
            if by_rows:
                a, b = i * run, j * run
            else:  # both sides of a cut round it alike; the ends of a part are exact
                a = nbytes if i - start >= nbytes else max(i - start, 0) // _LINE * _LINE
                b = nbytes if j - start >= nbytes else max(j - start, 0) // _LINE * _LINE
            _copy_range(stream, stage, ahead, target, source, dims, source_strides, part, a, b)
            if ahead:
                ahead += b - a
            start += nbytes
    if stream:
        _fence()


@_jit
def lay_out_part(table, shape, strides, target_strides, axis, size, itemsize):
    """Lay out a part as `splitjit._core.layout` does, in compiled code; return its dims.

    Its row goes to `table`, memory of `scratch`, and the strides of the source
    behind it; the dims keep their order.
    """
    row = _array_at(table)
    found = _array_at(table + 8 * (DIMS + 3 * _RANK))  # extents and strides, innermost first
    dims = 0
    run = nbytes = itemsize
    for d in range(len(shape) - 1, -1, -1):
        extent = size if d == axis else shape[d]
        nbytes *= extent
        inner = 3 * (dims - 1)
        if extent == 1:
            continue
        if dims == 0 and strides[d] == run and target_strides[d] == run:
            run *= extent
        elif (
            dims
            and strides[d] == found[inner] * found[inner + 1]
            and target_strides[d] == found[inner] * found[inner + 2]
        ):
            found[inner] *= extent
        else:
            found[3 * dims] = extent
            found[3 * dims + 1] = strides[d]
            found[3 * dims + 2] = target_strides[d]
            dims += 1
    if dims == 0:
        found[0], found[1], found[2] = 1, 0, 0
        dims = 1
    row[SOURCE], row[TARGET], row[RUN], row[NBYTES] = 0, 0, run, nbytes
    for d in range(dims):
        dim = 3 * (dims - 1 - d)
        row[DIMS + d] = found[dim]
        row[DIMS + dims + d] = found[dim + 2]
        row[DIMS + 2 * dims + d] = found[dim + 1]
    return dims


def _copy_part(stream, target, source, dims, table, first, last):
    """Copy the bytes [first, last) of a part that `lay_out_part` has laid out."""
    source_strides = _array_at(table + 8 * (DIMS + 2 * dims))
    _copy_range(
        stream, _stack(), np.intp(0), target, source, dims, source_strides, table, first, last
    )
    if stream:
        _fence()


@functools.cache
def copy_part():
    """Compile the loop that compiled code of users calls, or load it from the cache.

    Returns
    -------
    callable
        ``loop(stream, target, source, dims, table, first, last)``, all integers
    """
    return compile_cached(njit, types.void(*[types.intp] * 7), _copy_part, error_model="numpy")


_SHARE = types.void(
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
)


@intrinsic
def _call(typingctx, loop, task, tasks, layout):
    """Call a compiled loop by its address."""

    def codegen(context, builder, signature, args):
        loop, task, tasks, layout = args
        values = [task, tasks, *cgutils.unpack_tuple(builder, layout)]
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in values])
        builder.call(_pointer(builder, loop, kind), values)
        return context.get_dummy_value()

    return types.void(loop, types.intp, types.intp, layout), codegen


def _serial(loop, tasks, layout):
    for task in range(tasks):
        _call(loop, task, tasks, layout)


def _parallel(loop, tasks, layout):
    for task in prange(tasks):
        _call(loop, task, tasks, layout)


_LOOPS = {"copy": _copy_share, "deal": _deal_share, "transpose": _transpose_share}
_LAUNCH = types.void(types.intp, types.intp, types.UniTuple(types.intp, len(_SHARE.args) - 2))


@functools.cache
def copy_loop(name):
    """Compile one of the loops that copy, or load it from the cache.

    Each is compiled once for both kernels, which call it by its address: Numba
    would optimize it anew in each.

    Parameters
    ----------
    name : str
        As `splitjit._core.layout.CopyLayout.loop` has it.

    Returns
    -------
    numba.core.ccallback.CFunc
        It holds the compiled code.
    """
    return compile_cached(cfunc, _SHARE, _LOOPS[name], error_model="numpy")


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
        ``kernel(address of a copy_loop, tasks, (stream, target, source, dims,
        source_strides, count, parts, runs))``, all integers
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
    function = _named(function)
    for _ in range(2):
        try:
            return decorator(signature, cache=True, **options)(function)
        except Exception as error:  # no place, no space, damaged files: no reason to fail a split
            _log.debug("%s is not cached", function.__qualname__, exc_info=True)
            if isinstance(error, OSError) or not _discard_cached(function):
                break
    return decorator(signature, **options)(function)


def _discard_cached(function):
    """Delete what is cached of a function; return whether there was anything."""
    try:
        folder = Path(njit(cache=True)(function).stats.cache_path)
        files = list(folder.glob(f"*{function.__qualname__}*"))
        for file in files:
            file.unlink()
    except Exception:  # no place
        return False
    return bool(files)
