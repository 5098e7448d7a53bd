"""Let asv write its pages, with the results that are kept in the repository.

asv's pages load scripts of other projects from public servers. ``--fetch`` gets these scripts with
npm, into build/asv-scripts; if this folder exists, the pages have copies and need no network.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.harness import ROOT
from benchmarks.milestones import milestones

SCRIPTS = ROOT / "build" / "asv-scripts"

FETCHED = {
    "jquery@3.3.1": ["dist/jquery.min.js"],
    "flot@0.8.3": [f"jquery.flot{name}.js" for name in ("", ".time", ".selection", ".categories")],
    "flot-orderbars@1.0.0": ["js/jquery.flot.orderBars.js"],
    "stupid-table-plugin@1.1.3": ["stupidtable.js"],
    "blueimp-md5@2.19.0": ["js/md5.min.js"],
    "bootstrap@3.1.1": ["dist/js/bootstrap.min.js", "dist/css/bootstrap.min.css"],
}
"""The files that the pages of asv load from elsewhere, by their packages in the registry of npm."""

LINK = re.compile(r'(src|href)="https://[^"]*/([^"/]+\.(?:js|css))"[^>]*>')


def git(*arguments: str) -> str:
    """Return what git prints, without the line break at the end."""
    return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True).strip()


def shown_at(commit: str, first_parents: list[str]) -> str:
    """Return the first parent that has a commit: itself, or the merge that brought it here."""
    if commit in first_parents:
        return commit
    later = set(git("rev-list", "--ancestry-path", f"{commit}..HEAD").split())
    return [parent for parent in first_parents if parent in later][-1]


def copy_results(target: Path) -> None:
    """Copy the kept results, each under a commit that asv shows, and what they measured."""
    shutil.copytree(ROOT / "benchmarks" / "results", target)
    measured = {"version"}
    first_parents = git("rev-list", "--first-parent", "HEAD").split()
    for file in target.glob("*/*-*.json"):
        results = json.loads(file.read_text("utf-8"))
        measured |= set(results["results"])
        commit = results["commit_hash"]
        shown = shown_at(commit, first_parents)
        if shown != commit:
            date = 1000 * int(git("show", "-s", "--format=%ct", shown))
            results |= {"commit_hash": shown, "date": date}
            file.unlink()
            renamed = file.with_name(file.name.replace(commit[:8], shown[:8], 1))
            renamed.write_text(json.dumps(results), "utf-8")
    file = target / "benchmarks.json"
    benchmarks = json.loads(file.read_text("utf-8")).items()
    file.write_text(json.dumps({name: of for name, of in benchmarks if name in measured}), "utf-8")


def clone_with_names(folder: Path) -> Path:
    """Clone the repository, with a tag for each milestone: asv's pages name tagged commits."""
    subprocess.run(["git", "clone", "--quiet", "--bare", "--shared", ROOT, folder], check=True)
    in_clone = ["git", "--git-dir", folder]
    subprocess.run([*in_clone, "update-ref", "--no-deref", "HEAD", git("rev-parse", "HEAD")])
    first_parents = git("rev-list", "--first-parent", "HEAD").split()
    for i, (commit, name) in enumerate(milestones().items(), 1):
        tag = f"{i:02}-{name}".replace(" ", "-").replace(",", "")
        subprocess.run([*in_clone, "tag", tag, shown_at(commit, first_parents)], check=True)
    return folder


def fetch() -> None:
    """Get the scripts with npm."""
    shutil.rmtree(SCRIPTS, ignore_errors=True)
    SCRIPTS.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        for package, names in FETCHED.items():
            packed = subprocess.check_output(["npm", "pack", "--silent", package], cwd=folder)
            with tarfile.open(Path(folder, packed.decode().split()[-1])) as archive:
                for name in names:
                    data = archive.extractfile(f"package/{name}").read()
                    (SCRIPTS / Path(name).name).write_bytes(data)


def use_copies(pages: Path) -> None:
    """Let the pages load the fetched scripts, which are then beside them."""
    index = pages / "index.html"

    def local(found: re.Match) -> str:
        """Return a link to the copy. Its hash may differ: the copy is not compressed."""
        name = found[2].replace("-3.3.1", "")
        copy = SCRIPTS / name
        copy = copy if copy.exists() else SCRIPTS / name.replace(".min.", ".")
        shutil.copy(copy, pages)
        return f'{found[1]}="{copy.name}">'

    index.write_text(LINK.sub(local, index.read_text("utf-8")), "utf-8")


def publish(pages: Path) -> None:
    """Let asv write its pages."""
    with tempfile.TemporaryDirectory() as folder:
        copy_results(Path(folder, "results"))
        clone = clone_with_names(Path(folder, "repository"))
        settings = (ROOT / "asv.conf.json").read_text("utf-8")
        # asv reads paths from the folder of its settings.
        for old, new in {
            '"repo": "."': clone,
            '"benchmark_dir": "benchmarks/suites"': ROOT / "benchmarks" / "suites",
            '"results_dir": ".asv/results"': Path(folder, "results"),
        }.items():
            settings = settings.replace(old, f'{old.split(":")[0]}: "{new.as_posix()}"')
        pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
        repository = pyproject["project"].get("urls", {}).get("Repository")
        if repository:
            link = f'"show_commit_url": "{repository}/commit/"'
            settings = settings.replace('"version": 1,', f'"version": 1,\n    {link},', 1)
        file = Path(folder, "asv.conf.json")
        file.write_text(settings, "utf-8")
        command = [sys.executable, "-m", "asv", "--config", file, "publish", "--html-dir", pages]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    if SCRIPTS.exists():
        use_copies(pages)


def main() -> None:
    """Fetch the scripts, or write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fetch", action="store_true", help="get the scripts with npm first")
    parser.add_argument("pages", type=Path, nargs="?", help="folder of the pages")
    options = parser.parse_args()
    if options.fetch:
        fetch()
    if options.pages:
        publish(options.pages.resolve())


if __name__ == "__main__":
    main()
