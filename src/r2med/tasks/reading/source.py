"""Which files of a folder hold a task: recognised by their names, before any is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from r2med.errors import MissingError, UsageError, nearest
from r2med.paths import user_path

Layout = Literal["r2med", "beir", "parquet"]
#: The files of each split.
Splits = dict[str, tuple[Path, ...]]

#: What a task in the R2MED layout consists of; of each row the first file that exists is read.
R2MED_FILES: dict[str, tuple[str, ...]] = {
    "corpus": ("corpus.jsonl", "corpus.jsonl.gz"),
    "queries": ("query.jsonl", "query.jsonl.gz"),
    "judgements": tuple(
        f"qrels.{form}{zipped}" for form in ("jsonl", "txt", "tsv") for zipped in ("", ".gz")
    ),
}
#: Documents that do not count for single queries, beside any layout.
EXCLUSIONS_FILE = "excluded_ids.jsonl"
#: The parts of a task.
PARTS = ("corpus", "queries", "judgements")
_BEIR_QUERIES = ("queries.jsonl", "queries.jsonl.gz")
_EXPECTED = """\
A task is one of
  R2MED    corpus.jsonl, query.jsonl and qrels.jsonl (or qrels.txt, qrels.tsv)
  BEIR     corpus.jsonl, queries.jsonl and qrels/test.tsv
  Parquet  corpus/, queries/ and qrels/, each with <split>.parquet or its shards
where jsonl, txt and tsv files may end in .gz; see docs/data.md.
CSV and TSV files become one with `r2med tasks import`."""


@dataclass(frozen=True)
class Source:
    """The files of one task by its `PARTS`; `split` is set where the folder holds a choice."""

    folder: Path
    layout: Layout
    parts: Mapping[str, tuple[Path, ...]]
    split: str | None = None

    @property
    def files(self) -> list[Path]:
        """All of them, corpus first."""
        files = [file for files in self.parts.values() for file in files]
        return files if self.exclusions is None else [*files, self.exclusions]

    @property
    def exclusions(self) -> Path | None:
        """The file that lists excluded documents of queries, if there is one."""
        path = self.folder / EXCLUSIONS_FILE
        return path if path.is_file() else None


def split_selection(text: str | Path) -> tuple[Path, str | None]:
    """Take `FOLDER#SPLIT` apart; a folder that really has a # in its name stays whole."""
    path = user_path(text)
    name, mark, split = path.name.rpartition("#")
    if not mark or not name or not split or path.exists():
        return path, None
    return path.with_name(name), split


def find_source(folder: Path, split: str | None = None) -> Source:
    """The files of the task in a folder, or an error that lists what was looked for."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise UsageError(
            f"{folder} {problem}, expected a folder with corpus, queries and judgements.\n"
            "CSV or TSV files become one with `r2med tasks import`; an archive is taken in with "
            "`r2med fetch --from FILE`. `r2med tasks` lists the tasks that have a name."
        )
    layouts = _layouts(folder)
    complete_layout = next((name for name, parts in layouts.items() if all(parts)), None)
    if complete_layout is None:
        names = ("corpus.jsonl", "query.jsonl", "qrels.jsonl")
        there = zip(*layouts.values(), strict=True)
        lacking = [name for name, files in zip(names, there, strict=True) if not any(files)]
        problem = f"there is no {' and no '.join(lacking)}"
        if len(lacking) in (0, len(names)):
            problem = "none of the known layouts is there"
        raise MissingError(f"{folder} does not hold a task: {problem}.\n{_EXPECTED}")
    parts = dict(zip(PARTS, layouts[complete_layout], strict=True))
    if split is None and all(len(splits) == 1 for splits in parts.values()):
        only = {part: next(iter(splits.values())) for part, splits in parts.items()}
        return Source(folder, complete_layout, only, next(iter(parts["corpus"])) or None)
    if complete_layout == "r2med":
        raise UsageError(f"{folder} has no splits, so #{split} cannot be chosen; leave it out.")
    shared = sorted(set.intersection(*map(set, parts.values())))
    if split is None and (len(shared) == 1 or (complete_layout == "beir" and "test" in shared)):
        split = "test" if "test" in shared else shared[0]
    if split is None:
        raise UsageError(
            f"{folder} holds {len(shared)} tasks as splits; choose one, e.g. '{folder}#SPLIT'.\n"
            f"Splits: {', '.join(shared) or 'none that corpus, queries and qrels share'}."
        )
    if split not in shared:
        raise UsageError(f"{folder} has no split {split!r}. {nearest(split, shared)}")
    return Source(folder, complete_layout, {part: parts[part][split] for part in PARTS}, split)


def task_folders(folder: Path) -> list[Path]:
    """Return the folder if it holds a task, or else the folders in it that hold tasks."""
    children = [] if holds_task(folder) else sorted(folder.glob("*/"))
    return [child for child in children if holds_task(child)] or [folder]


def holds_task(folder: Path) -> bool:
    """Whether the files of a task are there, or of several as splits."""
    return any(all(parts) for parts in _layouts(folder).values())


def _layouts(folder: Path) -> dict[Layout, list[Splits]]:
    """The files of corpus, queries and judgements in each layout; none where a part is not there.

    R2MED has no splits: its files stand under an empty name. In BEIR they are of the judgements.
    """
    corpus, queries, judgements = (_first(folder, names) for names in R2MED_FILES.values())
    tables = sorted((*folder.glob("qrels/*.tsv.gz"), *folder.glob("qrels/*.tsv")), reverse=True)
    judged: Splits = {
        file.name.removesuffix(".gz").removesuffix(".tsv"): (file,) for file in tables
    }
    beir_queries = _first(folder, _BEIR_QUERIES)
    return {
        "r2med": [{"": files} if files else {} for files in (corpus, queries, judgements)],
        "beir": [
            *(
                dict.fromkeys(judged or [""], files) if files else {}
                for files in (corpus, beir_queries)
            ),
            judged,
        ],
        "parquet": [
            _parquet_splits(folder / "corpus"),
            _parquet_splits(folder / "queries") or _parquet_splits(folder / "query"),
            _parquet_splits(folder / "qrels"),
        ],
    }


def _first(folder: Path, names: Iterable[str]) -> tuple[Path, ...]:
    return next(((folder / name,) for name in names if (folder / name).exists()), ())


def split_files(folder: Path, config: str, split: str) -> tuple[Path, ...]:
    """The Parquet files of one split of one configuration, in shard order."""
    return _parquet_splits(folder / config).get(split, ())


def _parquet_splits(config: Path) -> Splits:
    """Split to shards: `<split>.parquet`, `<split>-00000-of-00002.parquet`, `<split>/*.parquet`."""
    shards: Splits = {}
    for file in sorted(config.glob("*.parquet")):
        split = split_of_shard(file.stem)
        shards[split] = (*shards.get(split, ()), file)
    for file in sorted(config.glob("*/*.parquet")):
        shards[file.parent.name] = (*shards.get(file.parent.name, ()), file)
    return shards


def split_of_shard(stem: str) -> str:
    """The split that a Parquet file belongs to: its name without -00000-of-00002."""
    head, of, total = stem.rpartition("-of-")
    split, dash, shard = head.rpartition("-")
    return split if of and dash and shard.isdecimal() and total.isdecimal() else stem
