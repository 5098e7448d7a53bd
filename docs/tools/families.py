"""Compare shards with what transformers itself loads, for all families that have a plan.

``python docs/tools/families.py`` makes a tiny model of each family, splits it for two and for four
ranks with ``--tp-plan``, joins the parts again, and writes the results to ``docs/families.md``.
As many processes as ranks load the model with transformers' own tensor parallelism. Each one
compares its tensors with the parts of its rank, puts the parts into the model, and computes.
It needs ``pip install ".[transformers]" accelerate``, and takes some ten minutes.
"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tiny_models
import torch
import transformers
from safetensors.torch import load_file
from torch import distributed
from torch.distributed.tensor import DTensor

import splitjit
from splitjit import files
from splitjit.files.checkpoints import ask_transformers, tensor_parallel

COUNTS = (2, 4)
PAGE = Path(__file__).parents[1] / "families.md"
TOKENS = torch.tensor([[5, 9, 3, 63, 17, 30]])
SECONDS = 120
"""The most seconds that ranks wait for each other."""

INTRODUCTION = """# Checkpoints of model families, beside transformers

Written by `python docs/tools/families.py`, with transformers {version}.

Each row is a tiny model with the names and the structure of its family, from the default
configuration with small sizes. `split --tp-plan` splits it for two and for four ranks. As many
processes load the whole checkpoint with transformers' own tensor parallelism, and compare.

- **identical**: each tensor of each rank equals what transformers loads, bit for bit.
- **computed**: the ranks hold the parts, and compute the logits of the whole model.
- **differs**: the parts are not what transformers loads. With "computed", transformers' own
  ranks compute other logits than the whole model, and the ranks with the parts compute the same.
- A number stands for a reason below the table: why parts differ, or cannot be compared.

All parts were joined without patterns, in the wrong order; the files are the original ones byte
for byte. {identical} of {cells} cells are identical, {computed} are computed.

| family | class | 2 ranks | 4 ranks |
|---|---|---|---|
"""


REASONS = {
    "hrm_text": "The checkpoint has one tensor for several projections. transformers cuts it as "
    "one, and separates the projections afterwards, so its ranks hold rows of other projections. "
    "The parts hold their rows of each projection.",
    "step3p7": "The checkpoint has the gates and the inputs of experts apart. transformers cuts "
    "each of them as if it held both. The parts hold their rows of both.",
    "qwen3_vl_moe": "transformers does not load this model by its own plan: it expects the experts "
    "in another shape.",
    **dict.fromkeys(
        ["embedding_gemma2", "embedding_gemma2_text"],
        "Layers with full attention have one head of keys and values. transformers cuts this head. "
        "The parts hold it whole, so they do not fit its ranks.",
    ),
}
"""Why the parts of a family differ from what transformers loads, or cannot be compared."""

NOT_COMPUTED = "transformers loads this model by its plan, but raises {} when its ranks compute."
NOT_LOADED = "transformers raises {} when it loads this model by its plan."


def split(folder: Path, out: Path, count: int) -> str | None:
    """Split a model and join it again; return the reason if it is refused."""
    try:
        files.split_files(folder, num_splits=count, tp_plan=True, layout="ranks", out=out)
    except splitjit.SplitError as error:
        return f"refused: {error.received}: {error.rule}"
    ranks = [out / f"rank-{i}" for i in range(count)]
    files.join_files(ranks[::-1], out / "joined")
    for path in (out / "joined").iterdir():
        if path.read_bytes() != (folder / path.name).read_bytes():
            return "joined to other bytes"
    return None


def ask(command: list[str], **options: Any) -> types.SimpleNamespace:
    """Ask transformers in this process, which has already imported it."""
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            ask_transformers.main(command[-1], json.loads(options["input"]))
    except Exception as error:
        return types.SimpleNamespace(returncode=1, stdout="", stderr=_line(error))
    return types.SimpleNamespace(returncode=0, stdout=out.getvalue(), stderr="")


def _line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:160].replace("|", "/")


# ---- one rank ----------------------------------------------------------------------------


def load_part(folder: Path, model: torch.nn.Module, shapes: dict[str, Any]) -> dict[str, Any]:
    """Load the parts of a rank as transformers loads a checkpoint, with its conversions."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import convert_and_load_state_dict_in_model
    from transformers.modeling_utils import LoadStateDictConfig

    for name, parameter in [*model.named_parameters(remove_duplicate=False)]:
        module, _, last = name.rpartition(".")
        empty = torch.empty(shapes[name].shape, dtype=parameter.dtype, device="meta")
        own = torch.nn.Parameter(empty, requires_grad=False)
        model.get_submodule(module)._parameters[last] = own
    held: dict[str, Any] = {}
    for path in folder.glob("*.safetensors"):
        held |= load_file(path)
    mapping = get_model_conversion_mapping(model)
    config = LoadStateDictConfig(
        weight_mapping=mapping, device_map={"": "cpu"}, ignore_mismatched_sizes=True
    )
    info, _ = convert_and_load_state_dict_in_model(model, held, config)
    if info.mismatched_keys or info.error_msgs or info.conversion_errors:
        raise ValueError(f"the parts do not load: {info.mismatched_keys or info.error_msgs}")
    return {name: x for name, x in model.state_dict().items() if x.device.type != "meta"}


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    """Compute the first output of a model."""
    inputs = {"input_ids": TOKENS}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = TOKENS[:, :4]
    found = model(**inputs, use_cache=False)
    found = found.logits if getattr(found, "logits", None) is not None else found[0]
    return found.full_tensor() if isinstance(found, DTensor) else found


