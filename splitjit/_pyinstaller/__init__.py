"""What PyInstaller needs to know, found by its entry point ``pyinstaller40``."""

from pathlib import Path


def get_hook_dirs() -> list[str]:
    """Return the folder of ``hook-splitjit.py``."""
    return [str(Path(__file__).parent)]
