"""How many threads can run at once: affinity, quotas in fake trees of control groups, Numba."""

import os
import sys

import pytest

from splitjit._runtime import threads


@pytest.fixture
def tree(tmp_path):
    """Write the groups of this process, and files of groups, below a folder; return it."""

    def write(groups, **files):
        files = {f"sys/fs/cgroup/{path}": text for path, text in files.items()}
        for path, text in {"proc/self/cgroup": groups, **files}.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(tmp_path)

    return write


V1 = "4:memory:/box\n3:cpu,cpuacct:/box/inner\n1:name=systemd:/other\n"


def limited(group, quota, period=100_000):
    """Return the files of a control group of version 1."""
    return {f"{group}/cpu.cfs_quota_us": f"{quota}\n", f"{group}/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        # version 2
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/a/b\n", {"a/b/cpu.max": "50000 100000\n"}, 0.5),
        ("0::/a/b\n", {"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "200000 100000\n"}, 2.0),
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3.0),
        ("0::/a/b\n", {"c/cpu.max": "100000 100000\n"}, None),
        ("0::/not/inside\n", {"cpu.max": "200000 100000\n"}, 2.0),
        ("0::/../../x\n", {"cpu.max": "200000 100000\n"}, 2.0),
        ("0::/a:b\n", {"a:b/cpu.max": "200000 100000\n"}, 2.0),
        ("1:name=systemd:/\n0::/\n", {"unified/cpu.max": "100000 50000\n"}, 2.0),
        # version 1
        (V1, limited("cpu,cpuacct", -1, 1), None),
        (V1, limited("cpu/box/inner", 250_000), 2.5),
        (V1, limited("cpu,cpuacct/box", 100_000) | limited("cpu,cpuacct/box/inner", -1), 1.0),
        (V1, limited("memory/box", 1, 1), None),
        (V1, {"cpu/box/cpu.cfs_quota_us": "100000\n"}, None),
        # garbage
        ("", {"cpu.max": "100000 100000"}, None),
        ("0::/\n", {"cpu.max": ""}, None),
        ("0::/\n", {"cpu.max": "max"}, None),
        ("0::/\n", {"cpu.max": "1 2 3"}, None),
        ("0::/\n", {"cpu.max": "0 100000"}, None),
        ("0::/\n", {"cpu.max": "100000 0"}, None),
        ("0::/\n", {"cpu.max": "-1 100000"}, None),
        ("0::/\n", {"cpu.max": b"\xff\xfe\x00 1"}, None),
        ("0::/\n", {"cpu.max/directory": ""}, None),
        ("no colons\n::\n:::::\n0::\0\n\n0::/\n", {"cpu.max": "200000 100000\n"}, 2.0),
        (b"0::/\xff\n", {"cpu.max": "200000 100000\n"}, 2.0),
    ],
)
def test_quota(tree, groups, files, quota):
    assert threads.quota(tree(groups, **files)) == quota


def test_no_limits_without_files(tmp_path):
    assert threads.quota(str(tmp_path)) is None
    assert threads.cache_bytes(str(tmp_path)) == 0


@pytest.mark.parametrize(
    ("text", "nbytes"), [("491520K\n", 480 << 20), ("32M", 0), ("K", 0), ("-1K", 0), ("", 0)]
)
def test_cache(tmp_path, text, nbytes):
    folder = tmp_path / "sys/devices/system/cpu/cpu0/cache/index3"
    folder.mkdir(parents=True)
    (folder / "size").write_text(text)
    assert threads.cache_bytes(str(tmp_path)) == nbytes


@pytest.fixture
def limits(monkeypatch):
    """Set all limits; count how often the quota is read."""

    class Limits:
        affinity, quota, reads = 8, None, 0
        numba = _get_num_threads = None

        def read(self):
            self.reads += 1
            return self.quota

    limits = Limits()
    monkeypatch.setattr(threads, "affinity", lambda: limits.affinity)
    monkeypatch.setattr(threads, "quota", limits.read)
    monkeypatch.setattr(threads, "numba_limit", lambda: limits.numba or sys.maxsize)
    monkeypatch.setitem(sys.modules, threads.NUMBA_THREADS, limits)
    threads._quota_at.cache_clear()
    yield limits
    threads._quota_at.cache_clear()


def test_limits_are_read_again(limits, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert threads.allowed(5.0) == 8
    limits.quota, limits.numba = 2.0, 4
    assert threads.allowed(5.2) == 4
    assert threads.allowed(6.1) == 2
    limits.quota, limits.numba = None, None
    assert threads.allowed(6.3) == 2
    assert threads.allowed(7.2) == 8
    assert limits.reads == 3
    for step in range(100):
        threads.allowed(8 + step / 100)
    assert limits.reads == 4


@pytest.mark.parametrize(
    ("affinity", "quota", "numba", "most", "limited_by"),
    [
        *((16, None, None, 16, "cores"), (16, None, 16, 16, "cores")),
        *((8, None, None, 8, "affinity"), (1, None, None, 1, "affinity")),
        *((2, None, 16, 2, "affinity"), (2, None, 3, 2, "affinity")),
        *((2, 16.0, None, 2, "affinity"), (8, 1e9, None, 8, "affinity")),
        *((8, 2.0, None, 2, "quota"), (8, 2.9, None, 2, "quota"), (8, 0.1, None, 1, "quota")),
        *((16, 3.5, 16, 3, "quota"), (4, 0.5, 4, 1, "quota"), (8, 2.0, 3, 2, "quota")),
        *((8, None, 3, 3, "Numba"), (16, None, 4, 4, "Numba"), (2, 2.0, 2, 2, "Numba")),
    ],
)
def test_the_smallest_limit_counts(limits, monkeypatch, affinity, quota, numba, most, limited_by):
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    limits.affinity, limits.quota, limits.numba = affinity, quota, numba
    assert min(threads.allowed(5.0), affinity) == most
    assert next(iter(threads.limits().items())) == (limited_by, most)
    if numba is not None:  # `numba.set_num_threads` goes before the environment variable
        limits.numba, limits._get_num_threads = 99, lambda: numba
        assert next(iter(threads.limits().items())) == (limited_by, most)


@pytest.mark.parametrize(
    ("given", "limit"),
    [(None, sys.maxsize), ("3", 3), ("0", 1), ("-2", 1), ("", sys.maxsize), ("four", sys.maxsize)],
)
def test_the_environment_limits_numba(monkeypatch, given, limit):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    if given is not None:
        monkeypatch.setenv("NUMBA_NUM_THREADS", given)
    assert threads.numba_limit() == limit


def test_systems_without_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads.affinity() == 1
