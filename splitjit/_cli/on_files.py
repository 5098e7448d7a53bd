"""The commands that read and write files: `split`, `join`, `reshard` and `info`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from splitjit import files
from splitjit._cli import report
from splitjit._plan.arguments import rule_of
from splitjit._plan.rules import NAMES
from splitjit.files import described, places, verbs
from splitjit.files.verbs import Where, Which


def run(arguments: argparse.Namespace) -> None:
    """Run the command that the arguments name."""
    _COMMANDS[arguments.command](arguments, _options(arguments))


def _split(arguments: argparse.Namespace, options: dict[str, Any]) -> None:
    if arguments.dry_run:
        planned = files.plan_files(**options)
    else:
        with report.show_progress(arguments.quiet) as progress:
            planned = files.split_files(**options, progress=progress)
    _report_split(arguments, planned)


def _report_split(arguments: argparse.Namespace, planned: files.SplitFiles) -> None:
    if arguments.json:
        report.print_json({"dry_run": arguments.dry_run, **described.describe_split(planned)})
    elif not arguments.quiet:
        report.print_report(planned, arguments.dry_run, arguments.verbose)


def _join(arguments: argparse.Namespace, options: dict[str, Any]) -> None:
    paths, out, force = verbs.as_paths(options["paths"]), Path(options["out"]), options["force"]
    if arguments.dry_run:
        joined = verbs.plan_join(paths, out, _which(options))
        places.check_targets(joined.targets, force)
    else:
        with report.show_progress(arguments.quiet) as progress:
            joined = verbs.join(paths, out, _which(options), force, progress)
    if arguments.json:
        report.print_json({"dry_run": arguments.dry_run, **described.describe_join(joined)})
    elif not arguments.quiet:
        report.print_joined(joined, arguments.dry_run, arguments.verbose)


def _reshard(arguments: argparse.Namespace, options: dict[str, Any]) -> None:
    if arguments.dry_run:
        rule = rule_of(*[options[name] for name in NAMES])
        where = Where("copy", *[options[name] for name in ("layout", "name", "out", "copy_config")])
        planned = verbs.plan_reshard(verbs.as_paths(options["paths"]), rule, _which(options), where)
        places.check_targets(planned.targets, options["force"])
    else:
        with report.show_progress(arguments.quiet) as progress:
            planned = files.reshard_files(**options, progress=progress)
    _report_split(arguments, planned)


def _info(arguments: argparse.Namespace, options: dict[str, Any]) -> None:
    found = files.describe_files(**options)
    report.print_json(found) if arguments.json else report.print_info(found)


def _which(options: dict[str, Any]) -> Which:
    return Which(*[options[name] for name in ("axis", "tensors", "tp_plan", "config")])


_COMMANDS = {"split": _split, "join": _join, "reshard": _reshard, "info": _info}


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments that functions of `splitjit.files` have under the same names."""
    own = ("command", "dry_run", "quiet", "verbose", "json")
    return {name: value for name, value in vars(arguments).items() if name not in own}
