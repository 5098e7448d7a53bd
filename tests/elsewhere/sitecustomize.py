"""Let the package see another system: ``SPLITJIT_SYSTEM=windows``, or ``macos``.

Python imports this module when it starts, if ``PYTHONPATH`` has its folder. The modules of splitjit
get an `import` statement that returns stand-ins without what the other system lacks. Numba, NumPy
and the tests run on the real system.
"""

import builtins
import contextlib
import errno
import importlib.abc
import importlib.machinery
import os
import signal
import sys
import types

# What Python lacks on Windows, among the names that splitjit could use.
WINDOWS_LACKS = {
    "os": [
        *("fork", "register_at_fork", "sched_getaffinity", "sysconf", "getuid", "geteuid"),
        *("fchown", "chown", "posix_fadvise", "posix_fallocate", "pread", "pwrite", "statvfs"),
        *("getloadavg", "O_DIRECTORY", "O_CLOEXEC", "O_NOFOLLOW"),
    ],
    "signal": [
        *("SIGHUP", "SIGQUIT", "SIGALRM", "SIGUSR1", "SIGUSR2", "setitimer", "pthread_sigmask")
    ],
    "mmap": ["MAP_PRIVATE", "MAP_ANONYMOUS", "MADV_HUGEPAGE", "PROT_READ", "PROT_WRITE"],
    "resource": None,  # the module is missing
    "fcntl": None,
}
MACOS_LACKS = {
    "os": ["sched_getaffinity", "posix_fadvise", "posix_fallocate"],
    "mmap": ["MADV_HUGEPAGE"],
}


def is_open(path):
    """Return whether this process has a file open."""
    path = os.path.realpath(path)
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}") == path and os.path.isfile(path):
                return True
    return False


def refuse_if_open(*paths):
    for path in paths:
        if is_open(path):
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(path))


def unlink(path, *, dir_fd=None):
    assert dir_fd is None
    refuse_if_open(path)
    os.unlink(path)


def replace(source, target, *, src_dir_fd=None, dst_dir_fd=None):
    assert src_dir_fd is None
    assert dst_dir_fd is None
    refuse_if_open(source, target)
    os.replace(source, target)


def rename(source, target, *, src_dir_fd=None, dst_dir_fd=None):
    assert src_dir_fd is dst_dir_fd is None
    refuse_if_open(source)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "File exists", str(target))
    os.rename(source, target)


def open_(path, flags, mode=0o777, *, dir_fd=None):
    assert dir_fd is None
    if os.path.isdir(path):  # Windows opens no folder
        raise PermissionError(errno.EACCES, "Permission denied", str(path))
    return os.open(path, flags, mode)


def locking(file, mode, nbytes):
    """Lock a file as `msvcrt.locking` does; ``mode`` is `LK_NBLCK`."""
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


class Kernel32:
    """Windows' report of the memory: 8 GiB."""

    @staticmethod
    def GlobalMemoryStatusEx(status):
        status[1] = 8 << 30
        return True


def full_sync(file, command, *arguments):
    import fcntl

    return os.fsync(file) if command == 51 else fcntl.fcntl(file, command, *arguments)


WINDOWS_HAS = {
    "sys": {"platform": "win32"},
    "os": {"unlink": unlink, "remove": unlink, "rename": rename, "replace": replace, "open": open_,
           "supports_dir_fd": set(), "O_BINARY": 0},
    "signal": {"SIGBREAK": signal.SIGXCPU},
    "ctypes": {"windll": types.SimpleNamespace(kernel32=Kernel32)},
    "msvcrt": {"LK_NBLCK": 2, "locking": locking},
}  # fmt: skip
MACOS_HAS = {"sys": {"platform": "darwin"}, "fcntl": {"F_FULLFSYNC": 51, "fcntl": full_sync}}

SYSTEMS = {"windows": (WINDOWS_LACKS, WINDOWS_HAS), "macos": (MACOS_LACKS, MACOS_HAS)}


class StandIn(types.ModuleType):
    """A module as it is on the other system.

    Parameters
    ----------
    module : module
        The real module, or an empty one.
    lacks : collection of str
    has : dict
        Names and values. A value that a test has replaced in the real module goes first.
    """

    def __init__(self, module, lacks, has):
        super().__init__(module.__name__)
        missing = object()
        before = {name: getattr(module, name, missing) for name in {*lacks, *has}}

        def find(name):
            found = getattr(module, name, missing)
            if name in before and found is before[name]:
                found = has.get(name, missing)
            if found is missing:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r} there")
            return found

        vars(self)["__getattr__"] = find


def stand_ins(lacks, has):
    """Return the stand-in of each module; None if the other system lacks the module."""
    found = {}
    for name in {**lacks, **has}:
        module = types.ModuleType(name) if name == "msvcrt" else importlib.import_module(name)
        missing = lacks.get(name, ())
        found[name] = None if missing is None else StandIn(module, missing, has.get(name, {}))
    return found


class Finder(importlib.abc.MetaPathFinder):
    """Gives modules of splitjit an `import` statement of their own."""

    def __init__(self, modules):
        self.builtins = {**vars(builtins), "__import__": self.import_}
        self.modules = modules

    def import_(self, name, namespace=None, local=None, names=(), level=0):
        if level or name not in self.modules:
            return builtins.__import__(name, namespace, local, names, level)
        if self.modules[name] is None:
            raise ModuleNotFoundError(f"No module named {name!r} there", name=name)
        return self.modules[name]

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] != "splitjit" or name == "splitjit._kernels.core.c_api":
            return None  # compiled code calls functions of the system that is there
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            execute = spec.loader.exec_module

            def exec_module(module):
                vars(module)["__builtins__"] = self.builtins
                execute(module)

            spec.loader.exec_module = exec_module
        return spec


if os.environ.get("SPLITJIT_SYSTEM"):
    sys.meta_path.insert(0, Finder(stand_ins(*SYSTEMS[os.environ["SPLITJIT_SYSTEM"]])))
