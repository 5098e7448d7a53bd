"""Compare implementations of the Split operators in the cases in which they disagree.

``python docs/tools/conformance.py`` runs onnx's shape inference, onnx.reference,
ONNX Runtime, OpenVINO and splitjit over `CASES` and writes the results to
``docs/conformance.md``. Each implementation runs in a separate process. If a
case crashes that process, a new process continues after the case.
"""

from __future__ import annotations

import importlib.metadata
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ERROR = "error"
NONE = "no parts"
MISSING = "not implemented"
_MISSING_WORDS = ("NOT_IMPLEMENTED", "No implementation for operator", "No conversion rule found")
PAGE = Path(__file__).parents[1] / "conformance.md"

INTRODUCTION = """# Where implementations of the Split operators disagree

Written by `python docs/tools/conformance.py`, with {versions}.

{cases} cases where implementations differ or could differ. All inputs have rank 1. Each cell gives
the lengths of the parts. ✓ agrees with splitjit's reading of the specification, ✗ differs from it.
A signal name such as SIGABRT means that the process crashed. "?" means that shape inference leaves
the lengths open. Lengths are constants unless the case says "at run time". In an empty cell, the
implementation lacks the operator. OpenVINO has no sequences as model outputs, so it cannot run
SplitToSequence.

## Crashes and silent errors

Each ✗ is one of three things: a crash, which ends the process and which no `except` catches; wrong
lengths or data without an error, which can be worse, because the program goes on with them; or an
error for a valid node.
"""


@dataclass(frozen=True)
class Case:
    """A node with an input of rank 1, and the result that splitjit must give.

    Parameters
    ----------
    row : str
        The rule that the case tests.
    expected : str
        The lengths of the parts, `NONE` or `ERROR`.
    op : str
        Split, SplitToSequence, or OpenVINO's Split or VariadicSplit.
    opset : int
        The opset of the model, for ONNX operators.
    length : int
        The length of the axis.
    split : ndarray, optional
        The input `split` or `split_lengths`.
    at_run_time : bool
        Whether `split` is an input of the model instead of a constant.
    outputs : int
        How many outputs the node declares.
    axis_input : ndarray, optional
        The input `axis` of OpenVINO's operators.
    attributes : tuple of (str, object)
        The attributes of the node.
    dtype : str
        The dtype of the input to split.
    """

    row: str
    expected: str
    op: str = "Split"
    opset: int = 18
    length: int = 6
    split: Any = None
    at_run_time: bool = False
    outputs: int = 2
    axis_input: Any = None
    attributes: tuple[tuple[str, Any], ...] = ()
    dtype: str = "float32"

    @property
    def data(self) -> np.ndarray:
        """The tensor to split."""
        return (np.arange(self.length) % 251).astype(self.dtype)

    @property
    def text(self) -> str:
        """The operator, the axis length and the arguments."""
        name = self.op if "." in self.op else f"{self.op}-{self.opset}"
        given = [f"{key}={value}" for key, value in self.attributes]
        if self.axis_input is not None:
            given.append(f"axis={_brief(self.axis_input)}")
        if self.split is not None:
            given.append(f"split={_brief(self.split)}" + " at run time" * self.at_run_time)
        if self.op == "Split":
            given.append(f"{self.outputs} outputs" if self.outputs > 1 else "1 output")
        return f"{name} of {self.length}: {', '.join(given) or 'nothing given'}"


def _brief(array: np.ndarray) -> str:
    kind = "" if array.dtype == np.int64 else f" {array.dtype}"
    return f"{array.tolist()}{kind}"


def _split(row: str, expected: str, lengths: Any = None, **given: Any) -> Case:
    """Make a case of ONNX Split; keywords that are no fields of `Case` become attributes."""
    return _case("Split", row, expected, lengths, **given)


def _sequence(row: str, expected: str, lengths: Any = None, **given: Any) -> Case:
    return _case("SplitToSequence", row, expected, lengths, **{"opset": 11, **given})


