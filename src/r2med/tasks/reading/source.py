"""Which files of a folder hold a task: recognised by their names, before any is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from r2med.errors import MissingError, UsageError, nearest
from r2med.home import user_path

Layout = Literal["r2med", "beir", "parquet"]

#: What a task in the R2MED layout consists of; of each row the first file that exists is read.
R2MED_FILES: dict[str, tuple[str, ...]] = {
    "corpus": ("corpus.jsonl", "corpus.jsonl.gz"),
    "queries": ("query.jsonl", "query.jsonl.gz"),
    "judgements": tuple(
        f"qrels.{form}{zipped}" for form in ("jsonl", "txt", "tsv") for zipped in ("", ".gz")
    ),
}
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
    """The files of one task; `split` is set where the folder holds a choice."""

    folder: Path
    layout: Layout
    corpus: tuple[Path, ...]
    queries: tuple[Path, ...]
    judgements: tuple[Path, ...]
    split: str | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        """All of them, corpus first."""
        return (*self.corpus, *self.queries, *self.judgements)


def split_selection(text: str | Path) -> tuple[Path, str | None]:
    """Take `FOLDER#SPLIT` apart; a folder that really has a # in its name stays whole."""
    path = user_path(text)
    name, mark, split = path.name.rpartition("#")
    if not mark or not name or not split or path.exists():
        return path, None
    return path.with_name(name), split


def find_source(folder: Path, split: str | None = None) -> Source:
    """The files of the task in a folder, or an error that lists what was looked for."""
    if not folder.exists():
        raise MissingError(f"There is no folder {folder}.")
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is a file, expected a folder with corpus, queries and judgements.\n"
            "CSV or TSV files become one with `r2med tasks import`; an archive is taken in with "
            "`r2med fetch --from FILE`."
        )
    source = _r2med(folder) or _beir(folder, split) or _parquet(folder, split)
    if source is None:
        raise MissingError(f"{folder} does not hold a task: {_missing(folder)}.\n{_EXPECTED}")
    if split is not None and source.split is None:
        raise UsageError(f"{folder} has no splits, so #{split} cannot be chosen; leave it out.")
    return source


def task_folders(folder: Path) -> list[Path]:
    """The folder itself, or the folders in it that hold tasks, where it holds none of its own."""
    if holds_task(folder):
        return [folder]
    children = sorted(child for child in folder.iterdir() if child.is_dir())
    return [child for child in children if holds_task(child)] or [folder]


def holds_task(folder: Path) -> bool:
    """Whether the files of a task are there, or of several as splits."""
    try:
        return bool(_r2med(folder) or _beir(folder, None) or _parquet(folder, None))
    except (MissingError, UsageError):  # several splits, of which one must be chosen
        return True


def _r2med(folder: Path) -> Source | None:
    corpus, queries, judgements = (_first(folder, names) for names in R2MED_FILES.values())
    if not (corpus and queries and judgements):
        return None
    return Source(folder, "r2med", (corpus,), (queries,), (judgements,))


def _beir(folder: Path, split: str | None) -> Source | None:
    corpus, queries = _first(folder, R2MED_FILES["corpus"]), _first(folder, _BEIR_QUERIES)
    splits = _beir_splits(folder)
    if not (corpus and queries and splits):
        return None
    chosen = split or ("test" if "test" in splits else _only(folder, sorted(splits)))
    if chosen not in splits:
        raise _no_such_split(folder, chosen, splits)
    return Source(folder, "beir", (corpus,), (queries,), (splits[chosen],), chosen)


def _beir_splits(folder: Path) -> dict[str, Path]:
    files = [*folder.glob("qrels/*.tsv.gz"), *folder.glob("qrels/*.tsv")]
    return {
        file.name.removesuffix(".gz").removesuffix(".tsv"): file for file in sorted(files)[::-1]
    }


def _parquet(folder: Path, split: str | None) -> Source | None:
    configs = [
        _parquet_splits(folder / "corpus"),
        _parquet_splits(folder / "queries") or _parquet_splits(folder / "query"),
        _parquet_splits(folder / "qrels"),
    ]
    if not all(configs):
        return None
    if split is None and all(len(splits) == 1 for splits in configs):
        corpus, queries, judgements = (next(iter(splits.values())) for splits in configs)
        only = next(iter(configs[0]))
        return Source(folder, "parquet", corpus, queries, judgements, only)
    shared = set(configs[0]).intersection(*configs[1:])
    chosen = split or _only(folder, sorted(shared))
    if chosen not in shared:
        raise _no_such_split(folder, chosen, shared)
    corpus, queries, judgements = (splits[chosen] for splits in configs)
    return Source(folder, "parquet", corpus, queries, judgements, chosen)


def split_files(folder: Path, config: str, split: str) -> tuple[Path, ...]:
    """The Parquet files of one split of one configuration, in shard order."""
    return _parquet_splits(folder / config).get(split, ())


def _parquet_splits(config: Path) -> dict[str, tuple[Path, ...]]:
    """Split to shards: `<split>.parquet`, `<split>-00000-of-00002.parquet`, `<split>/*.parquet`."""
    shards: dict[str, list[Path]] = {}
    for file in sorted(config.glob("*.parquet")):
        shards.setdefault(split_of_shard(file.stem), []).append(file)
    for file in sorted(config.glob("*/*.parquet")):
        shards.setdefault(file.parent.name, []).append(file)
    return {split: tuple(files) for split, files in shards.items()}


def split_of_shard(stem: str) -> str:
    """The split that a Parquet file belongs to: its name without -00000-of-00002."""
    head, of, total = stem.rpartition("-of-")
    split, dash, shard = head.rpartition("-")
    return split if of and dash and shard.isdecimal() and total.isdecimal() else stem


def _only(folder: Path, splits: Sequence[str]) -> str:
    if len(splits) == 1:
        return splits[0]
    if not splits:
        raise MissingError(f"{folder}: corpus, queries and qrels have no split in common.")
    raise UsageError(
        f"{folder} holds {len(splits)} tasks as splits; choose one, "
        f"e.g. '{folder}#{splits[0]}'.\nSplits: {', '.join(splits)}."
    )


def _no_such_split(folder: Path, split: str, splits: Iterable[str]) -> UsageError:
    return UsageError(f"{folder} has no split {split!r}. {nearest(split, splits)}")


def _missing(folder: Path) -> str:
    """What the layout that is nearest to complete still lacks."""
    needs = {
        "corpus.jsonl": _first(folder, R2MED_FILES["corpus"]) or _parquet_splits(folder / "corpus"),
        "query.jsonl": _first(folder, (*R2MED_FILES["queries"], *_BEIR_QUERIES))
        or _parquet_splits(folder / "queries")
        or _parquet_splits(folder / "query"),
        "qrels.jsonl": _first(folder, R2MED_FILES["judgements"])
        or _beir_splits(folder)
        or _parquet_splits(folder / "qrels"),
    }
    lacking = [name for name, files in needs.items() if not files]
    if len(lacking) == len(needs):
        return "none of the files of a known layout is there"
    if lacking:
        return f"there is no {' and no '.join(lacking)}"
    return "its files belong to different layouts"


def _first(folder: Path, names: Iterable[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)
