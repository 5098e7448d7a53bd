"""For any state of the cache, a call runs code compiled from this source for this processor."""

import importlib.util
import itertools
import linecache
import os
import pickle
import random
import shutil
import sys
from pathlib import Path

import numba
import pytest
from numba import cfunc, njit, types

import splitjit
from splitjit._kernels import compiling
from splitjit._kernels.compiling import compile_cached
from tests.processes import SPLIT, finish, run, start

PROCESSES = int(os.environ.get("SPLITJIT_PROCESSES", "4"))
FLIPS = int(os.environ.get("SPLITJIT_FLIPS", "20"))

ONE = """
from numba import njit

@njit
def helper():
    return 1

def kernel():
    return helper()
"""
TWO = ONE.replace("1", "2")
NUMBERS = itertools.count()


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Import a module of one kernel as a new process does, and compile or load the kernel."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(source, decorator=njit, mtime=0):
        path = tmp_path / "kernel.py"
        path.write_text(source)
        os.utime(path, (mtime, mtime))
        linecache.clearcache()
        spec = importlib.util.spec_from_file_location(f"kernel{next(NUMBERS)}", path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return compile_cached(decorator, types.int64(), module.kernel)

    return load


def value_of(kernel):
    return kernel.ctypes() if hasattr(kernel, "ctypes") else kernel()


def hits_of(kernel):
    return kernel.cache_hits if hasattr(kernel, "ctypes") else sum(kernel.stats.cache_hits.values())


def files_in(folder, suffix=""):
    return sorted(file for file in folder.rglob(f"*{suffix}") if file.is_file())


@pytest.mark.parametrize("decorator", [njit, cfunc])
def test_a_kernel_is_compiled_once(load, decorator, monkeypatch):
    monkeypatch.setattr(compiling, "COMPILED", names := [])
    compiled, loaded = load(ONE, decorator), load(ONE, decorator)
    assert [name.partition("_")[0] for name in names] == ["kernel"]
    assert value_of(compiled) == value_of(loaded) == 1
    assert (hits_of(compiled), hits_of(loaded)) == (0, 1)


def test_a_changed_helper_is_noticed_where_neither_time_nor_size_tell(load):
    """Reproducible builds give all files the same date."""
    assert [load(source)() for source in (ONE, TWO, ONE)] == [1, 2, 1]


def test_what_a_killed_process_leaves_is_not_run(load, tmp_path):
    """Numba saves the index before the code: a killed process leaves a new index and old code."""
    load(ONE)
    old = {file: file.read_bytes() for file in files_in(tmp_path, ".nbc")}
    load(TWO, mtime=1)
    for file, code in old.items():
        file.write_bytes(code)
    assert load(TWO, mtime=1)() == 2


DAMAGES = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "noise": lambda data: random.Random(0).randbytes(len(data)),
    "another": lambda data: pickle.dumps(numba.__version__) + pickle.dumps("another"),
}