def compare(folder: Path, out: Path, rank: int, count: int, result: dict[str, Any]) -> None:
    """Compare the parts of a rank with what transformers loads; then compute with them."""
    from transformers.distributed import DistributedConfig

    config = transformers.AutoConfig.from_pretrained(folder)
    kind = getattr(transformers, config.architectures[0])
    options = {"attn_implementation": "eager", "dtype": torch.float32}
    plan = DistributedConfig(tp_size=count, tp_plan="auto")
    model = kind.from_pretrained(folder, distributed_config=plan, **options).eval()
    state = {
        name: x.to_local() if isinstance(x, DTensor) else x
        for name, x in model.state_dict().items()
    }
    with torch.device("meta"):
        empty = kind._from_config(config)
    own = load_part(out / f"rank-{rank}", empty, state)
    different = [name for name, x in own.items() if not torch.equal(x.float(), state[name].float())]
    with torch.no_grad():
        for name, x in own.items():
            state[name].copy_(x)
    result["identical"] = not different
    expected = logits(kind.from_pretrained(folder, **options).eval())
    found = logits(model)
    result["computed"] = torch.allclose(found, expected, atol=1e-3, rtol=1e-3)
    if not result["computed"]:
        result["reason"] = "the ranks compute other logits"


def run_rank(root: Path, names: Iterable[str]) -> None:
    """Compare all families, as one of several processes."""
    rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=SECONDS))
    for name in names:
        out = root / f"{name}-{count}"
        result: dict[str, Any] = {"identical": None, "computed": False}
        try:
            compare(root / name, out, rank, count, result)
        except Exception as error:
            result["reason"] = _line(error)
        (out / f"{rank}.json").write_text(json.dumps(result))
        distributed.barrier()


def run_ranks(root: Path, names: list[str], count: int) -> None:
    """Run all ranks; if a family ends a process, go on with the next family."""
    port = 29600 + count
    while names:
        port += 10
        env = {**os.environ, "WORLD_SIZE": str(count), "MASTER_PORT": str(port)}
        env |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--rank", str(root), *names]
        ranks = [
            subprocess.Popen(command, env={**env, "RANK": str(i), "LOCAL_RANK": str(i)})
            for i in range(count)
        ]
        while None in (states := [rank.poll() for rank in ranks]):
            if any(states):
                for rank in ranks:
                    rank.kill()
            time.sleep(0.5)
        done = [
            n for n in names if all((root / f"{n}-{count}/{i}.json").exists() for i in range(count))
        ]
        names = [name for name in names if name not in done][1:]


# ---- the page ----------------------------------------------------------------------------


def cell(out: Path, count: int, refused: str | None) -> str:
    """Say what was found for a family and a number of ranks."""
    if refused:
        return refused
    try:
        ranks = [json.loads((out / f"{i}.json").read_text()) for i in range(count)]
    except FileNotFoundError:
        return "the process of a rank ended"
    reason = next((rank["reason"] for rank in ranks if "reason" in rank), "")
    loaded = all(rank["identical"] is not None for rank in ranks)
    if reason and ":" in reason:  # an error: its class is enough here, and the script prints it
        print(f"{out.name}: {reason}", file=sys.stderr)
        reason = (NOT_COMPUTED if loaded else NOT_LOADED).format(reason.partition(":")[0])
    if not loaded:
        return f"not compared; {reason}"
    found = ["identical" if all(rank["identical"] for rank in ranks) else "differs"]
    if all(rank["computed"] for rank in ranks):
        found.append("computed")
    return ", ".join(found) + (f"; {reason}" if reason else "")


def main(names: list[str]) -> None:
    """Write the page."""
    tensor_parallel.subprocess = types.SimpleNamespace(run=ask)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        refused: dict[tuple[str, int], str | None] = {}
        kinds = {}
        for name in names or tiny_models.families():
            try:
                kinds[name] = tiny_models.save(name, root / name)
            except Exception as error:  # no tiny model can be made of this configuration
                print(f"{name}: {_line(error)}", file=sys.stderr)
                continue
            for count in COUNTS:
                refused[name, count] = split(root / name, root / f"{name}-{count}", count)
        for count in COUNTS:
            run_ranks(root, [name for name in kinds if not refused[name, count]], count)
        for name, kind in kinds.items():
            cells = [cell(root / f"{name}-{n}", n, refused[name, n]) for n in COUNTS]
            rows.append([name, kind, *cells])
    write(rows)


def write(rows: list[list[str]]) -> None:
    """Write the page, a row for each family."""
    cells = [one for row in rows for one in row[2:]]
    page = INTRODUCTION.format(
        version=transformers.__version__,
        identical=sum(one.startswith("identical") for one in cells),
        computed=sum(", computed" in one for one in cells),
        cells=len(cells),
    )
    notes: list[str] = []
    for name, kind, *found in rows:
        numbered = [number(one, REASONS.get(name), notes) for one in found]
        page += f"| {' | '.join([name, kind, *numbered])} |\n"
    page += "".join(f"\n{i}. {note}" for i, note in enumerate(notes, 1))
    PAGE.write_text(page.rstrip() + "\n")


def number(found: str, known: str | None, notes: list[str]) -> str:
    """Replace the reason in a cell by its number, and note it below the table."""
    what, _, reason = found.partition("; ")
    if not what.startswith("identical"):
        reason = known or reason
    if not reason:
        return found
    if reason not in notes:
        notes.append(reason)
    return f"{what} ({notes.index(reason) + 1})"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if sys.argv[1:2] == ["--rank"]:
        run_rank(Path(sys.argv[2]), sys.argv[3:])
    else:
        main(sys.argv[1:])
