"""The counterparts of other libraries' calls give the same parts."""

import re

import numpy as np
import pytest

import splitjit
from splitjit import split
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "howto" / "coming_from.md").read_text("utf-8")
ROWS = re.findall(r"^\| `((np|torch|jnp|jax)\..+)` \| `(.+?)`", PAGE, re.MULTILINE)


@pytest.mark.parametrize(
    ("theirs", "library", "ours"), [row for row in ROWS if "out=" not in row[0]]
)
def test_counterparts(theirs, library, ours):
    """The rows of the page's tables give the same parts."""
    x = np.arange(36.0, dtype="f4").reshape(2, 6, 3)
    names = {"np": np, "split": split, "splitjit": splitjit, "n": 4, "x": x}
    if "unstack" in theirs and not hasattr(np, "unstack"):
        pytest.skip("NumPy 2.0 has no unstack")
    if library == "torch":
        torch = names["torch"] = pytest.importorskip("torch")
        names["x"] = torch.from_numpy(x)
    elif library != "np":
        jax = names["jax"] = pytest.importorskip("jax")
        names["jnp"] = jax.numpy
    names["parts"] = [names["x"], names["x"]]
    made = [[np.asarray(part) for part in eval(call, names)] for call in (ours, theirs)]
    for part, right in zip(*made, strict=True):
        np.testing.assert_array_equal(part, right, strict=True)
