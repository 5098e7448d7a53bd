"""The code that Numba compiles for a call: it fills a `Call`, and calls the table's functions.

It is written in LLVM instructions, because compiling the same in Python takes Numba ten times as
long.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.cpython.listobj import ListInstance
from numba.extending import intrinsic

from splitjit._abi.calls import CALL, FUNCTIONS_AT
from splitjit._njit.functions import SYMBOL, Needed, fill_table
from splitjit._njit.rules import is_given, kind_of_rule, none_fault, without_none
from splitjit._plan.rules import NAMES

INT64 = ir.IntType(64)
_ANSWER = [types.intp] * 4  # 0 or a fault, and three numbers for its text


@intrinsic
def make_parts(typing_context, x, axis, *values):
    """Split an array into new parts; return their list, 0 or a fault, and three numbers for it.

    The values are those of the parameters of rules. The fault is negative if memory runs out.
    """
    fill_table()  # may refuse this Numba
    array = without_none(x)
    kind = types.List(types.Array(array.dtype, array.ndim, "C"), reflected=False)

    def generate(context, builder, signature, arguments):
        call = _Call(context, builder, signature.args, arguments, "split")
        call.call_function("measure")
        parts = ListInstance.allocate(context, builder, kind, call.get("count"))
        parts.size = call.get("count")  # the items are null, so that the list can be freed
        call.set("parts", builder.ptrtoint(parts.data, INT64))
        call.call_function("make_parts")
        return call.answer(signature.return_type, parts.value)

    return types.Tuple([kind, *_ANSWER])(x, axis, types.StarArgTuple.from_types(values)), generate


@intrinsic
def copy_parts(typing_context, outs, x, axis, *values):
    """Split an array into given parts; return 0 or a fault, and what its text names.

    That is three numbers, and the given and the right shape of a part that does not fit.
    """
    shape = types.UniTuple(types.intp, without_none(x).ndim)
    fill_table()

    def generate(context, builder, signature, arguments):
        call = _Call(context, builder, signature.args[1:], arguments[1:], "split_into")
        call.set_parts(signature.args[0], arguments[0])
        call.call_function("copy_parts")
        return call.answer(signature.return_type, *call.shapes(shape))

    return types.Tuple([shape, shape, *_ANSWER])(
        outs, x, axis, types.StarArgTuple.from_types(values)
    ), generate


class _Call:
    """Instructions that fill a `Call`, and call functions of the table with it.

    Parameters
    ----------
    context, builder
        Numba's context, and llvmlite's builder.
    kinds, arguments : sequence
        The types and values of `x` and `axis`, and of a tuple of the parameters in
        `splitjit._plan.rules.NAMES`.
    operator : str
    """

    def __init__(self, context, builder, kinds, arguments, operator):
        self._context, self._builder = context, builder
        self._lists = []  # released by `answer`
        context.environment.consts.append(Needed())
        self._table = _table(builder)
        self._fault = cgutils.alloca_once_value(builder, INT64(0))
        (x_kind, axis_kind, value_kinds), (x, axis, values) = kinds, arguments
        self._rank = without_none(x_kind).ndim
        words = ir.ArrayType(INT64, len(CALL) + 2 * self._rank)
        self._words = cgutils.alloca_once(builder, words, zfill=True)
        _, x = self._given(x_kind, x, "x")
        axis_kind, axis = self._given(axis_kind, axis, "axis")
        self.set("x", self._stored(x))
        self.set("rank", INT64(self._rank))
        self.set("axis", self._word(axis_kind, axis))
        rule = kind_of_rule(operator, dict(zip(NAMES, value_kinds, strict=True)))
        self.set("rule", INT64(rule))
        values = cgutils.unpack_tuple(builder, values)
        for kind, value in zip(value_kinds, values, strict=True):
            if is_given(kind):
                kind, value = self._given(kind, value, "rule")
                with self._if_well():
                    self._set_values(types.unliteral(kind), value)

    def set(self, field, value):
        """Store a word in a field."""
        self._builder.store(value, self._place(self._words, CALL, field))

    def get(self, field):
        """Load a word from a field."""
        return self._builder.load(self._place(self._words, CALL, field))

    def set_parts(self, kind, value):
        """Fill the fields for given parts: a list, or a tuple of arrays of any layout."""
        kind, value = self._given(kind, value, "outs")
        with self._if_well():
            if isinstance(kind, types.BaseTuple):
                items, start = cgutils.unpack_tuple(self._builder, value), INT64(0)
                if items:
                    start = self._stored(cgutils.pack_array(self._builder, items))
                number = INT64(len(items))
            else:
                start, number = self._items_of(kind, value)
            self.set("parts", start)
            self.set("number_of_parts", number)

    def call_function(self, function):
        """Call a function of the table, unless something has failed."""
        builder = self._builder
        with self._if_well():
            address = builder.load(self._place(self._table, FUNCTIONS_AT, function))
            kind = ir.FunctionType(INT64, [INT64, INT64]).as_pointer()
            given = [builder.ptrtoint(pointer, INT64) for pointer in (self._words, self._table)]
            builder.store(builder.call(builder.inttoptr(address, kind), given), self._fault)

    def answer(self, kind, *values):
        """Return a tuple of values, the fault, and three numbers for it."""
        for plain, copied in self._lists:
            self._context.nrt.decref(self._builder, plain, self._builder.load(copied))
        numbers = [self.get(field) for field in ("first", "second", "third")]
        values = [*values, self._builder.load(self._fault), *numbers]
        return self._context.make_tuple(self._builder, kind, values)

    def shapes(self, kind):
        """Return the two shapes that follow the fields, as tuples."""
        builder = self._builder
        places = [INT64(len(CALL) + i) for i in range(2 * self._rank)]
        words = [builder.load(builder.gep(self._words, [INT64(0), at])) for at in places]
        both = words[: self._rank], words[self._rank :]
        return [self._context.make_tuple(builder, kind, shape) for shape in both]

    def _items_of(self, kind, value):
        """Return the address of the first item of a list, and the number of items.

        A typed list is copied to a plain list, whose items can be read.
        """
        if isinstance(kind, types.ListType):
            plain = types.List(kind.dtype)
            value = self._context.compile_internal(self._builder, _copied, plain(kind), [value])
            place = cgutils.alloca_once(self._builder, value.type, zfill=True)  # null: not copied
            self._builder.store(value, place)
            self._lists.append((plain, place))
            kind = plain
        items = ListInstance(self._context, self._builder, kind, value)
        return self._builder.ptrtoint(items.data, INT64), items.size

    def _given(self, kind, value, name):
        """Return the type and the value of an argument; note a fault if it is None."""
        if not isinstance(kind, types.Optional):
            return kind, value
        builder = self._builder
        optional = self._context.make_helper(builder, kind, value)
        is_none = builder.not_(cgutils.as_bool_bit(builder, optional.valid))
        fault, before = INT64(none_fault(name)), builder.load(self._fault)
        builder.store(builder.select(is_none, fault, before), self._fault)
        return kind.type, optional.data

    def _if_well(self):
        """Begin a branch that is taken if there is no fault."""
        fault = self._builder.load(self._fault)
        return self._builder.if_then(self._builder.icmp_signed("==", fault, INT64(0)))

    def _place(self, words, fields, name):
        """Return the address of a field, in words whose fields have these indices."""
        return self._builder.gep(words, [INT64(0), INT64(getattr(fields, name))])

    def _word(self, kind, value):
        """Convert an integer to a word; values above its range become the largest word."""
        word = self._context.cast(self._builder, value, kind, types.intp)
        if types.unliteral(kind) != types.uint64:
            return word
        is_above = self._builder.icmp_signed("<", word, INT64(0))
        return self._builder.select(is_above, INT64(types.intp.maxval), word)

    def _stored(self, value):
        """Return the address of a value on the stack."""
        return self._builder.ptrtoint(cgutils.alloca_once_value(self._builder, value), INT64)

    def _set_values(self, kind, value):
        """Fill the fields for a rule's value."""
        builder, step = self._builder, None
        if isinstance(kind, types.BaseTuple):
            items = cgutils.unpack_tuple(builder, value)
            words = [self._word(*item) for item in zip(kind, items, strict=True)]
            number, kind = INT64(len(words)), types.intp
            start = self._stored(cgutils.pack_array(builder, words, INT64))
        elif isinstance(kind, types.List | types.ListType):
            start, number = self._items_of(kind, value)
            kind = kind.dtype
        elif isinstance(kind, types.Array):
            array = self._context.make_array(kind)(self._context, builder, value)
            start, number = builder.ptrtoint(array.data, INT64), array.nitems
            if kind.ndim:
                (step,) = cgutils.unpack_tuple(builder, array.strides)
            kind = kind.dtype
        else:
            start, number = self._stored(value), INT64(1)
        width = kind.bitwidth // 8
        self.set("values", start)
        self.set("number", number)
        self.set("step", INT64(width) if step is None else step)
        self.set("width", INT64(width if kind.signed else -width))


def _copied(values):
    return [value for value in values]  # noqa: C416 - Numba cannot convert a typed list to a list


def _table(builder):
    """Return the table as a symbol, which LLVM looks up in each process."""
    kind = ir.ArrayType(INT64, len(FUNCTIONS_AT))
    known = builder.module.globals.get(SYMBOL)
    return known or ir.GlobalVariable(builder.module, kind, SYMBOL)
