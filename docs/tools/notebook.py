"""Run the notebook of the first steps, and compare its outputs with those that it keeps.

``python docs/tools/notebook.py`` fails if a cell raises an error, or prints something else than the
page shows. ``--write`` keeps the new outputs. Outputs of cells with the tag ``varies`` depend on
the machine and are never kept. It needs ``--group docs``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "first_steps.ipynb"


def run() -> Any:
    """Return the notebook with new outputs."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    # One stream may arrive as several messages.
    options = {"timeout": 300, "record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, kernel_name="python3", **options).execute()
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        if "varies" in cell.metadata.get("tags", []):
            if not cell.outputs:
                raise SystemExit(f"this cell shows nothing:\n{cell.source}")
            cell.outputs, cell.execution_count = [], None
        for output in cell.outputs:
            output.pop("execution_count", None)
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
    notebook.metadata = {
        "kernelspec": notebook.metadata.kernelspec,
        "language_info": {"name": "python"},
    }
    return notebook


def shown(cell: Any) -> list[Any]:
    """Return the outputs of a cell, without the bytes of pictures, which depend on fonts."""
    return [
        output.get("text") or {**output.data, "image/png": "image/png" in output.data}
        for output in cell.get("outputs", ())
    ]


def main() -> None:
    """Run the notebook, and compare it or write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep the new outputs")
    options = parser.parse_args()
    made, kept = run(), nbformat.read(NOTEBOOK, as_version=4)
    if options.write:
        nbformat.write(made, NOTEBOOK)
        return
    for new, old in zip(made.cells, kept.cells, strict=True):
        if shown(new) != shown(old):
            raise SystemExit(f"{old.source}\n\nkept: {shown(old)}\n\nnow: {shown(new)}")
    print(f"{len(made.cells)} cells, with the outputs that {NOTEBOOK.name} keeps")


if __name__ == "__main__":
    main()
