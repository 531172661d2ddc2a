from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.report.plots.labels import box_of, line_boxes, overlap, place_labels
from r2med.report.plots.theme import ThemeName, find_theme
from r2med.results.diagnosis.diagnose import Scene
from r2med.results.leaderboard import leaderboard
from r2med.tasks.load import load_task
from r2med.tasks.registry import find_suite
from r2med.tasks.task import Task
from tests.cli.running import run
from tests.results.storing import ranks, store

BOARDS = [("heatmap",), ("means",), ("cost", "--suite", "demo")]


def _words(svg: str) -> list[str]:
    return re.findall(r">([^<>]+)</(?:text|tspan)>", svg)


def drawing() -> None:
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two systems on the demo suite, measured once for all plots."""
    folder = str(tmp_path_factory.mktemp("results"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("home")))
        done = run("eval", "bm25", "bm25-lucene", "--task", "demo", "--results", folder)
    assert done.code == 0, done.err
    return folder


def test_without_the_extra_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("r2med.errors.find_spec", lambda name: None)

    done = run("plot", "heatmap", "--out", "x.svg")

    assert done.code == 1
    assert "needs altair and vl_convert: pip install 'r2med[plots]'" in done.err


@pytest.mark.parametrize(
    "asked",
    [
        *BOARDS,
        ("overlap", "bm25", "bm25-lucene", "--task", "demo/biology"),
        ("wins", "bm25", "bm25-lucene", "--task", "demo/biology,demo/medqa-diag"),
        ("history", "bm25", "--task", "demo/biology"),
        ("history",),
    ],
    ids=lambda asked: asked[0],
)
def test_every_kind_is_drawn_with_its_words(asked: tuple[str, ...], results: str) -> None:
    drawing()

    done = run("plot", *asked, "--results", results, "--out", "x.svg")

    drawn = Path("x.svg").read_text(encoding="utf-8")
    assert (done.code, done.out) == (0, "wrote x.svg\n"), done.err
    assert drawn.startswith("<svg")
    assert "ndcg@10" in drawn and "bm25" in drawn
    assert "http" not in drawn.replace("http://www.w3.org", "")


def test_overlap_looks_through_a_task_once_for_all_systems(
    results: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing()
    seen = []

    class Counted(Scene):
        def __init__(self, task: Task) -> None:
            seen.append(task.name)
            super().__init__(task)

    monkeypatch.setattr("r2med.results.diagnosis.diagnose.Scene", Counted)
    asked = ("overlap", "bm25", "bm25-lucene", "--task", "demo/biology,demo/medqa-diag")

    done = run("plot", *asked, "--results", results, "--out", "x.svg")

    assert done.code == 0, done.err
    assert seen == ["demo/biology", "demo/medqa-diag"]


def test_light_and_dark_differ_in_colours_only() -> None:
    drawing()
    drawn = {}

    for theme in ("light", "dark"):
        assert run("plot", "means", "--theme", theme, "--out", f"{theme}.svg").code == 0
        drawn[theme] = Path(f"{theme}.svg").read_text(encoding="utf-8")

    assert "#ffffff" in drawn["light"] and find_theme("dark").paper in drawn["dark"]
    assert _words(drawn["light"]) == _words(drawn["dark"])


def test_a_png_is_written_whole() -> None:
    drawing()

    done = run("plot", "means", "--top", "3", "--out", "deep/means.png")

    assert done.code == 0, done.err
    assert Path("deep/means.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.extra("plots")
def test_a_pdf_holds_letters_not_pixels() -> None:
    run("plot", "means", "--top", "3", "--out", "means.pdf")

    written = Path("means.pdf").read_bytes()
    assert written.startswith(b"%PDF") and b"/Font" in written and b"/Subtype /Image" not in written


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("pie", "--out", "x.svg"), "'pie' is not one of 'heatmap'"),
        (("means",), "Missing option '--out'"),
        (("means", "--out", "x.gif"), "ends in .svg, .pdf or .png"),
        (("means", "--out", "x.svg", "--theme", "darc"), "'darc' is not one of 'light', 'dark'"),
        (("means", "bm25", "--out", "x.svg"), "takes no systems"),
        (("wins", "bm25", "--out", "x.svg"), "needs two systems"),
        (("overlap", "--out", "x.svg"), "needs a system and --task"),
    ],
)
def test_wrong_usage_is_told(asked: tuple[str, ...], told: str) -> None:
    drawing()

    done = run("plot", *asked)

    assert done.code == 2
    assert told in done.err


def test_cost_without_measured_systems_names_the_command() -> None:
    drawing()

    done = run("plot", "cost", "--out", "x.svg")

    assert done.code == 1
    assert "published figures come without cost" in done.err
    assert "r2med eval" in done.err


def test_a_system_measured_on_other_data_is_marked_beside_published_ones() -> None:
    drawing()
    for task in find_suite("full").entries:
        store(Path("results"), "bm25", task.name, ranks(1, 0, 2), differences=("documents 5",))

    done = run("plot", "means", "--results", "results", "--top", "145", "--out", "x.svg")

    words = _words(Path("x.svg").read_text(encoding="utf-8"))
    assert done.code == 0, done.err
    assert "bm25" in words and "bm25 (here) *" in words and "diver (later)" in words
    assert any(word.startswith("* ") and "differs from the manifest" in word for word in words)


def test_a_board_of_tasks_draws_those_tasks(results: str) -> None:
    drawing()

    done = run("plot", "heatmap", "--task", "demo", "--results", results, "--out", "x.svg")

    words = _words(Path("x.svg").read_text(encoding="utf-8"))
    assert done.code == 0, done.err
    assert any("demo" in word.lower() for word in words) and "nv" not in words


@pytest.mark.parametrize(
    ("figure", "options"),
    [
        ("heatmap", ["--spent", "tokens"]),
        ("wins", ["--kind", "base"]),
        ("overlap", ["--suite", "demo"]),
        ("cost", ["--top", "3"]),
    ],
)
def test_an_option_without_effect_is_refused(figure: str, options: list[str]) -> None:
    drawing()

    done = run("plot", figure, *options, "--out", "x.svg")

    assert done.code == 2
    assert f"{options[0]} has no effect on this figure ({figure})" in done.err


def test_wins_shows_the_first_system_minus_the_second(results: str) -> None:
    drawing()

    run("plot", "wins", "bm25", "bm25-lucene", "--results", results, "--out", "wins.svg")
    compared = run("compare", "bm25", "bm25-lucene", "--results", results, "--json")

    words = " ".join(_words(Path("wins.svg").read_text()))
    pair = json.loads(compared.out)["pairs"][0]
    assert "bm25 minus bm25-lucene" in words
    for task in pair["tasks"]:
        assert f"mean {100 * task['difference']:+.1f}".replace("-", "−") in words.replace("-", "−")


def test_no_name_is_crossed_by_the_line_of_the_best(results: str) -> None:
    drawing()
    import altair as alt

    from r2med.report.plots import boards

    names = ["bm25", "bm25[b=0.3]", "bm25 + minilm", "dense", "lucene"]
    costs, means = (1e-3, 1.1e-3, 8e-3, 9e-3, 2e-3), (50.0, 49.9, 52.0, 50.1, 49.8)
    points: list[dict[str, Any]] = [
        {"system": name, "x": cost, "mean": mean, "kind": "expansion"}
        for name, cost, mean in zip(names, costs, means, strict=True)
    ]
    board, theme = leaderboard("demo", results=Path(results)), find_theme("light")

    chart = boards._scatter(
        points, alt.X("x:Q"), "kind", board, theme, best=[points[0], points[2]], label_all=True
    ).to_dict()

    line, _, *labels = chart["layer"]
    assert line["mark"]["interpolate"] == "step-after"
    placed = {
        chart["datasets"][label["data"]["name"]][0]["system"]: label["mark"] for label in labels
    }
    assert placed.keys() == set(names)
    for name in ("bm25", "bm25 + minilm"):
        assert placed[name]["align"] == "right" and placed[name]["dy"] < 0
    for name in ("bm25[b=0.3]", "dense", "lucene"):
        assert placed[name]["dy"] > 0


def test_published_systems_are_drawn_against_active_parameters(tmp_path: Path) -> None:
    drawing()
    settings = ("--spent", "parameters", "--results", str(tmp_path), "--out", "parameters.svg")

    done = run("plot", "cost", *settings)
    elsewhere = run("plot", "cost", "--results", str(tmp_path), "--out", "seconds.svg")

    assert done.code == 0, done.err
    words = _words(Path("parameters.svg").read_text())
    assert "active parameters of all stages, in billions, log scale" in words
    assert any("the size of the others is not known" in line for line in words)
    assert "bm25" in words
    assert re.search(r"Below the frontier: .* with no more active parameters\)", done.err)
    assert elsewhere.code == 1 and "seconds recorded" in elsewhere.err


def test_names_leave_the_areas_of_lines_free() -> None:
    corners = [(100.0, 300.0), (300.0, 200.0), (500.0, 100.0)]
    lines = line_boxes(corners)
    beside = [(290.0, 250.0), (310.0, 190.0), (150.0, 310.0)]
    texts = [f"system number {index}" for index in range(6)]

    labels = place_labels([*corners, *beside], range(6), texts, above=3, obstacles=lines)

    assert lines[0] == (100.0, 299.0, 300.0, 301.0) and lines[1] == (299.0, 200.0, 301.0, 300.0)
    for position, label, text in zip([*corners, *beside], labels, texts, strict=True):
        assert label is None or not any(overlap(box_of(position, label, text), b) for b in lines)
    assert sum(label is not None for label in labels) >= 4


@given(
    positions=st.lists(
        st.tuples(st.integers(100, 500), st.integers(30, 350)), min_size=1, max_size=25
    ),
    above=st.integers(0, 5),
)
def test_names_of_points_cover_no_point_and_no_other_name(
    positions: list[tuple[int, int]], above: int
) -> None:
    texts = [f"system {index}" for index in range(len(positions))]
    labels = place_labels(positions, range(len(positions)), texts, above=above)

    boxes = [
        box_of(position, label, text)
        for position, label, text in zip(positions, labels, texts, strict=True)
        if label
    ]
    for index, box in enumerate(boxes):
        assert not any(overlap(box, other) for other in boxes[index + 1 :])
    for position, label, text in zip(positions, labels, texts, strict=True):
        for x, y in positions:
            point = (x - 5, y - 5, x + 5, y + 5)
            assert (
                label is None
                or (x, y) == position
                or not overlap(box_of(position, label, text), point)
            )


def test_the_warm_tone_is_for_losses_alone() -> None:
    themes: tuple[ThemeName, ...] = ("light", "dark")
    for name in themes:
        theme = find_theme(name)
        assert theme.loss not in (*theme.series, *theme.ramp)
        for colour in (*theme.series, *theme.ramp):
            red, _, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
            assert red <= blue + 40, colour  # no orange


def test_intervals_of_groups_surround_their_means_within_the_scale() -> None:
    drawing()
    from r2med.report.plots.queries import _groups

    points = [{"system": "a", "overlap": float(n), "score": 100.0 * (n % 4 > 0)} for n in range(40)]

    for group in _groups("a", points):
        assert 0 <= group["low"] < group["score"] < group["high"] <= 100


def test_systems_with_generations_from_a_file_are_marked_in_the_plot_of_costs() -> None:
    drawing()
    queries = load_task("demo/biology").queries.ids.to_pylist()
    rows = [{"id": query, "hy_doc": "copper and wool"} for query in queries]
    Path("given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = "hyde:expert[generations=given.jsonl] | bm25"
    assert run("eval", "bm25", spec, "--task", "demo/biology").code == 0

    done = run("plot", "cost", "--suite", "demo", "--task", "demo/biology", "--out", "x.svg")

    words = _words(Path("x.svg").read_text(encoding="utf-8"))
    assert done.code == 0, done.err
    assert "bm25" in words and any(word.endswith(" †") for word in words)
    assert any(word.startswith("† generations were read from a file") for word in words)


@pytest.mark.parametrize(("day", "label"), [(1, "03:00:01"), (9, "2026-01-0")])
def test_history_shows_hours_of_one_day_and_dates_of_many(day: int, label: str) -> None:
    drawing()
    for night in (1, day):
        created = f"2026-01-{night:02}T03:00:{night:02}+00:00"
        folder, data = Path("r2med-results"), f"night {night}"
        store(folder, "bm25", "ward", ranks(1, 2), suite=None, data=data, created=created)

    done = run("plot", "history", "bm25", "--out", "x.svg")

    words = " ".join(_words(Path("x.svg").read_text(encoding="utf-8")))
    assert done.code == 0, done.err
    assert label in words
    states = "1 state" if day == 1 else "2 states"
    assert f"ward: {states} of the data" in words
