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
from splitjit._njit.rules import is_given, none_fault, without_none

INT64 = ir.IntType(64)


@intrinsic
def split(typing_context, rule, outs, x, axis, *values):
    """Split an array; return the new parts, 0 or a fault, and four numbers for the fault's text.

    `rule` is the kind of the rule, and one of the values of all parameters of rules is given. If
    there are `outs`, they get the parts, and None stands for new ones. The fault is negative if
    memory runs out.
    """
    fill_table()  # may refuse this Numba
    array, new_parts = without_none(x), types.none
    if not is_given(outs):
        new_parts = types.List(types.Array(array.dtype, array.ndim, "C"), reflected=False)

    def generate(context, builder, signature, arguments):
        call = _Call(context, builder, signature.args, arguments)
        call.call_function("measure")
        parts = context.get_dummy_value()
        if not is_given(outs):
            made = ListInstance.allocate(context, builder, new_parts, call.get("count"))
            made.size = call.get("count")  # the items are null, so that the list can be freed
            call.set("parts", builder.ptrtoint(made.data, INT64))
            call.set("number_of_parts", INT64(-1))
            parts = made.value
        call.call_function("copy_parts")
        return call.answer(signature.return_type, parts)

    given = rule, outs, x, axis, types.StarArgTuple.from_types(values)
    return types.Tuple([new_parts, *[types.intp] * 5])(*given), generate


class _Call:
    """Instructions that fill a `Call`, and call functions of the table with it.

    Parameters
    ----------
    context, builder
        Numba's context, and llvmlite's builder.
    kinds, arguments : sequence
        The types and values of the arguments of `split`.
    """

    def __init__(self, context, builder, kinds, arguments):
        self._context, self._builder = context, builder
        self._lists = []  # released by `answer`
        context.environment.consts.append(Needed())
        table = ir.ArrayType(INT64, len(FUNCTIONS_AT))
        self._table = ir.GlobalVariable(builder.module, table, SYMBOL)
        self._fault = cgutils.alloca_once_value(builder, INT64(0))
        words = ir.ArrayType(INT64, len(CALL))
        self._words = cgutils.alloca_once(builder, words, zfill=True)
        (_, rule), outs, x, axis, (kinds, values) = zip(kinds, arguments, strict=True)
        kind, x = self._given(*x, "x")
        self.set("x", self._stored(x))
        self.set("rank", INT64(kind.ndim))
        self.set("axis", self._item(*self._given(*axis, "axis")))
        self.set("rule", rule)
        values = zip(kinds, cgutils.unpack_tuple(builder, values), strict=True)
        (value,) = [value for value in values if is_given(value[0])]
        value = self._given(*value, "rule")
        with self._without_fault():
            self._set_values(*value)
        if is_given(outs[0]):
            outs = self._given(*outs, "outs")
            with self._without_fault():
                start, number, _ = self._items_of(*outs)
                self.set("parts", start)
                self.set("number_of_parts", number)

    def set(self, field, value):
        """Store a word in a field."""
        self._builder.store(value, self._place(self._words, CALL, field))

    def get(self, field):
        """Load a word from a field."""
        return self._builder.load(self._place(self._words, CALL, field))

    def call_function(self, function):
        """Call a function of the table, unless something has failed."""
        builder = self._builder
        with self._without_fault():
            address = builder.load(self._place(self._table, FUNCTIONS_AT, function))
            kind = ir.FunctionType(INT64, [INT64, INT64]).as_pointer()
            given = [builder.ptrtoint(pointer, INT64) for pointer in (self._words, self._table)]
            builder.store(builder.call(builder.inttoptr(address, kind), given), self._fault)

    def answer(self, kind, parts):
        """Return a tuple of the new parts, the fault, and four numbers for it."""
        for plain, copied in self._lists:
            self._context.nrt.decref(self._builder, plain, self._builder.load(copied))
        numbers = [self.get(field) for field in ("first", "second", "third", "fourth")]
        values = [parts, self._builder.load(self._fault), *numbers]
        return self._context.make_tuple(self._builder, kind, values)

    def _items_of(self, kind, value):
        """Return the address of the first item, the number of items, and their type.

        A typed list is copied to a plain list, whose items can be read. Integers of a tuple become
        words, and so does a single one. The arrays of a tuple may have any layouts.
        """
        builder = self._builder
        if isinstance(kind, types.ListType):
            plain = types.List(kind.dtype)
            value = self._context.compile_internal(builder, _copied, plain(kind), [value])
            place = cgutils.alloca_once(builder, value.type, zfill=True)  # null: not copied
            builder.store(value, place)
            self._lists.append((plain, place))
            kind = plain
        if isinstance(kind, types.List):
            items = ListInstance(self._context, builder, kind, value)
            return builder.ptrtoint(items.data, INT64), items.size, kind.dtype
        kinds, items = [kind], [value]
        if isinstance(kind, types.BaseTuple):
            kinds, items = kind, cgutils.unpack_tuple(builder, value)
        items = [self._item(*item) for item in zip(kinds, items, strict=True)]
        packed = cgutils.pack_array(builder, items, items[0].type if items else INT64)
        return self._stored(packed), INT64(len(items)), types.intp

    def _given(self, kind, value, name):
        """Return the type and the value of an argument; note a fault if the value is None."""
        if not isinstance(kind, types.Optional):
            return kind, value
        builder = self._builder
        optional = self._context.make_helper(builder, kind, value)
        is_none = builder.not_(cgutils.as_bool_bit(builder, optional.valid))
        fault, before = INT64(none_fault(name)), builder.load(self._fault)
        builder.store(builder.select(is_none, fault, before), self._fault)
        return kind.type, optional.data

    def _without_fault(self):
        """Begin a branch that is taken if there is no fault yet."""
        fault = self._builder.load(self._fault)
        return self._builder.if_then(self._builder.icmp_signed("==", fault, INT64(0)))

    def _place(self, words, fields, name):
        """Return the address of a field, in words whose fields have these indices."""
        return self._builder.gep(words, [INT64(0), INT64(getattr(fields, name))])

    def _item(self, kind, value):
        """Convert an integer to a word: the largest word if it is above its range. Arrays stay."""
        if isinstance(kind, types.Array):
            return value
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
        steps = []
        if isinstance(kind, types.Array):
            array = self._context.make_array(kind)(self._context, self._builder, value)
            start, number = self._builder.ptrtoint(array.data, INT64), array.nitems
            steps, kind = cgutils.unpack_tuple(self._builder, array.strides), kind.dtype
        else:
            start, number, kind = self._items_of(kind, value)
        width = kind.bitwidth // 8
        self.set("values", start)
        self.set("number", number)
        self.set("step", steps[0] if steps else INT64(width))
        self.set("width", INT64(width if kind.signed else -width))


def _copied(values):
    return [value for value in values]  # noqa: C416 - Numba cannot convert a typed list to a list
