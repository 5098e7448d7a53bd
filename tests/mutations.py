"""Mutation tests: put one defect at a time into a copy of the package, and run its tests.

``python -m tests.mutations`` tries all mutations, which takes a quarter of an hour. ``--list``
lists them, and ``python -m tests.mutations NAME…`` tries those whose names begin with a NAME. The
script first checks that the tests pass without a defect. Then the tests of each mutation must end
by a failure, a signal or the time limit. If they pass, the mutation has survived, and the exit
status of the script is 1.

The package must be installed, because Numba looks up the package's entry point. The copy of the
package and its Numba cache are in a temporary folder. Each mutation quotes the text that it
replaces, which must occur exactly once in the file. If it does not, the script names the mutation
and runs nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from splitjit._copy.cores import usable

ROOT = Path(__file__).parents[1]
SECONDS = 600
"""The time limit for the tests of one mutation."""

ENVIRONMENT = {
    "SPLITJIT_MEMORY_CASES": "200",
    "SPLITJIT_EXAMPLES": "50",
    "PYTHONDONTWRITEBYTECODE": "1",  # a file may change twice within one second
}


class Mutation(NamedTuple):
    """A defect: the text that it replaces in a file, and the tests that detect the defect."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    """Arguments of pytest, relative to ``tests/``."""


PLANNER = "test_planner.py"
OUT = "test_out.py"
LAYOUT = "test_layout.py"
BUFFERS = "test_buffers.py"
OVERLOADS = "test_overloads.py"
THREADS = "test_threads.py"
MEMORY = "test_memory.py::test_nothing_outside_of_a_buffer_is_touched"
DTYPES = "test_split.py::test_dtypes_and_layouts"
KEPT = "test_kept.py"
OVERLAP = "test_overlap.py"
DEINTERLEAVED = "test_split.py::test_interleaved_items"
ROWS = "test_split.py::test_rows"
TRANSPOSED = "test_split.py::test_transposed_items"

MUTATIONS = [
    # ---- the planner: where parts start ---------------------------------------------------
    Mutation(
        "planner: offsets of the next part",
        "_plan/plan.py",
        '("offsets", tuple(ends[:-1]))',
        '("offsets", tuple(ends[1:]))',
        PLANNER,
    ),
    Mutation(
        "planner: offsets of the next part, if there are many",
        "_plan/plan.py",
        "self._each_offset(), self._count)",
        "self._each_offset(), 1, self._count + 1)",
        KEPT,
    ),
    Mutation(
        "planner: an axis with a rest ends with a whole chunk",
        "_plan/rules.py",
        "(rest, int(rest > 0))",
        "(chunk, int(rest > 0))",
        PLANNER,
    ),
    Mutation(
        "keeping: plans are never dropped",
        "_plan/cache.py",
        "elif self.nbytes > PLANS_LIMIT:",
        "elif False:",
        f"{KEPT}::test_the_oldest_plans_are_dropped_first",
    ),
    Mutation(
        "keeping: a plan that grew stays",
        "_plan/cache.py",
        "if plan._nbytes > PLAN_LIMIT:",
        "if False:",
        f"{KEPT}::test_a_plan_that_grows_too_large_is_not_kept",
    ),
    Mutation(
        "keeping: results are never dropped",
        "_plan/cache.py",
        "if self._kept_nbytes + nbytes > RESULTS_LIMIT:",
        "if False:",
        f"{KEPT}::test_results_of_a_plan_are_limited",
    ),
    Mutation(
        "planner: a negative axis without its sign",
        "_plan/rules.py",
        "return axis % rank, 0",
        "return abs(axis) % rank, 0",
        PLANNER,
    ),
    Mutation(
        "planner: floor in place of ceil",
        "_plan/rules.py",
        "chunk = length // count + (length % count != 0)",
        "chunk = max(length // count, 1)",
        PLANNER,
    ),
    Mutation(
        "planner: no empty parts at the end",
        "_plan/rules.py",
        "(0, count - whole - (rest > 0))]",
        "(0, 0)]",
        PLANNER,
    ),
    Mutation(
        "planner: lengths of more than the axis",
        "_plan/rules.py",
        "0 if total == length else WRONG",
        "0 if total >= length else WRONG",
        PLANNER,
    ),
    Mutation(
        "planner: equal parts that leave a rest",
        "_plan/rules.py",
        "if length % count != 0:",
        "if count > max(length, 1):",
        PLANNER,
    ),
    Mutation(
        "planner: an empty chunk where none is left",
        "_plan/rules.py",
        "return tuple([run for run in runs if run[1]])",
        "return tuple(runs)",
        PLANNER,
    ),
    Mutation(
        "planner: one part too many",
        "_plan/rules.py",
        "return chunk, count, TOO_MANY if count > MAX_PARTS else 0\n\n\ndef by_num_outputs",
        "return chunk, count, TOO_MANY if count > MAX_PARTS + 1 else 0\n\n\ndef by_num_outputs",
        PLANNER,
    ),
    Mutation(
        "planner: True for 1",
        "_plan/arguments.py",
        "if isinstance(plain, bool) or",
        "if",
        PLANNER,
    ),
    Mutation(
        "planner: an index before the axis that is not clamped",
        "_plan/rules.py",
        "index + length if index < 0 else index, 0)",
        "index + length if index < 0 else index, -1)",
        PLANNER,
    ),
    Mutation(
        "planner: an index beyond the axis that is not clamped",
        "_plan/rules.py",
        "else index, 0), length)",
        "else index, 0), length + 1)",
        PLANNER,
    ),
    Mutation(
        "planner: indices that descend",
        "_plan/rules.py",
        "if stop < start:",
        "if stop < 0:",
        PLANNER,
    ),
    Mutation(
        "planner: the longer sections last",
        "_plan/rules.py",
        "runs = [(chunk + 1, longer), (chunk, count - longer)]",
        "runs = [(chunk, count - longer), (chunk + 1, longer)]",
        PLANNER,
    ),
    # ---- the boundary: which arrays may be written to -------------------------------------
    Mutation(
        "arrays: out of another shape",
        "_copy/outputs.py",
        "if part.shape != shape:",
        "if part.ndim != len(shape):",
        OUT,
    ),
    Mutation(
        "arrays: out of another dtype",
        "_copy/outputs.py",
        "or part.dtype is not dtype:",
        "or part.itemsize != dtype.itemsize:",
        OUT,
    ),
    Mutation(
        "arrays: read-only out",
        "_copy/outputs.py",
        "part.dtype != dtype or not part.flags.writeable:",
        "part.dtype != dtype:",
        OUT,
    ),
    Mutation(
        "arrays: out that shares memory with x",
        "_copy/outputs.py",
        "if start < high and low < stop and share_memory(x, part):",
        "if start < high and low < start and share_memory(x, part):",
        OUT,
    ),
    Mutation(
        "arrays: an array twice in out",
        "_copy/overlap.py",
        "if share_memory(parts[a], parts[b]):",
        "if parts[a] is not parts[b] and share_memory(parts[a], parts[b]):",
        OUT,
    ),
    Mutation(
        "arrays: only neighbours in memory compared",
        "_copy/overlap.py",
        "end = max(end, stop) if group else stop",
        "end = stop",
        f"{OUT} {OVERLAP}",
    ),
    Mutation(
        "arrays: out whose rows overlap",
        "_copy/overlap.py",
        "if stride < end:",
        "if stride < array.itemsize:",
        OUT,
    ),
    Mutation(
        "overlap: a part that spans two rows of the grid",
        "_copy/overlap.py",
        "            if end > step:\n",
        "            if False:\n",
        OVERLAP,
    ),
    Mutation(
        "overlap: elements of the last dim alone compared",
        "_copy/overlap.py",
        "if share_memory(array[:1], array[1:]):",
        "if array.ndim == 1 and share_memory(array[:1], array[1:]):",
        OVERLAP,
    ),
    # ---- layouts --------------------------------------------------------------------------
    Mutation(
        "layout: rows with gaps merged",
        "_copy/layout.py",
        "(dim.source_stride == inner.extents * inner.source_stride)",
        "(dim.source_stride >= inner.extents * inner.source_stride)",
        f"{LAYOUT} {DTYPES}",
    ),
    Mutation(
        "layout: runs widened over gaps of the target",
        "_copy/layout.py",
        "if np.all((dim.source_stride == run) & (dim.target_strides == run)):",
        "if np.all(dim.source_stride == run):",
        OUT,
    ),
    Mutation(
        "layout: a reversed axis from its other end",
        "_copy/layout.py",
        "- sizes) * strides[plan.axis]",
        "- sizes) * abs(strides[plan.axis])",
        DTYPES,
    ),
    Mutation(
        "layout: unequal parts by equal rows",
        "_copy/layout.py",
        "int(runs[0]) if np.all(runs == runs[0]) else 0",
        "int(runs[0])",
        DTYPES,
    ),
    Mutation(
        "layout: items with gaps deinterleaved",
        "_copy/layout.py",
        "step == n * item and ",
        "step >= n * item and ",
        f"{LAYOUT} {DTYPES}",
    ),
    Mutation(
        "layout: broadcast lines transposed",
        "_copy/layout.py",
        '"transpose" if 0 < line < abs(step)',
        '"transpose" if line < abs(step)',
        LAYOUT,
    ),
    Mutation(
        "layout: addresses of empty parts of out",
        "_copy/layout.py",
        "np.array(addresses, np.int64)[_sizes(plan) > 0]",
        "np.array(addresses, np.int64)[: len(layout.rows)]",
        f"{OUT} {MEMORY}",
    ),
    # ---- buffers --------------------------------------------------------------------------
    Mutation(
        "buffers: small blocks aligned to a word",
        "_copy/buffers.py",
        "start = -address % ALIGNMENT",
        "start = -address % 8",
        "test_split.py::test_parts_are_new_and_aligned",
    ),
    Mutation(
        "buffers: parts back to back",
        "_copy/layout.py",
        "-(-nbytes // ALIGNMENT) * ALIGNMENT",
        "nbytes",
        BUFFERS,
    ),
    Mutation(
        "buffers: a block whose part lives is reused",
        "_copy/buffers.py",
        "return sys.getrefcount(self.memory) == 3",
        "return True",
        BUFFERS,
    ),
    Mutation(
        "buffers: a block never comes back",
        "_copy/buffers.py",
        "self.idle.append(loan.block)",
        "loan.block",
        BUFFERS,
    ),
    Mutation(
        "buffers: a block lost to an interrupt",
        "_copy/buffers.py",
        "if loan() is None:",
        "if loan is None:",
        BUFFERS,
    ),
    Mutation(
        "buffers: a block over the limit",
        "_copy/buffers.py",
        "while self.idle and sum([block.nbytes for block in self.idle]) > self.limit:",
        "while sum([block.nbytes for block in self.idle[1:]]) > self.limit:",
        BUFFERS,
    ),
    Mutation(
        "buffers: a large block for small parts",
        "_copy/buffers.py",
        "if nbytes <= block.nbytes <= 2 * nbytes:",
        "if nbytes <= block.nbytes:",
        BUFFERS,
    ),
    Mutation(
        "buffers: blocks shared with forked children",
        "_copy/buffers.py",
        "mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS",
        "mmap.MAP_SHARED | mmap.MAP_ANONYMOUS",
        BUFFERS,
    ),
    # ---- recipes --------------------------------------------------------------------------
    Mutation(
        "recipe: strings by kernels",
        "_copy/recipe.py",
        "self._has_loops = nbytes > 0 and not dtype.hasobject",
        "self._has_loops = nbytes > 0 and dtype != object",
        "test_objects.py",
    ),
    Mutation(
        "tiles: pieces of a section in the wrong part",
        "files/plan.py",
        "        return range(piece * share, (piece + 1) * share)",
        "        return range(piece % share, piece % share + share)",
        "test_checkpoints.py",
    ),
    Mutation(
        "join: copies may differ",
        "files/reading.py",
        "        for i in range(first + 1, first + copies):",
        "        for i in range(first + 1, first + 1):",
        "test_checkpoints.py",
    ),
    Mutation(
        "join: copies of a head may differ",
        "files/tiles.py",
        "        if first != group and held.tobytes() != tile[:, whole].tobytes():",
        "        if False:",
        "test_shards.py",
    ),
    Mutation(
        "join: ranks in any order",
        "files/ranks.py",
        "    ranks = [by_rank[rank] for rank in range(count)]",
        "    ranks = [*range(count)]",
        "test_shards.py",
    ),
    Mutation(
        "join: ranks of two splits",
        "files/ranks.py",
        "        if _without_ranks(own) != _without_ranks(records[0]):",
        "        if False:",
        "test_shards.py",
    ),
    Mutation(
        "record: the tensors of another file",
        "files/ranks.py",
        "            if record.tensors.keys() != {*file.names}:",
        "            if False:",
        "test_shards.py",
    ),
    Mutation(
        "heads: one that several parts hold is cut",
        "files/dividing.py",
        "    if choice.shared and heads and parts % heads == 0:\n        return kind, heads",
        "    if choice.shared:\n        return rule",
        "test_shards.py",
    ),
    Mutation(
        "index: any path is a name",
        "files/checkpoint.py",
        'any(c in "/\\\\:" or not c.isprintable() for c in name)',
        "False",
        "test_checkpoints.py",
    ),
    Mutation(
        "safetensors: the header has the order of the data",
        "files/formats/safetensors.py",
        "sorted(tensors, key=lambda tensor: tensor.position)",
        "tensors",
        "test_checkpoints.py",
    ),
    Mutation(
        "warnings: a bias follows its weight along any axis",
        "files/siblings.py",
        "not in weight.shape:\n        return weight.axis == output",
        "not in weight.shape:\n        return True",
        "test_checkpoints.py",
    ),
    Mutation(
        "transaction: old files are not put back",
        "files/transaction/moves.py",
        "        if staging.status(old) is not None:",
        "        if False:",
        "test_transaction.py",
    ),
    Mutation(
        "transaction: a finished commit is forgotten",
        "files/transaction/__init__.py",
        "                finished.add(moves.journal.key)",
        "                pass",
        "test_transaction.py",
    ),
    Mutation(
        "transaction: folders that other users may write to are read",
        "files/transaction/journal.py",
        "and not status.st_mode & 0o022",
        "",
        "test_transaction.py",
    ),
    Mutation(
        "recipe: a part that keeps the objects of all",
        "_copy/slices.py",
        "self._whole = is_plain and math.prod",
        "self._whole = self.bits is None and math.prod",
        "test_objects.py",
    ),
    Mutation(
        "recipe: a stack of parts in the order of the source",
        "_copy/slices.py",
        "order = (axis, *range(axis), *range(axis + 1, len(shape)))",
        "order = tuple(range(len(shape)))",
        "test_split.py::test_rules test_planner.py",
    ),
    Mutation(
        "recipe: a stack of unequal parts",
        "_copy/slices.py",
        "or len(shape) == MAX_RANK or len(set(plan.sizes)) > 1:",
        "or len(shape) == MAX_RANK or plan.sizes[0] * count != shape[axis]:",
        "test_split.py::test_rules test_planner.py",
    ),
    Mutation(
        "recipe: parts of one copy along any axis",
        "_copy/slices.py",
        "self._whole = is_plain and math.prod(plan.shape[: plan.axis]) == 1",
        "self._whole = is_plain",
        "test_split.py",
    ),
    Mutation(
        "recipe: records field by field",
        "_copy/slices.py",
        "has_fields = dtype.names is not None and",
        "has_fields = dtype.names is None and",
        DTYPES,
    ),
    Mutation(
        "recipe: a plan for another shape",
        "_copy/recipe.py",
        "if shape != plan.shape:",
        "if len(shape) != len(plan.shape):",
        "test_split.py::test_a_plan_runs_itself",
    ),
    Mutation(
        "recipe: copy=1",
        "_copy/recipe.py",
        "if copy is not True:",
        "if not copy:",
        "test_split.py::test_views test_model.py",
    ),
    Mutation(
        "recipe: a source below the outputs is not compared",
        "_copy/recipe.py",
        "i = bisect.bisect_right(self.stops, start)",
        "i = bisect.bisect_right(self.starts, start)",
        OUT,
    ),
    Mutation(
        "recipe: the outputs of another call",
        "_copy/recipe.py",
        "outputs = self._outputs.get(targets.addresses)",
        "outputs = next(iter(self._outputs.values()), None)",
        OUT,
    ),
    Mutation(
        "recipe: text that a plan keeps",
        "_copy/recipe.py",
        'if dtype.kind == "T":',
        'if dtype.kind == "Q":',
        "test_objects.py::test_a_plan_does_not_keep_the_text_of_an_array",
    ),
    Mutation(
        "recipe: fresh parts of another class of items",
        "_copy/slices.py",
        "part.copy().view(x.dtype) for part",
        "part.copy().view(np.dtype(x.dtype.fields)) for part",
        "test_split.py::test_parts_have_the_very_dtype_of_the_array",
    ),
    Mutation(
        "recipe: all outputs are remembered",
        "_copy/recipe.py",
        "if len(self._outputs) >= _OUTPUTS_KEPT:",
        "if False:",
        "test_out.py::test_few_outputs_are_remembered",
    ),
    Mutation(
        "binding: memory that a view no longer holds",
        "_api/binding.py",
        "(owner, weakref.ref(owner)) for owner",
        "weakref.ref(owner) for owner",
        "test_binding.py",
    ),
    Mutation(
        "recipe: the address of the block for that of the source",
        "_copy/loops.py",
        "arguments = self.stream, target, source, layout.address",
        "arguments = self.stream, target, target or source, layout.address",
        "test_split.py::test_rules",
    ),
    Mutation(
        "binding: an output that was changed in place",
        "_api/binding.py",
        "            if _look(array) != seen:\n",
        "            if False:\n",
        "test_binding.py",
    ),
    Mutation(
        "binding: a source of another dtype",
        "_api/binding.py",
        "if x.dtype is not self._dtype and x.dtype != self._dtype and self._out:",
        "if False:",
        "test_binding.py",
    ),
    Mutation(
        "binding: the layout of another source",
        "_api/binding.py",
        "outputs = self._outputs.get(x.strides)\n",
        "outputs = next(iter(self._outputs.values()), None)\n",
        "test_binding.py",
    ),
    Mutation(
        "binding: outputs that share memory",
        "_api/binding.py",
        "        check_apart(self._targets.parts)\n",
        "",
        "test_binding.py",
    ),
    Mutation(
        "entry: outputs that share memory",
        "_kernels/entry.py",
        "if first < other[TARGET_OFFSET] + other[NBYTES] and other[TARGET_OFFSET] < last:",
        "if first == other[TARGET_OFFSET]:",
        "test_entry.py test_binding.py",
    ),
    Mutation(
        "entry: an output over the source",
        "_kernels/entry.py",
        "if first < stop and start < last:",
        "if first == start:",
        "test_entry.py test_binding.py",
    ),
    Mutation(
        "entry: a read-only output",
        "_kernels/entry.py",
        "if part.flags & call.flags != call.flags:",
        "if part.flags & 1 != 1:",
        "test_entry.py test_binding.py",
    ),
    Mutation(
        "entry: an output of another dtype",
        "_kernels/entry.py",
        "if part.dtype != call.dtype or part.rank != call.rank:",
        "if part.rank != call.rank:",
        "test_entry.py test_binding.py",
    ),
    Mutation(
        "entry: an output of another rank",
        "_kernels/entry.py",
        "if part.dtype != call.dtype or part.rank != call.rank:",
        "if part.dtype != call.dtype:",
        "test_entry.py test_binding.py",
    ),
    Mutation(
        "entry: the length of an output along the axis",
        "_kernels/entry.py",
        "if part.shape[d] != (sizes[i] if d == call.axis else shape[d]):",
        "if d != call.axis and part.shape[d] != shape[d]:",
        "test_entry.py test_binding.py",
    ),
    Mutation(
        "entry: any object as an output",
        "_kernels/entry.py",
        "if words_at(items[i])[OBJECT_TYPE] != call.array_type:",
        "if items[i] == 0:",
        "test_entry.py test_binding.py",
    ),
    Mutation(
        "entry: a list of another length",
        "_kernels/entry.py",
        "if given[LIST_LENGTH] != call.count:",
        "if given[LIST_LENGTH] < call.count:",
        "test_entry.py test_binding.py",
    ),
    Mutation(
        "entry: a source of other strides",
        "_kernels/entry.py",
        "if x.shape[d] != shape[d] or x.strides[d] != strides[d]:",
        "if x.shape[d] != shape[d]:",
        "test_entry.py test_binding.py",
    ),
    Mutation(
        "entry: outputs that are not compared",
        "_kernels/entry.py",
        "            if call.count > _MOST_COMPARED:\n                return False\n",
        "            if call.count > 2:\n                break\n",
        "test_entry.py",
    ),
    Mutation(
        "entry: calls that share a layout",
        "_copy/entry.py",
        "        layout = self._layouts.pop()\n",
        "        layout = (self._layouts or [self._loops.layout.copy()])[-1]\n",
        "test_entry.py::test_calls_at_the_same_time_have_layouts_of_their_own",
    ),
    Mutation(
        "entry: a lease left behind by an error",
        "_kernels/entry.py",
        "        else:\n            decrement(lease)\n",
        "",
        "test_entry.py",
    ),
    Mutation(
        "entry: a block that no part frees",
        "_kernels/entry.py",
        "        decrement(memory)  # each part has a reference of its own\n",
        "",
        "test_entry.py",
    ),
    Mutation(
        "entry: parts of another dtype object",
        "_kernels/entry.py",
        "new_array(call, dtype, call.rank, shape, data)",
        "new_array(call, call.dtype, call.rank, shape, data)",
        "test_entry.py",
    ),
    Mutation(
        "entry: a row for an empty fresh part",
        "_kernels/entry.py",
        "        if sizes[i]:  # the layout has no row for an empty part\n",
        "        if True:\n",
        "test_entry.py",
    ),
    Mutation(
        "entry: parts left behind by an error",
        "_kernels/entry.py",
        "            decrement(parts)\n            return 0\n",
        "            return 0\n",
        "test_entry.py",
    ),
    Mutation(
        "entry: a block that is not aligned",
        "_kernels/entry.py",
        "        block = -(-words_at(memory)[ARRAY_DATA] // LINE) * LINE\n",
        "        block = words_at(memory)[ARRAY_DATA]\n",
        "test_entry.py",
    ),
    Mutation(
        "entry: a fresh copy of any array",
        "_kernels/entry.py",
        "    if not is_checked and not _is_expected",
        "    if 0 and not _is_expected",
        "test_entry.py",
    ),
    Mutation(
        "entry: the row of an empty part",
        "_kernels/entry.py",
        "        words[TARGET_OFFSET] = first\n        row += record.row\n",
        "        words[TARGET_OFFSET] = first\n        row += record.row if i else 0\n",
        "test_entry.py test_binding.py",
    ),
    Mutation(
        "entry: a source that a finalizer changed",
        "_kernels/entry.py",
        "        if _is_as(call, expected, array, dtype):\n",
        "        if True:\n",
        "test_finalizers.py::test_a_finalizer_inside_of_a_split",
    ),
    Mutation(
        "entry: a record that a finalizer frees",
        "_copy/entry.py",
        "    record.kept = (dtype, loops.layout)\n",
        "    record.kept = ()\n",
        "test_finalizers.py::test_a_compiled_call_owns_all_that_it_reads",
    ),
    # ---- loading --------------------------------------------------------------------------
    Mutation(
        "loading: only the lock of Numba's compiler",
        "_copy/loading.py",
        "    missing = [name for name in contexts if name not in vars(cpu_target)]\n",
        "    missing = []\n",
        "test_foreign_work.py::test_nobody_waits",
    ),
    # ---- the loop for runs ----------------------------------------------------------------
    Mutation(
        "kernels: runs that no code collects",
        "_kernels/rows.py",
        "in_words = run in COLLECTED and target",
        "in_words = run >= 4 and target",
        f"{ROWS} {DTYPES} {OUT}",
    ),
    Mutation(
        "kernels: a group with the last run of a part",
        "_kernels/rows.py",
        "groups = (runs - head - 1) >> group",
        "groups = (runs - head) >> group",
        MEMORY,
    ),
    Mutation(
        "kernels: the runs before the first group",
        "_kernels/rows.py",
        "(11 if words == 3 else 1)",
        "(3 if words == 3 else 1)",
        ROWS,
    ),
    Mutation(
        "kernels: groups of the task before",
        "_kernels/rows.py",
        "begin, end = max((first - head) >> group, 0)",
        "begin, end = max((first - head) >> group, 1)",
        ROWS,
    ),
    Mutation(
        "kernels: the runs after the last group",
        "_kernels/rows.py",
        "move_runs(target + i * run, source + i * row, run, runs - i, run, row)",
        "move_runs(target + i * run, source + i * row, run, runs - i - 1, run, row)",
        ROWS,
    ),
    Mutation(
        "kernels: lines of three words",
        "_kernels/variants.py",
        "places = [i // 3 * 4 + i % 3 - k * items for",
        "places = [i // 3 * 4 + i % 3 - k * items + (k == 2) for",
        ROWS,
    ),
    Mutation(
        "kernels: the end of a short run",
        "_kernels/variants.py",
        "yield 1 << bit, [integer(0), last]",
        "yield 1 << bit, [integer(0)]",
        DTYPES,
    ),
    Mutation(
        "kernels: a byte of runs of lines and one",
        "_kernels/runs.py",
        "for k in range(0, last, LINE):",
        "for k in range(0, last - 1, LINE):",
        f"{MEMORY} test_split.py::test_sizes_across_the_thresholds",
    ),
    Mutation(
        "kernels: a line past the end of a run",
        "_kernels/runs.py",
        "        last = run - LINE\n",
        "        last = run // LINE * LINE\n",
        MEMORY,
    ),
    Mutation(
        "kernels: wrong stride of the target",
        "_kernels/copy.py",
        "Runs(target, source, length, count, target_step, source_step)",
        "Runs(target, source, length, count, run, source_step)",
        OUT,
    ),
    Mutation(
        "kernels: runs past the end of their line",
        "_kernels/copy.py",
        "            left -= i",
        "            left -= 0",
        f"{DTYPES} {OUT}",
    ),
    Mutation(
        "kernels: a cut within a run",
        "_kernels/copy.py",
        "offset = first - index * run",
        "offset = 0",
        f"{DTYPES} {MEMORY}",
    ),
    Mutation(
        "kernels: the last row of each part",
        "_kernels/copy.py",
        "first, last = length * task // tasks, length * (task + 1) // tasks",
        "first, last = length * task // tasks, (length - 1) * (task + 1) // tasks",
        DTYPES,
    ),
    Mutation(
        "kernels: the end of a part at a cut",
        "_kernels/copy.py",
        "    if position >= part.nbytes:\n",
        "    if position > part.nbytes:\n",
        DTYPES,
    ),
    Mutation(
        "kernels: the last row of a block",
        "_kernels/copy.py",
        "j = min(i + block, last)",
        "j = min(i + block - 1, last)",
        "test_split.py::test_sizes_across_the_thresholds",
    ),
    # ---- streaming stores -----------------------------------------------------------------
    Mutation(
        "kernels: unaligned lines streamed",
        "_kernels/runs.py",
        "head = min(-target % LINE, nbytes)",
        "head = min(-target % 16, nbytes)",
        f"{OUT} {MEMORY}",
    ),
    Mutation(
        "kernels: the last byte of a streamed run",
        "_kernels/runs.py",
        "    if tail < nbytes:",
        "    if tail < nbytes - 1:",
        MEMORY,
    ),
    Mutation(
        "kernels: staged bytes before the target",
        "_kernels/runs.py",
        "    return Stream(target - fill, fill, fill)",
        "    return Stream(target - fill, fill, np.intp(0))",
        f"{OUT} {MEMORY}",
    ),
    Mutation(
        "kernels: staged bytes of a line begun",
        "_kernels/runs.py",
        "        move(stage, stage + full, LINE, False)\n",
        "",
        DTYPES,
    ),
    Mutation(
        "kernels: the end of what is staged",
        "_kernels/runs.py",
        "stream.fill - stream.skip)",
        "0)",
        DTYPES,
    ),
    Mutation(
        "kernels: a run read past the end",
        "_kernels/runs.py",
        "move_runs(stage + stream.fill, source, run, n, run, runs.source_step)",
        "move_runs(stage + stream.fill, source, run, n + 1, run, runs.source_step)",
        MEMORY,
    ),
    Mutation(
        "kernels: the tail of a long run",
        "_kernels/runs.py",
        "copy_bytes(stage + stream.fill, source + tail, run - tail)",
        "copy_bytes(stage + stream.fill, source + tail, 0)",
        OUT,
    ),
    Mutation(
        "kernels: lines streamed over gaps",
        "_kernels/stream.py",
        "        if part.target_strides[d] != step and part.extents[d] != 1:\n",
        "        if False:\n",
        OUT,
    ),
    Mutation(
        "kernels: too few steps before a batch gathered again",
        "_kernels/transpose.py",
        "again = -(-LINE // run)",
        "again = 1",
        f"{OUT} {MEMORY}",
    ),
    Mutation(
        "kernels: a shorter first batch is too long",
        "_kernels/transpose.py",
        "        start = max(start, 0)\n",
        "",
        f"{OUT} {MEMORY}",
    ),
    Mutation(
        "kernels: a line written to its end in each batch",
        "_kernels/transpose.py",
        "b -= (target + b) % LINE if end < steps else 0",
        "b -= (target + b) % LINE",
        f"{OUT} {MEMORY}",
    ),
    Mutation(
        "threads: the affinity of a thread that moved",
        "_kernels/wake.py",
        "        _sched_setaffinity(0, _MASK, mask)\n",
        "",
        "test_threads.py",
    ),
    # ---- rows with long runs --------------------------------------------------------------------
    Mutation(
        "kernels: a line before the first row",
        "_kernels/rows.py",
        "            if i == 0:\n",
        "            if False:\n",
        ROWS,
    ),
    Mutation(
        "kernels: a line merged from a run of another part",
        "_kernels/rows.py",
        "source - row + run - begun, source - begun, begun)",
        "source - row - begun, source - begun, begun)",
        ROWS,
    ),
    Mutation(
        "kernels: the last line of the last row",
        "_kernels/rows.py",
        "    if last == runs:  # no run after it",
        "    if False:  # no run after it",
        ROWS,
    ),
    Mutation(
        "kernels: rows with gaps between them",
        "_kernels/rows.py",
        "layout.dims == 1 and layout.source_strides[0] == row",
        "layout.dims == 1",
        f"{ROWS} {MEMORY}",
    ),
    Mutation(
        "kernels: runs collected to addresses within a word",
        "_kernels/rows.py",
        "in_words = run in COLLECTED and target & ((run & -run) - 1) == 0",
        "in_words = run in COLLECTED",
        f"{ROWS} {DTYPES} {OUT}",
    ),
    # ---- the loop for items deinterleaved ------------------------------------------------------
    Mutation(
        "kernels: deinterleaved in blocks",
        "_kernels/variants.py",
        "places = [part + parts * i for i in range(items)]",
        "places = [part * items + i for i in range(items)]",
        DEINTERLEAVED,
    ),
    Mutation(
        "kernels: bytes before the first deinterleaved line",
        "_kernels/deinterleave.py",
        "if is_first and fill:  # the first line begins before the part",
        "if False:  # the first line begins before the part",
        DEINTERLEAVED,
    ),
    Mutation(
        "kernels: the last item deinterleaved",
        "_kernels/deinterleave.py",
        "_copy_items(call, layout, first + count * LINE // part.run, last)",
        "_copy_items(call, layout, first + count * LINE // part.run, last - 1)",
        DEINTERLEAVED,
    ),
    Mutation(
        "kernels: a line too many deinterleaved",
        "_kernels/deinterleave.py",
        "count = (last - first) * part.run // LINE",
        "count = -(-(last - first) * part.run // LINE)",
        f"{DEINTERLEAVED} {MEMORY}",
    ),
    Mutation(
        "kernels: an item between tasks",
        "_kernels/deinterleave.py",
        "    first = layout.runs * task // tasks\n",
        "    first = -(-layout.runs * task // tasks)\n",
        DEINTERLEAVED,
    ),
    Mutation(
        "kernels: unaligned parts deinterleaved past the cache",
        "_kernels/deinterleave.py",
        "stage + p * _REGION + target % LINE",
        "stage + p * _REGION + target % 16",
        DEINTERLEAVED,
    ),
    Mutation(
        "kernels: the partial last line deinterleaved",
        "_kernels/deinterleave.py",
        "copy_bytes(line, words_at(table)[p] - fill, fill)",
        "copy_bytes(line, words_at(table)[p] - fill, fill // 2)",
        DEINTERLEAVED,
    ),
    Mutation(
        "kernels: a staged line lost between groups",
        "_kernels/deinterleave.py",
        "        move(region, region + count * LINE, LINE, False)\n",
        "",
        DEINTERLEAVED,
    ),
    # ---- the loop for transposed sources --------------------------------------------------
    Mutation(
        "kernels: a tile of a strip",
        "_kernels/variants.py",
        "end = _least(builder, builder.add(first, tile), lines)",
        "end = _least(builder, builder.add(first, tile), builder.sub(lines, width))",
        TRANSPOSED,
    ),
    Mutation(
        "kernels: a tile past the end of a strip",
        "_kernels/variants.py",
        "line = _least(builder, k, builder.sub(lines, width))",
        "line = k",
        f"{TRANSPOSED} {MEMORY}",
    ),
    Mutation(
        "kernels: the steps after the last tile",
        "_kernels/tiles.py",
        "    return done\n",
        "    return steps\n",
        TRANSPOSED,
    ),
    Mutation(
        "kernels: the steps before the first tile",
        "_kernels/transpose.py",
        "Strip(strip.source, run, lines, head, strip.line, step)",
        "Strip(strip.source, run, lines, head - 1, strip.line, step)",
        OUT,
    ),
    Mutation(
        "kernels: the last square of some lines",
        "_kernels/variants.py",
        "k = _least(builder, k, builder.sub(lines, side))",
        "pass",
        f"{TRANSPOSED} {MEMORY}",
    ),
    Mutation(
        "kernels: the last square of some steps",
        "_kernels/variants.py",
        "i = _least(builder, i, builder.sub(steps, side))",
        "pass",
        f"{TRANSPOSED} {MEMORY}",
    ),
    Mutation(
        "kernels: a square of fewer steps",
        "_kernels/tiles.py",
        "lines >= side and steps >= side:",
        "lines >= side:",
        f"{TRANSPOSED} {MEMORY}",
    ),
    Mutation(
        "kernels: a piece of few steps without the next step",
        "_kernels/variants.py",
        "[offset, source], [run, step]) as (place, first)",
        "[offset, source], [integer(0), step]) as (place, first)",
        TRANSPOSED,
    ),
    Mutation(
        "kernels: lines of the next part after a strip that ends with a part",
        "_kernels/transpose.py",
        "n = min(width - k, part.extents[dims - 2] - line)",
        "n = width - k",
        TRANSPOSED,
    ),
    Mutation(
        "kernels: longer runs without the buffer that gathers them",
        "_kernels/transpose.py",
        "return longest >= _LONG",
        "return longest > 2 * _LONG",
        MEMORY,
    ),
    Mutation(
        "kernels: the last tile that is gathered",
        "_kernels/transpose.py",
        "write_tiles(_ZERO, table, start * run,",
        "write_tiles(_ZERO, table, start * run + run,",
        TRANSPOSED,
    ),
    Mutation(
        "kernels: the lines of another strip",
        "_kernels/transpose.py",
        "if strips > 1 or dims > 2 or piece == first:",
        "if piece == first:",
        TRANSPOSED,
    ),
    Mutation(
        "kernels: the last strip as wide as the others",
        "_kernels/transpose.py",
        "width = min(band.width, band.lines - strip * band.width)",
        "width = band.width",
        f"{TRANSPOSED} {MEMORY}",
    ),
    Mutation(
        "kernels: the last batch as long as the others",
        "_kernels/transpose.py",
        "end = min(start + band.batch, steps)",
        "end = start + band.batch",
        f"{TRANSPOSED} {MEMORY}",
    ),
    Mutation(
        "kernels: a piece between tasks",
        "_kernels/transpose.py",
        "max(total * task // tasks - start, 0)",
        "max(-(-total * task // tasks) - start, 0)",
        TRANSPOSED,
    ),
    Mutation(
        "kernels: the outermost dim of a band",
        "_kernels/transpose.py",
        "for d in range(dims - 3, -1, -1):",
        "for d in range(dims - 3, 0, -1):",
        f"{MEMORY} {DTYPES}",
    ),
    Mutation(
        "kernels: bands that go on from the last part",
        "_kernels/transpose.py",
        "p = p + 1 if p + 1 < band.end else band.first",
        "p = min(p + 1, layout.count - 1)",
        f"{TRANSPOSED} {MEMORY}",
    ),
    Mutation(
        "kernels: bands of lines apart",
        "_kernels/transpose.py",
        "if after.source_offset != end or",
        "if after.source_offset < end or",
        f"{TRANSPOSED} {MEMORY}",
    ),
    # ---- threads --------------------------------------------------------------------------
    Mutation(
        "threads: parallel regions in forked children",
        "_copy/loading.py",
        "    _is_forked_child = True",
        "    _is_forked_child = False",
        "test_forks.py",
    ),
    Mutation(
        "threads: workqueue beside threads of no module",
        "_copy/threads.py",
        "len(sys._current_frames()) > 1",
        "threading.active_count() > 1",
        THREADS,
    ),
    Mutation(
        "threads: nobody waits for kernels",
        "_copy/loading.py",
        "            if not wait or _has_interrupted_numba():",
        "            if True:",
        THREADS,
    ),
    Mutation(
        "threads: a split waits for Numba's compiler lock",
        "_copy/loading.py",
        "if not lock.acquire(blocking=False):",
        "if not lock.acquire():",
        "test_foreign_work.py::test_nobody_waits",
    ),
    Mutation(
        "threads: kernels are loaded inside of an import of Numba",
        "_copy/loading.py",
        " or _has_interrupted_numba() or _importing():",
        ":",
        "test_foreign_work.py::test_half_made_modules",
    ),
    Mutation(
        "threads: a large staging buffer on the stack",
        "_kernels/runs.py",
        "STAGE = PAGE",
        "STAGE = 1 << 16",
        "test_threads.py::test_small_stacks",
    ),
    Mutation(
        "caches: the hash is not compared",
        "_kernels/cached_files.py",
        "return self._hash_file.read_bytes() == self._hash()",
        "return self._hash_file.exists()",
        "test_caches.py::test_flipped_bits",
    ),
    Mutation(
        "caches: processes do not share a compilation",
        "_kernels/cached_files.py",
        "                return _lock(file)",
        "                return None",
        "test_caches.py::test_processes_share_one_compilation",
    ),
    Mutation(
        "explain: an entry for parts that are not contiguous",
        "_copy/recipe.py",
        "if enters and contiguous:",
        "if enters:",
        "test_explain.py",
    ),
    Mutation(
        "threads: more than one where one was asked for",
        "_copy/threads.py",
        "if _alone.get():",
        "if False:",
        "test_dask.py",
    ),
    Mutation(
        "split: outputs are left out",
        "_api/split.py",
        "recipe.run(cached_plan(x.shape, axis, rule), x, out, copy)",
        "recipe.run(cached_plan(x.shape, axis, rule), x, None, copy)",
        "test_out.py::test_parts_are_written_in_place_whatever_the_strides",
    ),
    Mutation(
        "split: no arrays to split into",
        "_api/split.py",
        "    if outs is None:",
        "    if False:",
        "test_split.py::test_split_into_refuses_in_its_own_name",
    ),
    Mutation(
        "split: a fix that names other parameters is lost",
        "_api/split.py",
        "        refusal.hint = error.hint  # the parameters have the same names",
        "        pass",
        "test_planner.py::test_split_into_has_the_hints_of_split",
    ),
    Mutation(
        "plan: one plan for all axes",
        "_api/plan.py",
        "    key = shape, axis, rule",
        "    key = shape, rule",
        PLANNER,
    ),
    Mutation(
        "plan: an axis that equals an integer",
        "_api/plan.py",
        "    if type(axis) is not int:",
        "    if False:",
        "test_planner.py::test_equal_calls_share_a_plan_and_unequal_kinds_do_not_pass_as_equal",
    ),
    Mutation(
        "plan: what is made later is not counted",
        "_api/plan.py",
        "        self._grow(self._bytes_of(name))",
        "        pass",
        "test_kept.py::test_a_plan_that_grows_too_large_is_not_kept",
    ),
    Mutation(
        "plan: parts of a run start where the run does",
        "_plan/plan.py",
        "            start += size * n",
        "            start += size",
        "test_kept.py::test_lazy_attributes_are_those_of_a_plan_of_lengths",
    ),
    Mutation(
        "plan: more parts than memory holds",
        "_plan/plan.py",
        "        if plan._count > most_parts():",
        "        if False:",
        "test_planner.py::test_a_plan_that_would_not_fit_in_memory",
    ),
    Mutation(
        "reach: traces",
        "_inputs/reach.py",
        "            or is_tracing()\n",
        "",
        "test_transforms.py::test_a_trace_is_right_for_other_inputs",
    ),
    Mutation(
        "reach: modes",
        "_inputs/reach.py",
        "            or count_dispatch_modes()\n",
        "",
        "test_transforms.py::test_a_mode_sees_the_operators",
    ),
    Mutation(
        "reach: tangents",
        "_inputs/reach.py",
        "            or forward_ad._current_level >= 0\n",
        "",
        "test_transforms.py::test_forward_mode_keeps_the_tangent",
    ),
    Mutation(
        "foreign: a last chunk that is too long",
        "_inputs/foreign.py",
        "            sizes[-1] = (traced - 1) % value + 1",
        "            sizes[-1] = traced - value * (count - 1)",
        "test_transforms.py::test_a_trace_refuses_other_lengths",
    ),
    Mutation(
        "foreign: sections of the example",
        "_inputs/foreign.py",
        "        sizes = [(traced + value - 1 - i) // value for i in range(value)]",
        "        sizes = [(length + value - 1 - i) // value for i in range(value)]",
        "test_transforms.py::test_a_trace_is_right_for_other_lengths",
    ),
    Mutation(
        "files: indices make one part less",
        "files/dividing.py",
        "        return len(value) + (kind == INDICES)",
        "        return len(value)",
        "test_shards.py::test_every_rule_and_format",
    ),
    Mutation(
        "files: a head that is cut",
        "files/dividing.py",
        "        if choice.head and any(size % choice.head for size in sizes):",
        "        if False:",
        "test_shards.py::test_heads_that_would_be_cut",
    ),
    Mutation(
        "files: two parts of one name",
        "files/splitting.py",
        "            if place in owners:",
        "            if False:",
        "test_files.py::test_parts_of_two_files_must_not_share_names",
    ),
    Mutation(
        "files: a part replaces an input",
        "files/splitting.py",
        "            if place in replaced:",
        "            if False:",
        "test_files.py::test_no_part_replaces_an_input",
    ),
    Mutation(
        "files: other numbers of parts",
        "files/splitting.py",
        "    if len(counts) > 1:",
        "    if False:",
        "test_files.py::test_all_files_have_as_many_parts",
    ),
    Mutation(
        "files: one tensor in two files of a rank",
        "files/splitting.py",
        "        if plan.name in holders:",
        "        if False:",
        "test_checkpoints.py::test_a_tensor_in_two_files_of_a_rank",
    ),
    Mutation(
        "crossovers: short runs stay in a large cache",
        "_copy/crossovers.py",
        "    is_cached = run >= LONG_RUN and cache_bytes() >= _LARGE_CACHE",
        "    is_cached = cache_bytes() >= _LARGE_CACHE",
        "test_layout.py::test_what_bypasses_the_cache",
    ),
    Mutation(
        "crossovers: NumPy copies short runs",
        "_copy/crossovers.py",
        "plan._count < _FEW_RUNS",
        "plan._count > 0",
        "test_layout.py::test_what_numpy_copies",
    ),
    Mutation(
        "crossovers: rows of strided arrays are not counted",
        "_copy/crossovers.py",
        "        axis = -1",
        "        axis = 0",
        "test_layout.py::test_what_numpy_copies",
    ),
    Mutation(
        "crossovers: NumPy copies strided items",
        "_copy/crossovers.py",
        "        if strides[-1] != itemsize and nbytes >= _FEW_ITEMS * itemsize:",
        "        if False:",
        "test_layout.py::test_what_numpy_copies",
    ),
    Mutation(
        "slices: records without the bits between fields",
        "_copy/slices.py",
        "        if self.bits is not None:\n            x, parts",
        "        if False:\n            x, parts",
        DTYPES,
    ),
    Mutation(
        "governor: pauses do not grow",
        "_copy/pauses.py",
        "GROWTH * self.length",
        "self.length",
        "test_governor.py",
    ),
    Mutation(
        "governor: a gain forgets any loss",
        "_copy/pauses.py",
        "        if self.owed > 0:\n            return False",
        "        if False:\n            return False",
        "test_governor.py",
    ),
    # ---- the governor and the cores -------------------------------------------------------
    Mutation(
        "governor: parallel copies never pause",
        "_copy/governor.py",
        "            machine.begin(loss)",
        "            pass",
        "test_governor.py",
    ),
    Mutation(
        "governor: a pause never ends",
        "_copy/governor.py",
        "            self._probing = True\n",
        "            self._probing = False\n",
        "test_governor.py",
    ),
    Mutation(
        "governor: copies that do not pay go on",
        "_copy/governor.py",
        "if cell.slow > SLOW:",
        "if False:",
        "test_governor.py",
    ),
    Mutation(
        "governor: stalls after rests pause",
        "_copy/governor.py",
        "STALLS = 3",
        "STALLS = 1",
        "test_governor.py",
    ),
    Mutation(
        "governor: each hundredth copy may stall",
        "_copy/governor.py",
        "machine.owed = loss if rested else OWED * loss",
        "machine.owed = loss",
        "test_governor.py",
    ),
    Mutation(
        "governor: a busy machine at the start",
        "_copy/governor.py",
        "if now >= self._look_at and self._look(now) is False and self._is_crowded():",
        "if False:",
        "test_governor.py",
    ),
    Mutation(
        "cores: the affinity as it was at the start",
        "_copy/cores.py",
        "_Known.usable_until = now + _AFFINITY_FOR",
        "_Known.usable_until = now + 1e9",
        "test_cores.py",
    ),
    Mutation(
        "cores: the quota of the innermost group alone",
        "_copy/cores.py",
        "for depth in range(len(names) + 1)",
        "for depth in range(len(names), len(names) + 1)",
        "test_cores.py",
    ),
    # ---- compiled code --------------------------------------------------------------------
    Mutation(
        "overloads: a length of -1",
        "_plan/rules.py",
        "        if n < 0:\n",
        "        if n < -1:\n",
        f"{OVERLOADS}::test_lengths_that_only_seem_to_sum_to_the_axis_length",
    ),
    Mutation(
        "overloads: lengths whose sum overflows",
        "_plan/rules.py",
        "n, WRONG_VALUE\n        total = total + n if n <= most - total",
        "n, WRONG_VALUE\n        total = total + n if n <= most",
        f"{OVERLOADS}::test_lengths_that_only_seem_to_sum_to_the_axis_length",
    ),
    Mutation(
        "overloads: equal parts that leave a rest",
        "_njit/rules.py",
        "rule(number, length)",
        "rule(number, length - length % number)",
        f"{OVERLOADS}::test_the_rules_are_those_of_python",
    ),
    Mutation(
        "overloads: a negative axis without its sign",
        "_njit/rules.py",
        "wrap_axis = register_jitable(rules.wrap_axis)",
        "wrap_axis = register_jitable(lambda axis, rank: (abs(axis) % rank, 0))",
        f"{OVERLOADS}::test_any_dtype_rank_and_layout",
    ),
    Mutation(
        "overloads: one longer section too many",
        "_plan/rules.py",
        "+ (i < longer)",
        "+ (i <= longer)",
        f"{OVERLOADS}::test_the_rules_are_those_of_python",
    ),
    Mutation(
        "overloads: an unsigned integer that becomes negative",
        "_njit/rules.py",
        "signed if signed >= 0 or value < 0 else np.intp(_MOST)",
        "signed",
        f"{OVERLOADS}::test_integers_beyond_those_with_a_sign",
    ),
    Mutation(
        "overloads: parts of less than nothing",
        "_plan/rules.py",
        "min(chunk, length - min(i * chunk + longer, length))",
        "min(chunk, length - i * chunk - longer)",
        f"{OVERLOADS}::test_the_rules_are_those_of_python",
    ),
    Mutation(
        "overloads: neighbours in outs not compared",
        "_njit/outputs.py",
        "start < _span(outs[last])[1]:",
        "start < _span(outs[last])[0]:",
        f"{OVERLOADS}::test_split_into_refuses_what_does_not_fit",
    ),
    Mutation(
        "overloads: Numba inlines split, and removes dead code of the user",
        "_njit/overloads.py",
        "@overload(splitjit.split)",
        '@overload(splitjit.split, inline="always")',
        "test_njit_neighbours.py",
    ),
    Mutation(
        "overloads: an axis out of range",
        "_njit/overloads.py",
        'if axis_fault != 0:\n            raise SplitError("split", ',
        'if axis_fault > 1:\n            raise SplitError("split", ',
        f"{OVERLOADS}::test_refusals_say_what_was_received",
    ),
    Mutation(
        "overloads: outs that share memory with x",
        "_njit/outputs.py",
        "if start < end_of_x and start_of_x < end:",
        "if start < end_of_x < end:",
        f"{OVERLOADS}::test_split_into_refuses_what_does_not_fit",
    ),
    Mutation(
        "overloads: the last row of a block",
        "_njit/copying.py",
        "end = min(row + block, rows)",
        "end = min(row + block - 1, rows)",
        f"{OVERLOADS}::test_large_arrays_are_streamed",
    ),
    Mutation(
        "overloads: strides of the source for those of the target",
        "_kernels/part.py",
        "row[FIXED + dims + d] = found[dim + 2]",
        "row[FIXED + dims + d] = found[dim + 1]",
        f"{OVERLOADS}::test_split_into_writes_to_what_is_there",
    ),
    # ---- operators ------------------------------------------------------------------------
    Mutation(
        "operators: chunks of unknown length, the last one full",
        "_operators.py",
        "[1 if value == 1 else None, ...]",
        "[value, ...]",
        "test_onnx.py",
    ),
    Mutation(
        "operators: only axis 0 is unknown if the axis is",
        "_operators.py",
        "return (None,) * len(dims)",
        "axis = 0",
        "test_shapes.py",
    ),
    Mutation(
        "operators: the length of a single part is unknown",
        "_operators.py",
        "if value.length == 1 or high == 0",
        "if high == 0",
        "test_shapes.py",
    ),
    Mutation(
        "operators: a bound that no multiple reaches",
        "_operators.py",
        "length = -(-low // value) * value",
        "length = low // value * value",
        "test_shapes.py",
    ),
    Mutation(
        "onnx: the outputs of unknown lengths",
        "onnx/split.py",
        "count = self._outputs if split.length is None else split.length",
        "count = split.length",
        "test_shapes.py",
    ),
    Mutation(
        "onnx: the version before the one in force",
        "onnx/versions.py",
        "if version.since <= opset)",
        "if version.since < max(opset, 2))",
        "test_onnx.py",
    ),
    Mutation(
        "onnx: parts beyond the outputs",
        "onnx/split.py",
        "return self._run(input, split)[: self._outputs]",
        "return self._run(input, split)",
        "test_onnx.py",
    ),
    Mutation(
        "onnx: fewer lengths than outputs",
        "onnx/split.py",
        "count != self._outputs)",
        "count > self._outputs)",
        "test_onnx.py test_model.py",
    ),
    Mutation(
        "onnx: keepdims=0 beside split",
        "onnx/split_to_sequence.py",
        "if self._keepdims or split is not None:\n            return parts",
        "if self._keepdims:\n            return parts",
        "test_onnx.py",
    ),
    Mutation(
        "openvino: the rest and one",
        "openvino.py",
        "others = sum(lengths) + 1",
        "others = sum(lengths)",
        "test_openvino.py",
    ),
    Mutation(
        "openvino: -1 twice",
        "openvino.py",
        "if len([n for n in lengths if n == -1]) > 1:",
        "if len([n for n in lengths if n == -1]) > 2:",
        "test_openvino.py",
    ),
    Mutation(
        "openvino: an axis of two integers",
        "openvino.py",
        "if len(indices) != 1:",
        "if not indices:",
        "test_openvino.py",
    ),
    Mutation(
        "openvino: a rest that is possible is certain",
        "openvino.py",
        "if -1 in lengths and not isinstance(length, int):",
        "if False:",
        "test_shapes.py",
    ),
]


def mutated(mutation: Mutation, package: Path) -> str:
    """Return the text of the mutation's file with the defect."""
    source = (package / mutation.file).read_text(encoding="utf-8")
    count = source.count(mutation.old)
    if count != 1:
        sys.exit(f"{mutation.name}: {mutation.file} has {count} times {mutation.old!r}, not once")
    return source.replace(mutation.old, mutation.new)


