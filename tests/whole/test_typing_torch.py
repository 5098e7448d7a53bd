"""The same uses with tensors; type checkers need torch for this file."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import pytest

import splitjit
from splitjit import SplitError, plan_split, split

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
plan = plan_split((6,), 3)


def mypy(*arguments: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_mypy_finds_the_wrong_uses_only() -> None:
    # Versions of mypy differ in the wrong uses that they find.
    checked = mypy("--no-warn-unused-ignores", __file__)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_parts_of_tensors_are_tensors() -> None:
    tensor = torch.ones(6)
    tensors = [torch.empty(3), torch.empty(3)]
    assert_type(split(tensor, 3), list[torch.Tensor])
    assert_type(split(tensor, [1, 5], copy=False), list[torch.Tensor])
    assert_type(split(tensor, num_outputs=4, axis=0), list[torch.Tensor])
    assert_type(split(tensor, num_splits=2), list[torch.Tensor])
    assert_type(split(tensor, indices=[2]), list[torch.Tensor])
    assert_type(split(tensor, num_sections=4), list[torch.Tensor])
    assert_type(split(tensor, 3, out=tensors), list[torch.Tensor])
    assert_type(plan(tensor), list[torch.Tensor])
    assert_type(plan(tensor, tensors), list[torch.Tensor])
    assert_type(plan.bind(tensors)(tensor), list[torch.Tensor])
    assert_type(splitjit.onnx.Split(num_outputs=2)(tensor), list[torch.Tensor])
    assert_type(splitjit.openvino.Split(num_splits=2)(tensor, 0), list[torch.Tensor])
    assert_type(splitjit.torch.unbind(torch.ones(2, 3), 1), tuple[torch.Tensor, ...])
    assert_type(splitjit.torch.chunk(tensor, 2), tuple[torch.Tensor, ...])
    parameter = torch.nn.Parameter(tensor, requires_grad=False)
    assert_type(split(parameter, 3), list[torch.Tensor])
    splitjit.split_into(tensor, tensors, 3)
    for wrong in WRONG_TENSORS:
        with pytest.raises((SplitError, TypeError)):
            wrong()


WRONG_TENSORS: list[Callable[[], object]] = [
    lambda: split(torch.ones(6)),  # type: ignore
    lambda: split(torch.ones(6), 3, num_splits=2),  # type: ignore
    lambda: split(torch.ones(6), 3.0),  # type: ignore
    lambda: split(torch.ones(6), 3, out=torch.float32),  # type: ignore
    lambda: split(torch.ones(6), 3, out=[torch.empty(3)] * 2, copy=False),  # type: ignore
    lambda: split(torch.float32, 3),  # type: ignore
]
