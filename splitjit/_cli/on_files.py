"""The commands that read and write files: `split`, `join`, `reshard` and `info`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from splitjit._cli import report
from splitjit._cli.lines import print_json
from splitjit._plan.arguments import rule_of
from splitjit._plan.rules import NAMES
from splitjit.checkpoints import verbs

if TYPE_CHECKING:
    from splitjit.checkpoints.joining import JoinedFiles
    from splitjit.files.plan import SplitFiles


def run(arguments: argparse.Namespace) -> None:
    """Run the command that the arguments name."""
    paths = verbs.as_paths(arguments.paths)
    if arguments.command == "info":
        found = verbs.describe_files(paths)
        print_json(found) if arguments.json else report.print_info(found)
        return
    planned = _plan(arguments, paths)
    if arguments.dry_run:
        verbs.check_targets(planned.targets, arguments.force)
    else:
        with report.show_progress(arguments.quiet, planned.nbytes) as progress:
            verbs.write(planned, arguments.force, progress)
        arguments.written = True
    if arguments.json:
        from splitjit.checkpoints import described

        print_json({"dry_run": arguments.dry_run, **described.describe(planned)})
    elif not arguments.quiet:
        report.print_report(planned, arguments.dry_run, arguments.verbose)


def _plan(arguments: argparse.Namespace, paths: list[Path]) -> SplitFiles | JoinedFiles:
    """Plan what the command writes."""
    given = vars(arguments)
    which = verbs.Which(*[given[name] for name in ("axis", "tensors", "tp_plan", "config")])
    if arguments.command == "join":
        return verbs.plan_join(paths, Path(arguments.out), which, arguments.copy_config)
    rule = rule_of(*[given[name] for name in NAMES])
    names = ("layout", "name", "out", "copy_config")
    where = verbs.Where(given.get("others", "copy"), *[given[name] for name in names])
    plan = verbs.plan_split if arguments.command == "split" else verbs.plan_reshard
    return plan(paths, rule, which, where)
