"""Build the documentation site into site/: `make docs`.

Writes the references first, builds the pages with mkdocs in strict mode, adds the static explorer
of the demo suite as a live example, and checks that every link inside the site leads to a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parent.parent
SITE = ROOT / "site"
#: Evaluated on the demo suite for the live example.
SYSTEMS = ("bm25", "wordllama", "bm25 + wordllama")


class Links(HTMLParser):
    """The addresses that a page refers to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what an element links to or loads."""
        self.addresses += [value for name, value in attrs if name in ("href", "src") and value]


def build() -> None:
    """Write the references, the pages and the live example."""
    _run(str(ROOT / "docs" / "reference.py"))
    # Never with --quiet: it hides warnings from --strict too, which then accepts everything.
    _run("-m", "mkdocs", "build", "--strict", "--site-dir", str(SITE))
    write_explorer(SITE / "explorer")
    broken = list(find_broken_links(SITE))
    if broken:
        sys.exit("\n".join(["Broken links in the site:", *broken]))
    size = sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file())
    pages = len(list(SITE.rglob("*.html")))
    print(f"{SITE.name}/index.html: {pages} pages, {size / 1e6:.1f} MB, no broken link")


def write_explorer(folder: Path) -> None:
    """Evaluate three systems on the demo suite and write the explorer's pages as files."""
    with tempfile.TemporaryDirectory() as work:
        _run("-m", "r2med", "eval", *SYSTEMS, "--task", "demo", cwd=work)
        _run("-m", "r2med", "explore", "--bundle", str(folder), cwd=work)


def find_broken_links(site: Path) -> Iterator[str]:
    """Yield each link that leads to no file of the site, as `page: address`."""
    for page in sorted(site.rglob("*.html")):
        for address in Links(page).addresses:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or not parts.path or page.name == "404.html":
                continue
            target = page.parent / unquote(parts.path)
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{page.relative_to(site)}: {address}"


def _run(*arguments: str, cwd: str | Path = ROOT) -> None:
    """Run Python with these arguments; end with its code if it fails."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    build()
