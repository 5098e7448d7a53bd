"""The logger ``splitjit`` has a message for each rare event, and costs nothing otherwise."""

import importlib
import logging
from pathlib import Path

import pytest

from splitjit._runtime import kernel_files, loading
from tests.conftest import needs_kernels


@pytest.fixture
def messages(caplog):
    caplog.set_level(logging.DEBUG, "splitjit")
    return caplog


@pytest.fixture
def loader(tmp_path, monkeypatch):
    """Return a loader with an empty cache; what it would compile is no object file."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    importlib.import_module("splitjit._kernels.compiling")
    monkeypatch.setattr(
        "splitjit._kernels.compiling.compile_kernel", lambda name: b"code of " + name
    )
    return loading._Loader()


@needs_kernels
def test_a_compilation_is_logged_once(loader, messages, monkeypatch):
    monkeypatch.setattr("splitjit._kernels.compiling.compile_kernel", lambda name: b"code")
    monkeypatch.setattr(loading, "_link", lambda *_: {"plain": 1})
    assert loader.load("plain") == loader.load("plain") == {"plain": 1}
    assert [text.split(" in ")[0] for text in messages.messages] == ["compiled plain"]


@needs_kernels
def test_a_damaged_file_is_logged(loader, messages, tmp_path):
    file = Path(kernel_files.path("plain"))
    file.parent.mkdir()
    file.write_bytes(b"damaged")
    assert kernel_files.read("plain") is None
    assert messages.messages == [f"the cached kernel {file} is damaged"]


@needs_kernels
def test_a_kernel_that_cannot_be_compiled_is_logged_once(loader, messages):
    assert loader.load("plain") is loader.load("plain") is None
    (message,) = messages.messages
    assert message.startswith("the kernel plain cannot be loaded: TypeError(")