@pytest.mark.parametrize("decorator", [njit, cfunc])
@pytest.mark.parametrize("suffix", [".nbi", ".nbc", ".sha256"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_replaced(load, tmp_path, damage, suffix, decorator):
    load(ONE, decorator)
    (file,) = files_in(tmp_path, suffix)
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    compiled, loaded = load(ONE, decorator), load(ONE, decorator)
    assert value_of(compiled) == value_of(loaded) == 1
    assert (hits_of(compiled), hits_of(loaded)) == (0, 1)


def test_flipped_bits(load, tmp_path):
    rng = random.Random(0)
    load(ONE)
    for _ in range(FLIPS):
        file = rng.choice(files_in(tmp_path / "cache"))
        data = bytearray(file.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
        compiled = load(ONE)
        assert (value_of(compiled), hits_of(compiled)) == (1, 0)


def test_files_without_a_hash_are_replaced(load, tmp_path):
    """A process was killed before it saved the hash."""
    load(ONE)
    (file,) = files_in(tmp_path, ".sha256")
    file.unlink()
    compiled, loaded = load(ONE), load(ONE)
    assert value_of(compiled) == value_of(loaded) == 1
    assert (hits_of(compiled), hits_of(loaded)) == (0, 1)


def test_a_folder_in_place_of_a_file(load, tmp_path):
    load(ONE)
    for file in files_in(tmp_path / "cache"):
        file.unlink()
        file.mkdir()
    assert load(ONE)() == 1


def test_a_full_disk(load, tmp_path):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(ONE), limits[1]))
    try:
        compiled = load(ONE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert compiled() == 1
    assert not files_in(tmp_path / "cache")


def test_processors_share_no_file(load, tmp_path):
    """Machines of a cluster may share one cache folder."""
    load(ONE)
    own = {file: file.read_bytes() for file in files_in(tmp_path / "cache")}
    code = """
import kernel
from numba import njit, types
from splitjit._kernels.compiling import compile_cached
assert compile_cached(njit, types.int64(), kernel.kernel)() == 1
"""
    run(
        tmp_path, code,
        NUMBA_CACHE_DIR=str(tmp_path / "cache"), NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="",
    )  # fmt: skip
    assert len(files_in(tmp_path / "cache")) == 2 * len(own)
    assert all(file.read_bytes() == data for file, data in own.items())


# ---- the package ------------------------------------------------------------------------


@pytest.mark.slow
def test_processes_that_start_at_once_on_an_empty_cache(tmp_path):
    code, cache = SPLIT + "check()", tmp_path / "cache"
    command = (tmp_path, "-c", code)
    variables = {"NUMBA_CACHE_DIR": str(cache)}
    finish(*[start(*command, **variables) for _ in range(PROCESSES)], timeout=600)
    files = {file: file.stat().st_mtime_ns for file in files_in(cache)}
    finish(start(*command, **variables))
    assert files == {file: file.stat().st_mtime_ns for file in files_in(cache)} != {}


@pytest.mark.long
def test_flipped_bits_in_kernels(tmp_path):
    """Each process splits right, and replaces the file."""
    rng, cache = random.Random(0), tmp_path / "cache"
    for _ in range(1 + FLIPS // 10):
        run(tmp_path, SPLIT + "check()", NUMBA_CACHE_DIR=str(cache))
        file = rng.choice(files_in(cache))
        data = bytearray(file.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
        damaged = file.read_bytes()
        run(tmp_path, SPLIT + "check()", NUMBA_CACHE_DIR=str(cache))
        assert file.read_bytes() != damaged


@pytest.mark.long
def test_processes_share_one_compilation(tmp_path):
    code = """
from splitjit._copy import loading
while not any("copy" in key for key in loading.LOADED):
    check()
    time.sleep(0.02)
from splitjit._kernels.launch import copy_loop
with open(sys.argv[1], "w") as file:
    file.write(str(copy_loop("copy").cache_hits))
"""
    results = [tmp_path / str(i) for i in range(PROCESSES)]
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    started = [start(tmp_path, "-c", SPLIT + code, str(file), **variables) for file in results]
    finish(*started, timeout=600)
    assert sum(int(file.read_text()) for file in results) == PROCESSES - 1
    assert not files_in(tmp_path / "cache", ".lock")


@pytest.mark.long
def test_only_warmup_waits_while_another_process_compiles(tmp_path):
    """A split neither waits nor compiles, unless the other process takes too long."""
    hold = """
import pathlib, time
from splitjit._kernels.cached_files import CachedFiles
from splitjit._kernels.compiling import named
from splitjit._kernels.launch import copy

with CachedFiles(named(copy)).lock(wait=False):
    pathlib.Path("held").touch()
    while pathlib.Path("held").exists():
        time.sleep(0.01)
"""
    code = f"""
import pathlib, subprocess
from splitjit._copy import loading

def is_loaded():
    return any("copy" in key for key in loading.LOADED)

def hold():
    process = subprocess.Popen([sys.executable, "-c", {hold!r}])
    while not held.exists():
        time.sleep(0.01)
    return process

held = pathlib.Path("held")
process = hold()
for _ in range(5):
    check()
    time.sleep(2 * loading._RETRY_AFTER)
assert not is_loaded()
threading.Timer(0.3, held.unlink).start()
splitjit.warmup()
assert is_loaded() and not held.exists()
process.wait()

process = hold()
loading.LOADED.clear()
from splitjit._kernels import cached_files, launch
launch.copy_loop.cache_clear()
cached_files.PATIENCE = -1
cached_files.CachedFiles.are_intact = lambda self: False
check()
assert is_loaded() and held.exists()
held.unlink()
process.wait()
"""
    run(tmp_path, SPLIT + code, NUMBA_CACHE_DIR=str(tmp_path / "cache"))


def install(folder):
    """Copy the package without its cache."""
    source = Path(splitjit.__file__).parent
    return shutil.copytree(
        source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__")
    )


@pytest.mark.long
def test_no_place_for_a_cache(tmp_path):
    """The package's folder cannot hold a cache, not even for root, and there is no home folder."""
    (install(tmp_path) / "_kernels" / "__pycache__").write_text("")
    nowhere = dict.fromkeys(["HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"], os.devnull)
    run(tmp_path, SPLIT + "check()", **nowhere)


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "line", "defect"),
    [
        ("copy.py", "    while first < last:", "    while first > last:"),
        ("runs.py", "for k in range(0, last, LINE):", "for k in range(0, 0x00, LINE):"),
    ],
)
def test_an_upgrade(module, line, defect, tmp_path):
    """The new file has the same date and size, and a killed process has left old code.

    Numba's cache watches copy.py, which has the loop. It does not watch runs.py.
    """
    cache = tmp_path / "cache"
    variables = {"NUMBA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    kernels = install(tmp_path) / "_kernels" / module
    run(tmp_path, SPLIT + "check()", **variables)
    old = {file: file.read_bytes() for file in files_in(cache, ".nbc")}
    date, source = kernels.stat().st_mtime_ns, kernels.read_text()
    changed = source.replace(line, defect)
    assert changed != source, "the quoted line has changed"
    assert len(changed) == len(source)
    kernels.write_text(changed)
    os.utime(kernels, ns=(date, date))
    code = """
try:
    check()
except AssertionError:
    sys.exit()
sys.exit("the old kernel was run")
"""
    run(tmp_path, SPLIT + code, **variables)
    for file, data in old.items():
        file.write_bytes(data)
    run(tmp_path, SPLIT + code, **variables)
