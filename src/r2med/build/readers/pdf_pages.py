"""Print the text of every page of a PDF file as JSON; run as a process with limits.

    python -m r2med.build.readers.pdf_pages FILE SECONDS MEGABYTES

A PDF file can make any reader loop or fill the memory, so this process has limits on both.
"""

from __future__ import annotations

import json
import logging
import sys

#: Pages beyond this are not read.
MOST_PAGES = 5_000
#: Characters beyond this are not read.
MOST_CHARACTERS = 50_000_000


def limit_process(seconds: int, megabytes: int) -> None:
    """Limit the processor time and memory of this process, if the operating system can."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def extract_pages(path: str) -> dict[str, object]:
    """Return the texts of a file's pages, or the reason why the file cannot be read."""
    from pypdf import PdfReader

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(path, strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            return {"problem": "encrypted; save it without a password"}
        pages: list[str] = []
        damaged = characters = 0
        for number, page in enumerate(reader.pages, start=1):
            if number > MOST_PAGES or characters > MOST_CHARACTERS:
                return {"problem": f"more than {MOST_PAGES:,} pages or too much text"}
            try:
                text = page.extract_text() or ""
            except MemoryError:
                raise
            except Exception:
                text, damaged = "", damaged + 1
            characters += len(text)
            pages.append(text)
    except MemoryError:
        return {"problem": "needs too much memory"}
    except Exception as problem:
        return {"problem": f"not a readable PDF ({type(problem).__name__}: {str(problem)[:200]})"}
    return {"pages": pages, "damaged": damaged}


if __name__ == "__main__":
    limit_process(int(sys.argv[2]), int(sys.argv[3]))
    json.dump(extract_pages(sys.argv[1]), sys.stdout)
