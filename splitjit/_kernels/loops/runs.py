"""Copy evenly spaced runs: with ordinary stores, or with stores that bypass the cache.

::

    source   |-run-|        |-run-|        |-run-|          source_step bytes apart
    target   |-run-|-run-|-run-|                            target_step bytes apart
"""

from splitjit._abi.kernels import LINE
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import copy_bytes, move_line, out_of_line, stream_line
from splitjit._kernels.ir.llvm import instruction, loop, move_words, word_variants


@instruction
def copy_words(builder, target, source, run, count, target_step, source_step):
    """Copy evenly spaced runs shorter than a cache line, with ordinary stores."""
    steps = target_step, source_step
    for nbytes, starts in word_variants(builder, run, LINE // 2):
        for to, at in loop(builder, count, [target, source], steps):
            move_words(builder, to, at, starts, nbytes)


@jit
def move_runs(target, source, run, count, target_step, source_step):
    """Copy runs with ordinary stores of the widest word that fits."""
    out_of_line()
    if run >= LINE:  # memcpy is no faster, and slower if the target's pages are new
        last = run - LINE
        for _ in range(count):
            for k in range(0, last, LINE):
                move_line(target + k, source + k)
            move_line(target + last, source + last)
            target += target_step
            source += source_step
    else:
        copy_words(target, source, run, count, target_step, source_step)


@jit
def move_runs_back(target, source, run, count, target_step, source_step):
    """Copy runs the other way, from the target to the source of a split."""
    move_runs(source, target, run, count, source_step, target_step)


@jit
def stream_runs(target, source, run, count, target_step, source_step):
    """Copy runs: full lines with stores that bypass the cache, partial lines with ordinary ones."""
    out_of_line()
    for _ in range(count):
        head = min(-target % LINE, run)
        tail = head + (run - head) // LINE * LINE
        if head:
            copy_bytes(target, source, head)
        for k in range(head, tail, LINE):
            stream_line(target + k, source + k)
        if tail < run:
            copy_bytes(target + tail, source + tail, run - tail)
        target += target_step
        source += source_step
