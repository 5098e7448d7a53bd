"""The operators as classes for ``onnx.reference``, and an ``onnx.backend`` that uses them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from splitjit.errors import SplitError, SplitTypeError, kind_of
from splitjit.onnx import split


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
        named = zip(self.output, results, strict=True)
        return tuple([part if name else None for name, part in named])


class Split(_SplitRun):
    """ONNX Split, all versions."""

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[np.ndarray, ...]:
        # One operator per run: within a function, attributes may change between runs.
        opset = self.run_params["opsets"][self.domain]
        return tuple(split.Split(opset=opset, outputs=len(self.output), **attributes)(*inputs))


class SplitToSequence(_SplitRun):
    """ONNX SplitToSequence, all versions."""

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[list[np.ndarray]]:
        opset = self.run_params["opsets"][self.domain]
        return (split.SplitToSequence(opset=opset, **attributes)(*inputs),)


reference_ops: list[type[OpRun]] = [Split, SplitToSequence]
"""For ``onnx.reference.ReferenceEvaluator(model, new_ops=reference_ops)``.

ReferenceEvaluator does not use them inside a model's local functions, except after
``model = onnx.inliner.inline_local_functions(model)``. `SplitBackend` always uses them.
"""


class SplitBackend(Backend):
    """Run ONNX models: Split and SplitToSequence by splitjit, other operators by onnx.reference.

    This includes operators inside subgraphs and inside the model's local functions.

    See Also
    --------
    splitjit.onnx.reference_ops : Run the nodes of a model with splitjit.
    onnx.backend.base.Backend : The interface.

    Examples
    --------
    >>> import numpy as np
    >>> import onnx
    >>> import splitjit
    >>> node = onnx.helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2)
    >>> splitjit.onnx.SplitBackend.run_node(node, [np.arange(3)])
    (array([0, 1]), array([2]))
    """

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether models run on a device. They run on the CPU only."""
        return device == "CPU" or device.startswith("CPU:")

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> SplitBackendRep:
        """Check a model and prepare it to run.

        Parameters
        ----------
        model : onnx.ModelProto
            The model.
        device : str, default "CPU"
            The only device that is supported.
        **kwargs
            Ignored.

        Returns
        -------
        SplitBackendRep
            The prepared model. Its method `run` takes the inputs.
        """
        cls._check(device)
        super().prepare(model, device, **kwargs)
        return SplitBackendRep(_Evaluator(model))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Sequence[Any],
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run a single node.

        Parameters
        ----------
        node : onnx.NodeProto
            The node.
        inputs : sequence of ndarray
            The inputs of the node, except the inputs that the node omits.
        device : str, default "CPU"
            The only device that is supported.
        outputs_info : object, optional
            Ignored.
        **kwargs
            ``opset_version``. The default is the newest opset of the installed onnx.

        Returns
        -------
        tuple of ndarray or list
            The outputs of the node, except the outputs that the node omits.
        """
        cls._check(device)
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        inputs_of = [onnx.ValueInfoProto(name=name) for name in node.input if name]
        outputs_of = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "node", inputs_of, outputs_of)
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        return SplitBackendRep(_Evaluator(graph, opsets={node.domain: opset})).run(inputs)

    @classmethod
    def _check(cls, device: str) -> None:
        if not cls.supports_device(device):
            raise SplitError("SplitBackend", f"device={device!r}", "must be 'CPU'")


class _Evaluator(ReferenceEvaluator):
    """Add `reference_ops` to each evaluator: of the model, its subgraphs and its functions.

    ReferenceEvaluator makes evaluators of its own class for functions, but does not pass
    `new_ops` on to them. Inlining the functions would not do: onnx.inliner skips a
    function whose opset differs from the opset of the model.
    """

    def __init__(self, proto: Any, *, new_ops: Any = None, **options: Any) -> None:
        super().__init__(proto, new_ops=[*reference_ops, *(new_ops or ())], **options)


class SplitBackendRep(BackendRep):
    """A model that is ready to run. `SplitBackend.prepare` makes it."""

    def __init__(self, evaluator: ReferenceEvaluator) -> None:
        self._evaluator = evaluator

    def run(self, inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Parameters
        ----------
        inputs : sequence of ndarray
            The inputs of the model, in order.
        **kwargs
            Ignored.

        Returns
        -------
        tuple of ndarray or list
            The outputs of the model, in order.
        """
        if isinstance(inputs, Mapping) or hasattr(inputs, "shape"):
            received, rule = f"inputs of type {kind_of(inputs)}", "must be in the model's order"
            raise SplitTypeError("SplitBackend", received, rule, hint="pass a list")
        feeds = dict(zip(self._evaluator.input_names, inputs, strict=False))
        return tuple(self._evaluator.run(None, feeds))
