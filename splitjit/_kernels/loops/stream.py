"""The loop for large arrays: the plain loop with stores that bypass the cache.

An ordinary store first reads the cache line that it overwrites. A streaming (non-temporal) store
does not, so a large copy moves two bytes instead of three per source byte. Streaming stores write
full, aligned lines. Writing a line in two pieces costs an ordinary store and a long wait, so blocks
begin at cache lines of the parts, and short runs are gathered in a staging buffer in the L1 cache::

    source   |-run-|        |-run-|        |-run-|
    buffer   |-run-|-run-|-run-|
             | line  | line  |                        full lines are streamed to the part

Lines of words of 4 or 8 bytes are gathered in registers instead.
"""

from llvmlite import ir

from splitjit._abi.kernels import LINE, PAGE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import (
    copy_bytes,
    fence,
    move_line,
    prefetch,
    reserve,
    stream_line,
)
from splitjit._kernels.ir.llvm import INT64, instruction, loop, pointer_to, store, variants
from splitjit._kernels.ir.records import part_at
from splitjit._kernels.loops.plain import LONG, copy_blocks, copy_range, runs_at
from splitjit._kernels.loops.runs import move_runs, stream_runs

_BATCH = 1 << 9  # bytes gathered at a time, so that fetching, gathering and storing overlap
_FAR = 1 << 9  # the hardware prefetcher does not follow larger steps between runs


_COLLECTED = 4, 8
"""Bytes of the words that `_collect_lines` gathers."""


@instruction
def _collect_lines(builder, target, source, run, count, source_step):
    """Stream cache lines of evenly spaced words to `target`, a multiple of `LINE`.

    Storing words one by one takes more than twice as many instructions.
    """
    for nbytes in variants(builder, _COLLECTED, run):
        word, words = ir.IntType(8 * nbytes), LINE // nbytes
        kind, step = ir.VectorType(word, words), builder.mul(source_step, INT64(words))
        for to, at in loop(builder, count, [target, source], [INT64(LINE), step]):
            line = ir.Constant(kind, ir.Undefined)
            for i in range(words):
                item = builder.load(pointer_to(builder, at, word), align=1)
                line = builder.insert_element(line, item, INT64(i))
                at = builder.add(at, source_step)
            store(builder, line, pointer_to(builder, to, kind), LINE, True)


@jit
def _has_gaps(dims, part):
    """Return whether there are gaps between the runs of a part in the target."""
    step = part.run
    for d in range(dims - 1, -1, -1):
        if part.target_strides[d] != step and part.extents[d] != 1:
            return True
        step *= part.extents[d]
    return False


@jit
def _prefetch_runs(ahead, n, run, source, source_step):
    """Prefetch `n` runs at `ahead`, or if that is 0, the `n` runs after those at `source`.

    Without this, runs of 40 bytes take twice as long (2026-11-27).
    """
    if ahead:
        for k in range(ahead, ahead + n * run, LINE):
            prefetch(k)
    elif abs(source_step) >= _FAR:
        for i in range(n):
            start = source + (n + i) * source_step
            for k in range(start, start + run, LINE):
                prefetch(k)


@jit
def _gather_range(call, layout, part, first, last):
    """Copy the bytes [first, last) of a part without gaps, by way of a buffer or registers."""
    stage = reserve(PAGE, PAGE)  # no larger, because the stack of a thread may have only 32 KB
    ahead, end = 0, part_at(layout, layout.count - 1)
    step = layout.source_strides[0]
    # If the runs of all parts are contiguous, prefetch the rows of the next block in order, and
    # each part its share of them: a part reads strides that the hardware prefetcher does not
    # predict.
    if layout.dims == 1 and end.source_offset + end.run == step:
        rows = (last - first) // part.run
        ahead = call.source + last // part.run * step + rows * part.source_offset
    line = call.target + part.target_offset + first
    head = min(-line % LINE, last - first)
    copy_range(call, layout, part, first, first + head, move_runs)
    line += head
    first += head
    fill = 0  # bytes of the next line that the buffer holds
    while first < last:
        _, source, run, count, _, source_step = runs_at(call, layout, part, first, last)
        first += run * count
        while count > 0:
            n = min(max(_BATCH // run, 1), count)
            _prefetch_runs(ahead, n, run, source, source_step)
            if ahead:
                ahead += n * run
            if fill == 0 and run in _COLLECTED and n * run % LINE == 0:
                _collect_lines(line, source, run, n * run // LINE, source_step)
                line += n * run
            else:
                move_runs(stage + fill, source, run, n, run, source_step)
                fill += n * run
                full = fill // LINE * LINE
                for k in range(0, full, LINE):
                    stream_line(line + k, stage + k)
                move_line(stage, stage + full)
                line += full
                fill -= full
            source += n * source_step
            count -= n
    copy_bytes(line, stage, fill)


@jit
def _stream_range(call, layout, part, first, last, move):
    """Copy the bytes [first, last) of a part: like `copy_range`, but gather short runs."""
    if part.run > LONG:
        copy_range(call, layout, part, first, last, move)
    elif _has_gaps(layout.dims, part):
        copy_range(call, layout, part, first, last, move_runs)
    else:
        _gather_range(call, layout, part, first, last)


@jit
def stream(task, tasks, arguments):
    """Copy the share of one task; `arguments` is the address of `Arguments`."""
    copy_blocks(task, tasks, arguments, True, _stream_range, stream_runs)
    fence()
