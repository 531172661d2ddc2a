"""Documents become passages: every format, broken files, duplicates, offsets and resumption."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from r2med.build.corpus import build_corpus
from r2med.build.documents import find_collections, find_files
from r2med.build.folder import BuildFolder, read_rows
from r2med.build.readers.extracted import UnreadableFileError
from r2med.build.readers.jats import read_jats
from r2med.build.readers.markup import read_html
from r2med.build.readers.plain import read_markdown, read_text
from r2med.errors import DataError, MissingError, UsageError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources

SENTENCE = "Stones form when the urine is too concentrated, as in hot weather without drinking."
OTHER = "Gout follows from urate crystals in the joints, which neutrophils attack at night."

#: Tests of PDF, HTML and JATS, which need libraries of an extra.
needs_libraries = pytest.mark.extra("build")


def make_folder(path: Path, *sources: Mapping[str, object], **settings: object) -> BuildFolder:
    path.mkdir(parents=True, exist_ok=True)
    lines = ["[benchmark]", 'name = "tiny"', "[corpus]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    for source in sources or ({"path": "documents"},):
        lines += ["[[corpus.sources]]"]
        lines += [f"{key} = {_toml(value)}" for key, value in source.items()]
    (path / "build.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (path / "documents").mkdir(exist_ok=True)
    return BuildFolder(path)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(text)}' for key, text in value.items())} }}"
    return json.dumps(value)


def build(folder: BuildFolder, **choices: bool) -> tuple[list[str], Any]:
    warnings: list[str] = []
    with Resources(RunOptions(), warn=warnings.append) as resources:
        outcome = build_corpus(folder, resources, **choices)
    return warnings, outcome


def rows(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(path)]


def texts(folder: BuildFolder) -> dict[str, str]:
    return {row["id"]: row["text"] for row in rows(folder.corpus_path)}


def test_passages_are_about_the_size_that_was_set_and_never_cross_a_heading(
    tmp_path: Path,
) -> None:
    folder = make_folder(tmp_path, passage_tokens=40)
    text = f"STONES\n\n{' '.join([SENTENCE, OTHER] * 10)}\n\nGOUT\n\n{OTHER} Dr. Smith saw 3.5 mm."
    (tmp_path / "documents" / "a.txt").write_text(text, encoding="utf-8")
    build(folder)
    described = rows(folder.passages_path)

    sizes = [row["tokens"] for row in described if row["section"] == "STONES"]
    assert all(25 <= size <= 55 for size in sizes)
    assert described[-1]["section"] == "GOUT"
    assert texts(folder)[described[-1]["id"]] == f"{OTHER} Dr. Smith saw 3.5 mm."


def test_offsets_lead_to_the_text_in_the_file(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, passage_tokens=20, near_duplicates="none")
    text = f"Intro {SENTENCE}\n{OTHER}\n\n\nBACKGROUND\n\n{SENTENCE}  Äther und Öl.\n{OTHER}\n"
    (tmp_path / "documents" / "a.txt").write_text(text, encoding="utf-8")
    build(folder)
    found = texts(folder)

    for row in rows(folder.passages_path):
        assert " ".join(text[row["start"] : row["end"]].split()) == found[row["id"]]


def test_distractors_are_marked_and_folded_into_documents(tmp_path: Path) -> None:
    folder = make_folder(
        tmp_path,
        {"path": "others", "distractor": True, "licence": "CC0"},
        {"path": "documents", "licence": "CC BY 4.0"},
    )
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "b.txt").write_text(SENTENCE.upper(), encoding="utf-8")
    (tmp_path / "others" / "c.txt").write_text(OTHER, encoding="utf-8")
    (tmp_path / "documents" / "a.txt").write_text(SENTENCE, encoding="utf-8")
    _, outcome = build(folder)
    described = {row["id"]: row for row in rows(folder.passages_path)}

    assert texts(folder) == {"a#1": SENTENCE, "c#1": OTHER}
    assert (described["a#1"]["distractor"], described["a#1"]["licence"]) == (False, "CC BY 4.0")
    assert (described["c#1"]["distractor"], described["c#1"]["licence"]) == (True, "CC0")
    assert outcome.record.counts_out == {"passages": 2, "distractors": 1}
    (folded,) = rows(folder.corpus_folder / "duplicates.jsonl")
    assert (folded["id"], folded["duplicate_of"], folded["distractor"]) == ("b#1", "a#1", True)


def test_near_duplicates_are_folded_and_listed_with_their_similarity(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, passage_tokens=500)
    words = [f"word{number}" for number in range(200)]
    changed = ["changed" if number in (50, 120) else word for number, word in enumerate(words)]
    unlike = ["changed" if number % 5 == 0 else word for number, word in enumerate(words)]
    for name, sequence in (("a", words), ("b", changed), ("c", unlike)):
        (tmp_path / "documents" / f"{name}.txt").write_text(" ".join(sequence), encoding="utf-8")
    _, outcome = build(folder)

    assert list(texts(folder)) == ["a#1", "c#1"]
    assert outcome.record.drops == {"near duplicate": 1}
    (folded,) = rows(folder.corpus_folder / "duplicates.jsonl")
    assert folded["duplicate_of"] == "a#1"
    assert folded["similarity"] == pytest.approx(192 / 204, abs=0.001)


def test_near_duplicates_can_be_kept(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, near_duplicates="none")
    (tmp_path / "documents" / "a.txt").write_text(SENTENCE, encoding="utf-8")
    (tmp_path / "documents" / "b.txt").write_text(f"{SENTENCE} Indeed.", encoding="utf-8")
    build(folder)

    assert list(texts(folder)) == ["a#1", "b#1"]


def test_two_documents_of_one_name_get_different_ids(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (tmp_path / "documents" / "a.txt").write_text(SENTENCE, encoding="utf-8")
    (tmp_path / "documents" / "a.md").write_text(OTHER, encoding="utf-8")
    build(folder)

    assert texts(folder) == {"a#1": OTHER, "a~2#1": SENTENCE}


@needs_libraries
def test_unreadable_files_are_named_counted_and_stop_a_strict_command(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    documents = tmp_path / "documents"
    (documents / "good.txt").write_text(SENTENCE, encoding="utf-8")
    (documents / "binary.txt").write_bytes(bytes(range(256)) * 20)
    (documents / "table.docx").write_bytes(b"PK")
    (documents / "cut.xml").write_text("<article><body><p>cut", encoding="utf-8")
    (documents / "rows.jsonl").write_text('{"text": 5}\nnot json\n', encoding="utf-8")
    (documents / "empty.html").write_text("", encoding="utf-8")
    (documents / "broken.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    warnings, outcome = build(folder)
    problems = {p.source: p.problem for p in outcome.problems}

    assert set(problems) == {
        "binary.txt", "table.docx", "cut.xml", "rows.jsonl, line 1", "rows.jsonl, line 2",
        "empty.html", "broken.pdf",
    }  # fmt: skip
    assert outcome.record.counts_in["unreadable"] == 7
    assert "cut.xml: not well-formed XML" in warnings[0]
    before = folder.corpus_path.read_bytes()
    with pytest.raises(DataError, match=r"7 files or rows cannot be read:\n(.*\n)*cut\.xml"):
        build(folder, strict=True)
    assert folder.corpus_path.read_bytes() == before


def test_files_in_other_encodings_are_read_and_mentioned(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    text = "Müdigkeit, Übelkeit und Fieber seit drei Tagen bei einer jungen Frau aus Köln."
    (tmp_path / "documents" / "old.txt").write_bytes(text.encode("cp1252"))
    (tmp_path / "documents" / "wide.txt").write_text(text.upper()[::-1], encoding="utf-16")
    warnings, _ = build(folder)

    assert texts(folder) == {"old#1": text, "wide#1": text.upper()[::-1]}
    assert warnings == ["old.txt: read as cp1252.", "wide.txt: read as utf-16."]


def test_the_same_documents_give_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second"):
        folder = make_folder(tmp_path / name)
        for number in range(30):
            path = tmp_path / name / "documents" / f"d{number}.txt"
            path.write_text(f"{SENTENCE} Case {number}. {OTHER} {number * 7}.", encoding="utf-8")
        build(folder)
        contents.append({p.name: p.read_bytes() for p in folder.corpus_folder.iterdir()})

    assert contents[0] == contents[1]


def test_an_edited_corpus_is_not_overwritten_without_force(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (tmp_path / "documents" / "a.txt").write_text(SENTENCE, encoding="utf-8")
    build(folder)
    folder.corpus_path.write_text('{"id": "x", "text": "edited"}\n', encoding="utf-8")

    with pytest.raises(UsageError, match="was edited after"):
        build(folder)
    build(folder, force=True)
    assert texts(folder) == {"a#1": SENTENCE}


def test_only_changed_files_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(tmp_path)
    (tmp_path / "documents" / "a.jsonl").write_text(
        json.dumps({"id": "x", "text": SENTENCE}) + "\n", encoding="utf-8"
    )
    (tmp_path / "documents" / "b.txt").write_text(OTHER, encoding="utf-8")
    build(folder)
    portions = {p.name: p.stat().st_mtime_ns for p in (tmp_path / ".portions").iterdir()}
    (tmp_path / "documents" / "b.txt").write_text(f"{OTHER} New.", encoding="utf-8")
    build(folder)
    again = {p.name: p.stat().st_mtime_ns for p in (tmp_path / ".portions").iterdir()}

    assert len(portions) == len(again) == 2
    assert len(portions.items() & again.items()) == 1


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"path": "nowhere"}, "does not exist"),
        ({"path": "documents", "licens": "x"}, "Did you mean 'licence'"),
        ({"path": "documents", "format": "word"}, "format 'word' is not known"),
        ({"path": "documents", "distractor": "yes"}, "expected true or false"),
        ({"path": "corpus"}, "move the documents"),
    ],
)
def test_wrong_sources_are_named(tmp_path: Path, source: dict[str, object], problem: str) -> None:
    folder = make_folder(tmp_path, source)
    folder.corpus_folder.mkdir()

    with pytest.raises((DataError, MissingError, UsageError), match=problem):
        build(folder)


def test_documents_without_any_text_are_an_error(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)

    with pytest.raises(DataError, match="have no passages"):
        build(folder)
    assert not folder.corpus_path.exists()


def test_hidden_files_are_not_documents(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    (tmp_path / "documents" / ".git").mkdir()
    (tmp_path / "documents" / ".git" / "a.txt").write_text(SENTENCE, encoding="utf-8")
    (collection,) = find_collections(folder)

    assert list(find_files(collection)) == []


JATS = f"""<?xml version="1.0"?>
<!DOCTYPE article SYSTEM "http://127.0.0.1:9/evil.dtd" [
 <!ENTITY secret SYSTEM "file:///etc/passwd"><!ENTITY twice "boom boom">]>
