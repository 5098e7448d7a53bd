"""What Windows and macOS lack or do otherwise, simulated on the system that runs the tests.

``nox -s simulated`` runs these tests, and others of the boundary to the system.
"""

import ctypes
import os
import sys
import types

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
