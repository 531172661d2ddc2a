"""The audit against its floors: time, memory, recall and precision, beside MinHash LSH.

    python bench/audit.py [DATA] [--rows 1000000] [--minhash 50000]

Without DATA only the speed on made-up rows; DATA holds the collections nfcorpus, scifact and
pool41k in the R2MED layout, in which leaks of every kind are planted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from r2med import load_task
from r2med.audit.evaluation import EvaluationTexts, Holder, TextMatcher, text_hash
from r2med.audit.files import training_files
from r2med.audit.matching import words
from r2med.audit.scanning import Scan, scan

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.audit.planting import NEAR, PLANTS

QUERIES, POSITIVES = 876, 2679
#: Words of a query and of a document, about as long as published.
QUERY_WORDS, DOCUMENT_WORDS = 150, 120
ROW_WORDS, VOCABULARY = 100, 60_000


def main() -> None:
    """Run what was asked for and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--minhash", type=int, default=50_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if chosen.rows:
            speed(Path(folder), chosen.rows, chosen.minhash)
        if chosen.data:
            planted(Path(folder), chosen.data)


def speed(folder: Path, rows: int, minhash_rows: int) -> None:
    """Made-up rows with word frequencies as in a language, near-duplicates planted among them."""
    chance = np.random.default_rng(0)
    vocabulary = _vocabulary(chance)
    lengths = [QUERY_WORDS] * QUERIES + [DOCUMENT_WORDS] * POSITIVES
    texts = list(_texts(chance, vocabulary, lengths))
    plants = _leaks(texts, list(_texts(chance, vocabulary, [ROW_WORDS] * 100)))
    matcher = TextMatcher(_evaluation(texts))
    for share in (0.25, 0.5, 1.0):
        path = folder / "rows.jsonl"
        count = int(rows * share)
        with path.open("w") as file:
            for text in _texts(chance, vocabulary, [ROW_WORDS] * (count - len(plants))):
                file.write(json.dumps({"text": text}) + "\n")
            for _, text in plants:
                file.write(json.dumps({"text": text}) + "\n")
        found, seconds, cpu, memory = _measured(path, matcher, folder)
        hit = {(h.row - (count - len(plants)) - 1, h.entry) for h in found.hits}
        recall = sum((row, entry) in hit for row, (entry, _) in enumerate(plants)) / len(plants)
        others = sum(row < 0 for row, _ in hit)
        print(
            f"{count:,} rows of {ROW_WORDS} words, {path.stat().st_size / 1e6:,.0f} MB: "
            f"{seconds:.1f} s, {cpu:.1f} CPU s, {memory / 1e6:,.0f} MB at most; "
            f"near-duplicates found {recall:.3f}, other rows matched {others}"
        )
    sample = list(_texts(chance, vocabulary, [ROW_WORDS] * (minhash_rows - len(plants))))
    own, minhash, recall = _minhash(texts, [*sample, *(text for _, text in plants)], plants)
    print(
        f"datasketch MinHash LSH, {minhash_rows:,} rows: {own:.1f} CPU s, near-duplicates found "
        f"{recall:.3f}; for {rows:,} rows {minhash * rows:,.0f} CPU s, "
        f"{minhash * rows / cpu:.1f}x the audit's"
    )


def planted(folder: Path, data: Path) -> None:
    """Leaks of every kind from scifact among the documents of nfcorpus and pool41k."""
    task = load_task(data / "scifact")
    rows = [text for text in task.corpus.texts.to_pylist() if len(words(text)) >= 8]
    chance = random.Random(0)
    texts = (
        chance.sample(rows, 400)
        + [text for text in task.queries.texts.to_pylist() if len(words(text)) >= 8][:100]
    )
    others = load_task(data / "nfcorpus").corpus.texts.to_pylist()
    matcher = TextMatcher(_evaluation(texts))
    leaks = [
        (kind, entry, plant(text, chance, others))
        for kind, plant in PLANTS.items()
        for entry, text in enumerate(texts)
    ]
    path = folder / "planted.jsonl"
    with path.open("w") as file:
        for _, _, text in leaks:
            file.write(json.dumps({"text": text}) + "\n")
        for text in others:
            file.write(json.dumps({"text": text}) + "\n")
    found = scan(training_files([str(path)]), matcher, folder / "log", fresh=True)
    alike = {(m.text, m.entry) for m in matcher.matches(texts)}
    by_row: dict[int, dict[int, str]] = {}
    for hit in found.hits:
        by_row.setdefault(hit.row, {})[hit.entry] = hit.kind
    minhash = _lsh(texts)
    print("| kind of leak | found | by MinHash | called | other texts |")
    for kind in PLANTS:
        own = [(row, entry) for row, (name, entry, _) in enumerate(leaks, start=1) if name == kind]
        called: dict[str, int] = {}
        false = 0
        for row, entry in own:
            for matched, strength in by_row.get(row, {}).items():
                if matched == entry:
                    called[strength] = called.get(strength, 0) + 1
                elif (entry, matched) not in alike:
                    false += 1
        share = sum(called.values()) / len(own)
        beside = sum(entry in minhash(leaks[row - 1][2]) for row, entry in own) / len(own)
        print(f"| {kind} | {share:.3f} | {beside:.3f} | {called} | {false} |")
    for row in sorted(row for row in by_row if row > len(leaks)):
        for entry, strength in by_row[row].items():
            other = others[row - len(leaks) - 1]
            print(f"not planted, {strength}: {texts[entry][:60]!r} / {other[:60]!r}")