def _case(op: str, row: str, expected: str, lengths: Any, **given: Any) -> Case:
    own = ("opset", "length", "at_run_time", "outputs", "axis_input", "dtype")
    fields = {key: given.pop(key) for key in own if key in given}
    split = None if lengths is None else np.asarray(lengths)
    return Case(row, expected, op, split=split, attributes=tuple(given.items()), **fields)


def _equal(row: str, expected: str, axis: Any = 0, **given: Any) -> Case:
    return _case("OpenVINO.Split", row, expected, None, axis_input=np.asarray(axis), **given)


def _variadic(row: str, expected: str, lengths: Any, axis: Any = 0, **given: Any) -> Case:
    case = {"axis_input": np.asarray(axis), "outputs": np.size(lengths), **given}
    return _case("OpenVINO.VariadicSplit", row, expected, lengths, **case)


_BOTH_1 = "Split-1: split as attribute and as input"
_FLOAT_1 = "Split-1: the input split holds floats"
_CLAMP = "Split-18: num_outputs with an uneven or too short axis"
_EQUAL = "Split 2-13, no split: equal parts"
_COUNT = "Split: as many lengths as outputs"
_INPUT = "Split 13/18: the input split is 1-D int64"
_SUM = "lengths sum to the axis length"
_NEGATIVE = "lengths are at least 0"
_EMPTY = "split=[]"
_SCALAR = "SplitToSequence, scalar split"
_LIST = "SplitToSequence, 1-D split"
_KEEPDIMS = "SplitToSequence, split given: keepdims is ignored"
_NO_SPLIT = "SplitToSequence, no split: parts of length 1"
_OV_AXIS = "OpenVINO Split: axis is 0-D, of any integer type"
_OV_EVEN = "OpenVINO Split: num_splits divides evenly"
_OV_REST = "OpenVINO VariadicSplit: -1 takes the rest"
_OV_LENGTHS = "OpenVINO VariadicSplit: lengths"

