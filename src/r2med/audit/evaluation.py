"""The texts that an audit looks for: texts of tasks, or hashes of an exclusion list.

An exclusion list says what training data must leave out, in a form that others can use without
seeing the texts; docs/exclusions.md documents it. A text is recognised by a hash of the whole text,
which is exact, and by its fingerprints, which are hashes of word runs. Winnowing (Schleimer,
Wilkerson, Aiken 2003) keeps, of every `WINDOW` neighbouring n-grams, the one with the smallest
hash, so any two texts that share `GUARANTEE` words in a row share a fingerprint. A text that shares
half of a listed text's fingerprints is a *fingerprint* match, because its words cannot be compared.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from r2med.audit.matching import NGRAM, Match, TextIndex, words
from r2med.errors import DataError
from r2med.paths import require_empty
from r2med.storage import write_file
from r2med.tasks.reading.jsonl import parse_object
from r2med.tasks.reading.lines import lines
from r2med.tasks.task import Task, passage_stems, positives_of, sources_of

Role = Literal["query", "positive", "document"]
AGAINST: dict[str, Role] = {"queries": "query", "positives": "positive", "corpus": "document"}
SEED = 20260524
FORMAT = "r2med-exclusions"
VERSION = 1
#: Words in an n-gram, and neighbouring n-grams of which one is kept.
GRAM = 8
WINDOW = 4
#: A run of this many equal words is always recognised.
GUARANTEE = GRAM + WINDOW - 1
_HASH_BYTES = 8
#: Share of a listed text's fingerprints that a training text must have, and the fewest of them.
SHARED, FEWEST = 0.5, 2
#: Types of entries in a list, and their role in a task.
_LISTED: dict[str, Role] = {"query": "query", "positive": "positive", "same-source": "document"}
#: A number alone, or a letter or two, names no source.
_TELLING = re.compile(r"[^\W\d_]{3}")
_PMC = re.compile(r"PMC\d{4,}", re.IGNORECASE)


@dataclass(frozen=True)
class Holder:
    """A query, positive or other document of a task that has an evaluation text."""

    task: str
    role: Role
    id: str


@dataclass(frozen=True, eq=False)
class EvaluationTexts:
    """The distinct evaluation texts; `holders[i]` are the queries and documents with text `i`."""

    texts: list[str] = field(default_factory=list)
    holders: list[list[Holder]] = field(default_factory=list)
    entries: dict[str, int] = field(default_factory=dict)
    """The index of each text by the hash of its words."""
    audited: Counter[tuple[str, Role]] = field(default_factory=Counter)
    """The number of audited queries, positives or documents, by task and role."""
    sampled: set[tuple[str, Role]] = field(default_factory=set)
    """Pairs of task and role of which only a sample is audited."""
    positives: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """The ids of the positives, by task and query."""
    hashes: dict[str, str] = field(default_factory=dict)
    """The hash of each task's data."""
    sources: dict[str, list[int]] = field(default_factory=dict)
    """Indexes of the texts of positives, by the source that the positive's id names."""

    def add(self, sha: str, text: str, holder: Holder, stem: str | None) -> bool:
        """Add a text and the query or document that has it; return whether the text is new.

        `stem` is the id without the number of the passage; None if the id has no such number.
        """
        new = sha not in self.entries
        entry = self.entries.setdefault(sha, len(self.texts))
        if new:
            self.texts.append(text)
            self.holders.append([])
        self.holders[entry].append(holder)
        if holder.role == "positive":
            for source in _source_names(holder.id, stem):
                self.sources.setdefault(source, []).append(entry)
        return new

    def find_same_source(self, marks: Iterable[str]) -> list[int]:
        """Return the indexes of positive texts whose source is named by an id or title of a row."""
        names = {
            name
            for mark in marks
            for stem in (mark, passage_stems([mark]).get(mark))
            for name in _source_names(mark, stem)
        }
        return sorted({entry for name in names for entry in self.sources.get(name, ())})


