"""A results folder that someone else sent: what it names is never imported, built or read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, urlencode
from urllib.request import urlopen

import pytest

from r2med.storage import seal
from r2med.tasks.load import load_task
from tests.explore.conftest import run_command, serving

_CODE = """
from pathlib import Path
Path(__file__).with_name("imported").touch()

class Model:
    def encode(self, texts):
        return [[float(len(text)), 1.0] for text in texts]

class Reranker:
    def predict(self, pairs):
        return [float(len(text)) for query, text in pairs]
"""
_TASK = "demo/biology"
_PRIVATE = "the private words of another file"


@dataclass(frozen=True)
class Received:
    """A working folder with results of custom code, and of generations from a file."""

    folder: Path
    home: Path

    @property
    def results(self) -> Path:
        return self.folder / "r2med-results"

    def imported(self) -> bool:
        """Whether the module that stored results name was imported since it was last asked."""
        marker = self.folder / "imported"
        before = marker.exists()
        marker.unlink(missing_ok=True)
        return before

    def records(self) -> dict[str, Path]:
        paths = self.results.rglob("result.json")
        return {json.loads(path.read_text())["system"]["spec"]: path for path in paths}


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Received]:
    folder = tmp_path_factory.mktemp("received")
    received = Received(folder, folder / "home")
    (folder / "evil_model.py").write_text(_CODE)
    queries = load_task(_TASK).queries.ids.to_pylist()
    rows = [{"id": query, "hy_doc": f"copper wool {query}"} for query in queries]
    (folder / "thoughts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    private = [{"id": query, "hy_doc": _PRIVATE} for query in queries]
    (folder / "private.jsonl").write_text("".join(json.dumps(row) + "\n" for row in private))
    systems = [
        "bm25",
        "model:evil_model:Model",
        "bm25 | own:evil_model:Reranker@5",
        "bm25 + model:evil_model:Model",
        "hyde:expert[generations=thoughts.jsonl] | bm25",
        "hyde:expert[generations=thoughts.jsonl] | model:evil_model:Model",
    ]
    run_command(received.home, "eval", *systems, "--task", _TASK, cwd=folder)
    assert received.imported()
    yield received


def test_no_page_imports_a_module_that_a_result_names(received: Received) -> None:
    systems = list(received.records())
    assert "model:evil_model:Model" in systems
    with serving(received.home, cwd=received.folder) as url:
        names = [urlencode({"system": system}) for system in systems]
        document = f"/task/{_TASK}/document/{quote(_a_document(received))}"
        pages = ["/", "/try", "/running", "/about", "/tasks", f"/task/{_TASK}"]
        pages += [f"/task/{_TASK}/query/1?{name}" for name in names]
        pages += [f"{document}?query=1&{name}" for name in names]
        pages += [f"/system?suite=demo&{name}" for name in names]
        pages += [f"/task/{_TASK}?{name}" for name in names]
        pages += [f"/compare?scope=demo&{one}&{two}" for one, two in pairwise(names)]
        for page in pages:
            assert urlopen(f"{url}{page}").status == 200, page
            assert not received.imported(), page
        assert "evil_model" not in urlopen(f"{url}/try").read().decode()


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "--out", "report.html"),
        ("explore", "--bundle", "site"),
        ("leaderboard", "--suite", "demo"),
        ("results", "list"),
        ("diagnose", "model:evil_model:Model", "--task", _TASK, "--query", "1"),
        ("diagnose", "bm25 | own:evil_model:Reranker@5", "--task", _TASK, "--query", "1"),
    ],
    ids=" ".join,
)
def test_no_command_that_reads_results_imports_a_module_they_name(
    received: Received, arguments: tuple[str, ...]
) -> None:
    run_command(received.home, *arguments, cwd=received.folder)

    assert not received.imported()


def test_generations_of_a_named_file_are_shown_with_their_terms(received: Received) -> None:
    spec = "hyde:expert[generations=thoughts.jsonl] | bm25"
    with serving(received.home, cwd=received.folder) as url:
        page = urlopen(f"{url}/task/{_TASK}/query/1?{urlencode({'system': spec})}").read().decode()

    assert "copper wool 1" in page


@pytest.mark.parametrize("field", ["generations_from", "generations_kept"])
def test_a_record_cannot_name_a_file_to_be_shown(received: Received, field: str) -> None:
    spec = "hyde:expert[generations=thoughts.jsonl] | bm25"
    path = received.records()[spec]
    before = path.read_text()
    record = json.loads(before)
    [facts] = [facts for facts in record["facts"].values() if "generations_from" in facts]
    facts[field] = str(received.folder / "private.jsonl")
    del record["checksum"]
    path.write_text(seal(record, indent=2))
    try:
        with serving(received.home, cwd=received.folder) as url:
            address = f"{url}/task/{_TASK}/query/1?{urlencode({'system': spec})}"
            page = urlopen(address).read().decode()
    finally:
        path.write_text(before)

    assert "Damaged" not in page and "rank" in page
    assert _PRIVATE not in page


def _a_document(received: Received) -> str:
    import r2med

    return str(r2med.load_task(_TASK).corpus.document_ids[0].as_py())
