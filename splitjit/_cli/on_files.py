"""The commands that read and write files: `split`, `join`, `reshard` and `info`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from splitjit import files
from splitjit._cli import report
from splitjit._cli.lines import print_json, printable
from splitjit._plan.arguments import rule_of
from splitjit._plan.rules import NAMES
from splitjit.files.checkpoints import operations

if TYPE_CHECKING:
    from splitjit.files.file_plan import SplitFiles


def run(arguments: argparse.Namespace) -> None:
    """Run the command that the arguments name."""
    paths = operations.as_paths(arguments.paths)
    if arguments.command == "info":
        found = files.describe_files(paths)
        print_json(found) if arguments.json else report.print_info(found, arguments.tensors)
        return
    planned = _plan(arguments, paths)
    dry_run = arguments.dry_run
    existing = [str(one) for one in planned.targets if dry_run and os.path.lexists(one)]
    if not dry_run:
        with report.show_progress(arguments.quiet, planned.nbytes) as progress:
            operations.write(planned, arguments.force, progress)
            arguments.written = True
    if arguments.json:
        from splitjit.files.checkpoints import described

        known = {"dry_run": dry_run, "existing": existing}
        print_json({**known, **described.describe(planned)})
    elif not arguments.quiet:
        report.print_report(planned, dry_run, arguments.verbose)
        for target in existing:
            print(f"{printable(target)} exists")
    if dry_run:
        operations.check_targets(planned.targets, arguments.force)


def _plan(arguments: argparse.Namespace, paths: list[Path]) -> SplitFiles:
    """Plan what the command writes."""
    given = vars(arguments)
    which = operations.Which(*[given[name] for name in ("axis", "tensors", "tp_plan", "config")])
    if arguments.command == "join":
        return operations.plan_join(paths, Path(arguments.out), which, arguments.copy_config)
    rule = rule_of(*[given[name] for name in NAMES])
    names = ("layout", "name", "out", "copy_config")
    where = operations.Where(given.get("others", "copy"), *[given[name] for name in names])
    plan = operations.plan_split if arguments.command == "split" else operations.plan_reshard
    return plan(paths, rule, which, where)
