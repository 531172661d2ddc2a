"""An exclusion list as all that an audit knows: for data or texts that may not leave a machine.

The list holds hashes, so a match cannot be verified on words. An equal hash of the whole text is
exact; a text that shares half of a listed text's fingerprints is called a *fingerprint*.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.audit.evaluation import Evaluation, Place, Role, named_sources, source_names
from r2med.audit.exclusions import FORMAT, GRAM, VERSION, gram_hashes, text_hash, words
from r2med.audit.matching import Match
from r2med.errors import DataError
from r2med.tasks.reading.jsonl import json_object
from r2med.tasks.reading.lines import lines
from r2med.tasks.task import passage_stems

#: Share of a listed text's fingerprints that a training text must have, and the fewest of them.
SHARED, FEWEST = 0.5, 2
_ROLES: dict[str, Role] = {"query": "query", "positive": "positive", "same-source": "document"}


@dataclass(frozen=True, eq=False)
class ExclusionMatcher:
    """Finds texts by the hashes of a list; `evaluation` says which texts these are."""

    evaluation: Evaluation
    whole: dict[str, int]
    holders: dict[str, list[int]]
    sizes: list[int]
    identity: str

    @classmethod
    def read(cls, path: Path) -> ExclusionMatcher:
        """From a file that `r2med tasks exclusions` wrote, gzipped or not."""
        digest = hashlib.sha256()
        rows = []
        hint = "The file is one that `r2med tasks exclusions` writes; see docs/exclusions.md."
        for number, line in lines(path):
            digest.update(line)
            rows.append((number, json_object(line, f"{path}, line {number}", hint)))
        header = rows[0][1] if rows else {}
        if header.get("format") != FORMAT or header.get("version") != VERSION:
            raise DataError(f"{path}: not an exclusion list of version {VERSION}.\n{hint}")
        try:
            return cls._of(header, [row for _, row in rows[1:]], digest.hexdigest())
        except (KeyError, TypeError, AttributeError) as problem:
            raise DataError(f"{path}: an entry lacks or misuses {problem}.\n{hint}") from None

    @classmethod
    def _of(
        cls, header: dict[str, object], rows: Sequence[dict[str, object]], identity: str
    ) -> ExclusionMatcher:
        whole: dict[str, int] = {}
        holders: dict[str, list[int]] = {}
        sizes: list[int] = []
        places: list[list[Place]] = []
        sources: dict[str, list[int]] = {}
        stems = passage_stems([str(row["id"]) for row in rows])
        for row in rows:
            place = Place(str(row["task"]), _ROLES[str(row["kind"])], str(row["id"]))
            sha, marks = str(row["sha256"]), row["fingerprints"]
            assert isinstance(marks, list)
            if sha not in whole:
                whole[sha] = len(places)
                places.append([])
                sizes.append(len(marks))
                for mark in marks:
                    holders.setdefault(mark, []).append(whole[sha])
            places[whole[sha]].append(place)
            if place.role == "positive":
                for source in source_names(place.id, stems.get(place.id)):
                    sources.setdefault(source, []).append(whole[sha])
        hashes = header["tasks"]
        assert isinstance(hashes, dict)
        counts = Counter((place.task, place.role) for own in places for place in own)
        texts = [f"(not held; sha256 {sha[:16]})" for sha in whole]
        suites = dict.fromkeys(hashes)
        wanted = Evaluation(texts, places, counts, counts, {}, hashes, suites, sources)
        return cls(wanted, whole, holders, sizes, identity)

    def matches(self, texts: Sequence[str]) -> list[Match]:
        """Texts whose hash is listed, and texts that share enough fingerprints."""
        matches = []
        for place, text in enumerate(texts):
            equal = self.whole.get(text_hash(text))
            if equal is not None:
                matches.append(Match(place, equal, "exact"))
            sequence = words(text)
            if len(sequence) < GRAM:
                continue
            shared: Counter[int] = Counter()
            for mark in set(gram_hashes(sequence)):
                shared.update(self.holders.get(mark, ()))
            for entry, count in sorted(shared.items()):
                if entry != equal and count >= max(FEWEST, SHARED * self.sizes[entry]):
                    share = count / self.sizes[entry]
                    matches.append(Match(place, entry, "fingerprint", {"fingerprints": share}))
        return matches

    def named(self, marks: Sequence[str]) -> list[int]:
        """The positives that come from a source which some ids or titles name."""
        sources = self.evaluation.sources
        return sorted({entry for mark in marks for entry in named_sources(mark, sources)})