def test(folder: Path, mutations: list[Mutation]) -> str:
    """Run the tests of mutations until one fails; return the failure, or an empty string."""
    tests = list(dict.fromkeys(test for mutation in mutations for test in mutation.tests.split()))
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "PYTHONPATH": str(folder),
        "NUMBA_CACHE_DIR": str(folder / "cache"),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    with subprocess.Popen(
        command, cwd=folder / "tests", env=environment, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"no end within {SECONDS} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also ends child processes that hang
    status = process.returncode
    if status in (4, 5):  # pytest found no such test
        sys.exit(f"{' '.join(command)}\n{output}")
    if failed := re.search(r"^(?:FAILED|ERROR) (?:tests/)?(.+?)(?: - |$)", output, re.MULTILINE):
        return failed[1]
    return signal.Signals(-status).name if status < 0 else f"exit status {status}" * (status > 0)


def main() -> int:
    """Run the command line, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginning of the names to try")
    parser.add_argument("--list", action="store_true", help="show the names, and try nothing")
    arguments = parser.parse_args()
    names = tuple(arguments.names) or ("",)
    chosen = [mutation for mutation in MUTATIONS if mutation.name.startswith(names)]
    if not chosen:
        parser.error(f"no defect is named {' or '.join(names)}")
    sources = {mutation: mutated(mutation, ROOT / "splitjit") for mutation in chosen}
    if arguments.list:
        print(*(mutation.name for mutation in chosen), sep="\n")
        return 0
    if usable(time.monotonic()) < 2:
        sys.exit("defects between the tasks of two threads cannot be seen on one core")
    survived = []
    with tempfile.TemporaryDirectory(prefix="splitjit-") as name:
        folder = Path(name)
        for part in ("splitjit", "tests"):
            shutil.copytree(
                ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__")
            )
        for file in ("pyproject.toml", "README.md"):  # a test of test_split.py reads the README
            shutil.copy(ROOT / file, folder)
        if failure := test(folder, chosen):
            sys.exit(f"without a defect: {failure}")
        for mutation, source in sources.items():
            file = folder / "splitjit" / mutation.file
            original = file.read_text(encoding="utf-8")
            file.write_text(source, encoding="utf-8")
            start = time.perf_counter()
            failure = test(folder, [mutation])
            seconds = time.perf_counter() - start
            file.write_text(original, encoding="utf-8")
            if not failure:
                survived.append(mutation.name)
            result = f"caught by {failure}" if failure else "SURVIVED"
            print(f"{mutation.name}: {result} ({seconds:.0f} s)", flush=True)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} caught")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
