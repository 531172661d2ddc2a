"""Find the files of a task in a folder by their names, without reading them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from r2med.errors import MissingError, UsageError, nearest
from r2med.paths import user_path

Layout = Literal["r2med", "beir", "parquet"]
#: The files of each split.
Splits = dict[str, tuple[Path, ...]]

#: The files of a task in the R2MED layout; for each part the first file that exists is read.
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
class TaskFiles:
    """The files of one task in a folder."""

    folder: Path
    layout: Layout
    parts: Mapping[str, tuple[Path, ...]]
    """The files of each of the `PARTS`."""
    split: str | None = None
    """The name of the split; None if the folder has no splits."""

    @property
    def files(self) -> list[Path]:
        """All files of the task, those of the corpus first."""
        files = [file for files in self.parts.values() for file in files]
        return files if self.exclusions is None else [*files, self.exclusions]

    @property
    def exclusions(self) -> Path | None:
        """The file that lists the excluded documents of queries; None if there is none."""
        path = self.folder / EXCLUSIONS_FILE
        return path if path.is_file() else None


def split_selection(text: str | Path) -> tuple[Path, str | None]:
    """Return the folder and the split of `FOLDER#SPLIT`; # may also be in a folder's name."""
    path = user_path(text)
    name, mark, split = path.name.rpartition("#")
    if not mark or not name or not split or path.exists():
        return path, None
    return path.with_name(name), split


def find_source(folder: Path, split: str | None = None) -> TaskFiles:
    """Find the files of the task in a folder; the error explains which layouts are supported."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise UsageError(
            f"{folder} {problem}, expected a folder with corpus, queries and judgements.\n"
            "`r2med tasks import` makes one from CSV or TSV files, `r2med fetch --from FILE` from "
            "an archive. `r2med tasks` lists the registered tasks."
        )
    layouts = _find_layouts(folder)
    complete_layout = next((name for name, parts in layouts.items() if all(parts)), None)
    if complete_layout is None:
        names = ("corpus.jsonl", "query.jsonl", "qrels.jsonl")
        missing = [
            name
            for index, name in enumerate(names)
            if not any(parts[index] for parts in layouts.values())
        ]
        problem = f"there is no {' and no '.join(missing)}"
        if len(missing) in (0, len(names)):
            problem = "its files are not in a known layout"
        raise MissingError(f"{folder} does not contain a task: {problem}.\n{_EXPECTED}")
    parts = dict(zip(PARTS, layouts[complete_layout], strict=True))
    if split is None and all(len(splits) == 1 for splits in parts.values()):
        only = {part: next(iter(splits.values())) for part, splits in parts.items()}
        return TaskFiles(folder, complete_layout, only, next(iter(parts["corpus"])) or None)
    if complete_layout == "r2med":
        raise UsageError(f"{folder} has no splits, so #{split} cannot be chosen; leave it out.")
    common_splits = sorted(set.intersection(*map(set, parts.values())))
    if split is None and complete_layout == "beir" and "test" in common_splits:
        split = "test"
    if split is None and len(common_splits) == 1:
        split = common_splits[0]
    if split is None:
        listed = ", ".join(common_splits) or "none that corpus, queries and qrels share"
        raise UsageError(
            f"{folder} has {len(common_splits)} tasks as splits; choose one, e.g. "
            f"'{folder}#SPLIT'.\nSplits: {listed}."
        )
    if split not in common_splits:
        raise UsageError(f"{folder} has no split {split!r}. {nearest(split, common_splits)}")
    return TaskFiles(folder, complete_layout, {part: parts[part][split] for part in PARTS}, split)


def task_folders(folder: Path) -> list[Path]:
    """Return the folders in a folder that contain a task.

    The folder itself is returned if it contains the files of a task, or no task at all.
    """
    children = [] if holds_task(folder) else sorted(folder.glob("*/"))
    return [child for child in children if holds_task(child)] or [folder]


def holds_task(folder: Path) -> bool:
    """Return whether a folder contains the files of a task, or of several tasks as splits."""
    return any(all(parts) for parts in _find_layouts(folder).values())


def _find_layouts(folder: Path) -> dict[Layout, list[Splits]]:
    """Return the files of corpus, queries and judgements in each layout, by split.

    A part without files is an empty dictionary. The R2MED layout has no splits, so its files are
    under an empty name. In the BEIR layout only the judgements have splits; all splits share the
    files of corpus and queries.
    """
    corpus, queries, judgements = (_first_existing(folder, names) for names in R2MED_FILES.values())
    tables = sorted((*folder.glob("qrels/*.tsv.gz"), *folder.glob("qrels/*.tsv")), reverse=True)
    beir_judgements: Splits = {
        file.name.removesuffix(".gz").removesuffix(".tsv"): (file,) for file in tables
    }
    beir_splits = list(beir_judgements) or [""]
    beir_queries = _first_existing(folder, _BEIR_QUERIES)
    return {
        "r2med": [{"": files} if files else {} for files in (corpus, queries, judgements)],
        "beir": [
            dict.fromkeys(beir_splits, corpus) if corpus else {},
            dict.fromkeys(beir_splits, beir_queries) if beir_queries else {},
            beir_judgements,
        ],
        "parquet": [
            _parquet_splits(folder / "corpus"),
            _parquet_splits(folder / "queries") or _parquet_splits(folder / "query"),
            _parquet_splits(folder / "qrels"),
        ],
    }


def _first_existing(folder: Path, names: Iterable[str]) -> tuple[Path, ...]:
    return next(((folder / name,) for name in names if (folder / name).exists()), ())


def split_files(folder: Path, config: str, split: str) -> tuple[Path, ...]:
    """Return the Parquet files of one split of one configuration, in shard order."""
    return _parquet_splits(folder / config).get(split, ())


def _parquet_splits(config: Path) -> Splits:
    """Return the Parquet shards of each split.

    Shards are named `<split>.parquet`, `<split>-00000-of-00002.parquet` or `<split>/*.parquet`.
    """
    shards: Splits = {}
    for file in sorted(config.glob("*.parquet")):
        split = split_of_shard(file.stem)
        shards[split] = (*shards.get(split, ()), file)
    for file in sorted(config.glob("*/*.parquet")):
        shards[file.parent.name] = (*shards.get(file.parent.name, ()), file)
    return shards


def split_of_shard(stem: str) -> str:
    """Return the split of a Parquet file: its name without -00000-of-00002."""
    match = re.fullmatch(r"(.*)-\d+-of-\d+", stem, re.DOTALL)
    return match[1] if match else stem
