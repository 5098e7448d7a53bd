"""Arrays that carry a unit, a mask, a name or labels are refused; plain arrays are split."""

import collections
import warnings

import numpy as np
import numpy.ma.mrecords
import pytest

import splitjit
from splitjit import SplitTypeError, plan_split, split, split_into
from tests.hostile import fail


class Unit(np.ndarray):
    """An array with a unit, as astropy and unyt have it."""

    def __array_finalize__(self, other):
        self.unit = getattr(other, "unit", None)


class Traced(np.ndarray):
    """An array that overrides ufuncs, and nothing else."""

    def __array_ufunc__(self, *args, **kwargs):
        return NotImplemented


class Mapped(np.memmap):
    """A subclass of a plain class that has a hook of its own."""

    def __array_finalize__(self, other):
        super().__array_finalize__(other)


class Named(np.ma.MaskedArray):
    """A masked array with a name, as astropy has columns of tables."""

    def __array_finalize__(self, other):
        super().__array_finalize__(other)
        self.name = getattr(other, "name", None)


class Duck:
    """An array that is no ndarray, as those of pint."""

    dtype, shape, ndim = np.dtype("f8"), (4,), 1

    def __array_function__(self, *args, **kwargs):
        return NotImplemented

    def __array__(self, dtype=None, copy=None):
        return np.arange(4.0)


class Plain(np.ndarray):
    """A subclass without a hook."""


class NoUfuncs:
    """An object that tells NumPy to leave its operators alone, and is a plain array."""

    __array_ufunc__ = None

    def __array__(self, dtype=None, copy=None):
        return np.arange(4.0)


class Table:
    """A table of a library that nobody knows."""

    column_names = ("a",)

    def __array__(self, dtype=None, copy=None):
        return np.arange(4.0)


needs = pytest.importorskip
ARRAYS = {
    "unit": lambda: np.arange(4.0).view(Unit),
    "ufunc": lambda: np.arange(4.0).view(Traced),
    "memmap": lambda: np.arange(4.0).view(Mapped),
    "masked": lambda: np.ma.arange(4.0).view(Named),
    "astropy.Quantity": lambda: np.arange(4.0) * needs("astropy.units").m,
    "astropy.Masked": lambda: needs("astropy.utils.masked").Masked(
        np.arange(4.0), mask=[True, False, True, False]
    ),
    "astropy.Column": lambda: needs("astropy.table").MaskedColumn([1.0, 2.0, 3.0, 4.0], unit="m"),
    "unyt": lambda: needs("unyt").unyt_array([1.0, 2.0, 3.0, 4.0], "m"),
}
DUCKS = {"duck": Duck, "pint": lambda: np.arange(4.0) * needs("pint").get_application_registry().m}
LABELLED = {
    "polars": lambda: needs("polars").Series([1.0, 2.0, 3.0, 4.0]),
    "pandas.Series": lambda: needs("pandas").Series([1.0, 2.0, 3.0, 4.0]),
    "pandas.DataFrame": lambda: needs("pandas").DataFrame({"a": [1.0, 2.0, 3.0, 4.0]}),
    "pandas.Index": lambda: needs("pandas").Index([1.0, 2.0, 3.0, 4.0]),
    "pandas.array": lambda: needs("pandas").array([1, 2, 3, None]),
    "xarray.DataArray": lambda: needs("xarray").DataArray(np.arange(4.0), dims="t"),
    "xarray.Dataset": lambda: needs("xarray").Dataset({"a": ("t", np.arange(4.0))}),
    "xarray of Dask": lambda: needs("xarray").DataArray(
        needs("dask.array").ones(4, chunks=2).map_blocks(fail, dtype="f8")
    ),
}
TABLES = {
    "table": Table,
    "pyarrow.Table": lambda: needs("pyarrow").table({"id": [2**53 + 1, 2, 3, 4]}),
    "pyarrow.RecordBatch": lambda: needs("pyarrow").record_batch({"a": ["a", "b", "c", "d"]}),
    "astropy.Table": lambda: needs("astropy.table").Table({"a": [1.0, 2.0, 3.0, 4.0]}),
    "polars.DataFrame": lambda: needs("polars").DataFrame({"a": [1.0, 2.0, 3.0, 4.0]}),
}
MASKED = {
    "masked array": lambda: np.ma.array([1, 2, 3, 4], mask=[0, 1, 0, 0]),
    "masked item": lambda: np.ma.masked,
    "masked record": lambda: np.ma.array([(1, 2)], dtype="i4,f8", mask=[(True, False)])[0],
}

