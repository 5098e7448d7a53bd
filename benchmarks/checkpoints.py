"""Split and join a checkpoint by the command, beside `cp`, safetensors and torch.

Run it from a checkout on Linux: ``python benchmarks/checkpoints.py --help``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from statistics import median

import numpy as np

if not __package__:  # run as a script: benchmark this checkout
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.harness import ROOT, commit, describe

PARTS = 2
HIDDEN, FEED_FORWARD, KEYS, VOCABULARY, LAYERS = 2048, 5632, 512, 16000, 12
WEIGHTS = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KEYS, HIDDEN),
    "self_attn.v_proj": (KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (FEED_FORWARD, HIDDEN),
    "mlp.up_proj": (FEED_FORWARD, HIDDEN),
    "mlp.down_proj": (HIDDEN, FEED_FORWARD),
    "input_layernorm": (HIDDEN,),
    "post_attention_layernorm": (HIDDEN,),
}
CASES = {
    "axis 0": {"*_proj.*": 0, "*embed*": 0, "*head*": 0},
    "axis 1": {"*_proj.*": 1, "*embed*": 1, "*head*": 1},
    "tensor parallel": {"*.o_proj.*": 1, "*.down_proj.*": 1, "*_proj.*": 0},
}
"""The axis that each pattern splits. Tensors that no pattern matches are copied."""

OURS, BEFORE, COPY = "splitjit", "before", "cp"
PEERS = ("safetensors", "torch")

PEER = """
    import fnmatch, json, os, sys
    verb, library, out, patterns, parts, *paths = sys.argv[1:]
    if library == "torch":
        import torch
        from safetensors.torch import load_file, save_file
        cut = lambda x, axis: [one.contiguous() for one in x.chunk(int(parts), axis)]
        join = torch.cat
    else:
        import numpy as np
        from safetensors.numpy import load_file, save_file
        cut = lambda x, axis: [np.ascontiguousarray(a) for a in np.split(x, int(parts), axis)]
        join = np.concatenate

    def axis_of(name):
        found = [a for p, a in json.loads(patterns).items() if fnmatch.fnmatch(name, p)]
        return found[0] if found else None

    def save(tensors, name):
        save_file(tensors, os.path.join(out, name))
        with open(os.path.join(out, name), "rb") as file:
            os.fsync(file)

    if verb == "split":
        made = [{} for _ in range(int(parts))]
        for name, x in load_file(paths[0]).items():
            axis = axis_of(name)
            for part, one in zip(made, [x] * int(parts) if axis is None else cut(x, axis)):
                part[name] = one
        for i, part in enumerate(made):
            save(part, f"m.{i}.safetensors")
    else:
        read = [load_file(path) for path in paths]
        whole = {}
        for name in read[0]:
            axis = axis_of(name)
            pieces = [one[name] for one in read]
            whole[name] = pieces[0] if axis is None else join(pieces, axis)
        save(whole, "m.safetensors")
"""
"""Split or join by `load_file` and `save_file`, and wait until the files are on disk."""


def make_checkpoint(path: Path) -> None:
    """Write a checkpoint of 1.2 GB, in the shapes of a small language model."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    shapes = {"embed_tokens": (VOCABULARY, HIDDEN), "lm_head": (VOCABULARY, HIDDEN)}
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
        code = textwrap.dedent(PEER)
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
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, call)
    return {"seconds": seconds, "cpu": used.ru_utime + used.ru_stime, "MB": used.ru_maxrss / 1e3}


def measure(options: argparse.Namespace, folder: Path) -> dict[str, dict[str, list]]:
    """Measure all cases: in each round, all contenders in random order."""
    whole, out = folder / "m.safetensors", folder / "out"
    # In another process: the peak memory of a child begins with the memory of its parent.
    maker = multiprocessing.Process(target=make_checkpoint, args=(whole,))
    maker.start()
    maker.join()
    contenders = [COPY, OURS, *options.peer, *([BEFORE] if options.before else [])]
    results: dict[str, dict[str, list]] = {}
    for case in options.case:
        parts = folder / "parts"
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        subprocess.run(
            command(OURS, "split", case, [whole], parts),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            check=True,
        )
        for verb in options.verb:
            paths = [whole] if verb == "split" else sorted(parts.iterdir())
            times = results[f"{verb}, {case}"] = {one: [] for one in contenders}
            for number in range(options.rounds):
                print(f"{verb}, {case}, round {number + 1}", file=sys.stderr, flush=True)
                for contender in random.sample(contenders, len(contenders)):
                    shutil.rmtree(out, ignore_errors=True)
                    out.mkdir()
                    os.sync()
                    checkout = Path(options.before) if contender == BEFORE else ROOT
                    call = command(contender, verb, case, paths, out)
                    times[contender].append(take_turn(call, checkout, paths, options.cold))
                    if contender == OURS and not number:
                        verify(out, parts if verb == "split" else folder)
            print(table(results), file=sys.stderr)  # an interrupted run has told what it knows
    return results


def verify(out: Path, expected: Path) -> None:
    """Compare the bytes of the written files."""
    for path in out.iterdir():
        subprocess.run(["cmp", path, expected / path.name], check=True)


def table(results: dict[str, dict[str, list]]) -> str:
    """Return a Markdown table: medians, and medians of the ratios to `cp` in the same round."""
    names = list(next(iter(results.values())))
    titles = ["case", *[f"{COPY} and sync" if name == COPY else name for name in names], "MB"]
    lines = ["| " + " | ".join(titles) + " |", "|---" + "|--:" * (len(titles) - 1) + "|"]
    for case, times in results.items():
        cells = [case]
        for name in names:
            ratios = [
                one["seconds"] / copied["seconds"]
                for one, copied in zip(times[name], times[COPY], strict=True)
            ]
            seconds = median(one["seconds"] for one in times[name])
            cells.append(f"{seconds:.2f} s" + (f", {median(ratios):.2f}x" if name != COPY else ""))
        cells.append(f"{max(one['MB'] for one in times[OURS]):.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--verb", nargs="+", choices=("split", "join"), default=["split", "join"])
    parser.add_argument("--peer", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--before", help="a checkout of another version of splitjit")
    parser.add_argument("--cold", action="store_true", help="read from the disk, not the cache")
    parser.add_argument("--folder", help="where to write; it needs 5 GB")
    parser.add_argument("--json", help="where to write all times")
    options = parser.parse_args()
    known = {"machine": describe(), "commit": commit()}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        results = measure(options, Path(folder))
    if options.json:
        Path(options.json).write_text(json.dumps({**known, "results": results}, indent=1))
    print(f"{table(results)}\n\n{known['machine']}")


if __name__ == "__main__":
    main()
