"""Read questions and their accepted answers from `Posts.xml` of a StackExchange dump.

A dump has one `<row ... />` per line. It is read line by line, so that only accepted answers are
held in memory, and no entity that a file defines is expanded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

from r2med.errors import DataError
from r2med.tasks.reading.lines import lines

_QUESTION = "1"


def read_posts(path: Path) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the line and the attributes of every question, with its `accepted_answer`.

    `accepted_answer` is empty if a question has no accepted answer.

    Raises:
        DataError: A row cannot be read, or the file has none.
    """
    accepted_ids = {
        row["AcceptedAnswerId"]
        for _, row in _read_rows(path)
        if row.get("PostTypeId") == _QUESTION and "AcceptedAnswerId" in row
    }
    answers = {
        row["Id"]: row.get("Body", "")
        for _, row in _read_rows(path)
        if row.get("Id") in accepted_ids
    }
    for line, row in _read_rows(path):
        if row.get("PostTypeId") == _QUESTION:
            answer = answers.get(row.get("AcceptedAnswerId", ""), "")
            yield line, {**row, "accepted_answer": answer}


def _read_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    is_empty = True
    for line, content in lines(path):
        row = content.strip()
        if not row.startswith(b"<row"):
            continue
        is_empty = False
        try:
            yield line, dict(ElementTree.fromstring(row).attrib)
        except ElementTree.ParseError as problem:
            raise DataError(f"{path}, line {line}: not a <row /> of XML ({problem}).") from None
    if is_empty:
        raise DataError(f"{path} has no <row />, expected Posts.xml of a StackExchange dump.")
