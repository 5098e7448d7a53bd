"""Read the records of `splitjit._abi` in compiled code: layouts, and what calls pass."""

from collections import namedtuple

from numba import types
from numba.extending import intrinsic

from splitjit._abi import calls
from splitjit._abi.calls import HEADER, ROW, WORD, Arguments, Header, Row
from splitjit._kernels.compiling import jit
from splitjit._kernels.ir.intrinsics import words_at
from splitjit._kernels.ir.llvm import pointer_to

Layout = namedtuple("Layout", "dims count runs source_strides rows row")
"""A layout record's header, a pointer to its strides, the address of its rows, the bytes of one."""

Part = namedtuple("Part", "source_offset target_offset run nbytes extents target_strides")
"""A row of a layout record, with pointers to its extents and strides."""

aligned, most_words = jit(calls.aligned), jit(calls.most_words)


@intrinsic
def read(typingctx, fields, address):
    """Read a named tuple of words, which lie one after another at an address."""
    tuple_class = fields.instance_class
    kind = types.NamedUniTuple(types.intp, len(tuple_class._fields), tuple_class)

    def codegen(context, builder, signature, args):
        return builder.load(pointer_to(builder, args[1], context.get_value_type(kind)))

    return kind(fields, types.intp), codegen


@jit
def layout_at(address):
    """Read the header of the record at an address."""
    header, strides = read(Header, address), address + WORD * len(HEADER)
    rows = strides + WORD * header.dims
    row = WORD * (len(ROW) + 2 * header.dims)
    return Layout(header.dims, header.count, header.runs, words_at(strides), rows, row)


@jit
def part_at(layout, i):
    """Read row `i` of the record."""
    address = layout.rows + i * layout.row
    row, extents = read(Row, address), address + WORD * len(ROW)
    strides = extents + WORD * layout.dims
    return Part(
        row.source_offset, row.target_offset, row.run, row.nbytes,
        words_at(extents), words_at(strides),
    )  # fmt: skip


@jit
def call_at(address):
    """Read the `Arguments` of a loop, and the header of their layout record."""
    call = read(Arguments, address)
    return call, layout_at(call.layout)
