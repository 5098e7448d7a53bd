"""Split and join a checkpoint by the command, beside `cp`, safetensors and torch; for Linux."""

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks import contenders, harness
from benchmarks.contenders import BEFORE, OURS
from benchmarks.harness import ROOT

PARTS, LAYERS = 2, 12
GIVEN = contenders.CASES["checkpoint"]
WEIGHTS, CASES = GIVEN["weights"], GIVEN["axes"]
COPY, PEERS = "cp", ("safetensors", "torch")
Results = dict[str, dict[str, list[dict[str, float]]]]  # by case and contender


def make_checkpoint(path: Path) -> None:
    """Write a checkpoint of 1.2 GB, in the shapes of a small language model."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    shapes = {"embed_tokens": (16000, 2048), "lm_head": (16000, 2048)}
    for i in range(LAYERS):
        shapes |= {f"layers.{i}.{name}": shape for name, shape in WEIGHTS.items()}
    drawn = {
        f"model.{name}.weight": rng.integers(0, 1 << 16, shape, np.uint16)
        for name, shape in shapes.items()
    }
    save_file({name: x.view(np.float16) for name, x in drawn.items()}, path)


def command(contender: str, verb: str, case: str, paths: list[Path], out: Path) -> list[str]:
    """Return the command of a contender."""
    patterns = CASES[case]
    given = [str(path) for path in paths]
    if contender == COPY:
        return ["sh", "-c", f'cp "$@" {out} && sync {out}/*', "cp", *given]
    if contender in PEERS:
        code = GIVEN["peer"]
        how = [verb, contender, str(out), json.dumps(patterns), str(PARTS)]
        return [sys.executable, "-c", code, *how, *given]
    ours = [sys.executable, "-m", "splitjit", verb, *given, "--quiet", "--out"]
    if verb == "join":
        return [*ours, str(out / "m.safetensors")]
    chosen = [f"--tensor={pattern}={axis}" for pattern, axis in patterns.items()]
    return [*ours, str(out), f"--num-splits={PARTS}", *chosen]


def take_turn(call: list[str], checkout: Path, paths: list[Path], cold: bool) -> dict[str, float]:
    """Run a command; return its seconds, seconds of the processor, and peak memory in MB."""
    for path in paths:
        with open(path, "rb") as file:
            if cold:
                os.fsync(file)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            else:
                while file.read(1 << 20):
                    pass
    time.sleep(0.1)
    began = time.perf_counter()
    process = subprocess.Popen(call, env={**os.environ, "PYTHONPATH": str(checkout)})
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), call)
    process.returncode = status
    return {"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "MB": used.ru_maxrss / 1e3}


def measure(options: argparse.Namespace, folder: Path) -> Results:
    """Measure all cases: in each round, all contenders in random order."""
    whole, out, parts = (folder / name for name in ("m.safetensors", "out", "parts"))
    # In another process: the peak memory of a child begins with the memory of its parent.
    with multiprocessing.Pool(1) as pool:
        pool.apply(make_checkpoint, (whole,))
    names = [COPY, OURS, *options.peer, *[BEFORE] * bool(options.before)]
    results: Results = {}
    for case in options.case:
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        take_turn(command(OURS, "split", case, [whole], parts), ROOT, [], False)
        for verb in options.verb:
            paths = [whole] if verb == "split" else sorted(parts.iterdir())
            expected = parts if verb == "split" else folder

            def turn(contender, case=case, verb=verb, paths=paths, expected=expected):
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                os.sync()
                checkout = options.before if contender == BEFORE else ROOT
                call = command(contender, verb, case, paths, out)
                found = take_turn(call, checkout, paths, options.cold)
                for path in out.iterdir() if contender == OURS else ():
                    subprocess.run(["cmp", path, expected / path.name], check=True)
                return found

            harness.say(f"{verb}, {case}")
            results[f"{verb}, {case}"] = harness.in_turns(names, options.rounds, turn)
            harness.say(table(results))  # an interrupted run has told what it knows
    return results


def table(results: Results) -> str:
    """Return a Markdown table: medians, and medians of the ratios to `cp` in the same round."""
    names = list(next(iter(results.values())))
    rows = []
    for case, times in results.items():
        seconds = {name: [one["seconds"] for one in turns] for name, turns in times.items()}
        row = [case]
        for name, own in seconds.items():
            ratio = median(a / b for a, b in zip(own, seconds[COPY], strict=True))
            row.append(f"{median(own):.2f} s" + f", {ratio:.2f}x" * (name != COPY))
        rows.append([*row, f"{max(one['MB'] for one in times[OURS]):.0f}"])
    head = ["case", *[f"{COPY} and sync" if name == COPY else name for name in names], "MB"]
    return harness.table(head, rows)


def main() -> None:
    """Measure, and print the table."""
    parser = harness.parser(
        __doc__, before=True, case=[*CASES], verb=("split", "join"), rounds=(9, "of all contenders")
    )
    add = parser.add_argument
    add("--peer", nargs="*", choices=PEERS, default=list(PEERS))
    add("--cold", action="store_true", help="read from the disk, not the cache")
    add("--folder", help="where to write; it needs 5 GB")
    options = parser.parse_args()
    machine = harness.describe()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        results = measure(options, Path(folder))
    harness.finish(options, machine, table(results), results)


if __name__ == "__main__":
    main()
