from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r2med.errors import DamagedError, DataError, UsageError
from r2med.nano import Recipe, add_candidates, build
from r2med.nano.folder import read_record, split_name
from r2med.storage import seal, unseal
from r2med.tasks.load import load_task
from r2med.tasks.registry import TaskEntry, find_suite
from tests.cli.running import run
from tests.nano.making import contents, task_of


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        build(load_task("demo/medqa-diag"), tmp_path / name, Recipe(documents=60))

    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_both_layouts_load_as_the_same_task(tmp_path: Path) -> None:
    [split] = build(load_task("demo/biology"), tmp_path / "nano", Recipe(documents=60))

    hub = load_task(f"{tmp_path / 'nano'}#{split}")
    r2med = load_task(tmp_path / "nano" / "r2med" / split)

    assert hub.hash == r2med.hash
    assert r2med.queries.answers.null_count == 0


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.text(min_size=1).filter(lambda t: t.isprintable() and t == t.strip()),
        min_size=1,
        max_size=5,
    )
)
def test_any_text_survives_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    documents = [(f"d{i}", text) for i, text in enumerate(dict.fromkeys(texts))]
    task = task_of(documents, {"q": "question"}, {"q": {"d0": 1}})

    folder = tmp_path_factory.mktemp("any") / "nano"
    [split] = build(task, folder)

    read = load_task(f"{folder}#{split}", use_copy=False)
    assert read.corpus.texts.to_pylist() == [text for _, text in documents]


def test_the_front_matter_names_every_config_and_split(tmp_path: Path) -> None:
    tasks = [load_task("demo/biology"), load_task("demo/medqa-diag")]
    biology, queries = tasks[0], len(tasks[0].queries)
    positives = len({document for _, document in positive_pairs("demo/biology")})

    build(tasks, tmp_path / "nano", Recipe(documents=positives + 1))

    text = (tmp_path / "nano" / "README.md").read_text()
    front = text.split("---")[1]
    for config in ("corpus", "queries", "qrels"):
        assert f"- config_name: {config}" in front
        for split in ("NanoDemoBiology", "NanoDemoMedqaDiag"):
            assert f"path: {config}/{split}-00000-of-00001.parquet" in front
    assert (
        f"{queries} of {queries} queries and {positives + 1} of {len(biology.corpus)} documents "
        f"({positives} positive, 1 judged"
    ) in text
    assert "by source fill" in text


@pytest.mark.parametrize("entry", find_suite("nano").entries, ids=lambda entry: entry.source)
def test_splits_of_the_eight_tasks_have_their_published_names(entry: TaskEntry) -> None:
    task = task_of([("d", "t")], {"q": "x"}, {"q": {"d": 1}}, name=entry.source)

    assert split_name(replace(task, suite="full")) == entry.split


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")

    outcome = run("nano", "build", "demo/biology", "--out", str(tmp_path))

    assert outcome.code == 2
    assert "is not empty; nothing was changed" in outcome.err
    assert contents(tmp_path) == {"mine.txt": b"keep"}


def test_force_replaces_the_nano_task_and_keeps_other_files(tmp_path: Path) -> None:
    build(load_task("demo/biology"), tmp_path, Recipe(documents=50))
    (tmp_path / "mine.txt").write_text("keep")

    build(load_task("demo/medqa-diag"), tmp_path, Recipe(documents=50), force=True)

    found = contents(tmp_path)
    assert found["mine.txt"] == b"keep"
    assert not any("Biology" in path for path in found)
    assert set(json.loads(found["nano.json"])["tasks"]) == {"NanoDemoMedqaDiag"}


def positive_pairs(name: str) -> list[tuple[str, str]]:
    """Query and document of each positive judgement, in file order."""
    judgements = load_task(name).judgements
    rows = zip(
        judgements.query_ids.to_pylist(),
        judgements.document_ids.to_pylist(),
        judgements.scores.tolist(),
        strict=True,
    )
    return [(query, document) for query, document, score in rows if score > 0]


def losses(name: str, documents: int) -> tuple[int, int]:
    """Positives and queries lost where the pool has the first `documents` distinct positives."""
    pairs = positive_pairs(name)
    in_pool = list(dict.fromkeys(document for _, document in pairs))[:documents]
    kept = [(query, document) for query, document in pairs if document in in_pool]
    return len(pairs) - len(kept), len({q for q, _ in pairs}) - len({q for q, _ in kept})


