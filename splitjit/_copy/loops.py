"""The strategy by compiled loops: the layout of the copy, and of the block of fresh parts."""

from __future__ import annotations

import math

from splitjit._copy import threads
from splitjit._copy.crossovers import stream_from
from splitjit._copy.layout import CopyLayout, block_layout, fresh_layout
from splitjit._kernels.table import RUN
from splitjit._plan.plan import Plan


class Loops:
    """The copy of arrays of one plan, item size and strides by a compiled loop.

    Attributes
    ----------
    nbytes : int
        Bytes of all parts.
    block : BlockLayout
        The block of fresh parts.
    layout : CopyLayout
        The copy to this block.
    stream : int
        See `splitjit._kernels.table.Arguments`.
    """

    __slots__ = ("block", "layout", "nbytes", "stream")

    def __init__(self, plan: Plan, itemsize: int, strides: tuple[int, ...]) -> None:
        self.nbytes = math.prod(plan.shape) * itemsize
        self.block = block_layout(plan, itemsize)
        self.layout = fresh_layout(plan, strides, itemsize)
        shortest = int(self.layout.rows[:, RUN].min())
        self.stream = int(self.nbytes >= stream_from(shortest))

    def copy(self, source: int, target: int, layout: CopyLayout) -> bool:
        """Copy on as many threads as pay.

        Parameters
        ----------
        source : int
            The address of the first element of the source.
        target : int
            The address from which the target offsets of the layout count.
        layout : CopyLayout

        Returns
        -------
        bool
            False if no kernel is loaded; then nothing has been copied.
        """
        arguments = self.stream, target, source, layout.address
        return threads.copy(self.loop_for(layout), self.nbytes, arguments)

    def loop_for(self, layout: CopyLayout) -> str:
        """Return the name of the compiled loop for a layout, one of `table.LOOPS`."""
        return "stream" if self.stream and layout.loop == "copy" else layout.loop