def _measured(path: Path, matcher: TextMatcher, folder: Path) -> tuple[Scan, float, float, int]:
    """The scan, its seconds, its CPU seconds, and the most memory that its processes had."""
    most, running = [0], True

    def watch() -> None:
        while running:
            most[0] = max(most[0], _memory())
            time.sleep(0.2)

    watcher = threading.Thread(target=watch)
    watcher.start()
    before, start = _cpu(), time.perf_counter()
    found = scan(training_files([str(path)]), matcher, folder / "log", processes=2, fresh=True)
    seconds, cpu = time.perf_counter() - start, _cpu() - before
    running = False
    watcher.join()
    return found, seconds, cpu, most[0]


def _memory() -> int:
    """Resident bytes of this process and its children."""
    total = 0
    for process in [os.getpid(), *_children()]:
        try:
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except OSError:
            continue
        total += pages * os.sysconf("SC_PAGE_SIZE")
    return total


def _children() -> list[int]:
    text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return [int(word) for word in text.split()]


def _cpu() -> float:
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


def _vocabulary(chance: np.random.Generator) -> list[str]:
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    return ["".join(chance.choice(letters, chance.integers(3, 10))) for _ in range(VOCABULARY)]


def _texts(
    chance: np.random.Generator, vocabulary: Sequence[str], lengths: Sequence[int]
) -> Iterator[str]:
    frequency = 1 / np.arange(10, len(vocabulary) + 10)
    bounds = np.cumsum(frequency / frequency.sum())
    for start in range(0, len(lengths), 10_000):
        part = lengths[start : start + 10_000]
        drawn = np.searchsorted(bounds, chance.random(sum(part))).tolist()
        place = 0
        for length in part:
            yield " ".join(
                vocabulary[min(n, VOCABULARY - 1)] for n in drawn[place : place + length]
            )
            place += length


def _leaks(texts: Sequence[str], others: Sequence[str]) -> list[tuple[int, str]]:
    chance = random.Random(0)
    changed = NEAR["10 % changed"]
    picked = list(enumerate(texts))[::4]
    return [(entry, changed(text, chance, others)) for entry, text in picked]


def _evaluation(texts: Sequence[str]) -> EvaluationTexts:
    wanted = EvaluationTexts()
    for number, text in enumerate(texts):
        wanted.add(text_hash(text), text, Holder("made-up", "positive", str(number)), None)
    return wanted


def _minhash(
    texts: Sequence[str], rows: Sequence[str], plants: Sequence[tuple[int, str]]
) -> tuple[float, float, float]:
    """CPU seconds in all and per row, and the share of plants found."""
    near = _lsh(texts)
    start = time.process_time()
    answers = [near(row) for row in rows]
    spent = time.process_time() - start
    first = len(rows) - len(plants)
    found = sum(entry in answers[first + place] for place, (entry, _) in enumerate(plants))
    return spent, spent / len(rows), found / len(plants)


def _lsh(texts: Sequence[str]) -> Callable[[str], set[int]]:
    """The texts that MinHash LSH calls near: 128 permutations, runs of three words, from 0.5 on."""
    from datasketch import MinHash, MinHashLSH

    def signed(text: str) -> MinHash:
        sequence = words(text)
        runs = {" ".join(sequence[i : i + 3]).encode() for i in range(max(len(sequence) - 2, 1))}
        signature = MinHash(num_perm=128)
        signature.update_batch(list(runs))
        return signature

    lsh = MinHashLSH(threshold=0.5, num_perm=128)
    for entry, text in enumerate(texts):
        lsh.insert(entry, signed(text))
    return lambda text: set(lsh.query(signed(text)))


if __name__ == "__main__":
    main()
