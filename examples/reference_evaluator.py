"""A model: Split in onnx.reference
================================

Run a model exported from PyTorch with onnx.reference and splitjit's Split.

Requires onnx: pip install ".[onnx]". If torch, onnxscript and onnxruntime are installed, the script
exports a transformer block and compares the result with ONNX Runtime. Otherwise it runs a gated
linear unit from onnx's tests and compares the result with PyTorch's.
"""

# sphinx_gallery_thumbnail_path = '_made/thumbnails/reference_evaluator.svg'

import importlib.util
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import splitjit


def exported():
    """Export attention with a fused projection, and SwiGLU; return model, input and output."""
    import onnxruntime
    import torch

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = torch.nn.Linear(64, 96)
            self.out, self.down = torch.nn.Linear(64, 64), torch.nn.Linear(172, 64)
            self.gate_up = torch.nn.Linear(64, 2 * 172)

        def forward(self, x):
            parts = self.qkv(x).split([64, 16, 16], dim=-1)  # 4 query heads, 1 key, 1 value
            q, k, v = (part.unflatten(-1, (-1, 16)).transpose(-3, -2) for part in parts)
            attended = torch.softmax(q @ k.transpose(-1, -2) / 4, dim=-1) @ v
            x = x + self.out(attended.transpose(-3, -2).flatten(-2))
            gate, up = self.gate_up(x).chunk(2, dim=-1)
            return x + self.down(torch.nn.functional.silu(gate) * up)

    x = torch.randn(2, 10, 64)
    program = torch.onnx.export(Block().eval(), (x,), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return program.model_proto, x.numpy(), expected


def bundled():
    """Return a model that PyTorch 0.3 exported, its input and its output."""
    folder = Path(onnx.__file__).parent / "backend/test/data/pytorch-converted/test_GLU"
    tensors = [
        onnx.load_tensor(folder / f"test_data_set_0/{name}_0.pb") for name in ("input", "output")
    ]
    return onnx.load(folder / "model.onnx"), *map(onnx.numpy_helper.to_array, tensors)


# %%
# Run the model with splitjit's operators.

can_export = all(map(importlib.util.find_spec, ("torch", "onnxscript", "onnxruntime")))
model, x, expected = exported() if can_export else bundled()
print(
    "model of", model.producer_name, model.producer_version, "opset", model.opset_import[0].version
)
for node in model.graph.node:
    if node.op_type == "Split":
        print("Split into", ", ".join(node.output))

evaluator = ReferenceEvaluator(model, new_ops=splitjit.onnx.reference_ops)
(result,) = evaluator.run(None, {evaluator.input_names[0]: x})
np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
print("output", result.shape, "equals that of", "ONNX Runtime" if can_export else "PyTorch")