CASES = [
    _split("Split-18: neither split nor num_outputs", ERROR),
    _split("Split-18: both split and num_outputs", ERROR, [2, 4], num_outputs=2),
    _split(_CLAMP, "2, 2, 2, 1", length=7, num_outputs=4, outputs=4),
    _split(_CLAMP, "2, 2, 2, 1", length=7, axis=-1, num_outputs=4, outputs=4),
    _split(_CLAMP, "3, 3, 2", length=8, num_outputs=3, outputs=3),
    _split(_CLAMP, "2, 2, 1, 0", length=5, num_outputs=4, outputs=4),
    _split(_CLAMP, "2, 2, 2, 0", length=6, num_outputs=4, outputs=4),
    _split(_CLAMP, "2, 2, 2, 2, 2, 1, 0, 0", length=11, num_outputs=8, outputs=8),
    _split(_CLAMP, "1, 1, 1, 0, 0", length=3, num_outputs=5, outputs=5),
    _split(_CLAMP, "1, 0", length=1, num_outputs=2),
    _split(_CLAMP, "0, 0, 0", length=0, num_outputs=3, outputs=3),
    _split(_CLAMP, "8388609, 8388608", length=2**24 + 1, num_outputs=2, dtype="uint8"),
    _split("Split-18: num_outputs > outputs", "2, 2", num_outputs=3),
    _split("Split-18: num_outputs < outputs", ERROR, num_outputs=2, outputs=3),
    _split("Split-18: num_outputs >= 1", ERROR, num_outputs=0, outputs=1),
    _split("Split-18: num_outputs >= 1", ERROR, num_outputs=-1, outputs=1),
    *[_split(_EQUAL, "2, 2, 2", opset=opset, outputs=3) for opset in (1, 2, 11, 13)],
    *[_split(_EQUAL, ERROR, opset=opset, length=7, outputs=3) for opset in (1, 2, 11, 13)],
    _split(_EQUAL, "0, 0, 0", opset=13, length=0, outputs=3),
    *[_split(_COUNT, "2, 4", opset=opset, split=[2, 4]) for opset in (1, 2, 11)],
    *[_split(_COUNT, ERROR, opset=opset, split=[2, 4], outputs=3) for opset in (1, 2, 11)],
    _split(_COUNT, ERROR, [2, 4], opset=13, outputs=3),
    _split(_COUNT, ERROR, [2, 4], outputs=3),
    _split(_COUNT, ERROR, [2, 2, 2], outputs=2),
    _split("Split: axis in [-rank, rank-1]", "2, 4", [2, 4], axis=-1),
    _split("Split: axis in [-rank, rank-1]", ERROR, [2, 4], axis=1),
    _split("Split-1: axis not given: 0", "3, 3", opset=1),
    _split(_BOTH_1, "2, 4", np.array([2, 4], "f4"), opset=1, split=[2, 4]),
    _split(_BOTH_1, ERROR, np.array([2, 4], "f4"), opset=1, split=[4, 2]),
    _split(_FLOAT_1, "2, 4", np.array([2, 4], "f4"), opset=1),
    _split(_FLOAT_1, ERROR, np.array([2.5, 3.5], "f4"), opset=1),
    _split(_FLOAT_1, ERROR, np.array([-2, 8], "f4"), opset=1),
    _split(_FLOAT_1, ERROR, np.array([6, np.nan], "f4"), opset=1),
    _split(_FLOAT_1, ERROR, np.array([6, np.inf], "f4"), opset=1),
    _split(_INPUT, "2, 4", [2, 4], opset=13),
    _split(_INPUT, "2, 4", [2, 4]),
    _split(_INPUT, ERROR, 3),
    _split(_INPUT, ERROR, [[2, 4]]),
    _split(_INPUT, ERROR, np.array([2, 4], np.int32)),
    _split(_SUM, ERROR, [2, 2]),
    _split(_SUM, ERROR, [2, 2], at_run_time=True),
    _split(_SUM, ERROR, [2**63 - 1, 2**63 - 1, 8], outputs=3, at_run_time=True),
    _split(_NEGATIVE, ERROR, [-2, 8]),
    _split(_NEGATIVE, ERROR, [-2, 8], at_run_time=True),
    _split(_EMPTY, ERROR, np.array([], np.int64), at_run_time=True),
    _split(_EMPTY, ERROR, np.array([], np.int64), length=0, at_run_time=True),
    _sequence(_NO_SPLIT, "1, 1, 1, 1, 1, 1"),
    _sequence(_NO_SPLIT, NONE, length=0),
    _sequence("SplitToSequence, no split: keepdims=0 squeezes", "(), (), ()", length=3, keepdims=0),
    _sequence(_KEEPDIMS, "2, 4", [2, 4], keepdims=0),
    _sequence(_KEEPDIMS, "4, 2", 4, keepdims=0),
    _sequence(_SCALAR, "2, 2, 2, 1", 2, length=7),
    _sequence(_SCALAR, "7", 10, length=7),
    _sequence(_SCALAR, NONE, 2, length=0),
    _sequence(_SCALAR, ERROR, 0),
    _sequence(_SCALAR, ERROR, 0, at_run_time=True),
    _sequence(_SCALAR, ERROR, -2),
    _sequence(_LIST, "2, 4", np.array([2, 4], np.int32)),
    _sequence(_LIST, "2, 0, 4", [2, 0, 4]),
    _sequence(_LIST, "0, 0", [0, 0], length=0),
    _sequence(_LIST, ERROR, [-2, 8]),
    _sequence(_LIST, ERROR, [2, 2]),
    _sequence(_LIST, ERROR, [[2, 4]]),
    _sequence(_LIST, ERROR, np.array([2, 4], np.int16)),
    _sequence(_EMPTY, ERROR, np.array([], np.int64)),
    _sequence(_EMPTY, ERROR, np.array([], np.int64), at_run_time=True),
    _sequence(_EMPTY, NONE, np.array([], np.int64), length=0),
    *[
        _equal(_OV_AXIS, "3, 3", np.array(0, dtype), num_splits=2)
        for dtype in ("i1", "u1", "i4", "u8", "i8")
    ],
    _equal(_OV_AXIS, "3, 3", -1, num_splits=2),
    _equal(_OV_AXIS, ERROR, 1, num_splits=2),
    _equal(_OV_AXIS, ERROR, [0], num_splits=2),
    _equal(_OV_AXIS, ERROR, np.float32(0), num_splits=2),
    _equal(_OV_AXIS, ERROR, np.bool_(0), num_splits=2),
    _equal(_OV_EVEN, ERROR, num_splits=4),
    _equal(_OV_EVEN, "0, 0", length=0, num_splits=2),
    _equal("OpenVINO Split: num_splits >= 1", ERROR, num_splits=0),
    _equal("OpenVINO Split: num_splits >= 1", ERROR, num_splits=-1),
    _equal("OpenVINO Split: strings", "1, 1", length=2, num_splits=2, dtype="U3"),
    _variadic("OpenVINO VariadicSplit: axis is 0-D or of shape [1]", "2, 4", [2, 4]),
    _variadic("OpenVINO VariadicSplit: axis is 0-D or of shape [1]", "2, 4", [2, 4], [0]),
    _variadic(_OV_REST, "2, 3, 1", [2, -1, 1]),
    _variadic(_OV_REST, "2, 4, 0", [2, 4, -1]),
    _variadic(_OV_REST, ERROR, [4, 4, -1]),
    _variadic(_OV_REST, ERROR, [4, 4, -1], at_run_time=True),
    _variadic(_OV_REST, ERROR, [-1, 4, -1]),
    _variadic("OpenVINO VariadicSplit: strings", "1, 2", [1, 2], length=3, dtype="U3"),
    _variadic(_OV_LENGTHS, "2, 4", np.array([2, 4], np.int8)),
    _variadic(_OV_LENGTHS, ERROR, [-2, 8]),
    _variadic(_OV_LENGTHS, ERROR, [2, 2]),
    _variadic(_OV_LENGTHS, ERROR, [2, 2], at_run_time=True),
]


