"""Run one of the comparisons: ``python -m benchmarks gate --help``."""

import importlib
import sys

COMMANDS = {
    "gate": "did a change make a split slower?",
    "report": "how fast are splits, compared with other libraries and the limit of the memory?",
    "busy": "how fast are they while other programs use the cores?",
    "processes": "how fast are splits of 9 KB to 11 MB, over several processes?",
    "in_program": "how fast are they between steps of a program whose threads use the cores?",
    "strided": "how fast are splits of transposed sources, compared with NumPy's slices?",
    "map": "for which run lengths, numbers of parts and sizes is splitjit far from the limit?",
    "checkpoints": "how fast are the commands `split` and `join`, compared with `cp`?",
    "mechanisms": "what does each mechanism of the package save?",
    "documentation": "measure all figures of the documentation, and write them to its pages",
    "milestones": "measure the milestones of the history with asv, and draw them",
    "publish": "write asv's pages with the kept results",
}


def main() -> int:
    """Run the command that the first argument names."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        print("usage: python -m benchmarks COMMAND [--help]\n")
        print(*(f"{command:14} {answers}" for command, answers in COMMANDS.items()), sep="\n")
        return 0 if name in ("", "-h", "--help") else 2
    sys.argv[:2] = [f"python -m benchmarks {name}"]
    module = importlib.import_module(f"benchmarks.{'landscape' if name == 'map' else name}")
    return module.main() or 0


sys.exit(main())
