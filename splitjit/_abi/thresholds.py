"""Where one way of copying begins to pay: all such numbers, each with the figure that set it.

Times were measured on two cores of an AMD EPYC in November 2026, unless a line says otherwise.
"""

from dataclasses import dataclass

LONG_RUN = 1 << 9
"""Bytes from which on a run is long. Torch's own operator splits contiguous tensors of long runs:
its threads are awake in a torch program. Ordinary stores of long runs pay if a large cache can hold
the array."""

FROM_SYSTEM = 1 << 25
"""Bytes from which on the C library, and so torch, asks the system for each new block of memory.
Kernels, which reuse blocks, joined 50 MB in 4.6 ms in place of 39, and to a given tensor in 4.8 in
place of 7.4. At 11 and 22 MB, torch was as fast or faster between other steps of torch."""


@dataclass(slots=True)
class Thresholds:
    """The numbers that Python reads when it needs them. Tests set others on `THRESHOLDS`.

    The fields from `chunk` on decide which helpers are asked. The team record has a copy of each.

    Attributes
    ----------
    load_from, load_after : int
        Kernels are loaded by the first split of so many bytes, or by so many smaller ones. Loading
        takes 35 ms, once per process. Kernels save 10 to 100 us of a split of 64 KB, and 3 us of a
        small one.
    compile_from, compile_after : int
        The same for kernels that the cache lacks. Compiling takes seconds, once per installation.
    large : int
        Bytes from which a copy is large: the GIL is released, helpers may share the copy, the block
        of its parts is kept for reuse, and objects are assigned by a compiled loop. One thread
        copies as much in 25 us; waking a helper takes 5 us, and it comes 30 us later.
    part : int
        Bytes of a part. A plan of more than 4096 parts keeps nothing for later calls, so each call
        lays out all parts, which takes longer than slicing an array. Kernels make so many parts
        only if a part has at least this many bytes on average.
    stream_from : (int, int)
        Bytes from which on stores bypass the cache, for short and for long runs. They lose inside
        the cache; `splitjit._runtime.threads` knows its size, and sets both.
    chunk : int
        Bytes of a chunk at least. The caller may have to wait for one that a helper has begun.
    wake_from : int
        Bytes from which on a copy wakes helpers that sleep. A woken helper comes about 50 us later;
        one thread copies 4 MB in 250 us. `splitjit._runtime.threads` sets less for larger caches.
    awake : int
        Nanoseconds for which a helper waits awake, about as long as a wake takes: so waiting costs
        at most twice what the best choice would.
    in_a_row : int
        Nanoseconds after a large copy in which the next one counts as in a row with it, so that
        helpers pay below `wake_from`, too. With 50 us, splits of 1.2 MB between steps of a `prange`
        that take 30 us were a quarter slower than on one thread: the helper had the core of one of
        its threads.
    turn : int
        Nanoseconds after which a helper leaves the job, between two chunks, and yields its core to
        others. If it stayed longer, the system could stop it in the middle of a chunk, for 4 ms. It
        waits no longer for the end of a split, either: then the caller was probably stopped, and
        may need this core. On an Intel Xeon, splits of 2 to 11 MB beside a busy program take 7
        percent less with such turns, those in four processes on two cores 6 percent, and others as
        long.
    stopped : int
        Nanoseconds that a caller waits for a helper's chunk before it counts as stopped. A chunk
        takes 10 to 50 us, and up to 500 us right after a rest; a time slice of another program
        takes 4 ms. With 200 us, bursts of 11 MB took 830 to 1100 us per split in place of 580
        to 920, and a busy machine was no faster.
    pause : int
        For how many times as long helpers are left alone after they were stopped, or did not come.
        So a busy machine costs at most a thirtieth. On an Intel Xeon with a busy program, splits
        are 1.17 times as fast as on one thread, and with 10, 20 and 60 in place of 30 1.27, 1.21
        and 1.09. But with 10 the slowest hundredth takes 3 times as long as on one thread, and with
        10 and 20 splits in four processes on two cores are 0.90 and 0.94 times as fast.
    asleep_share, awake_share : int
        Bytes that a helper must get: to be worth its wake, or if it is awake.
    """

    load_from: int = 1 << 16
    load_after: int = 500
    compile_from: int = 1 << 22
    compile_after: int = 20_000
    large: int = 1 << 19
    part: int = 1 << 12
    stream_from: tuple[int, int] = (15 << 20, 15 << 20)
    chunk: int = 1 << 17
    wake_from: int = 4 << 20
    awake: int = 50_000
    in_a_row: int = 25_000
    turn: int = 1_000_000
    stopped: int = 1_000_000
    pause: int = 30
    asleep_share: int = 1 << 20
    awake_share: int = 1 << 18


THRESHOLDS = Thresholds()
