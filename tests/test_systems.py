"""What Windows and macOS lack or do otherwise, simulated on the system that runs the tests.

``nox -s simulated`` runs these tests, and others of the boundary to the system.
"""

import ctypes
import errno
import os
import sys
import types
from pathlib import Path

import numba
import pytest

from splitjit._plan import arguments

# ---- memory ------------------------------------------------------------------------------


class Kernel32:
    """The part of Windows that reports the memory: 8 GiB, or that the call has failed."""

    def __init__(self, reports):
        self.reports = reports

    def GlobalMemoryStatusEx(self, status):
        assert (status[0], ctypes.sizeof(status)) == (64, 64)
        if self.reports:
            status[1] = 8 << 30
        return self.reports


@pytest.mark.parametrize(
    ("reports", "limit"), [(True, (4 << 30) // arguments._BYTES_PER_PART), (False, 10**6)]
)
def test_the_number_of_parts_has_a_limit_on_windows(reports, limit, monkeypatch):
    monkeypatch.delattr(os, "sysconf")
    monkeypatch.setattr(sys, "platform", "win32")
    windll = types.SimpleNamespace(kernel32=Kernel32(reports))
    monkeypatch.setattr(ctypes, "windll", windll, raising=False)
    assert arguments.most_parts.__wrapped__() == limit


def test_the_number_of_parts_has_a_limit_if_the_system_does_not_report_its_memory(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: -1 if name == "SC_PHYS_PAGES" else 4096)
    assert arguments.most_parts.__wrapped__() == 10**6
    monkeypatch.delattr(os, "sysconf")
    assert arguments.most_parts.__wrapped__() == 10**6


# ---- files -------------------------------------------------------------------------------


@pytest.fixture
def open_files_stay(monkeypatch):
    """Let no file be deleted while it is open, as on Windows."""
    opened = []

    def open_(path, *arguments):
        file = open(path, *arguments)  # noqa: SIM115
        opened.append(file)
        return file

    def unlink(path):
        if any(Path(file.name) == path and not file.closed for file in opened):
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))
        os.unlink(path)

    monkeypatch.setattr(Path, "open", open_)
    monkeypatch.setattr(Path, "unlink", unlink)


def test_a_lock_of_the_cache_is_deleted(tmp_path, monkeypatch, open_files_stay):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    from splitjit._kernels import cached_files

    files = cached_files.CachedFiles(test_a_lock_of_the_cache_is_deleted)
    files.folder.mkdir(exist_ok=True)
    with files.lock(wait=False):
        assert [*files.folder.glob("*.lock")]
    assert not [*files.folder.glob("*.lock")]
    with pytest.raises(ZeroDivisionError), files.lock(wait=False):
        _ = 1 / 0
    assert not [*files.folder.glob("*.lock")]


def test_a_lock_of_another_process_is_not_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    from splitjit._kernels import cached_files

    def taken(file):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(cached_files, "_lock", taken)
    files = cached_files.CachedFiles(test_a_lock_of_another_process_is_not_deleted)
    files.folder.mkdir(exist_ok=True)
    with pytest.raises(BlockingIOError), files.lock(wait=False):
        pass
    assert [*files.folder.glob("*.lock")]
