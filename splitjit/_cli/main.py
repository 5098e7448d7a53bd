"""The command line: `split`, `join`, `reshard`, `info`, `check` and `warmup`."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import splitjit
from splitjit import files
from splitjit._cli import check, report
from splitjit._cli.parser import make_parser
from splitjit._plan.arguments import rule_of
from splitjit._plan.rules import NAMES
from splitjit.files import described, transaction, verbs
from splitjit.files.verbs import Where, Which


def run() -> NoReturn:
    """Run the command as a process: SIGTERM and SIGHUP end it as Ctrl-C does."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # not under nohup
            signal.signal(number, _interrupt)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if sys.argv[1:2] == ["check"] and check.shadows_installation():
        # -P: do not look for packages in the current directory
        command = [sys.executable, "-P", "-m", "splitjit", *sys.argv[1:]]
        sys.exit(subprocess.run(command, check=False).returncode)
    sys.exit(main())


def _interrupt(number: int, frame: Any) -> NoReturn:
    """Raise what Ctrl-C raises, so that unfinished parts are removed."""
    raise KeyboardInterrupt(number)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; by default, the arguments of the process.

    Returns
    -------
    int
        The exit status: 1 if `check` found a wrong part, 2 if `split` or `join` was
        refused or failed, 128 + N if signal N interrupted the command, else 0.

    Raises
    ------
    SystemExit
        With status 2, if the arguments are wrong.
    """
    arguments = make_parser().parse_args(argv)
    try:
        if arguments.command == "check":
            return check.run(arguments.json)
        if arguments.command == "warmup":
            return _warmup()
        _COMMANDS[arguments.command](arguments, _options(arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has ended, as in `… | head`; drop the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (splitjit.SplitError, OSError, MemoryError) as error:
        report.say(str(error))
        return 2
    except KeyboardInterrupt as interrupt:
        complete = transaction.COMPLETE in getattr(interrupt, "__notes__", ())
        report.say(f"interrupted; {transaction.COMPLETE if complete else 'no file was written'}")
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    return 0


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
        transaction.check(joined.targets, force)
    else:
        with report.show_progress(arguments.quiet) as progress:
            joined = verbs.join(paths, out, _which(options), force, progress)
    if arguments.json:
        report.print_json({"dry_run": arguments.dry_run, **described.describe_join(joined)})
    elif not arguments.quiet:
        report.print_joined(joined, arguments.dry_run, arguments.verbose)


def _warmup() -> int:
    began = time.perf_counter()
    splitjit.warmup()
    print(f"All kernels are compiled and loaded; this took {time.perf_counter() - began:.1f} s.")
    return 0


def _reshard(arguments: argparse.Namespace, options: dict[str, Any]) -> None:
    if arguments.dry_run:
        rule = rule_of(*[options[name] for name in NAMES])
        where = Where("copy", *[options[name] for name in ("layout", "name", "out", "copy_config")])
        planned = verbs.plan_reshard(verbs.as_paths(options["paths"]), rule, _which(options), where)
        transaction.check(planned.targets, options["force"])
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
