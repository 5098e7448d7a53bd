# /// script
# dependencies = ["nox[uv]>=2025.2.9"]
# ///
"""The tests on each Python, with the oldest and the newest versions of what they need.

``pipx run nox`` runs all; uv gets the Pythons that are missing. ``pipx run nox --list`` names the
sessions, and what follows ``--`` goes to pytest:
``pipx run nox --session "tests-3.11(oldest)" -- tests/test_split.py``
"""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv"  # alone installs the oldest versions, pyproject's floors

WHEELS = ["--only-binary=:all:", "--no-binary=splitjit"]
"""The oldest versions are those that have wheels for a Python."""


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
@nox.parametrize(
    "resolution",
    [nox.param("lowest-direct", id="oldest"), nox.param("highest", id="newest")],
)
def tests(session: nox.Session, resolution: str) -> None:
    """Run the tests with the oldest or the newest versions."""
    session.install("--resolution", resolution, *WHEELS, ".", "--group", "test")
    session.run("python", "-m", "pytest", *session.posargs)
