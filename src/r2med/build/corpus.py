"""The second stage: split documents into passages with source and offsets, and fold duplicates.

    corpus/corpus.jsonl       {"id", "text"}
    corpus/passages.jsonl     source, section, licence, offsets and collection of every passage
    corpus/duplicates.jsonl   passages that were folded into others
    corpus/problems.jsonl     files and rows that could not be read, and notices about others

Passages of a portion of the documents are stored in `.portions` as soon as they are made, so an
interrupted command continues there. The texts are never all in memory.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from r2med.build.documents import (
    Collection,
    CorpusSettings,
    PassageRow,
    Portion,
    SourceFile,
    SourceProblem,
    find_collections,
    find_files,
    make_portions,
    read_portion,
)
from r2med.build.duplicates import Duplicate, DuplicateFinder
from r2med.build.folder import BuildFolder, BuildRecord, hash_file, write_rows
from r2med.errors import DataError, plural
from r2med.execution.resources import Resources
from r2med.settings import settings_identity
from r2med.storage import atomic_folder

_BATCH = 4_096
_SHOWN = 10
_PASSAGE, _PROBLEM = "passage", "problem"


@dataclass(frozen=True)
class CorpusOutcome:
    """The record of the stage, and problems with sources."""

    record: BuildRecord
    problems: tuple[SourceProblem, ...]


@dataclass(frozen=True)
class _StoredPortion:
    path: Path
    collection: Collection


def build_corpus(
    folder: BuildFolder, resources: Resources, *, strict: bool = False, force: bool = False
) -> CorpusOutcome:
    """Read all documents, fold duplicates, and write the folder `corpus` in one step.

    Args:
        folder: The benchmark's folder.
        resources: Callbacks for warnings and progress.
        strict: Treat files and rows that cannot be read as errors.
        force: Overwrite a corpus that was edited.

    Raises:
        DataError: A file cannot be read and `strict` is set, or there is no passage.
        UsageError: The corpus was edited.
    """
    settings = folder.stage_settings("corpus", CorpusSettings)
    with folder.hold("corpus"):
        folder.check_unedited("corpus", force=force)
        collections = find_collections(folder)
        sources, problems = _list_files(collections)
        stored = _store_portions(folder, collections, sources, settings, resources)
        finder, index = DuplicateFinder(settings.near_duplicates), _TextIndex()
        problems += _collect_hashes(stored, settings, finder, index)
        _report_problems(problems, folder, resources, strict=strict)
        duplicates = {duplicate.index: duplicate for duplicate in finder.find(index.text)}
        with atomic_folder(folder.corpus_folder) as draft:
            writer = _CorpusWriter(settings, duplicates)
            counts = writer.write(draft, stored)
            write_rows(draft / "problems.jsonl", (asdict(problem) for problem in problems))
            if not counts["passages"]:
                raise DataError(
                    f"{folder.settings_path}: [[corpus.sources]] have no passages; "
                    f"{plural(len(problems), 'file')} could not be read."
                )
        record = _make_record(folder, settings, collections, sources, writer, problems)
        folder.write_record(record)
        _remove_unused(folder, stored)
    return CorpusOutcome(record, tuple(problems))


def _list_files(
    collections: Sequence[Collection],
) -> tuple[list[list[SourceFile]], list[SourceProblem]]:
    """Return the files of every collection, and a problem for each file that has no reader."""
    sources: list[list[SourceFile]] = []
    problems: list[SourceProblem] = []
    for collection in collections:
        entries = list(find_files(collection))
        sources.append([entry for entry in entries if isinstance(entry, SourceFile)])
        problems += [entry for entry in entries if isinstance(entry, SourceProblem)]
    return sources, problems


def _store_portions(
    folder: BuildFolder,
    collections: Sequence[Collection],
    sources: Sequence[Sequence[SourceFile]],
    settings: CorpusSettings,
    resources: Resources,
) -> list[_StoredPortion]:
    """Store the passages of every portion that is not stored yet; return all portions in order."""
    total = sum(len(files) for files in sources)
    done = 0
    stored = []
    for collection, files in zip(collections, sources, strict=True):
        for portion in make_portions(collection, files, settings):
            path = _portions_folder(folder) / f"{portion.key}.jsonl"
            if not path.is_file():
                write_rows(path, _to_json(portion, settings))
            stored.append(_StoredPortion(path, collection))
            done += len(portion.files) if not portion.lines else 0
            resources.progress("documents", min(done, total), total, 0.0)
    return stored


def _portions_folder(folder: BuildFolder) -> Path:
    return folder.path / ".portions"


def _to_json(portion: Portion, settings: CorpusSettings) -> Iterator[dict[str, Any]]:
    for row in read_portion(portion, settings):
        row_type = _PASSAGE if isinstance(row, PassageRow) else _PROBLEM
        yield {row_type: vars(row)}


def _read_row(line: bytes) -> PassageRow | SourceProblem:
    row = json.loads(line)
    return PassageRow(**row[_PASSAGE]) if _PASSAGE in row else SourceProblem(**row[_PROBLEM])


def _report_problems(
    problems: Sequence[SourceProblem], folder: BuildFolder, resources: Resources, *, strict: bool
) -> None:
    unreadable = [problem for problem in problems if problem.is_unreadable]
    listed = "\n".join(f"{p.source}: {p.problem}." for p in unreadable[:_SHOWN])
    if len(unreadable) > _SHOWN:
        listed += f"\n... and {len(unreadable) - _SHOWN:,} more."
    if unreadable and strict:
        raise DataError(f"{plural(len(unreadable), 'file or row', 'files or rows')} cannot be read:"
                        f"\n{listed}\nThe corpus was not changed.")  # fmt: skip
    if unreadable:
        resources.warn(
            f"{plural(len(unreadable), 'file or row', 'files or rows')} left out:\n{listed}\nAll "
            f"are in {folder.corpus_folder / 'problems.jsonl'}."
        )
    for problem in [p for p in problems if not p.is_unreadable][:_SHOWN]:
        resources.warn(f"{problem.source}: {problem.problem}.")


class _TextIndex:
    """Positions of all passages in the files of the portions, to read a single passage by index."""

    def __init__(self) -> None:
        self._paths: list[Path] = []
        self._first_indexes: list[int] = []
        self._offsets = array("q")

    def add(self, path: Path) -> None:
        """Add the file of a portion; add the offsets of its passages next, with `extend`."""
        self._paths.append(path)
        self._first_indexes.append(len(self._offsets))

    def extend(self, offsets: Iterable[int]) -> None:
        """Add the offsets of passages in the file that was added last."""
        self._offsets.extend(offsets)

    def text(self, index: int) -> str:
        """Return the text of a passage, read from its file."""
        path = self._paths[bisect_right(self._first_indexes, index) - 1]
        with path.open("rb") as file:
            file.seek(self._offsets[index])
            row = _read_row(file.readline())
        assert isinstance(row, PassageRow)
        return row.text


def _collect_hashes(
    stored: Sequence[_StoredPortion],
    settings: CorpusSettings,
    finder: DuplicateFinder,
    index: _TextIndex,
) -> list[SourceProblem]:
    """Add every passage that is long enough to `finder` and `index`; return the files' problems."""
    problems: list[SourceProblem] = []
    for portion in stored:
        index.add(portion.path)
        rows = _rows_with_offsets(portion.path)
        while batch := list(islice(rows, _BATCH)):
            problems += [row for row, _ in batch if isinstance(row, SourceProblem)]
            passages = [
                (row.text, offset)
                for row, offset in batch
                if isinstance(row, PassageRow) and row.tokens >= settings.least_tokens
            ]
            finder.add([text for text, _ in passages])
            index.extend(offset for _, offset in passages)
    return problems


