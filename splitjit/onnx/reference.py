"""The operators as classes for ``onnx.reference``."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

import splitjit.onnx.split
import splitjit.onnx.split_to_sequence
from splitjit.errors import SplitError


class _SplitRun(OpRun):
    op_domain = ""

    def run(self, *inputs: Any, **context: Any) -> tuple[Any, ...]:
        """Run the node; see ``OpRun.run``."""
        try:
            results = super().run(*inputs, **context)  # type: ignore[no-untyped-call]
        except TypeError as error:
            if isinstance(error.__cause__, SplitError):  # OpRun wraps each TypeError in another
                raise error.__cause__ from None
            raise
        # The evaluator stores an omitted output under the name "", where later nodes
        # look up their omitted inputs. So omitted outputs must be None.
        return tuple(
            [part if name else None for name, part in zip(self.output, results, strict=True)]
        )


class Split(_SplitRun):
    """ONNX Split, all versions."""

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[np.ndarray, ...]:
        # One operator per run: within a function, attributes may change between runs.
        operator = splitjit.onnx.split.Split(
            opset=self.run_params["opsets"][self.domain], outputs=len(self.output), **attributes
        )
        return tuple(operator(*inputs))


class SplitToSequence(_SplitRun):
    """ONNX SplitToSequence, all versions."""

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[list[np.ndarray]]:
        operator = splitjit.onnx.split_to_sequence.SplitToSequence(
            opset=self.run_params["opsets"][self.domain], **attributes
        )
        return (operator(*inputs),)


reference_ops: list[type[OpRun]] = [Split, SplitToSequence]
"""For ``onnx.reference.ReferenceEvaluator(model, new_ops=reference_ops)``.

ReferenceEvaluator does not use them inside a model's local functions, except after
``model = onnx.inliner.inline_local_functions(model)``. `SplitBackend` always uses them.
"""
