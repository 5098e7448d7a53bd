"""The logger ``splitjit`` has a message for each rare event, and costs nothing otherwise."""

import logging
import subprocess
import sys

import pytest

from splitjit._copy import governor, loading


def one():
    return 1


def busy():
    raise BlockingIOError


@pytest.fixture
def messages(caplog, monkeypatch):
    monkeypatch.setattr(loading, "LOADED", {})
    monkeypatch.setattr(loading, "_busy_until", 0.0)
    caplog.set_level(logging.DEBUG, "splitjit")
    return caplog


def test_a_load_is_logged_once(messages):
    pytest.importorskip("numba")
    assert [loading.load(one), loading.load(one)] == [1, 1]
    assert [text.split(" in ")[0] for text in messages.messages] == ["compiled or loaded one()"]


def test_a_busy_compiler_is_logged(messages):
    pytest.importorskip("numba")
    assert loading.load(busy) is None
    assert messages.messages == ["Numba is busy, so NumPy copies instead of busy()"]


def test_a_pause_is_logged(messages):
    governor.Pause().begin(0.5)
    assert messages.messages == [
        "parallel copies lost 0.500000 s; one thread copies for 0.500000 s"
    ]


def test_logging_is_not_imported():
    code = "import sys, numpy, splitjit; assert 'logging' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
