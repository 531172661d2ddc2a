"""Reports and bundles hold no text that was not asked for and no folder of this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import r2med
from r2med.evaluation.explain import explain
from r2med.explore.app import create_app
from r2med.explore.library import Library
from r2med.explore.sharing import without_folders
from tests.cli.running import run
from tests.explore.conftest import write_lines

Rows = list[dict[str, object]]
_PATIENT = "A 61-year-old harbour pilot with a tremor that stops when he drinks"


@pytest.fixture
def patients(tmp_path: Path) -> Iterator[Path]:
    """Local data in a folder that has the name of a task of the benchmark, and results of it."""
    folder = tmp_path / "secret-ward" / "Biology"
    texts = [f"{_PATIENT} number {n}, as the ward's letter {n * 7} says" for n in range(8)]
    queries: Rows = [{"id": f"q{n}", "text": text} for n, text in enumerate(texts)]
    documents: Rows = [
        {"id": f"d{n}", "text": f"letter {n}: {text}"} for n, text in enumerate(texts)
    ]
    judged = [{"q_id": f"q{n}", "p_id": f"d{n}", "score": 1} for n in range(8)]
    write_lines(folder / "query.jsonl", queries)
    write_lines(folder / "corpus.jsonl", documents)
    write_lines(folder / "qrels.jsonl", judged)
    thoughts = tmp_path / "secret-ward" / "thoughts.jsonl"
    write_lines(thoughts, [{"id": f"q{n}", "hy_doc": f"essential tremor {n}"} for n in range(8)])
    bm25 = r2med.evaluate("bm25", folder)
    bm25.run.to_trec(tmp_path / "secret-ward" / "mine.trec")
    systems = [
        f"run:{tmp_path}/secret-ward/mine.trec",
        f"hyde:expert[generations={thoughts}] | bm25",
        "bm25-lucene",
    ]
    done = run("eval", *systems, "--task", str(folder))
    assert done.code == 0, done.err
    yield folder


def _private_words(folder: Path) -> list[str]:
    """Every text, and every folder that says where files are on this machine."""
    rows = [(folder / name).read_text().splitlines() for name in ("query.jsonl", "corpus.jsonl")]
    texts = [json.loads(line)["text"] for lines in rows for line in lines]
    return [*texts, _PATIENT, "essential tremor", "secret-ward", str(Path.cwd()), str(Path.home())]


def _check(text: str, private: list[str], where: str) -> None:
    readable = unescape(text).replace("<wbr>", "")
    found = [words for words in private if words in readable or words in text]
    assert not found, f"{where}: {found[:3]}"


def test_nothing_that_is_passed_on_holds_texts_or_folders(patients: Path) -> None:
    private = _private_words(patients)
    given = f"run:{patients.parent}/mine.trec"
    commands = [
        ("report", "--out", "out/report.html"),
        ("explore", "--bundle", "out/site", "--without-texts"),
        ("results", "export", "--to", "csv", "--out", "out/csv"),
        ("results", "export", "--to", "mteb", "--out", "out/mteb"),
        ("results", "export", "--to", "trec", "--out", "out/trec"),
        ("plot", "means", "--suite", "local", "--out", "out/means.svg"),
        ("plot", "cost", "--suite", "local", "--out", "out/cost.svg"),
        ("plot", "heatmap", "--suite", "local", "--out", "out/heatmap.svg"),
        ("plot", "wins", "bm25", given, "--out", "out/wins.svg"),
        ("plot", "overlap", given, "--task", str(patients), "--out", "out/overlap.svg"),
        ("results", "export", "--to", "model-card", "--out", "out/cards"),
    ]
    for command in commands:
        done = run(*command)
        assert done.code == 0, done.err
    files = [path for path in Path("out").rglob("*") if path.is_file()]
    assert {".html", ".csv", ".json", ".trec", ".svg"} <= {path.suffix for path in files}
    for path in files:
        _check(f"{path}\n{path.read_text(encoding='utf-8')}", private, str(path))


def test_a_bundle_with_texts_still_names_no_folder(patients: Path) -> None:
    assert run("explore", "--bundle", "site").code == 0

    pages = {file: file.read_text(encoding="utf-8") for file in Path("site").rglob("*.html")}
    folders = ["secret-ward", str(Path.cwd()), str(Path.home())]
    for file, page in pages.items():
        _check(page, folders, str(file))
    assert any(_PATIENT in page for page in pages.values())
    assert any("essential tremor" in page for page in pages.values())


def test_an_audit_names_no_folder(patients: Path) -> None:
    training = patients.parent / "train.jsonl"
    write_lines(training, [{"text": f"{_PATIENT} number 1, as the ward's letter 7 says"}])

    done = run("audit", str(training), "--task", str(patients), "--out", "audit")

    assert done.code == 0, done.err
    files = [path for path in Path("audit").iterdir() if path.is_file()]
    assert any(_PATIENT in path.read_text(encoding="utf-8") for path in files)
    folders = ["secret-ward", str(Path.cwd()), str(Path.home())]
    for path in files:
        _check(path.read_text(encoding="utf-8"), folders, str(path))


def test_a_report_holds_the_first_texts_if_asked_for(patients: Path) -> None:
    assert run("report", "--out", "report.html", "--with-texts").code == 0

    page = unescape(Path("report.html").read_text(encoding="utf-8"))
    assert "essential tremor" in page and "secret-ward" not in page


def test_local_data_with_a_name_of_the_benchmark_is_never_shown_as_the_benchmark(
    patients: Path,
) -> None:
    client = TestClient(create_app(Library("r2med-results")), base_url="http://localhost")

    tasks, first = client.get("/tasks").text, client.get("/").text
    assert "/task/local/Biology" in tasks
    assert "Your data leaderboard" in first and "Biology (full)" not in first
    compare = client.get("/compare?scope=local").text
    assert "Biology (full)" not in compare
    page = client.get("/task/local/Biology").text
    assert _PATIENT in page and "bm25-lucene" in page.replace("<wbr>", "")
    assert "your own data" in page and "R2MED" not in page.partition("<main")[2]
    benchmark = client.get("/task/Biology").text
    assert _PATIENT not in benchmark and "No result" in benchmark
    assert client.get("/task/local/Biology/query/q1").status_code == 200
    assert run("report", "--out", "report.html").code == 0
    assert "on Your data" in Path("report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ("run:/home/ann/runs/mine.trec", "run:mine.trec"),
        ("hyde:x[generations=/home/ann/t.jsonl] | bm25", "hyde:x[generations=t.jsonl] | bm25"),
        ('run:"/home/ann/my runs/a b.trec" + bm25', 'run:"a b.trec" + bm25'),
        ("run:~/runs/mine.trec", "run:mine.trec"),
        ("dense:models/mine", "dense:models/mine"),
        (
            "api:Qwen/Qwen3[url=http://localhost:8000/v1]",
            "api:Qwen/Qwen3[url=http://localhost:8000/v1]",
        ),
        ("bm25 + wordllama", "bm25 + wordllama"),
        ("model:my.package:Class", "model:my.package:Class"),
    ],
)
def test_a_spec_is_shown_without_folders(spec: str, shown: str) -> None:
    assert without_folders(spec) == shown


def test_an_explanation_in_a_notebook_shows_texts_not_objects() -> None:
    task = r2med.load_task("demo/biology")
    queries = task.queries.ids.to_pylist()
    rows: Rows = [{"id": query, "hy_doc": "copper and wool"} for query in queries]
    write_lines(Path("thoughts.jsonl"), rows)
    system = "hyde:expert[generations=thoughts.jsonl] | bm25"
    r2med.evaluate(system, task)
    found = explain(system, task, "1", results="r2med-results")

    html = found._repr_html_()

    assert "copper and wool" in html
    assert "Padding" not in html and "&lt;text" not in html
