"""LLVM instructions that Numba does not offer: move, stream, prefetch, fence.

Addresses and byte counts are machine integers. The parameters `stream`,
`itemsize` and `alignment`, and `nbytes` of `move` and `reserve`, are literals:
Numba compiles one variant for each value.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import RequireLiteralValue
from numba.extending import intrinsic

from splitjit._kernels.table import INTERLEAVED, LINE, TILE, WORD

_AHEAD = 1 << 12  # bytes between a load of interleaved items and the address that is prefetched

_BYTE, _INT32, _INT64 = (ir.IntType(bits) for bits in (8, 32, 64))


def _pointer(builder, address, element):
    return builder.inttoptr(address, element.as_pointer())


def _int(value):
    return ir.Constant(_INT64, value)


def _literals(*kinds):
    """Return the values of literal arguments."""
    for kind in kinds:
        if not isinstance(kind, types.Literal):
            raise RequireLiteralValue(f"{kind} must be a literal")
    return [kind.literal_value for kind in kinds]


def _store(builder, value, pointer, nbytes, stream):
    """Store a value. If `stream`, the store bypasses the cache; the pointer must be aligned."""
    store = builder.store(value, pointer, align=nbytes if stream else 1)
    if stream:
        one = ir.Constant(_INT32, 1)
        store.set_metadata("nontemporal", builder.module.add_metadata([one]))


def _shuffled(builder, a, b, places):
    mask = ir.Constant(ir.VectorType(_INT32, len(places)), places)
    return builder.shuffle_vector(a, b, mask)


@intrinsic
def copy_bytes(typingctx, target, source, nbytes):
    """Copy bytes with C's memcpy."""

    def codegen(context, builder, signature, args):
        target, source = (_pointer(builder, address, _BYTE) for address in args[:2])
        cgutils.raw_memcpy(builder, target, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), codegen


@intrinsic(prefer_literal=True)
def move(typingctx, target, source, nbytes, stream):
    """Move one word of `nbytes` bytes, a power of two up to a cache line.

    If `stream`, the store bypasses the cache, and the target must be aligned to
    `nbytes`. Otherwise both addresses may have any alignment.
    """
    size, past_cache = _literals(nbytes, stream)

    def codegen(context, builder, signature, args):
        word = ir.IntType(8 * size) if size <= 8 else ir.VectorType(_INT64, size // 8)
        value = builder.load(_pointer(builder, args[1], word), align=1)
        _store(builder, value, _pointer(builder, args[0], word), size, past_cache)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, nbytes, stream), codegen


@intrinsic
def merge_line(typingctx, target, before, after, begun):
    """Merge two lines: the first `begun` bytes from the address `before`, the rest from `after`.

    The store bypasses the cache, so the target must be aligned to `LINE`.
    """

    def codegen(context, builder, signature, args):
        target, before, after, begun = args
        line = ir.VectorType(_BYTE, LINE)
        old, new = (
            builder.load(_pointer(builder, address, line), align=1) for address in (before, after)
        )
        places = ir.Constant(line, list(range(LINE)))
        begun = builder.insert_element(
            ir.Constant(line, ir.Undefined), builder.trunc(begun, _BYTE), ir.Constant(_INT32, 0)
        )
        is_old = builder.icmp_unsigned("<", places, _shuffled(builder, begun, begun, [0] * LINE))
        merged = builder.select(is_old, old, new)
        _store(builder, merged, _pointer(builder, target, line), LINE, True)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4), codegen


