"""Random calls, drawn by Hypothesis from bytes that libFuzzer picks by coverage; see README.md."""

import sys

import atheris

with atheris.instrument_imports(include=["splitjit"]):
    from tests.conftest import take
    from tests.whole import test_model

TARGETS = {
    "calls": test_model.test_random_calls,
    "shapes": test_model.test_inferred_shapes_are_those_of_all_dims_that_fit,
    "out": test_model.test_out_is_taken_where_no_byte_is_anothers,
}


def main() -> None:
    """Fuzz the target that is named first; what follows is libFuzzer's."""
    take("serial", setattr)  # arrays as small as these would be copied by NumPy
    test = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, test.hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