# ---- the implementations: each takes a case and returns the lengths of the parts ----------------


def run_splitjit(case: Case) -> str:
    """Run the operators of splitjit."""
    import splitjit

    given = dict(case.attributes)
    try:
        if case.op == "OpenVINO.Split":
            parts = splitjit.openvino.Split(**given)(case.data, case.axis_input)
        elif case.op == "OpenVINO.VariadicSplit":
            operator = splitjit.openvino.VariadicSplit()
            parts = operator(case.data, case.axis_input, case.split)
        elif case.op == "Split":
            node = splitjit.onnx.Split(opset=case.opset, outputs=case.outputs, **given)
            parts = node(case.data, case.split)
        else:
            parts = splitjit.onnx.SplitToSequence(opset=case.opset, **given)(case.data, case.split)
    except splitjit.SplitError:
        return ERROR
    return _lengths(case, parts)


def run_reference(case: Case) -> str:
    """Run onnx.reference."""
    from onnx.reference import ReferenceEvaluator

    return _onnx_lengths(case, ReferenceEvaluator(_model(case)).run(None, _feeds(case)))


def run_onnxruntime(case: Case) -> str:
    """Run ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    model = _model(case).SerializeToString()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return _onnx_lengths(case, session.run(None, _feeds(case)))


def run_openvino(case: Case) -> str:
    """Run OpenVINO: its own operators, and ONNX operators through its ONNX frontend."""
    import openvino as ov
    from openvino import opset8 as ops

    core = ov.Core()
    if not case.op.startswith("OpenVINO"):
        compiled = core.compile_model(core.read_model(_model(case).SerializeToString()), "CPU")
        results = compiled(_feeds(case))
        return _onnx_lengths(case, [results[port] for port in compiled.outputs])

    kind = ov.Type.string if case.data.dtype.kind == "U" else ov.Type(case.data.dtype)
    inputs = [ops.parameter([case.length], kind)]
    axis = ops.constant(case.axis_input)
    if case.op == "OpenVINO.Split":
        node = ops.split(inputs[0], axis, **dict(case.attributes))
    else:
        lengths = ops.constant(case.split)
        if case.at_run_time:
            inputs.append(lengths := ops.parameter(list(case.split.shape), case.split.dtype))
        node = ops.variadic_split(inputs[0], axis, lengths)
    compiled = core.compile_model(ov.Model(node.outputs(), inputs), "CPU")
    results = compiled([case.data, case.split][: len(inputs)])
    return _lengths(case, [results[port] for port in compiled.outputs])


def run_shape_inference(case: Case) -> str:
    """Run onnx's shape inference; "?" stands for lengths that it leaves open."""
    import onnx

    if case.at_run_time:
        return "?"
    inferred = onnx.shape_inference.infer_shapes(_model(case), strict_mode=True, data_prop=True)
    lengths = [
        str(dim.dim_value) if dim.HasField("dim_value") else "?"
        for output in inferred.graph.output
        for dim in output.type.tensor_type.shape.dim  # a sequence has no dims
    ]
    return "?" if set(lengths) <= {"?"} else ", ".join(lengths)