@intrinsic(prefer_literal=True)
def deinterleave_lines(typingctx, kind, targets, step, offset, source, count, stream):
    """Copy the next `count` cache lines of each part out of interleaved items.

    The source holds ``a0 b0 c0 a1 b1 c1 …``: the parts take its items in turn.
    `kind` is the number of parts and the item size. The address to which part i
    is written is the word at ``targets + i * step``, plus `offset`. If `stream`,
    these addresses must be multiples of `LINE`, and the stores bypass the cache.
    Return `count`, or 0 if `kind` is not in `INTERLEAVED`.
    """
    (past_cache,) = _literals(stream)

    def codegen(context, builder, signature, args):
        kind, targets, step, offset, source, count, _ = args
        parts, itemsize = cgutils.unpack_tuple(builder, kind)
        entry, end = builder.block, builder.append_basic_block()
        switch = builder.switch(builder.add(builder.shl(parts, _int(8)), itemsize), end)
        lines = [(_int(0), entry)]
        for n, size in INTERLEAVED:
            builder.position_at_end(builder.append_basic_block())
            switch.add_case(_int((n << 8) + size), builder.block)
            with cgutils.for_range(builder, count) as loop:
                line = builder.add(offset, builder.mul(loop.index, _int(LINE)))
                start = builder.add(source, builder.mul(loop.index, _int(n * LINE)))
                _deinterleave_line(builder, (n, size), targets, step, line, start, past_cache)
            lines.append((count, builder.block))
            builder.branch(end)
        builder.position_at_end(end)
        result = builder.phi(_INT64)
        for value, block in lines:
            result.add_incoming(value, block)
        return result

    return types.intp(kind, *[types.intp] * 5, stream), codegen


def _deinterleave_line(builder, kind, targets, step, offset, source, stream):
    """Copy a line of each part: one load, then one shuffle and one store for each part."""
    parts, itemsize = kind
    for k in range(parts):
        _prefetch(builder, builder.add(source, _int(_AHEAD + k * LINE)))
    items = LINE // itemsize
    whole = ir.VectorType(ir.IntType(8 * itemsize), parts * items)
    line = ir.VectorType(ir.IntType(8 * itemsize), items)
    value = builder.load(_pointer(builder, source, whole), align=1)
    for part in range(parts):
        places = [part + parts * i for i in range(items)]
        taken = _shuffled(builder, value, ir.Constant(whole, ir.Undefined), places)
        target = builder.load(_pointer(builder, targets, _INT64))
        target = _pointer(builder, builder.add(target, offset), line)
        _store(builder, taken, target, LINE, stream)
        targets = builder.add(targets, step)


@intrinsic(prefer_literal=True)
def transpose_tile(typingctx, targets, offset, skip, source, source_step, itemsize, stream):
    """Transpose a tile: steps of `TILE` bytes in the source become whole cache lines.

    A tile has ``LINE // itemsize`` steps and ``TILE // itemsize`` lines. The address to which line
    i is written is the word at ``targets + i * WORD``, plus `offset`. If `stream`, these addresses
    must be multiples of `LINE`, and the stores bypass the cache. The first `skip` lines are not
    written.
    """
    (size,) = _literals(itemsize)

    def codegen(context, builder, signature, args):
        targets, offset, skip, source, source_step, _, stream = args
        lines = _transposed(builder, size, LINE // TILE, source, source_step)
        with builder.if_else(builder.icmp_signed("!=", stream, _int(0))) as branches:
            for branch, is_streamed in zip(branches, (True, False), strict=True):
                with branch:
                    _store_lines(builder, lines, targets, offset, skip, is_streamed)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 5, itemsize, types.intp), codegen


@intrinsic(prefer_literal=True)
def transpose_square(typingctx, targets, offset, source, source_step, itemsize):
    """Transpose a square of items: steps of `TILE` bytes become `TILE` bytes of each line.

    The address to which line i is written is the word at ``targets + i * WORD``, plus `offset`.
    All addresses may have any alignment.
    """
    (size,) = _literals(itemsize)

    def codegen(context, builder, signature, args):
        targets, offset, source, source_step, _ = args
        for i, line in enumerate(_transposed(builder, size, 1, source, source_step)):
            place = _pointer(builder, builder.add(targets, _int(i * WORD)), _INT64)
            target = builder.add(builder.load(place), offset)
            _store(builder, line, _pointer(builder, target, line.type), TILE, False)
        return context.get_dummy_value()

    return types.void(*[types.intp] * 4, itemsize), codegen


def _store_lines(builder, lines, targets, offset, skip, stream):
    """Store all lines of a tile but the first `skip`."""
    for i, line in enumerate(lines):
        with builder.if_then(builder.icmp_signed(">=", _int(i), skip)):
            place = _pointer(builder, builder.add(targets, _int(i * WORD)), _INT64)
            target = builder.add(builder.load(place), offset)
            _store(builder, line, _pointer(builder, target, line.type), LINE, stream)


