"""Take the screenshots of the gallery: `python docs/gallery.py`.

Evaluates three systems on the demo suite, serves the explorer and photographs its pages with
Chromium into docs/gallery/. Run it after a change of the pages, and commit the images.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

FOLDER = Path(__file__).parent / "gallery"
SYSTEMS = ("bm25", "wordllama", "bm25 + wordllama")
_TRIED = "/try?text=numb+feet+after+weeks+of+laughing+gas+at+parties&task=demo/medical-sciences"
R2MED = [sys.executable, "-m", "r2med"]
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
#: Bytes of all images together; the repository stays small.
_MOST_BYTES = 1_800_000


@dataclass(frozen=True)
class Screenshot:
    """A page of the explorer, and how it is photographed."""

    name: str
    path: str
    width: int = 1280
    height: int = 860
    dark: bool = False


SCREENSHOTS = (
    Screenshot("leaderboard", "/?suite=demo"),
    Screenshot("published", "/?suite=full"),
    Screenshot("task", "/task/demo/biology"),
    Screenshot("query", "/task/demo/medqa-diag/query/8?system=wordllama&system=bm25"),
    Screenshot("compare", "/compare?suite=demo&system=bm25+%2B+wordllama&system=bm25"),
    Screenshot("try", f"{_TRIED}&system=bm25&system=wordllama"),
    Screenshot("tasks", "/tasks"),
    Screenshot("system", "/system?suite=demo&system=bm25+%2B+wordllama"),
    Screenshot("phone", "/?suite=demo", width=390, height=780),
    Screenshot("dark", "/?suite=demo", dark=True),
)


def take_screenshots() -> None:
    """Write every screenshot, and fail if they are too large together."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work, sync_playwright() as driver:
        subprocess.run([*R2MED, "eval", *SYSTEMS, "--task", "demo"], cwd=work, check=True)
        program = next(filter(None, map(shutil.which, _BROWSERS)), None)
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=program, args=arguments)
        with _serve(Path(work)) as url:
            for screenshot in SCREENSHOTS:
                _take(browser, url, screenshot)
        browser.close()
    size = sum(path.stat().st_size for path in FOLDER.iterdir())
    print(f"{FOLDER.name}/: {len(SCREENSHOTS)} images, {size / 1000:.0f} kB")
    if size > _MOST_BYTES:
        sys.exit(f"The images are larger than {_MOST_BYTES / 1e6} MB together.")


def _take(browser: Any, url: str, screenshot: Screenshot) -> None:
    page = browser.new_page(
        viewport={"width": screenshot.width, "height": screenshot.height},
        color_scheme="dark" if screenshot.dark else "light",
    )
    answer = page.goto(url + screenshot.path, wait_until="networkidle")
    if answer is None or not answer.ok:
        sys.exit(f"{screenshot.path} answers {answer and answer.status}")
    page.screenshot(path=FOLDER / f"{screenshot.name}.png")
    page.close()


@contextmanager
def _serve(folder: Path) -> Iterator[str]:
    """Run the explorer at a free port until the block ends, and give its address."""
    command = [*R2MED, "explore", "--no-open", "--port", "0"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output = ""
            for line in process.stdout or ():
                output += line
                if match := re.search(r"r2med explore: (http://[^/\s]+)/", line):
                    yield match[1]
                    return
            sys.exit(output)
        finally:
            process.terminate()


if __name__ == "__main__":
    take_screenshots()