def _onnx_lengths(case: Case, results: list[Any]) -> str:
    return _lengths(case, results if case.op == "Split" else results[0])


def _lengths(case: Case, parts: list[np.ndarray]) -> str:
    whole = np.concatenate([np.ravel(part) for part in parts]) if parts else case.data[:0]
    if whole.tolist() != case.data[: len(whole)].tolist():
        return "wrong data"
    return ", ".join(str(part.shape[0] if part.ndim else ()) for part in parts) or NONE


def _feeds(case: Case) -> dict[str, np.ndarray]:
    return {"x": case.data, **({"split": case.split} if case.at_run_time else {})}


def _model(case: Case) -> Any:
    from onnx import helper, numpy_helper

    kind = helper.np_dtype_to_tensor_dtype(case.data.dtype)
    inputs = [helper.make_tensor_value_info("x", kind, [case.length])]
    constants = []
    if case.at_run_time:
        split_kind = helper.np_dtype_to_tensor_dtype(case.split.dtype)
        inputs.append(helper.make_tensor_value_info("split", split_kind, case.split.shape))
    elif case.split is not None:
        constants.append(numpy_helper.from_array(case.split, "split"))
    if case.op == "Split":
        names = [f"y{i}" for i in range(case.outputs)]
        outputs = [helper.make_tensor_value_info(name, kind, None) for name in names]
    else:
        names = ["y"]
        outputs = [helper.make_tensor_sequence_value_info("y", kind, None)]
    arguments = ["x"] if case.split is None else ["x", "split"]
    node = helper.make_node(case.op, arguments, names, **dict(case.attributes))
    graph = helper.make_graph([node], "case", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", case.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@dataclass(frozen=True)
class Implementation:
    """A column of the table."""

    name: str
    package: str
    run: Callable[[Case], str]
    of_openvino: bool

    def takes(self, case: Case) -> bool:
        """Return whether the implementation has the operator of the case."""
        return self.of_openvino or not case.op.startswith("OpenVINO")


IMPLEMENTATIONS = [
    Implementation("splitjit", "splitjit", run_splitjit, True),
    Implementation("shape inference", "onnx", run_shape_inference, False),
    Implementation("onnx.reference", "onnx", run_reference, False),
    Implementation("ONNX Runtime", "onnxruntime", run_onnxruntime, False),
    Implementation("OpenVINO", "openvino", run_openvino, True),
]


# ---- one process for each implementation, and the table ------------------------------------------


def work(name: str, start: int) -> None:
    """Run an implementation over the cases from `start` on; print one line of JSON for each."""
    (implementation,) = [one for one in IMPLEMENTATIONS if one.name == name]
    for case in CASES[start:]:
        try:
            outcome = implementation.run(case) if implementation.takes(case) else ""
        except Exception as error:
            outcome = MISSING if any(words in str(error) for words in _MISSING_WORDS) else ERROR
        print(json.dumps(outcome), flush=True)


def outcomes(implementation: Implementation) -> Iterator[str]:
    """Yield the result of an implementation for each case; a crash gives the signal's name."""
    done = 0
    while done < len(CASES):
        command = [sys.executable, __file__, implementation.name, str(done)]
        process = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith('"')]
        yield from lines
        done += len(lines)
        if done < len(CASES):
            if process.returncode >= 0:
                raise RuntimeError(process.stderr)
            yield signal.Signals(-process.returncode).name
            done += 1


