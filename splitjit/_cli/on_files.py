"""The commands that read and write files: `split`, `join`, `reshard` and `info`."""

from __future__ import annotations

import argparse
import dataclasses
import os

from splitjit import files
from splitjit._cli import report
from splitjit._cli.lines import print_json, printable
from splitjit._plan.arguments import rule_of
from splitjit._plan.rules import NAMES
from splitjit.files.checkpoints import described, naming, operations
from splitjit.files.places import check_targets


def run(arguments: argparse.Namespace) -> None:
    """Run the command that the arguments name."""
    if arguments.command == "info":
        found = files.describe_files(arguments.paths)
        print_json(found) if arguments.json else report.print_info(found, arguments.tensors)
        return
    planned = _plan(arguments)
    dry_run = arguments.dry_run
    existing = [str(one) for one in planned.targets if dry_run and os.path.lexists(one)]
    if not dry_run:
        with report.show_progress(arguments.quiet, planned.nbytes) as progress:
            operations.write(planned, arguments.force, progress, "--force")
            arguments.written = True
    if arguments.json:
        print_json({"dry_run": dry_run, "existing": existing, **described.describe(planned)})
    elif not arguments.quiet:
        report.print_report(planned, dry_run, arguments.verbose)
        if dry_run and arguments.tp_plan:
            report.print_patterns(planned)
        for target in existing:
            print(f"{printable(target)} exists")
    if dry_run:
        check_targets(planned.targets, arguments.force, "--force")


def _plan(arguments: argparse.Namespace) -> files.SplitFiles:
    """Plan what the command writes."""
    given = vars(arguments)
    names = [field.name for field in dataclasses.fields(naming.Options)]
    options = naming.Options(**{name: given[name] for name in names if name in given})
    if arguments.command == "join":
        return operations.plan_join(arguments.paths, options)
    rule = rule_of(*[given[name] for name in NAMES])
    plan = operations.plan_split if arguments.command == "split" else operations.plan_reshard
    return plan(arguments.paths, rule, options)
