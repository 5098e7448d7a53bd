"""All parts or none: write them in a scratch folder, then move them into place.

The scratch folder lies in the folder of the parts, so that a move is a rename. It
holds a subfolder, `_ASIDE`, for files that parts overwrite. If a move fails, or if
the process was killed before its last move, those files are moved back.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_ASIDE = "overwritten"


@contextlib.contextmanager
def folder_for_parts(folder: Path) -> Iterator[None]:
    """Make a folder and its parents, and remove them again if the body raises."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):  # `mkdir` failed, or the folder is not empty
                path.rmdir()
        raise


@contextlib.contextmanager
def scratch_folder(path: Path) -> Iterator[None]:
    """Make an empty folder that only this process uses, and remove it after the body.

    If a killed process left a folder here, first move the files back that it moved
    aside. If files that this process moved aside cannot be moved back, keep the folder.

    Raises
    ------
    FileExistsError
        If another process uses the folder.
    """
    lock = _lock(path)
    done = False
    try:
        _put_back(path)
        shutil.rmtree(path / _ASIDE, ignore_errors=True)
        for left in path.iterdir():
            left.unlink()
        yield
        done = True
    finally:
        try:
            _put_back(path)
            if done or not any((path / _ASIDE).glob("*")):  # files aside have no other copy
                shutil.rmtree(path)
        finally:
            if lock is not None:
                os.close(lock)


def _lock(path: Path) -> int | None:
    """Make a folder, or reuse one that a killed process left, and lock it.

    Returns
    -------
    int or None
        The file descriptor that holds the lock; the system releases the lock when
        the process ends. None if folders cannot be locked, as on Windows and some
        network file systems. An existing folder is refused there, because nothing
        shows whether its process still runs.
    """
    try:
        path.mkdir()
        made = True
    except FileExistsError:
        made = False
    descriptor = None
    try:
        import fcntl

        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
        raise BlockingIOError  # the other process has just ended and removed its folder
    except (ImportError, OSError) as error:
        if descriptor is not None:
            os.close(descriptor)
        if made and not isinstance(error, BlockingIOError):
            return None
        raise FileExistsError(
            f"{path} belongs to another process that is splitting this file; "
            "if none is running, delete it"
        ) from error


def move_parts(moves: list[tuple[Path, Path]]) -> None:
    """Move each part from its scratch folder to its target: all of them, or none.

    Parameters
    ----------
    moves : list of (Path, Path)
        Each part, and its target.
    """
    with contextlib.ExitStack() as undo:  # it calls every callback, even if one raises
        for part, target in moves:
            undo.callback(_move_back, part, target)
            if os.path.lexists(target):
                aside = part.parent / _ASIDE
                aside.mkdir(exist_ok=True)
                target.replace(aside / target.name)
            part.replace(target)
        undo.pop_all()


def _move_back(part: Path, target: Path) -> None:
    """Undo a move, if it was begun: restore the old file, or else take the part away."""
    old = part.parent / _ASIDE / target.name
    if os.path.lexists(old):
        old.replace(target)
    elif not part.exists():
        target.replace(part)


def _put_back(scratch: Path) -> None:
    """Move each file that was moved aside back, unless a part is in its place."""
    for old in (scratch / _ASIDE).glob("*"):
        target = scratch.parent / old.name
        if not os.path.lexists(target):
            old.replace(target)
