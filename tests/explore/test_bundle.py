from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.explore.bundle import write_bundle
from r2med.explore.library import Library
from r2med.explore.report import report_page
from r2med.results.store import Store, read_result
from r2med.tasks.load import load_task
from tests.cli.running import run
from tests.explore.conftest import Site
from tests.explore.hostile import ATTRIBUTE, SCRIPT
from tests.tasks.writing import write_r2med

_ADDRESS = re.compile(r"""<[^>]*?\s(?:href|src|srcset|action)="([^"]*)\"""")


@pytest.fixture(scope="module")
def hostile(site: Site) -> Path:
    return site.results.parent / "hostile"


@pytest.fixture(scope="module")
def whole(site: Site, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Own data with texts, beside the published figures."""
    folder = tmp_path_factory.mktemp("whole")
    _copy(site, folder / "results", "hostile")
    write_bundle(folder / "site", Library(folder / "results", tasks=str(hostile)))
    return folder / "site"


@pytest.fixture(scope="module")
def bare(site: Site, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demo task and own data, without texts."""
    folder = tmp_path_factory.mktemp("bare")
    _copy(site, folder / "results", "hostile", "demo/biology")
    library = Library(folder / "results", tasks=str(hostile))
    pages, size = write_bundle(folder / "site", library, texts=False)
    assert pages == len(list(_pages(folder / "site")))
    assert size == sum(each.stat().st_size for each in (folder / "site").rglob("*.*"))
    return folder / "site"


@pytest.mark.parametrize("name", ["whole", "bare"])
def test_every_page_is_reached_by_relative_links_that_lead_to_files(
    name: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(name)
    start = folder / "index.html"
    seen, waiting = {start}, [start]

    while waiting:
        page = waiting.pop()
        for address in _ADDRESS.findall(page.read_text(encoding="utf-8")):
            path, _, fragment = unescape(address).partition("#")
            assert ":" not in path and not path.startswith("/"), (page, address)
            target = (page.parent / path).resolve() if path else page
            assert target.is_file() and target.is_relative_to(folder.resolve()), (page, address)
            if fragment.startswith("d-"):
                assert f'id="{fragment}"' in target.read_text(encoding="utf-8"), (page, address)
            if target.suffix == ".html" and target not in seen:
                seen.add(target)
                waiting.append(target)

    assert {each.resolve() for each in seen} >= {each.resolve() for each in _pages(folder)} - {
        (folder / "leaderboard" / f"{suite}.html").resolve() for suite in ("full", "demo")
    }


def test_a_bundle_has_each_kind_of_page_and_no_form_that_needs_a_server(
    whole: Path, bare: Path
) -> None:
    kinds = {re.sub(r"-[0-9a-f]{16}", "", str(each.relative_to(bare))) for each in _pages(bare)}

    assert kinds >= {
        "index.html",
        "tasks.html",
        "about.html",
        "leaderboard/demo.html",
        "task/demo-biology.html",
        "task/demo-biology/system/bm25.html",
        "compare/demo/bm25-bm25-lucene.html",
    }
    assert any(each.startswith("task/demo-biology/query/") for each in kinds)
    assert any(each.startswith("task/demo-biology/document/") for each in kinds)
    figures = sorted(each.name for each in (whole / "plot").iterdir())
    assert "full-dark-dates.svg" in figures and "full-light-dates.svg" in figures
    for page in (*_pages(whole), *_pages(bare)):
        text = page.read_text(encoding="utf-8")
        assert "<button type=" not in text
        assert ">Try it<" not in text and ">Running<" not in text


def test_pages_of_a_bundle_forbid_scripts_of_others_and_still_run_their_own(
    whole: Path, browser: Any
) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))

    page.goto((whole / "index.html").as_uri())
    before = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.get_by_role("button", name="Light").click()
    after = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    context.close()

    assert said == []
    assert before != after
    for file in _pages(whole):
        policy = re.search(r'Policy" content="([^"]*)"', file.read_text(encoding="utf-8"))
        assert policy and "default-src &#39;none&#39;" in policy[1] and "unsafe" not in policy[1]


def test_pages_grow_with_the_queries_and_not_with_the_corpus(whole: Path, hostile: Path) -> None:
    task = load_task(hostile)

    documents = list(whole.glob("task/*/document/*.html"))

    assert 0 < len(documents) <= len(task.queries)