def _rows_with_offsets(path: Path) -> Iterator[tuple[PassageRow | SourceProblem, int]]:
    offset = 0
    with path.open("rb") as file:
        for line in file:
            yield _read_row(line), offset
            offset += len(line)


class _CorpusWriter:
    """Writes the files of the corpus in one pass over all portions."""

    def __init__(self, settings: CorpusSettings, duplicates: dict[int, Duplicate]) -> None:
        self._settings = settings
        self._duplicates = duplicates
        self._originals = {duplicate.original for duplicate in duplicates.values()}
        self._names: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.licences: Counter[str] = Counter()

    def write(self, draft: Path, stored: Sequence[_StoredPortion]) -> Counter[str]:
        """Write the files of the corpus to `draft`; return counts such as those of passages."""
        ids: dict[int, str] = {}
        index = 0
        with (
            (draft / "corpus.jsonl").open("w", encoding="utf-8") as corpus,
            (draft / "passages.jsonl").open("w", encoding="utf-8") as passages,
            (draft / "duplicates.jsonl").open("w", encoding="utf-8") as folded,
        ):
            for row, collection, passage_id in self._named_rows(stored):
                if row.tokens < self._settings.least_tokens:
                    self.drops[f"shorter than {self._settings.least_tokens} tokens"] += 1
                    continue
                duplicate = self._duplicates.get(index)
                if index in self._originals:
                    ids[index] = passage_id
                index += 1
                if duplicate is None:
                    _write_line(corpus, {"id": passage_id, "text": row.text})
                    _write_line(passages, _describe(row, collection, passage_id))
                    self._count(row, collection)
                    continue
                is_exact = duplicate.similarity == 1.0
                self.drops["exact duplicate" if is_exact else "near duplicate"] += 1
                _write_line(
                    folded,
                    {
                        "id": passage_id,
                        "duplicate_of": ids[duplicate.original],
                        "similarity": round(duplicate.similarity, 3),
                        "source": row.source,
                        "collection": collection.name,
                        "distractor": collection.distractor,
                        "text": row.text,
                    },
                )
        return self.counts

    def _named_rows(
        self, stored: Sequence[_StoredPortion]
    ) -> Iterator[tuple[PassageRow, Collection, str]]:
        """Yield passages with collection and id; documents of the same name get different ids."""
        name = ""
        for portion in stored:
            with portion.path.open("rb") as file:
                for row in map(_read_row, file):
                    if not isinstance(row, PassageRow):
                        continue
                    if row.number == 1:
                        self.counts["documents"] += 1
                        name = self._unique_name(row.document)
                    yield row, portion.collection, f"{name}#{row.number}"

    def _unique_name(self, document: str) -> str:
        self._names[document] += 1
        count = self._names[document]
        if count == 1:
            return document
        return self._unique_name(f"{document}~{count}")

    def _count(self, row: PassageRow, collection: Collection) -> None:
        self.counts["passages"] += 1
        self.counts["tokens"] += row.tokens
        self.counts["distractors"] += collection.distractor
        self.licences[row.licence] += 1


