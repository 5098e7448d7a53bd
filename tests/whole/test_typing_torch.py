"""Right and wrong uses of the public functions with tensors of torch; see test_typing.py.

Type checkers need torch to check this file, so a test runs mypy if torch is installed, and
``nox -s typing`` runs both type checkers.
"""

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


@pytest.mark.long
def test_the_errors_of_mypy_name_the_rule(tmp_path: Path) -> None:
    uses = ["split([1, 2])", "split([1, 2], num_splits=2, num_outputs=2)", "plan_split((6,))"]
    file = tmp_path / "uses.py"
    file.write_text("\n".join(["from splitjit import plan_split, split", *uses]))
    checked = mypy(str(file))
    errors = checked.stdout.split(" error: ")[1:]
    assert len(errors) == len(uses), checked.stdout
    for error in errors:
        assert "GiveExactlyOneRule" in error
        assert error.count(" def ") <= 7
    assert "Dask" not in checked.stdout


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