def test_hostile_texts_and_ids_stay_text_and_inside_the_folder(whole: Path) -> None:
    pages = [page.read_text(encoding="utf-8") for page in _pages(whole)]

    assert any("fever and cough" in re.sub("</?mark>", "", page) for page in pages)
    for page in pages:
        assert SCRIPT not in page and ATTRIBUTE not in page and "<img src=x" not in page
        assert not re.search("[\x00-\x08\x1b\u202e]", page)
    assert not (whole.parent / "etc").exists()
    assert all(re.fullmatch(r"[\w.=/-]+", str(each.relative_to(whole))) for each in _pages(whole))


def test_without_texts_no_text_of_a_query_or_document_is_left(bare: Path) -> None:
    task = load_task("demo/biology")
    texts = [*task.queries.texts.to_pylist(), *task.corpus.texts.to_pylist()]
    marks = {" ".join(text.split()[at : at + 4]) for text in texts for at in (0, 4, 8)}
    marks |= {"{{ 7", "fever and", "and chills"}
    ids = set(task.queries.ids.to_pylist())

    pages = {page: _words(page) for page in _pages(bare)}

    assert len(marks) > 50
    for page, words in pages.items():
        assert not [mark for mark in marks if mark in words], page
    whole = " ".join(pages.values())
    assert all(f"Query {name} " in whole for name in ids)
    assert "licence" in pages[bare / "about.html"].lower()
    assert "CC" in pages[bare / "about.html"]


def test_scores_of_every_result_are_in_the_bundle(bare: Path) -> None:
    [page] = bare.glob("task/demo-biology-*.html")
    text = page.read_text(encoding="utf-8")

    for folder in Store(bare.parent / "results").folders():
        result = read_result(folder)
        if result.task == "demo/biology":
            assert f">{100 * result.metrics['ndcg@10']:.1f}</td>" in text


def test_one_system_under_two_texts_is_no_comparison(tmp_path: Path) -> None:
    own = write_r2med(tmp_path / "own")
    for system in ("bm25", "bm25[k1=0.9,b=0.4]", "bm25-nano"):
        for task in (str(own), "demo/biology"):
            r2med.evaluate(system, task, results=tmp_path / "results")

    write_bundle(tmp_path / "site", Library(tmp_path / "results"))

    scopes = list((tmp_path / "site" / "compare").iterdir())
    assert [len(list(scope.iterdir())) for scope in scopes] == [1] * 3  # demo, own data, its task
    page = report_page(results=tmp_path / "results")
    assert len(re.findall("<td>[^<]*(?:beats|No significant|same mean)", page)) == 2


def test_only_an_earlier_bundle_is_replaced(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _copy(site, tmp_path / "results", "demo/biology")
    target = tmp_path / "site"
    words = ("explore", "--results", "results", "--data-root", "nowhere", "--bundle", "site")
    target.mkdir()

    first = run(*words)
    (target / "task" / "stale.html").write_text("stale")
    second = run(*words)

    assert (first.code, second.code) == (0, 0), first.err + second.err
    assert re.search(r"wrote \d+ pages \(\d+\.\d MB\); open \S+index\.html", second.out)
    assert not (target / "task" / "stale.html").exists()
    [page] = target.glob("task/demo-biology-*.html")
    assert "texts of this task were not at hand" in page.read_text(encoding="utf-8")
    (target / "notes.txt").write_text("mine")
    third = run(*words)
    assert third.code != 0
    assert "holds notes.txt, so it is not replaced" in third.err
    assert (target / "notes.txt").read_text() == "mine"


def test_options_that_a_bundle_does_not_read_are_refused(tmp_path: Path) -> None:
    served = run("explore", "--bundle", str(tmp_path / "site"), "--port", "0")
    alone = run("explore", "--without-texts")

    assert "--port has no effect with --bundle" in served.err
    assert "--without-texts has no effect without --bundle" in alone.err
    assert served.code and alone.code and not (tmp_path / "site").exists()


def _copy(site: Site, target: Path, *tasks: str) -> None:
    for folder in Store(site.results).folders():
        if read_result(folder).task in tasks:
            shutil.copytree(folder, target / folder.relative_to(site.results))


def _pages(folder: Path) -> Iterator[Path]:
    return folder.rglob("*.html")


def _words(page: Path) -> str:
    """What a page says, without markup."""
    text = re.sub(r"</?(?:mark|wbr|strong|span)[^>]*>", "", page.read_text(encoding="utf-8"))
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())