def _describe(row: PassageRow, collection: Collection, passage_id: str) -> dict[str, Any]:
    page = {} if row.page is None else {"page": row.page}
    return {
        "id": passage_id,
        "source": row.source,
        "collection": collection.name,
        "section": row.section,
        "licence": row.licence,
        "start": row.start,
        "end": row.end,
        **page,
        "tokens": row.tokens,
        "distractor": collection.distractor,
    }


def _write_line(file: Any, row: dict[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _make_record(
    folder: BuildFolder,
    settings: CorpusSettings,
    collections: Sequence[Collection],
    sources: Sequence[Sequence[SourceFile]],
    writer: _CorpusWriter,
    problems: Sequence[SourceProblem],
) -> BuildRecord:
    counts, drops = writer.counts, dict(writer.drops)
    unreadable = Counter(p.problem.partition(" (")[0] for p in problems if p.is_unreadable)
    corpus_name = folder.corpus_path.relative_to(folder.path).as_posix()
    return BuildRecord(
        stage="corpus",
        parameters=settings_identity(settings),
        counts_in={
            "passages": counts["passages"] + sum(drops.values()),
            "documents": counts["documents"],
            "files": sum(len(files) for files in sources),
            "unreadable": sum(unreadable.values()),
        },
        counts_out={"passages": counts["passages"], "distractors": counts["distractors"]},
        drops=dict(sorted(drops.items())),
        outputs={corpus_name: hash_file(folder.corpus_path)},
        figures={
            "tokens_per_passage": round(counts["tokens"] / counts["passages"], 1),
            "licences": dict(sorted(writer.licences.items())),
            "unreadable": dict(sorted(unreadable.items())),
            "collections": [
                {
                    "path": collection.name,
                    "files": len(files),
                    "licence": collection.licence,
                    "distractor": collection.distractor,
                }
                for collection, files in zip(collections, sources, strict=True)
            ],
        },
    )


def _remove_unused(folder: BuildFolder, stored: Sequence[_StoredPortion]) -> None:
    """Remove stored portions that the corpus no longer uses."""
    used = {portion.path for portion in stored}
    for path in _portions_folder(folder).glob("*.jsonl"):
        if path not in used:
            path.unlink()