<article xmlns:xlink="http://www.w3.org/1999/xlink"><front><article-meta>
<article-id pub-id-type="pmc">PMC77</article-id>
<title-group><article-title>A <italic>rare</italic> case</article-title></title-group>
<permissions><license xlink:href="https://creativecommons.org/licenses/by-nc/4.0/"/></permissions>
<abstract><p>Fever &alpha; &secret;&twice; was seen.</p></abstract></article-meta></front>
<body><sec><title>Case</title><p>{SENTENCE} [<xref ref-type="bibr" rid="r1">1</xref>]</p>
<sec><title>Tests</title><table-wrap><caption><p>Values.</p></caption><alternatives><table>
<tr><th>ACE</th><td>90 U/L</td></tr></table></alternatives></table-wrap></sec></sec></body>
<back><fn-group><fn><p>{OTHER}</p></fn></fn-group><ref-list><ref>Bibliography</ref></ref-list></back>
</article>"""


@needs_libraries
def test_an_article_keeps_sections_tables_footnotes_and_licence() -> None:
    (article,) = read_jats(JATS.encode())
    parts = {s.heading: article.text[s.start : s.end] for s in article.sections}

    assert (article.name, article.licence) == ("PMC77", "CC BY-NC 4.0")
    assert parts == {
        "A rare case > Abstract": "Fever α was seen.",
        "A rare case > Case": SENTENCE,
        "A rare case > Case > Tests": "Values.\n\nACE | 90 U/L",
        "A rare case > Footnotes": OTHER,
    }


@needs_libraries
def test_entities_that_a_file_defines_are_never_expanded() -> None:
    levels = "".join(f'<!ENTITY b{n} "{f"&b{n - 1};" * 10}">' for n in range(1, 12))
    article_text = "<article><body><p>Bomb &b11;.</p></body></article>"
    bomb = f'<!DOCTYPE a [<!ENTITY b0 "xxxx">{levels}]>{article_text}'
    try:
        (article,) = read_jats(bomb.encode())
    except UnreadableFileError:
        return
    assert "xxxx" not in article.text


@needs_libraries
def test_names_of_characters_that_xml_does_not_define_are_read() -> None:
    (article,) = read_jats(b"<article><body><p>39&nbsp;&deg;C &amp; more</p></body></article>")

    assert article.text == "39 °C & more"


@needs_libraries
def test_xml_that_is_not_an_article_is_refused() -> None:
    with pytest.raises(UnreadableFileError, match="no <article>"):
        read_jats(b"<html><body>text</body></html>")


@needs_libraries
def test_a_page_keeps_text_and_tables_and_drops_scripts_menus_and_hidden_parts() -> None:
    page = read_html(
        b"<title>Asthma</title><nav>Menu</nav><h1>Asthma</h1><p>Wheeze &amp; cough<sup>[1]</sup>."
        b"<script>alert('x')</script><p hidden>Secret<h2>Drugs</h2><table><tr><th>Drug<td>Dose"
        b"<tr><td>Salbutamol<td>100&nbsp;&micro;g</table><ul><li>One<li>Two</ul><footer>Imprint"
    )
    parts = {s.heading: page.text[s.start : s.end] for s in page.sections}

    assert parts == {
        "Asthma": "Wheeze & cough.",
        "Asthma > Drugs": "Drug | Dose\n\nSalbutamol | 100 µg\n\nOne\n\nTwo",
    }


@needs_libraries
def test_a_page_in_another_encoding_is_read_as_it_declares() -> None:
    page = read_html('<meta charset="iso-8859-2"><p>Zażółć gęślą jaźń'.encode("iso-8859-2"))

    assert page.text == "Zażółć gęślą jaźń"


@needs_libraries
def test_a_page_that_declares_a_wrong_encoding_is_read_as_the_one_that_was_set() -> None:
    page = read_html('<meta charset="UTF-8"><p>Café au lait'.encode("latin-1"))

    assert page.text == "Café au lait" and page.notices == ("read as cp1252",)


@needs_libraries
def test_a_deeply_nested_page_is_read_without_recursion() -> None:
    page = read_html(b"<p>Text" + b"<div>" * 50_000 + b"deep")

    assert page.text.startswith("Text")


def test_markdown_has_nested_sections_and_no_headings_in_code() -> None:
    text = "---\na: b\n---\n# Gout\n\nText.\n\n```\n# not a heading\n```\n\nTests\n-----\n\nMore.\n"
    document = read_markdown(text)

    assert [section.heading for section in document.sections] == ["Gout", "Gout > Tests"]


@pytest.mark.parametrize(
    "text",
    ["." * 200_000, "#" * 200_000, "\n" * 200_000 + "x", "a" * 500_000, " ." * 100_000,
     "[" * 200_000, "# " + "#" * 200_000 + "x", "<!--" * 50_000, "word\n" * 100_000,
     "```\n# a\n" * 20_000],
    ids=lambda text: repr(text[:6]),
)  # fmt: skip
def test_hostile_texts_take_time_in_proportion_to_their_size(text: str) -> None:
    from r2med.build.passages import make_passages

    for document in (read_markdown(text), read_text(text)):
        total = sum(len(passage.text) for passage in make_passages(document, 128))
        assert total <= len(text)


def test_rows_keep_their_identifier_licence_title_and_source(tmp_path: Path) -> None:
    fields = {"text": "body", "licence": "rights"}
    folder = make_folder(tmp_path, {"path": "documents", "fields": fields})
    row = {"id": "doi/10.1 x", "body": SENTENCE, "rights": "CC0", "title": "T", "source": "a.org/1"}
    (tmp_path / "documents" / "a.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    build(folder)
    (described,) = rows(folder.passages_path)

    assert described["id"] == "doi-10.1-x#1"
    assert (described["licence"], described["section"], described["source"]) == (
        "CC0",
        "T",
        "a.org/1",
    )


def write_pdf(path: Path, pages: list[list[str]]) -> None:
    canvas = pytest.importorskip("reportlab.pdfgen.canvas").Canvas(str(path), invariant=1)
    for lines in pages:
        if not lines:
            canvas.rect(10, 10, 200, 200, fill=1)
        for number, line in enumerate(lines):
            canvas.drawString(50, 800 - 15 * number, line)
        canvas.showPage()
    canvas.save()


@needs_libraries
def test_a_pdf_of_500_pages_has_no_running_heads_and_knows_its_pages(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, passage_tokens=30)
    days = ("after a day of rest", "without any treatment", "on the second morning")
    pages = [
        [f"Journal, page {n}", f"Patient {n} had a fever of unknown origin and inflam-",
         f"mation of joint {n * 3}, which resolved {days[n % 3]}."]
        for n in range(1, 501)
    ]  # fmt: skip
    write_pdf(tmp_path / "documents" / "long.pdf", pages)
    build(folder)
    found = texts(folder)
    described = rows(folder.passages_path)

    assert not any("Journal, page" in text for text in found.values())
    assert "inflammation of joint 1500" in " ".join(found.values())
    assert described[-1]["page"] == 500
    assert [row["page"] for row in described] == sorted(row["page"] for row in described)


@needs_libraries
def test_scanned_pages_without_text_are_reported(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    write_pdf(tmp_path / "documents" / "scan.pdf", [[], [], []])
    write_pdf(tmp_path / "documents" / "half.pdf", [[SENTENCE], []])
    warnings, outcome = build(folder)
    problems = {p.source: p.problem for p in outcome.problems}

    assert problems["scan.pdf"].startswith("no text on 3 pages (scanned?)")
    assert "half.pdf: 1 of 2 pages have no text (scanned?)." in warnings
    assert list(texts(folder)) == ["half#1"]


@needs_libraries
def test_a_pdf_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, pdf_seconds=1)
    (tmp_path / "documents" / "good.txt").write_text(SENTENCE, encoding="utf-8")
    rest = " ".join(f"word{number}" for number in range(9))
    write_pdf(tmp_path / "documents" / "slow.pdf", [[f"{rest} {n}" for n in range(45)]] * 3_000)
    _, outcome = build(folder)

    assert [p.source for p in outcome.problems] == ["slow.pdf"]
    assert "too much time (over 1 s)" in outcome.problems[0].problem
