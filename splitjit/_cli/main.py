"""The command line. It imports what a command needs only when the command runs."""

import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import Any, NoReturn

import splitjit
from splitjit._cli.lines import say, sentence
from splitjit._cli.parser import make_parser


def run() -> NoReturn:
    """Run the command as a process: SIGTERM, SIGHUP and Ctrl-Break end it like Ctrl-C."""
    for name in ("SIGTERM", "SIGHUP", "SIGBREAK"):
        number = getattr(signal, name, None)  # only Windows has SIGBREAK, and it has no SIGHUP
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # not under nohup
            signal.signal(number, _interrupt)
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # a program may close it and start this one
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
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
        The exit status: 1 if `check` found a wrong part, or ``warmup --check`` a kernel that was
        not in the cache, 2 if the command was refused or failed, 128 + N if signal N
        interrupted it, else 0.

    Raises
    ------
    SystemExit
        With status 2, if the arguments are wrong.
    """
    given = sys.argv[1:] if argv is None else argv
    arguments = make_parser(only=given[0] if given else None).parse_args(given)
    try:
        if arguments.command in ("check", "warmup", "cache"):
            from splitjit._cli import on_kernels

            return on_kernels.COMMANDS[arguments.command](arguments)
        from splitjit._cli import on_files

        on_files.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader is gone, as in `… | head`; drop the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (splitjit.SplitError, OSError, MemoryError) as error:
        say("; ".join([sentence(error), *_about_files(error, arguments)]))
        return 2
    except KeyboardInterrupt as interrupt:
        [about, *_] = [*_about_files(interrupt, arguments), "no file was written"]
        say(f"interrupted; {about}")
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    return 0


def _about_files(error: BaseException, arguments: Namespace) -> list[str]:
    """Return a note on the state of the written files, or nothing if no file was written."""
    return [*getattr(error, "__notes__", ()), *getattr(arguments, "written", ())][:1]
