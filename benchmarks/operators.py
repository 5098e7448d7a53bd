"""Time of an operator call, compared with the `split` call that it makes."""


class SmallArray:
    """Six numbers into three parts, by each operator and by plain `split`.

    An operator may take a microsecond more than the plain call with its rule.
    Compare it with the matching `time_split_*`.
    """

    version = "1"

    def setup(self):
        import numpy as np

        import splitjit

        self.x = np.arange(6, dtype=np.float32)
        self.lengths = np.array([2, 2, 2])
        self.split = splitjit.split
        self.onnx_1 = splitjit.onnx.Split(opset=1, outputs=3)
        self.onnx_11 = splitjit.onnx.Split(opset=11, split=[2, 2, 2])
        self.onnx_13 = splitjit.onnx.Split(opset=13, outputs=3)
        self.onnx_18 = splitjit.onnx.Split(num_outputs=3)
        self.onnx_18_lengths = splitjit.onnx.Split(outputs=3)
        self.sequence = splitjit.onnx.SplitToSequence()
        self.openvino = splitjit.openvino.Split(num_splits=3)
        self.variadic = splitjit.openvino.VariadicSplit()

    def time_split_num_outputs(self):
        self.split(self.x, num_outputs=3)

    def time_split_num_splits(self):
        self.split(self.x, num_splits=3)

    def time_split_lengths(self):
        self.split(self.x, self.lengths)

    def time_split_chunks(self):
        self.split(self.x, 2)

    def time_onnx_split_1(self):
        self.onnx_1(self.x)

    def time_onnx_split_11_lengths(self):
        self.onnx_11(self.x)

    def time_onnx_split_13(self):
        self.onnx_13(self.x)

    def time_onnx_split_13_lengths(self):
        self.onnx_13(self.x, self.lengths)

    def time_onnx_split_18(self):
        self.onnx_18(self.x)

    def time_onnx_split_18_lengths(self):
        self.onnx_18_lengths(self.x, self.lengths)

    def time_onnx_split_to_sequence_chunks(self):
        self.sequence(self.x, 2)

    def time_onnx_split_to_sequence_lengths(self):
        self.sequence(self.x, self.lengths)

    def time_openvino_split(self):
        self.openvino(self.x, 0)

    def time_openvino_variadic_split(self):
        self.variadic(self.x, 0, self.lengths)