CALLS = {
    "split": lambda x: split(x, 2),
    "views": lambda x: split(x, 2, copy=False),
    "plan": lambda x: plan_split((4,), 2)(x),
    "out": lambda x: split(x, 2, out=[np.zeros(2), np.zeros(2)]),
    "split_into": lambda x: split_into(x, [np.zeros(2), np.zeros(2)], 2),
    "bind": lambda x: plan_split((4,), 2).bind([np.zeros(2), np.zeros(2)])(x),
    "onnx": lambda x: splitjit.onnx.Split(num_outputs=2)(x),
    "sequence": lambda x: splitjit.onnx.SplitToSequence()(x),
    "openvino": lambda x: splitjit.openvino.Split(num_splits=2)(x, 0),
    "variadic": lambda x: splitjit.openvino.VariadicSplit()(x, 0, [2, -1]),
    "list": lambda x: split([x, x], 1),
    "nested": lambda x: split([[[1.0] * 4], (x,)], 1),
}
LISTS = {
    "list": CALLS["list"],
    "nested": CALLS["nested"],
    "deque": lambda x: split(collections.deque([x, x]), 1),
    "subclass": lambda x: split([[1], collections.UserList([x])], 1),
    "named tuple": lambda x: split(collections.namedtuple("Pair", "a b")(x, 1), 1),
    "onnx": lambda x: splitjit.onnx.Split(num_outputs=1)([x, 1]),
    "openvino": lambda x: splitjit.openvino.Split(num_splits=1)([x], 0),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", [*ARRAYS, *DUCKS, *LABELLED])
def test_arrays_that_carry_meaning_are_refused(kind, call):
    x = {**ARRAYS, **DUCKS, **LABELLED}[kind]()
    says = r"pass np\.(ma\.)?asarray\((x|input|data|it)\)"
    if kind in LABELLED and call not in ("list", "nested"):
        says = r"lose its labels; pass its \.(to_numpy|data)"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SplitTypeError, match=f"of type {type(x).__name__}.*: .*({says})"):
            CALLS[call](x)


@pytest.mark.parametrize("call", {**CALLS, **LISTS})
@pytest.mark.parametrize("kind", TABLES)
def test_tables_are_refused(kind, call):
    with pytest.raises(SplitTypeError, match=r"lose its labels; pass its (columns|\.to_numpy)"):
        {**CALLS, **LISTS}[call](TABLES[kind]())


@pytest.mark.parametrize("call", LISTS)
@pytest.mark.parametrize("kind", MASKED)
def test_lists_that_would_lose_masks_are_refused(kind, call):
    with pytest.raises(
        SplitTypeError, match=r"item of .* of type [Mm].*mask .*np\.ma\.array\(\w+\)"
    ):
        LISTS[call](MASKED[kind]())


def test_the_dropin_reads_lists_as_numpy_does():
    x = [MASKED["masked array"](), np.ma.arange(4)]
    for parts in (splitjit.numpy.array_split(x, 2), splitjit.numpy.unstack(x)):
        assert [part.ravel().tolist() for part in parts] == [[1, 2, 3, 4], [0, 1, 2, 3]]
    out = [np.zeros(4, int), np.zeros(4, int)]
    assert splitjit.numpy.unstack(x, out=out)[0].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["int64", "uint8"])