def table(columns: dict[str, list[str]], op: str) -> Iterator[str]:
    """Yield the lines of the table of an operator, with a sign before each result."""
    yield "| " + " | ".join(["case", "should be", *columns]) + " |"
    yield "|" + "---|" * (len(columns) + 2)
    row = None
    for case, *cells in zip(CASES, *columns.values(), strict=True):
        if case.op != op:
            continue
        if case.row != row:
            row = case.row
            yield f"| **{row}** |" + " |" * (len(columns) + 1)
        signed = [f"{sign(case, cell)} {cell}".strip() for cell in cells]
        yield "| " + " | ".join([case.text, case.expected, *signed]) + " |"


def sign(case: Case, cell: str) -> str:
    """Return the sign of a result; results that say nothing have none."""
    if cell in ("", "?", MISSING):
        return ""
    return "✓" if cell == case.expected else "✗"


def kind(case: Case, cell: str) -> str:
    """Return what a wrong result does to the user: "crash", "silent", "refused", or ""."""
    if sign(case, cell) != "✗":
        return ""
    if cell.startswith("SIG"):
        return "crash"
    return "refused" if cell == ERROR else "silent"


def reading(columns: dict[str, list[str]]) -> Iterator[str]:
    """Yield the lines of the table that counts the kinds of wrong results, and the crashes."""
    kinds = {
        "crash": "crashes the process",
        "silent": "gives wrong lengths or data without an error",
        "refused": "refuses a valid node",
    }
    yield "| implementation | " + " | ".join(kinds.values()) + " |"
    yield "|---|" + "--:|" * len(kinds)
    for name, cells in columns.items():
        found = [kind(case, cell) for case, cell in zip(CASES, cells, strict=True)]
        yield f"| {name} | " + " | ".join(str(found.count(one)) for one in kinds) + " |"
    yield ""
    for name, cells in columns.items():
        for case, cell in zip(CASES, cells, strict=True):
            if kind(case, cell) == "crash":
                yield f"- {name} crashes with {cell}: {case.text}."


def page() -> str:
    """Return the text of ``conformance.md``."""
    columns = {one.name: list(outcomes(one)) for one in IMPLEMENTATIONS}
    packages = sorted({one.package for one in IMPLEMENTATIONS} - {"splitjit"} | {"numpy"})
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    lines = [INTRODUCTION.format(versions=versions, cases=len(CASES)), *reading(columns)]
    for op in dict.fromkeys(case.op for case in CASES):
        name = op.replace(".", " ") if "." in op else f"ONNX {op}"
        lines += ["", f"## {name}", "", *table(columns, op)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if sys.argv[1:]:
        work(sys.argv[1], int(sys.argv[2]))
    else:
        PAGE.write_text(page(), encoding="utf-8")