def evaluation(
    tasks: Iterable[Task],
    against: Sequence[Role] = ("query", "positive"),
    *,
    sample: int | None = None,
) -> EvaluationTexts:
    """Collect the texts of tasks that an audit looks for.

    `sample` limits the queries or documents per role and task; they are drawn with a fixed seed.
    """
    texts_to_find = EvaluationTexts()
    for task in tasks:
        texts_to_find.hashes[task.name] = task.hash
        judged = positives_of(task.judgements)
        texts_to_find.positives.update(
            {(task.name, q): frozenset(positive_ids) for q, positive_ids in judged.items()}
        )
        rows = texts_by_role(task)
        stems = passage_stems([*rows["positive"], *rows["document"]])
        for role, texts in rows.items():
            if role not in against:
                continue
            chosen = list(texts.items())
            if sample is not None and sample < len(chosen):
                chosen = random.Random(f"{SEED}/{task.name}/{role}").sample(chosen, sample)
                texts_to_find.sampled.add((task.name, role))
            texts_to_find.audited[task.name, role] = len(chosen)
            for name, positive_ids in chosen:
                for text in positive_ids:
                    if (sha := text_hash(text)) != NO_WORDS:
                        texts_to_find.add(sha, text, Holder(task.name, role, name), stems.get(name))
    return texts_to_find


def texts_by_role(task: Task) -> dict[Role, dict[str, list[str]]]:
    """Return the distinct texts of every query, positive and other document, by role and id.

    A document has several texts if several rows of the corpus have its id.
    """
    positive = {
        name for positive_ids in positives_of(task.judgements).values() for name in positive_ids
    }
    rows: dict[Role, dict[str, list[str]]] = {"query": {}, "positive": {}, "document": {}}
    rows["query"] = {name: [text] for name, text in task.queries.items()}
    for name, text in zip(task.corpus.ids.to_pylist(), task.corpus.texts.to_pylist(), strict=True):
        positive_ids = rows["positive" if name in positive else "document"].setdefault(name, [])
        if text not in positive_ids:
            positive_ids.append(text)
    return rows


def _source_names(mark: str, stem: str | None) -> set[str]:
    """Return the sources that an id, title or address names: PMC ids and, if given, the stem.

    The stem is the part before a passage's number, as in exclusion lists: ids that differ only in
    that number have the same source.
    """
    names = {name.upper() for name in _PMC.findall(mark)}
    if stem is not None and _TELLING.search(stem):
        names.add(stem)
    return names


class TextMatcher(TextIndex):
    """Finds the texts of an evaluation by their words."""

    def __init__(self, evaluation: EvaluationTexts, *, ngram: int = NGRAM) -> None:
        super().__init__(evaluation.texts, ngram=ngram)
        self.evaluation = evaluation
        facts = [f"{ngram}", *evaluation.entries, json.dumps(evaluation.sources, sort_keys=True)]
        self.identity = hashlib.sha256("".join(facts).encode()).hexdigest()
        """A hash of everything that can change a match."""


class ExclusionMatcher:
    """Finds texts by the hashes in an exclusion list, a file of `r2med tasks exclusions`.

    The file may be gzipped.
    """

    ngram = GRAM

    def __init__(self, path: Path) -> None:
        digest = hashlib.sha256()
        rows: list[dict[str, Any]] = []
        hint = "The file is one that `r2med tasks exclusions` writes; see docs/exclusions.md."
        for number, line in lines(path):
            digest.update(line)
            rows.append(parse_object(line, f"{path}, line {number}", hint))
        header = rows[0] if rows else {}
        if header.get("format") != FORMAT or header.get("version") != VERSION:
            raise DataError(f"{path}: not an exclusion list of version {VERSION}.\n{hint}")
        self.evaluation, self.identity = EvaluationTexts(), digest.hexdigest()
        self._holders: dict[str, list[int]] = {}
        self._sizes: list[int] = []
        listed = self.evaluation
        try:
            listed.hashes.update(header["tasks"])
            stems = passage_stems([str(row["id"]) for row in rows[1:]])
            for row in rows[1:]:
                holder = Holder(str(row["task"]), _LISTED[row["kind"]], str(row["id"]))
                sha, marks = str(row["sha256"]), row["fingerprints"]
                placeholder = f"(not held; sha256 {sha[:16]})"
                if listed.add(sha, placeholder, holder, stems.get(holder.id)):
                    self._sizes.append(len(marks))
                    for mark in marks:
                        self._holders.setdefault(mark, []).append(listed.entries[sha])
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise DataError(f"{path}: an entry lacks or misuses {problem}.\n{hint}") from None
        holders = dict.fromkeys(
            holder for entry_holders in listed.holders for holder in entry_holders
        )
        listed.audited.update((holder.task, holder.role) for holder in holders)

    def matches(self, texts: Sequence[str]) -> list[Match]:
        """Return a match for each text with a listed hash or with enough listed fingerprints."""
        matches = []
        for index, text in enumerate(texts):
            equal = self.evaluation.entries.get(text_hash(text))
            if equal is not None:
                matches.append(Match(index, equal, "exact"))
            sequence = words(text)
            if len(sequence) < GRAM:
                continue
            shared: Counter[int] = Counter()
            for mark in set(gram_hashes(sequence)):
                shared.update(self._holders.get(mark, ()))
            for entry, count in sorted(shared.items()):
                if entry != equal and count >= max(FEWEST, SHARED * self._sizes[entry]):
                    share = count / self._sizes[entry]
                    matches.append(Match(index, entry, "fingerprint", {"fingerprints": share}))
        return matches