def test_strict_fails_where_positives_are_lost_and_writes_nothing(tmp_path: Path) -> None:
    total = len(positive_pairs("demo/biology"))
    lost, _ = losses("demo/biology", 5)

    with pytest.raises(DataError, match=f"{lost} of {total} positives would be lost"):
        build(load_task("demo/biology"), tmp_path / "nano", Recipe(documents=5), strict=True)

    assert not (tmp_path / "nano").exists()


def test_losses_are_told_with_their_counts(tmp_path: Path) -> None:
    positives, queries = losses("demo/biology", 5)

    outcome = run("nano", "build", "demo/biology", "--documents", "5", "--out", str(tmp_path / "n"))

    assert outcome.code == 0
    assert positives > queries > 0
    assert f"{positives} positives dropped" in outcome.err
    assert f"{queries} queries dropped" in outcome.err


_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from r2med.nano import Recipe, build
from r2med.tasks.load import load_task
tasks = [load_task(name, use_copy=False) for name in ("demo/biology", "demo/pmc-clinical")]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    build(tasks, Path(sys.argv[1]), Recipe(documents=80), force=True)
except OSError as error:
    print(error)
"""


@pytest.mark.parametrize("before", [False, True])
def test_a_disk_that_fills_up_half_way_leaves_things_as_they_were(
    tmp_path: Path, before: bool
) -> None:
    target = tmp_path / "nano"
    if before:
        build(load_task("demo/biology"), target, Recipe(documents=40))
    was = contents(tmp_path)

    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(target)], capture_output=True, text=True
    )

    assert "File too large" in done.stdout, done.stderr
    assert contents(tmp_path) == was


_KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from r2med.nano import Recipe, build
from r2med.tasks.load import load_task
from tests.nano.making import contents
old, new = (load_task(name, use_copy=False) for name in ("demo/biology", "demo/medqa-diag"))
first, second, target = (Path(name) for name in ("first", "second", "target"))
build(old, first, Recipe(documents=30))
build(new, second, Recipe(documents=30))
allowed = [contents(first), contents(second)]
changes = {"os.rename", "os.remove", "os.link", "ctypes.dlsym"}

def built_but_killed_at(change):
    seen = 0
    def watch(event, arguments):
        nonlocal seen
        seen += event in changes
        if seen == change:
            os.kill(os.getpid(), signal.SIGKILL)
    if not (child := os.fork()):
        sys.addaudithook(watch)
        build(new, target, Recipe(documents=30), force=True)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0

change, outcome = 0, 0
while outcome == 0:
    change += 1
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(first, target)
    killed = built_but_killed_at(change)
    outcome = allowed.index(contents(target))
print(change, outcome, killed)
"""


def test_a_build_killed_at_any_change_leaves_the_old_folder_or_the_new(tmp_path: Path) -> None:
    """A real kill -9 at each rename, exchange, link and removal until the new one is there."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1:] == ["1", "True"]


def test_the_folder_one_is_in_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match="is the folder you are in"):
        build(load_task("demo/biology"), ".", force=True)


def test_a_record_that_was_changed_is_named(tmp_path: Path) -> None:
    build(load_task("demo/biology"), tmp_path / "nano", Recipe(documents=30))
    record = tmp_path / "nano" / "nano.json"
    record.write_text(record.read_text().replace('"fill": "source"', '"fill": "random"'))

    with pytest.raises(DamagedError, match=r"nano\.json: not a readable record"):
        read_record(tmp_path / "nano")


@pytest.mark.parametrize("path", ["../../mine.parquet", "/mine.parquet", "corpus/../../x.parquet"])
def test_a_record_that_names_files_elsewhere_is_refused(tmp_path: Path, path: str) -> None:
    build(load_task("demo/biology"), tmp_path / "nano", Recipe(documents=30))
    record = tmp_path / "nano" / "nano.json"
    content = unseal(record.read_text(), record)
    content["files"][path] = "0" * 64
    record.write_text(seal(content))

    with pytest.raises(DamagedError, match="is not a file of the folder"):
        add_candidates(tmp_path / "nano", "bm25")


def test_two_tasks_of_one_name_cannot_share_a_folder(tmp_path: Path) -> None:
    tasks = [task_of([("d", "t")], {"q": "x"}, {"q": {"d": 1}}) for _ in range(2)]

    with pytest.raises(UsageError, match="would both become NanoSmall"):
        build(tasks, tmp_path / "nano")


def test_nothing_is_built_of_no_task(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No task was named"):
        build([], tmp_path / "nano")

    assert not (tmp_path / "nano").exists()
