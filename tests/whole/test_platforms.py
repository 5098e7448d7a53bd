"""Splits by every route if Numba compiles for another processor, for one thread, or not at all."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from splitjit import openvino, plan_split, split
from splitjit.onnx import Split, SplitToSequence
from tests.conftest import ROOT, ROUTES, long, send_down
from tests.copy.test_split import LAYOUTS, assert_parts, random_array, same_bits
from tests.processes import python

SETTINGS = {
    "x86-64 without AVX": {"CPU_NAME": "generic"},
    "one thread": {"NUM_THREADS": "1"},
    "no compiler": {"DISABLE_JIT": "1"},
}


@pytest.mark.parametrize("name", long(*SETTINGS, if_not=("no compiler",)))
@pytest.mark.slow
def test_splits(name):
    settings = {f"NUMBA_{key}": value for key, value in SETTINGS[name].items()}
    code = f"""
import numba
from tests.whole import test_platforms
for name, value in {settings}.items():
    assert str(getattr(numba.config, name, getattr(numba.config, name[6:], None))) == value
test_platforms.check_splits()
test_platforms.check_operators()
"""
    python("-c", code, **settings)


DTYPES = ["u1", "<u2", ">f4", "c16", "V3", ">U4", [("a", "u1"), ("b", ">f8")]]
SPLITS = [  # shape, axis, sizes
    *[((7000,), 0, [1, 4500, 2499]), ((9, 300), 1, [100, 0, 200]), ((70, 4), 0, [64, 6])],
    *[((260, 3), 1, [1, 1, 1]), ((130, 20), 1, [1] * 20), ((6, 5, 40), 1, [2, 3])],
]


def check_splits():
    rng = np.random.default_rng(0)
    for route in ROUTES:
        with pytest.MonkeyPatch.context() as patch:
            send_down(route, patch)
            for dtype in DTYPES:
                for layout in LAYOUTS.values():
                    for shape, axis, sizes in SPLITS:
                        x = layout(lambda shape, d=dtype: random_array(rng, shape, d), shape)
                        plan = plan_split(shape, sizes, axis=axis)
                        assert_parts(split(x, sizes, axis=axis), x, plan)
                        check_out(plan, x)


def check_out(plan, x):
    for order in "CF":
        out = [np.empty(shape, x.dtype, order) for shape in plan.output_shapes]
        assert plan(x, out)[0] is out[0]
        for part, index in zip(out, plan.slices, strict=True):
            assert same_bits(part, x[index])


def check_operators():
    for x in (np.arange(2**18.0).reshape(4, -1), np.full((4, 2**16), "a", object)):
        lengths = np.array([2**15, 2**15])
        halves = [x[:, : 2**15].tolist(), x[:, 2**15 :].tolist()]
        for parts in (
            split(x, lengths, axis=1),
            split(x, lengths, axis=1, copy=False),
            Split(axis=1, num_outputs=2)(x),
            Split(opset=13, axis=1)(x, lengths),
            SplitToSequence(axis=1)(x, 2**15),
            openvino.Split(num_splits=2)(x, 1),
            openvino.VariadicSplit()(x, 1, [-1, 2**15]),
        ):
            assert [part.tolist() for part in parts] == halves


# Eight threads split at once: through the same plan and through many, into fresh memory, which the
# pool lends and takes back, and into existing arrays. Each thread also checks and frees parts that
# another thread made, and all caches are cleared meanwhile.
THREADS = """
import gc, sys, threading
import numpy as np
import splitjit

assert GIL is None or sys._is_gil_enabled() == GIL
x = np.arange(2**18, dtype=np.int32).reshape(512, -1)
same = splitjit.plan_split(x.shape, [200, 312], axis=1)

def work(number):
    for i in range(60):
        y = x[: 512 - i, number:]
        for plan, source in [(same, x), (splitjit.plan_split(y.shape, 100 + i, axis=1), y)]:
            fresh = plan(source)
            check(fresh, plan, source)
            check(plan(source, [np.empty_like(part) for part in fresh]), plan, source)
            check(*shared.get(i % 3, (fresh, plan, source)))
            shared[i % 3] = fresh, plan, source
        if i % 20 == number:
            splitjit.clear_caches()
            gc.collect()
    done.append(number)

def check(parts, plan, source):
    for part, index in zip(parts, plan.slices, strict=True):
        assert np.array_equal(part, source[index])

done, shared = [], {}
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert sorted(done) == list(range(8))
"""


def free_threaded_pythons():
    """Return each free-threaded Python that can import Numba."""
    code = "import numba, sysconfig; assert sysconfig.get_config_var('Py_GIL_DISABLED')"
    found = [sys.executable, *map(shutil.which, ("python3.13t", "python3.14t", "python3.15t"))]
    return [
        program
        for program in dict.fromkeys(filter(None, found))
        if not subprocess.run([program, "-c", code], capture_output=True).returncode
    ]


@pytest.mark.slow
@pytest.mark.parametrize("gil", [None, True, False], ids=["this Python", "GIL", "no GIL"])
def test_threads(gil):
    pythons = [sys.executable] if gil is None else free_threaded_pythons()
    if not pythons:
        pytest.skip("no free-threaded Python with Numba was found")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment |= {} if gil is None else {"PYTHON_GIL": str(int(gil))}
    for program in pythons:
        command = [program, "-c", f"GIL = {gil}\n{THREADS}"]
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
