"""Odd inputs of every kind are read, or refused with an error that names them."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import r2med
from r2med.systems.spec import parse
from tests.cli.running import run
from tests.results.storing import ranks, store
from tests.tasks.writing import LAYOUTS, Written, write_nano, write_r2med
from tests.trials.counting import counted

SPECS, FILES, COMMANDS = 320, 10, 20
#: What tends to break readers.
SCRAPS = [
    *(b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\t", b"\x1b[2J", b"\\ud800", b'"'),
    *(b"null", b"NaN", b"Infinity", b"-0", b"1e999", b"9" * 400, b"true", b"{}", b"[]"),
    *(b"[" * 3000, b'{"a":' * 2000, b'{"id": ', b'"text": ["x"]', b", ,", b"}{"),
    *("\u202e".encode(), "\U0001f600".encode(), b"0x10", b"1_000", b"x" * 5000),
]
WORDS = [
    *("bm25", "bm25-lucene", "wordllama", "hyde:gpt4", "candidates:bm25", "run:r.txt", "model:a:B"),
    *("|", "+", "@", "@10", "[", "]", "(", ")", "=", ",", ":", '"', "[k1=1.2]", "[k1=x]", " "),
    *("@" + "9" * 5000, "(" * 3000, "é", "\u202e", "\x00", "~nobody-of-this-name", "a" * 300),
]
ARGUMENTS = [
    *("eval", "generate", "leaderboard", "compare", "diagnose", "reproduce", "plot", "tasks"),
    *("list", "show", "verify", "profile", "card", "exclusions", "nano", "build", "results"),
    *("export", "info", "systems", "llms", "analyze", "run", "hyde", "heatmap", "wins", "fidelity"),
    *("--task", "-t", "--results", "--data-root", "--metric", "--metrics", "--by", "--json"),
    *("--out", "--top", "--suite", "--kind", "--query", "--queries", "--force"),
    *("--llm", "--max-cost", "--max-tokens", "--concurrency", "--device", "--format", "--seed"),
    *("bm25", "bm25 + nope", "demo/biology", "odd-folder", "ndcg@10", "ndcg@0", "mrr", "family"),
    *("0", "-1", "1e9", "9" * 50, "", "-", "--", "=", "~nobody-of-this-name/x", "/dev/null/x"),
    *("\udcff", "\x00", "\x1b[2J", "x" * 300, "file.svg", "file.csv", "*", "../../x", "gpt4"),
]


def broken(content: bytes, chance: random.Random) -> bytes:
    """The content after a few accidents: pieces cut, doubled, altered or put in."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(content) + 1)
        stop = min(len(content), start + chance.choice([0, 1, 4, 50, 10_000]))
        piece = chance.choice([b"", content[start:stop] * 2, chance.choice(SCRAPS)])
        content = content[:start] + piece + content[stop:]
    return content


def odd_table(names: Sequence[str], chance: random.Random) -> pa.Table:
    """A table whose columns have the right names, mostly, and any type."""
    values: list[Callable[[], list[object]]] = [
        lambda: ["a", "b", "a"],
        lambda: ["a", None, ""],
        lambda: [1, 2, 3],
        lambda: [1.5, float("nan"), float("inf")],
        lambda: [None, None, None],
        lambda: [["a"], [], None],
        lambda: [{"x": 1}, None, {"x": 2}],
        lambda: [b"\xff", b"", b"a"],
        lambda: [True, False, True],
    ]
    kept = [name for name in names if chance.random() < 0.9] or list(names)
    return pa.table({name: pa.array(chance.choice(values)()) for name in kept})


def refused_or_read(read: Callable[[], object]) -> None:
    """Read, or fail with an error of ours, or with one of the system's that names the file."""
    try:
        read()
    except r2med.R2MedError as error:
        assert str(error)
    except OSError as error:
        assert error.filename


def odd_specs(chance: random.Random) -> None:
    text = "".join(chance.choice(WORDS) for _ in range(chance.randint(1, 8)))
    try:
        spec = parse(text)
    except r2med.R2MedError:
        return
    assert parse(str(spec)) == spec
    refused_or_read(lambda: r2med.System.from_spec(text))


def odd_tasks(layout: str) -> Callable[[random.Random], None]:
    def trial(chance: random.Random) -> None:
        folder = LAYOUTS[layout](Path("task"), Written())
        victim = chance.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
        if victim.suffix == ".gz" and chance.random() < 0.7:
            victim.write_bytes(gzip.compress(broken(gzip.decompress(victim.read_bytes()), chance)))
        elif victim.suffix == ".parquet" and chance.random() < 0.7:
            names = pq.read_schema(victim).names
            pq.write_table(odd_table(names, chance), victim)
        else:
            victim.write_bytes(broken(victim.read_bytes(), chance))
        refused_or_read(lambda: r2med.evaluate("bm25", r2med.load_task(folder)))
        shutil.rmtree(folder)

    return trial