def test_integers_of_arrow_do_not_become_floats(kind):
    pa = needs("pyarrow")
    whole, missing = pa.array([1, 2], kind), pa.array([1, None], kind)
    assert split([whole], 1)[0].tolist() == [[1, 2]]
    for x in (missing, pa.chunked_array([missing]), missing.dictionary_encode(), [missing]):
        with pytest.raises(SplitTypeError, match=r"missing values .* pass \.fill_null\(0\)"):
            split(x, 1)


class Dataset:
    """A dataset of h5py or zarr: NumPy must read it."""

    def __array__(self, dtype=None, copy=None):
        if copy is False:
            raise ValueError("cannot return a ndarray without reading")
        return np.arange(4.0)


class Ignores(Dataset):
    """A class that returns new memory, whatever the caller asks for."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(4.0)


class Exporter:
    """An object that exports new memory each time, as Pillow's images do."""

    @property
    def __array_interface__(self):
        return {"shape": (4,), "typestr": "|u1", "data": bytes(range(4)), "version": 3}


class Owner(Dataset):
    """An object that gives NumPy its own memory."""

    memory = np.arange(4.0)

    def __array__(self, dtype=None, copy=None):
        return self.memory


def test_views_of_a_hidden_copy_are_refused():
    for x in (Dataset(), Ignores(), Exporter()):
        assert split(x, 2)[1].tolist() == [2, 3]
        for call in (split, splitjit.explain):
            with pytest.raises(SplitTypeError, match=r"copy=False cannot .* pass np\.asarray\(x\)"):
                call(x, 2, copy=False)
        with pytest.raises(SplitTypeError, match="copy=False"):
            plan_split((4,), 2)(x, copy=False)
    assert np.shares_memory(split(Owner(), 2, copy=False)[0], Owner.memory)
    assert split([1, 2], 1, copy=False)[1].tolist() == [2]


@pytest.mark.parametrize("kind", ARRAYS)
def test_outputs_that_carry_meaning_are_refused(kind):
    wrong = ARRAYS[kind]()[:2]
    wrong[...] = np.asarray(wrong)[...] * 0 if not hasattr(wrong, "unit") else wrong * 0
    masked = isinstance(wrong, np.ma.MaskedArray)
    x = np.ma.arange(4.0) + 1 if masked else np.arange(4.0) + 1
    out = [np.ma.zeros(2) if masked else np.zeros(2), wrong]
    for call in (lambda: split(x, 2, out=out), lambda: plan_split((4,), 2).bind(out)(x),
                 lambda: split_into(x, out, 2), lambda: plan_split((4,), 2)(x, out),
                 lambda: split(np.arange(4.0) + 1, 2, out=out)):  # fmt: skip
        with pytest.raises(SplitTypeError, match=rf"outs?\[1\] of type {type(wrong).__name__}"):
            call()
    assert not np.asarray(out[0]).any()
    assert not np.asarray(wrong).any()


@pytest.mark.filterwarnings("ignore:The chararray class is deprecated")  # since NumPy 2.5
def test_plain_classes_are_split():
    x = np.arange(4.0)
    for plain in (x.view(Plain), x.view(np.recarray), x.reshape(4, 1).view(np.matrix),
                  x.view(np.memmap), np.ma.array(x), NoUfuncs(), np.char.array([*"abcd"]),
                  np.ma.mrecords.fromarrays([x]), [x.view(Plain)[i] for i in range(4)],
                  [np.float64(1), 2, True, 3.0]):  # fmt: skip
        assert len(split(plain, 2)) == 2
    out = [np.zeros(2).view(Plain), np.zeros(2).view(np.memmap)]
    assert split(x, 2, out=out)[1].tolist() == [2, 3]


def test_a_list_that_holds_itself_is_refused():
    x = [1]
    x.append(x)
    with pytest.raises(SplitTypeError, match="x of type list"):
        split(x, 1)
