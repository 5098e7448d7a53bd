"""Open each page of the built site in a headless browser, wide and narrow, light and dark.

``python docs/tools/browser.py docs/_build/html [--screenshots FOLDER]`` fails if a page writes an
error to the console, requests a file that is missing, is wider than the window, cuts off code or a
table, or has code in letters that are too small to read. It also tries the search and the filter of
the conformance tables. It needs ``--group browser`` and Chromium: an installed one, or the one of
``playwright install chromium``.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Browser, TimeoutError, sync_playwright

WIDTHS = (1280, 800, 400)
SCHEMES = ("light", "dark")
SEARCHES = ("bfloat16", "num_splits", "set_buffer_limit", "safetensors")


class Quiet(SimpleHTTPRequestHandler):
    """Serve files without a log."""

    def log_message(self, format: str, *arguments: object) -> None:
        """Write nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port, and yield its address."""
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


OVERFLOW = r"""() => [
    ...(document.documentElement.scrollWidth > innerWidth ? ["wider than the window"] : []),
    ...[...document.querySelectorAll("main :is(h1, h2, h3, p, dt)")]
        .filter(e => getComputedStyle(e).display == "block" && e.scrollWidth > e.clientWidth + 1)
        .map(e => "cut off: " + e.textContent.trim().slice(0, 40)),
    ...[...document.querySelectorAll("main pre")]
        .filter(e => e.scrollWidth > e.clientWidth + 1)
        .map(e => "code cut off: " + e.textContent.trim().slice(0, 40)),
    ...[...document.querySelectorAll("main pre")]
        .filter(e => parseFloat(getComputedStyle(e).fontSize) < 10)
        .map(e => "letters too small: " + e.textContent.trim().slice(0, 40)),
    // The tables of conformance scroll below their header, which stays.
    ...[...document.querySelectorAll("main .pst-scrollable-table-container")]
        .filter(e => !document.querySelector("#only-differences"))
        .filter(e => e.scrollWidth > e.clientWidth + 1)
        .map(e => "table cut off: " + e.textContent.trim().replace(/\s+/g, " ").slice(0, 60)),
    ...[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => "no " + i.src)]"""


def check_page(browser: Browser, address: str, name: str, screenshots: Path | None) -> list[str]:
    """Open a page, look at it at each width and in each color scheme; return its faults."""
    found = []
    page = browser.new_page()
    page.on("console", lambda m: found.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("response", lambda r: found.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    page.goto(address, wait_until="load")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            found += [f"at {width} px, {scheme}: {fault}" for fault in page.evaluate(OVERFLOW)]
            if screenshots:
                file = f"{name.removesuffix('.html').replace('/', '-')}-{width}-{scheme}.png"
                page.screenshot(path=screenshots / file, full_page=True)
    page.close()
    return [f"{name}: {fault}" for fault in found]


def check_pages(browser: Browser, site: Path, root: str, screenshots: Path | None) -> list[str]:
    """Check all pages, and return all faults."""
    others = {"_static", "asv"}  # other projects made these pages
    pages = sorted(path.relative_to(site) for path in site.rglob("*.html"))
    names = [page.as_posix() for page in pages if others.isdisjoint(page.parts)]
    print(f"{len(names)} pages, {len(WIDTHS)} widths, {len(SCHEMES)} color schemes")
    checks = [check_page(browser, f"{root}/{name}", name, screenshots) for name in names]
    return [fault for faults in checks for fault in faults]


def check_search(browser: Browser, root: str) -> list[str]:
    """Search for words that must be on a page, and return those that are not."""
    missing = []
    page = browser.new_page()
    for word in SEARCHES:
        page.goto(f"{root}/search.html?q={word}")
        try:
            page.wait_for_selector("#search-results li a", timeout=10_000)
        except TimeoutError:
            missing.append(f"the search does not find {word}")
    page.close()
    return missing


def check_filter(browser: Browser, root: str) -> list[str]:
    """Filter the conformance tables; each case that is left must have a result that differs."""
    page = browser.new_page()
    page.goto(f"{root}/conformance.html")
    cases = page.locator("tr.case:visible")
    before = cases.count()
    page.check("#only-differences")
    after, differing = cases.count(), page.locator("tr.case:visible:has(td.differs)").count()
    header = page.locator("th").last.evaluate("th => getComputedStyle(th).position")
    page.close()
    print(f"the filter leaves {after} of {before} cases")
    faults = [] if 0 < after == differing < before else ["the filter of the conformance tables"]
    return faults if header == "sticky" else [*faults, "the header of the conformance tables"]


def main() -> None:
    """Check a built site; exit with the faults."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--screenshots", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.screenshots:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    installed = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    with served(options.site) as root, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=installed, args=["--no-sandbox"])
        found = check_pages(browser, options.site, root, options.screenshots)
        found += check_search(browser, root) + check_filter(browser, root)
        browser.close()
    if found:
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
