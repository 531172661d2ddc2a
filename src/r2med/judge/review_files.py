"""Export review queues as CSV files or spreadsheets for people without r2med; import labels.

A file has one row per pair: its code, the texts, and empty cells for label and comment. Import
checks every row before it stores any.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.errors import DataError, UsageError
from r2med.judge.review import Decision, ReviewQueue, ReviewStore, label_pair
from r2med.judge.spreadsheet import read_spreadsheet, write_spreadsheet
from r2med.judge.store import Pair
from r2med.storage import write_file

_COLUMNS = ("code", "label", "comment", "query", "passage", "answer", "reasoning")
#: Characters that make a spreadsheet take a text for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Imported:
    """Counts of an import."""

    labels: int
    unlabelled: int
    """Rows without a label, left out."""
    unchanged: int
    """Rows whose label and comment were stored before."""


def export_review(
    path: Path,
    queue: ReviewQueue,
    reviewer: str,
    texts: Callable[[Pair], Mapping[str, str]],
    store: ReviewStore,
) -> int:
    """Write the queue of a reviewer to a .csv or .xlsx file, and return the number of pairs.

    The file contains the labels that the reviewer has already given.
    """
    decided = store.decisions(reviewer)
    rows: list[list[str]] = [list(_COLUMNS)]
    for pair in queue.order(reviewer):
        decision = decided.get(pair)
        label = "" if decision is None or decision.label is None else str(decision.label)
        pair_texts = texts(pair)
        comment = decision.comment if decision else ""
        contents = [pair_texts.get(name, "") for name in _COLUMNS[3:]]
        rows.append([queue.code(pair), label, *map(_neutralise, (comment, *contents))])
    if _is_spreadsheet(path):
        write_file(path, write_spreadsheet(rows))
    else:
        text = io.StringIO()
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        write_file(path, "\ufeff" + text.getvalue())
    return len(queue.pairs)


def import_review(
    path: Path, queue: ReviewQueue, reviewer: str, store: ReviewStore, *, partial: bool = False
) -> Imported:
    """Read a reviewer's labels from a .csv or .xlsx file and store them, all or none.

    Args:
        path: The file.
        queue: The queue that the file was exported from.
        reviewer: Name of the person who labelled the file.
        store: The review that the labels are added to.
        partial: Accept rows without a label.

    Raises:
        DataError: A row has an unknown code, a label that is empty or off the scale, or a code
            that another row has with another label. Nothing is stored.
    """
    decisions, unlabelled, problems = _read_rows(_read_table(path), queue, reviewer)
    if unlabelled and not partial:
        lines = ", ".join(str(line) for line in unlabelled[:5])
        more = ", ..." if len(unlabelled) > 5 else ""
        problems.append(
            f"{len(unlabelled)} rows without a label (rows {lines}{more}); use --partial to import "
            "the others"
        )
    if problems:
        listed = "\n".join(f"- {problem}" for problem in problems[:10])
        more = f"\n- and {len(problems) - 10} more" if len(problems) > 10 else ""
        raise DataError(f"{path}: nothing was imported.\n{listed}{more}")
    stored = store.decisions(reviewer)
    new = [d for d in decisions.values() if not _is_stored(d, stored.get(d.pair))]
    store.add(*new)
    return Imported(len(new), len(unlabelled), len(decisions) - len(new))


def _read_rows(
    rows: Sequence[Sequence[str]], queue: ReviewQueue, reviewer: str
) -> tuple[dict[Pair, Decision], list[int], list[str]]:
    """Return labels by pair, the rows without a label, and the problems."""
    header = [cell.strip().lower().lstrip("\ufeff") for cell in rows[0]] if rows else []
    if "code" not in header or "label" not in header:
        return {}, [], ["the first row has no columns code and label"]
    code_at, label_at = header.index("code"), header.index("label")
    comment_at = header.index("comment") if "comment" in header else -1
    decisions: dict[Pair, Decision] = {}
    unlabelled: list[int] = []
    problems: list[str] = []
    for line, row in enumerate(rows[1:], start=2):
        cells = [*row, *[""] * (len(header) - len(row))]
        code, label = cells[code_at].strip(), cells[label_at].strip()
        if not any(cell.strip() for cell in cells):
            continue
        pair = queue.codes.get(code)
        if pair is None:
            problems.append(f"row {line}: code {code[:20]!r} is not in the queue")
            continue
        if not label:
            unlabelled.append(line)
            continue
        grade = _read_label(label)
        if grade not in queue.rubric.scale:
            problems.append(
                f"row {line}: label {label[:20]!r} is not on the scale {queue.rubric.scale}"
            )
            continue
        comment = _restore(cells[comment_at].strip()) if comment_at >= 0 else ""
        decision = label_pair(queue, reviewer, pair, grade, comment=comment)
        if pair in decisions:
            same = "the same" if decisions[pair].label == grade else "another"
            problems.append(f"row {line}: code {code} is in an earlier row with {same} label")
            continue
        decisions[pair] = decision
    return decisions, unlabelled, problems


def _read_table(path: Path) -> list[list[str]]:
    if not path.is_file():
        raise UsageError(f"{path}: no such file.")
    if _is_spreadsheet(path):
        return read_spreadsheet(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as problem:
        raise DataError(f"{path}: expected CSV in UTF-8 ({problem.reason}).") from None
    first = text.partition("\n")[0]
    delimiter = ";" if first.count(";") > first.count(",") else ","
    try:
        return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as problem:
        raise DataError(f"{path}: not readable as CSV ({problem}).") from None


def _is_spreadsheet(path: Path) -> bool:
    if path.suffix.lower() not in (".csv", ".xlsx"):
        raise UsageError(f"{path}: expected a file that ends in .csv or .xlsx.")
    return path.suffix.lower() == ".xlsx"


def _read_label(text: str) -> int | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return int(number) if number.is_integer() else None


def _is_stored(decision: Decision, stored: Decision | None) -> bool:
    return stored is not None and (stored.label, stored.comment) == (
        decision.label,
        decision.comment,
    )


def _neutralise(text: str) -> str:
    """Return the text, changed if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _restore(text: str) -> str:
    """Undo `_neutralise`."""
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text