Matcher = TextMatcher | ExclusionMatcher
"""Compares training texts with evaluation texts; every worker process gets a copy."""


def exclusions(task: Task) -> Iterator[dict[str, Any]]:
    """Yield an entry per query, positive, and document of the same source as a positive.

    A document is of the same source if its text equals that of a positive, or if its id differs
    from a positive's id only in the number of the passage. A repeated id has an entry for each of
    its texts.
    """
    rows = texts_by_role(task)
    sources = sources_of([*rows["positive"], *rows["document"]])
    positive_sources = {sources[name] for name in rows["positive"] if name in sources}
    hashes = {text_hash(text) for texts in rows["positive"].values() for text in texts}
    for entry_type, role in _LISTED.items():
        for name, texts in rows[role].items():
            same_source = sources.get(name) in positive_sources
            for text in texts:
                sha = text_hash(text)
                if entry_type != "same-source" or same_source or sha in hashes:
                    entry = {"task": task.name, "kind": entry_type, "id": name, "sha256": sha}
                    yield {**entry, "fingerprints": fingerprints(text)}


def write_exclusions(tasks: Sequence[Task], out: Path, *, force: bool = False) -> dict[str, int]:
    """Write an exclusion list (gzipped if the name ends in .gz); return its entries by type."""
    require_empty(out, force=force)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "normalisation": "NFKC, casefold, runs of letters and digits joined by one space",
        "sha256": "of the normalised text",
        "fingerprints": f"blake2b-64 of {GRAM} words, winnowed over {WINDOW} neighbours; "
        f"{GUARANTEE} equal words in a row always share one",
        "tasks": {task.name: task.hash for task in tasks},
    }
    rows = [row for task in tasks for row in exclusions(task)]
    content = "".join(
        json.dumps(row, ensure_ascii=False) + "\n" for row in (header, *rows)
    ).encode()
    write_file(out, gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)
    counts = Counter(row["kind"] for row in rows)
    return {entry_type: counts[entry_type] for entry_type in _LISTED}


def text_hash(text: str) -> str:
    """Return the sha256 of a text's words, joined by single spaces.

    Texts that differ only in case, spacing or punctuation have the same hash.
    """
    return hashlib.sha256(" ".join(words(text)).encode()).hexdigest()


#: The hash of a text without a single word.
NO_WORDS = text_hash("")


def fingerprints(text: str) -> list[str]:
    """Return the n-gram hashes that winnowing selects, as sorted hexadecimal strings.

    A text shorter than an n-gram counts as one n-gram.
    """
    sequence = words(text)
    if not sequence:
        return []
    hashes = gram_hashes(sequence)
    windows = range(max(len(hashes) - WINDOW + 1, 1))
    return sorted({min(hashes[start : start + WINDOW]) for start in windows})


def gram_hashes(sequence: Sequence[str]) -> list[str]:
    """Return the hash of every run of eight words, in order; a shorter text counts as one run."""
    return [
        hashlib.blake2b(
            " ".join(sequence[start : start + GRAM]).encode(), digest_size=_HASH_BYTES
        ).hexdigest()
        for start in range(max(len(sequence) - GRAM + 1, 1))
    ]
