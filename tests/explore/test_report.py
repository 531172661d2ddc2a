from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import r2med
from r2med.explore.report import report_page
from r2med.results.store import Store, read_result
from tests.cli.running import run
from tests.explore.conftest import Site
from tests.results.storing import ranks, run_of, store


@pytest.fixture(scope="module")
def page(site: Site) -> str:
    return report_page(results=site.results)


def test_a_report_shows_the_figures_of_every_stored_result(site: Site, page: str) -> None:
    results = [read_result(folder) for folder in Store(site.results).folders()]

    assert len(results) >= 8
    for result in results:
        assert f"{100 * result.metrics['ndcg@10']:.2f}</td>" in page
        assert result.record.key[:12] in page
        assert result.record.task.hash[:12] in page


def test_a_report_needs_no_other_file_and_runs_no_script(page: str) -> None:
    addresses = re.findall(r"""(?:src|href|srcset)\s*=\s*["']([^"']*)""", page)

    assert "<script" not in page
    assert "default-src 'none'" in page
    assert addresses
    assert all(address.startswith("data:image/svg+xml;base64,") for address in addresses)
    assert "url(" not in page


def test_a_report_compares_the_others_with_the_first_system(site: Site) -> None:
    page = report_page("bm25-lucene", "bm25", task="demo/biology", results=site.results)

    assert "2 systems on Demo suite" in page
    assert re.search(r"Every system against <code>bm25-<wbr>lucene</code>", page)
    assert "bm25[k1=0.1]" not in page


def test_two_results_of_one_text_stand_apart_where_both_are_named() -> None:
    task, run_file = r2med.load_task("demo/biology"), Path("mine.trec")
    bm25 = r2med.evaluate("bm25", task).run
    keys = []
    for depth in (5, 50):
        bm25.truncate(depth).to_trec(run_file)
        keys.append(r2med.evaluate(f"run:{run_file}", task).key)

    page = report_page(*keys, "bm25")

    assert "3 systems on" in page
    assert all(f"<code>{key}" in page for key in keys)
    assert len(re.findall("<td>.*(?:beats|No significant difference|the same mean)", page)) == 2


def test_results_of_one_text_stand_apart_in_a_report(tmp_path: Path) -> None:
    first = store(tmp_path, "bm25", "demo/biology", ranks(1, 2, 0))
    system = replace(first.record.system, identity={"name": "bm25", "k1": 2})
    newer = replace(first.record, system=system, created="2026-02-01")
    Store(tmp_path).write(newer, run_of(ranks(2, 2, 0)), first.scores)

    page = report_page(results=tmp_path).replace("<wbr>", "")

    assert "2 systems on Demo suite" in page
    assert "bm25 (k1 none)" in page


def test_a_label_stands_first_and_the_text_beside_it_once(tmp_path: Path) -> None:
    r2med.evaluate("mine=bm25[k1=1.4]", "demo/biology", results=tmp_path)

    page = report_page(results=tmp_path).replace("<wbr>", "")

    assert page.count('<span class="system">mine</span>') >= 2
    assert page.count(">bm25[k1=1.4]<") == 1


def test_the_text_of_data_stays_text_in_a_report(page: str) -> None:
    assert "<img src=x" not in page
    assert "<script>" not in page
    assert "\x1b" not in page


def test_a_report_without_results_says_how_to_make_some(tmp_path: Path) -> None:
    done = run("report", "--results", str(tmp_path), "--out", str(tmp_path / "r.html"))

    assert done.code == 1
    assert "r2med eval bm25 --task demo" in done.err
    assert not (tmp_path / "r.html").exists()


def test_a_report_is_written_as_a_page_only(site: Site, tmp_path: Path) -> None:
    refused = run("report", "--results", str(site.results), "--out", str(tmp_path / "r.pdf"))
    done = run("report", "--results", str(site.results), "--out", str(tmp_path / "r.html"))

    assert refused.code == 2
    assert "ends in .html" in refused.err
    assert done.code == 0, done.err
    assert (tmp_path / "r.html").stat().st_size < 2_000_000
