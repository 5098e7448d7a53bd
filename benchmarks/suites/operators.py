"""Time of an operator call, compared with the `split` call that it makes."""

import numpy as np


def calls():
    """Return calls that split six numbers into three parts."""
    from splitjit import onnx, openvino, split

    x, lengths = np.arange(6, dtype=np.float32), np.array([2, 2, 2])
    thirteen, eighteen = onnx.Split(opset=13, outputs=3), onnx.Split(outputs=3)
    one, eleven = onnx.Split(opset=1, outputs=3), onnx.Split(opset=11, split=[2, 2, 2])
    counted, sequence = onnx.Split(num_outputs=3), onnx.SplitToSequence()
    equal, variadic = openvino.Split(num_splits=3), openvino.VariadicSplit()
    return {
        "split, num_outputs": lambda: split(x, num_outputs=3),
        "split, num_splits": lambda: split(x, num_splits=3),
        "split, lengths": lambda: split(x, lengths),
        "split, chunks": lambda: split(x, 2),
        "ONNX Split-1": lambda: one(x),
        "ONNX Split-11, lengths": lambda: eleven(x),
        "ONNX Split-13": lambda: thirteen(x),
        "ONNX Split-13, lengths": lambda: thirteen(x, lengths),
        "ONNX Split-18": lambda: counted(x),
        "ONNX Split-18, lengths": lambda: eighteen(x, lengths),
        "ONNX SplitToSequence, chunks": lambda: sequence(x, 2),
        "ONNX SplitToSequence, lengths": lambda: sequence(x, lengths),
        "OpenVINO Split": lambda: equal(x, 0),
        "OpenVINO VariadicSplit": lambda: variadic(x, 0, lengths),
    }


class SmallArray:
    """Six numbers into three parts; an operator may take a microsecond more than plain `split`."""

    version = "2"
    params = tuple(calls())
    param_names = ("call",)

    def setup(self, call):
        self.call = calls()[call]

    def time_call(self, call):
        self.call()
