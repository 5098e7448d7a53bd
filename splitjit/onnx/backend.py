"""An ``onnx.backend`` whose Split and SplitToSequence are splitjit's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType
from onnx.reference import ReferenceEvaluator

from splitjit.onnx.reference import reference_ops


class SplitBackend(Backend):
    """Runs ONNX models: Split and SplitToSequence by splitjit, the rest by onnx.reference.

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
        """Return whether models run on a device: on the CPU."""
        return bool(Device(device).type == DeviceType.CPU)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> SplitBackendRep:
        """Check a model and make it ready to run.

        Parameters
        ----------
        model : onnx.ModelProto
            The model.
        device : str, default "CPU"
            The only device there is.
        **kwargs
            Of no effect.

        Returns
        -------
        SplitBackendRep
            To be run on inputs.
        """
        super().prepare(model, device, **kwargs)
        return SplitBackendRep(ReferenceEvaluator(model, new_ops=reference_ops))

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
            Its inputs, but for those that it omits.
        device : str, default "CPU"
            The only device there is.
        outputs_info : object, optional
            Of no effect.
        **kwargs
            ``opset_version``, by default the newest that onnx knows.

        Returns
        -------
        tuple of ndarray or list
            Its outputs, but for those that it omits.
        """
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [onnx.ValueInfoProto(name=name) for name in node.input if name],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
        )
        opset = kwargs.get("opset_version", onnx.defs.onnx_opset_version())
        evaluator = ReferenceEvaluator(graph, opsets={node.domain: opset}, new_ops=reference_ops)
        return SplitBackendRep(evaluator).run(inputs)


class SplitBackendRep(BackendRep):
    """A model that is ready to run; made by `SplitBackend.prepare`."""

    def __init__(self, evaluator: ReferenceEvaluator) -> None:
        self._evaluator = evaluator

    def run(self, inputs: Sequence[Any], **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Parameters
        ----------
        inputs : sequence of ndarray
            Its inputs, in their order.
        **kwargs
            Of no effect.

        Returns
        -------
        tuple of ndarray or list
            Its outputs, in their order.
        """
        feeds = dict(zip(self._evaluator.input_names, inputs, strict=False))
        return tuple(self._evaluator.run(None, feeds))