def odd_zips(chance: random.Random) -> None:
    folder = write_r2med(Path("zipped/Biology"))
    with zipfile.ZipFile("data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            content = path.read_bytes()
            name = f"Biology/{path.name}" if chance.random() < 0.8 else f"../{path.name}"
            archive.writestr(name, broken(content, chance) if chance.random() < 0.5 else content)
    if chance.random() < 0.5:
        Path("data.zip").write_bytes(broken(Path("data.zip").read_bytes(), chance))
    done = run("fetch", "Biology", "--from", "data.zip", "--force")
    assert done.code in (0, 1, 2)


def odd_trec_runs(chance: random.Random) -> None:
    content = broken(b"q1 Q0 d1 1 2.5 tag\nq1 Q0 d2 2 1.5 tag\nq2 Q0 d1 1 0.5 tag\n", chance)
    zipped = chance.random() < 0.5
    path = Path("run.trec.gz" if zipped else "run.trec")
    content = gzip.compress(content) if zipped else content
    path.write_bytes(broken(content, chance) if chance.random() < 0.3 else content)
    refused_or_read(lambda: r2med.Run.from_trec(path))


def odd_parquet_runs(chance: random.Random) -> None:
    path = Path("run.parquet")
    r2med.Run.from_lists({"q1": [("d1", 2.0), ("d2", 1.0)], "q2": []}).to_parquet(path)
    if chance.random() < 0.7:
        pq.write_table(odd_table(pq.read_schema(path).names, chance), path)
    else:
        path.write_bytes(broken(path.read_bytes(), chance))
    refused_or_read(lambda: r2med.Run.from_parquet(path))


def odd_candidates(chance: random.Random) -> None:
    folder = write_nano(Path("nano"))
    shard = folder / "bm25" / "NanoTask-00000-of-00001.parquet"
    shard.parent.mkdir(exist_ok=True)
    pq.write_table(odd_table(["query-id", "corpus-ids"], chance), shard)
    refused_or_read(lambda: r2med.evaluate("candidates:bm25", r2med.load_task(folder)))


def odd_results(chance: random.Random) -> None:
    sound = store(Path("r2med-results"), "bm25", "demo/medqa-diag", ranks(1, 2, 0))
    odd = store(Path("r2med-results"), "bm25", "demo/biology", ranks(1, 2, 0))
    victim = chance.choice(sorted(odd.folder.iterdir()))
    if victim.suffix == ".json" and chance.random() < 0.5:
        record = json.loads(victim.read_text())
        record[chance.choice(sorted(record))] = chance.choice([None, [], {}, "x", 1e9, {"a": []}])
        victim.write_text(json.dumps(record))
    else:
        victim.write_bytes(broken(victim.read_bytes(), chance))
    done = run("results", "--json")
    assert done.code == 0, done.err
    assert sound.task in {row["task"] for row in json.loads(done.out)}


def odd_generations(chance: random.Random) -> None:
    rows = [json.dumps({"id": str(number), "hy_doc": "heart"}) for number in range(1, 19)]
    Path("given.jsonl").write_bytes(broken("\n".join(rows).encode(), chance))
    system = "hyde:qwen-7b[generations=given.jsonl] | bm25"
    refused_or_read(lambda: r2med.evaluate(system, "demo/biology"))


def odd_llm_files(chance: random.Random) -> None:
    home = Path("llm-home")
    home.mkdir(exist_ok=True)
    content = b'[mine]\nmodel = "m"\nurl = "http://localhost:1/v1"\nprice_in = 1.0\nseed = 3\n'
    (home / "llms.toml").write_bytes(broken(content, chance))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_LLM_CONFIG", str(home / "llms.toml"))
        done = run("info", "llms")
    assert done.code in (0, 1, 2)


def odd_command_lines(chance: random.Random) -> None:
    words = [chance.choice(ARGUMENTS) for _ in range(chance.randint(1, 7))]
    done = run(*words)
    assert done.code in (0, 1, 2, 3), words
    assert "Traceback" not in done.err, words
    assert not [c for c in done.out + done.err if c in "\x1b\x9b"], words


KINDS: dict[str, tuple[Callable[[random.Random], None], int]] = {
    "specs of systems": (odd_specs, SPECS),
    **{f"tasks, {layout}": (odd_tasks(layout), FILES) for layout in LAYOUTS},
    "zips": (odd_zips, FILES),
    "TREC runs": (odd_trec_runs, 3 * FILES),
    "Parquet runs": (odd_parquet_runs, 3 * FILES),
    "candidates": (odd_candidates, FILES),
    "stored results": (odd_results, FILES),
    "generations": (odd_generations, FILES),
    "llms.toml": (odd_llm_files, FILES),
    "command lines": (odd_command_lines, COMMANDS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_no_odd_input_escapes_as_anything_but_our_errors(kind: str, trials: int) -> None:
    trial, count = KINDS[kind]
    for number in range(count * trials):
        trial(random.Random(f"{kind} {number}"))
    counted(f"odd {kind}", count * trials)
