"""Time of an operator call, compared with the `split` call that it makes."""

import numpy as np

CALLS = [
    *["split, num_outputs", "split, num_splits", "split, lengths", "split, chunks"],
    *["ONNX Split-1", "ONNX Split-11, lengths", "ONNX Split-13", "ONNX Split-13, lengths"],
    *["ONNX Split-18", "ONNX Split-18, lengths"],
    *["ONNX SplitToSequence, chunks", "ONNX SplitToSequence, lengths"],
    *["OpenVINO Split", "OpenVINO VariadicSplit"],
]


class SmallArray:
    """Six numbers into three parts; an operator may take a microsecond more than plain `split`."""

    version = "2"
    params = (CALLS,)
    param_names = ("call",)

    def setup(self, call):
        from splitjit import onnx, openvino, split

        x, lengths = np.arange(6, dtype=np.float32), np.array([2, 2, 2])
        thirteen, eighteen = onnx.Split(opset=13, outputs=3), onnx.Split(outputs=3)
        one, eleven = onnx.Split(opset=1, outputs=3), onnx.Split(opset=11, split=[2, 2, 2])
        counted, sequence = onnx.Split(num_outputs=3), onnx.SplitToSequence()
        equal, variadic = openvino.Split(num_splits=3), openvino.VariadicSplit()
        calls = [
            lambda: split(x, num_outputs=3),
            lambda: split(x, num_splits=3),
            lambda: split(x, lengths),
            lambda: split(x, 2),
            lambda: one(x),
            lambda: eleven(x),
            lambda: thirteen(x),
            lambda: thirteen(x, lengths),
            lambda: counted(x),
            lambda: eighteen(x, lengths),
            lambda: sequence(x, 2),
            lambda: sequence(x, lengths),
            lambda: equal(x, 0),
            lambda: variadic(x, 0, lengths),
        ]
        self.call = dict(zip(CALLS, calls, strict=True))[call]

    def time_call(self, call):
        self.call()