def _transposed(builder, itemsize, lanes, source, source_step):
    """Load a tile and return its lines. Vectors have lanes of `TILE` bytes, with n steps each."""
    n = TILE // itemsize
    item = min(itemsize, WORD)
    items = TILE // item
    lane = ir.VectorType(ir.IntType(8 * item), items)
    rows = []
    for first in range(n):
        steps = [builder.mul(source_step, _int(first + n * k)) for k in range(lanes)]
        starts = [_pointer(builder, builder.add(source, step), lane) for step in steps]
        rows.append(_joined(builder, [builder.load(start, align=1) for start in starts]))
    # Each of log2(n) rounds interleaves row i with row i + n / 2 in each lane.
    pairs = [i // 2 + i % 2 * items * lanes for i in range(items)]
    halves = [
        [k * items + half + place for k in range(lanes) for place in pairs] for half in (0, n // 2)
    ]
    for _ in range(n.bit_length() - 1):
        rows = [
            _shuffled(builder, rows[i], rows[i + n // 2], places)
            for i in range(n // 2)
            for places in halves
        ]
    return rows


def _joined(builder, vectors):
    """Join vectors, two at a time."""
    while len(vectors) > 1:
        places = list(range(2 * vectors[0].type.count))
        vectors = [
            _shuffled(builder, a, b, places)
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


@intrinsic
def prefetch(typingctx, address):
    """Fetch a cache line into the L2 cache; an address outside of any buffer does no harm."""

    def codegen(context, builder, signature, args):
        _prefetch(builder, args[0])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@intrinsic
def prefetch_to_write(typingctx, address):
    """Fetch a cache line into the L1 cache of this core alone, because it will be written."""

    def codegen(context, builder, signature, args):
        _prefetch(builder, args[0], write=1, locality=3)
        return context.get_dummy_value()

    return types.void(types.intp), codegen


def _prefetch(builder, address, write=0, locality=2):
    byte = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT32, _INT32, _INT32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    hints = [ir.Constant(_INT32, value) for value in (write, locality, 1)]  # 1: of data
    builder.call(function, [_pointer(builder, address, _BYTE), *hints])


@intrinsic
def words_at(typingctx, address):
    """Return a pointer to 8-byte integers."""

    def codegen(context, builder, signature, args):
        return _pointer(builder, args[0], _INT64)

    return types.CPointer(types.int64)(types.intp), codegen


@intrinsic
def call(typingctx, function, arguments):
    """Call a C function by its address with a tuple of integers; it returns an integer."""

    def codegen(context, builder, signature, args):
        values = cgutils.unpack_tuple(builder, args[1])
        kind = ir.FunctionType(_INT64, [value.type for value in values])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)

    return types.intp(types.intp, arguments), codegen


@intrinsic(prefer_literal=True)
def reserve(typingctx, nbytes, alignment):
    """Reserve memory on the stack of the calling thread, and return its address."""
    size, boundary = _literals(nbytes, alignment)

    def codegen(context, builder, signature, args):
        with builder.goto_entry_block():
            buffer = builder.alloca(ir.ArrayType(_BYTE, size))
        buffer.align = boundary
        return builder.ptrtoint(buffer, _INT64)

    return types.intp(nbytes, alignment), codegen


@intrinsic
def allocate(typingctx, nbytes):
    """Allocate memory with C's malloc; return its address, or 0 if there is too little memory."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_BYTE.as_pointer(), [_INT64])
        malloc = cgutils.get_or_insert_function(builder.module, kind, "malloc")
        return builder.ptrtoint(builder.call(malloc, args), _INT64)

    return types.intp(types.intp), codegen


@intrinsic
def release(typingctx, address):
    """Free memory from `allocate`; the address may be 0."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer()])
        free = cgutils.get_or_insert_function(builder.module, kind, "free")
        builder.call(free, [_pointer(builder, args[0], _BYTE)])
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@intrinsic
def fence(typingctx):
    """Make streamed stores visible to other threads."""

    def codegen(context, builder, signature, args):
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def count_one(typingctx, address):
    """Add 1 to a word that other threads may change at the same time."""

    def codegen(context, builder, signature, args):
        builder.atomic_rmw("add", _pointer(builder, args[0], _INT64), _int(1), "seq_cst")
        return context.get_dummy_value()

    return types.void(types.intp), codegen


@intrinsic
def out_of_line(typingctx):
    """Forbid inlining of the calling function: LLVM would optimize each inlined copy anew."""

    def codegen(context, builder, signature, args):
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen
