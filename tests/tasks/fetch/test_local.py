from __future__ import annotations

import gzip
import json
import re
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r2med.errors import DataError, MissingError, R2MedError, UsageError
from r2med.paths import home_folder
from r2med.tasks.fetch import local
from r2med.tasks.fetch.local import import_from
from r2med.tasks.fetch.provenance import data_folder, is_present
from r2med.tasks.registry import find_task
from tests.tasks.small_registry import BIOLOGY, MEDQA, NANO, small_registry, task_files, write

__all__ = ["small_registry"]

pytestmark = pytest.mark.usefixtures("small_registry")

GENERATION = "hyde/gpt4/query_with_hydoc.jsonl"


def zipped(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def inside(folder: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{name}": content for name, content in files.items()}


def everything_under(folder: Path) -> list[str]:
    return sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file())


def test_a_zip_of_one_task_is_taken_by_the_name_of_its_folder(tmp_path: Path) -> None:
    source = zipped(tmp_path / "download (1).zip", inside("Biology", BIOLOGY))

    [taken] = import_from(source)

    assert taken.task == "Biology" and taken.notices == ()
    assert is_present(find_task(taken.task))
    assert (taken.folder / "corpus.jsonl").read_bytes() == BIOLOGY["corpus.jsonl"]
    record = json.loads((taken.folder / "provenance.json").read_text())
    assert record["files"]["corpus.jsonl"]["source"] == "file:download (1).zip"


def test_a_zip_without_folders_is_taken_by_its_own_name(tmp_path: Path) -> None:
    [taken] = import_from(zipped(tmp_path / "MedQA-Diag.zip", MEDQA))

    assert taken.task == "MedQA-Diag"


def test_a_zip_that_says_nothing_is_taken_as_the_task_that_is_wanted(tmp_path: Path) -> None:
    source = zipped(tmp_path / "data.zip", MEDQA)

    with pytest.raises(UsageError, match="no task is named"):
        import_from(source)
    [taken] = import_from(source, [find_task("MedQA-Diag")])

    assert taken.task == "MedQA-Diag"


def test_one_zip_may_hold_many_tasks_and_one_of_them_be_wanted(tmp_path: Path) -> None:
    both = {**inside("R2MED/Biology", BIOLOGY), **inside("R2MED/MedQA-Diag", MEDQA)}
    source = zipped(tmp_path / "all.zip", both)

    [taken] = import_from(source, [find_task("MedQA-Diag")])

    assert taken.task == "MedQA-Diag"
    assert not is_present(find_task("Biology"))
    assert {item.task for item in import_from(source)} == {"Biology", "MedQA-Diag"}


def test_a_folder_in_the_reference_layout_and_a_folder_of_zips_are_taken(tmp_path: Path) -> None:
    source = write(tmp_path / "dataset", inside("Biology", BIOLOGY))
    zipped(source / "MedQA-Diag.zip", MEDQA)

    assert {item.task for item in import_from(source)} == {"Biology", "MedQA-Diag"}


def test_gzipped_files_and_other_judgement_formats_are_taken_when_the_content_agrees(
    tmp_path: Path,
) -> None:
    files = {
        "corpus.jsonl.gz": gzip.compress(BIOLOGY["corpus.jsonl"]),
        "query.jsonl": BIOLOGY["query.jsonl"],
        "qrels.txt": b"1 0 d0 1\n2 0 d1 1\n",
    }

    [taken] = import_from(zipped(tmp_path / "Biology.zip", files))

    assert is_present(find_task(taken.task))


def test_a_new_form_of_a_file_replaces_the_old_one(tmp_path: Path) -> None:
    import_from(zipped(tmp_path / "Biology.zip", BIOLOGY))
    packed = {**BIOLOGY, "corpus.jsonl.gz": gzip.compress(BIOLOGY["corpus.jsonl"])}
    del packed["corpus.jsonl"]

    [taken] = import_from(zipped(tmp_path / "Biology.zip", packed))

    assert not (taken.folder / "corpus.jsonl").exists()
    assert (taken.folder / "corpus.jsonl.gz").exists()


def test_published_generations_come_along_and_other_files_stay_behind(tmp_path: Path) -> None:
    files = {**BIOLOGY, GENERATION: b"{}\n", "notes/readme.txt": b"", "run.py": b""}

    [taken] = import_from(zipped(tmp_path / "Biology.zip", files))

    assert (taken.folder / GENERATION).exists()
    assert everything_under(taken.folder) == sorted([*BIOLOGY, GENERATION, "provenance.json"])


def test_a_nano_task_is_taken_in_its_hub_layout(tmp_path: Path) -> None:
    source = zipped(tmp_path / "nano.zip", inside("NanoR2MED", NANO))

    [taken] = import_from(source)

    assert taken.task == "NanoR2MEDBiology"
    assert is_present(find_task(taken.task))


def test_other_bytes_with_the_same_content_are_taken_with_a_notice(tmp_path: Path) -> None:
    files = {**BIOLOGY, "query.jsonl": BIOLOGY["query.jsonl"].replace(b"\n", b"\r\n")}

    [taken] = import_from(zipped(tmp_path / "Biology.zip", files))

    assert taken.notices == ("Biology: query.jsonl differ in bytes, not in counts or statistics",)


def test_other_content_is_refused_and_the_data_folder_is_unchanged(tmp_path: Path) -> None:
    import_from(zipped(tmp_path / "Biology.zip", BIOLOGY))
    before = everything_under(home_folder())

    with pytest.raises(DataError, match="documents 7 instead of 3"):
        import_from(zipped(tmp_path / "Biology.zip", task_files(7)))

    assert everything_under(home_folder()) == before
    folder = data_folder(find_task("Biology"))
    assert (folder / "corpus.jsonl").read_bytes() == BIOLOGY["corpus.jsonl"]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {
                **inside("MedQA-Diag", MEDQA),
                "Biology/corpus.jsonl": b"",
                "Biology/query.jsonl": b"",
            },
            "Biology is incomplete: there is no qrels.jsonl.",
        ),
        (
            {"corpus/NanoR2MEDBiology.parquet": b""},
            "NanoR2MEDBiology is incomplete: there is no queries/NanoR2MEDBiology-*.parquet.",
        ),
        ({"readme.txt": b""}, "holds no whole task: expected <task>/corpus.jsonl"),
        ({}, "holds no whole task: expected <task>/corpus.jsonl"),
    ],
)
def test_an_archive_that_lacks_part_of_a_task_is_told_which_and_nothing_is_taken(
    tmp_path: Path, files: Mapping[str, bytes], told: str
) -> None:
    with pytest.raises(DataError, match=re.escape(told)):
        import_from(zipped(tmp_path / "some.zip", files))

    assert everything_under(home_folder()) == []


def test_a_wanted_task_that_is_not_there_is_named_with_what_is(tmp_path: Path) -> None:
    both = {**inside("Biology", BIOLOGY), **inside("MedQA-Diag", MEDQA)}

    with pytest.raises(DataError, match="does not hold NanoR2MEDBiology; it holds Biology, MedQA"):
        import_from(zipped(tmp_path / "all.zip", both), [find_task("nano/Biology")])


def test_a_missing_file_and_another_kind_of_archive_are_told(tmp_path: Path) -> None:
    tar = tmp_path / "data.tar.gz"
    tar.write_bytes(b"\x1f\x8b not a zip")

    with pytest.raises(MissingError, match="does not exist"):
        import_from(tmp_path / "none.zip")
    with pytest.raises(DataError, match="cannot be read as a zip file"):
        import_from(tar)


def member(name: str) -> Callable[[zipfile.ZipFile], None]:
    return lambda archive: archive.writestr(zipfile.ZipInfo(name), b"x")


def link(archive: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("Biology/corpus.jsonl")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(info, "/etc/passwd")


def device(archive: zipfile.ZipFile) -> None:
    info = zipfile.ZipInfo("Biology/tty")
    info.external_attr = (stat.S_IFCHR | 0o666) << 16
    archive.writestr(info, "")


def expanding(archive: zipfile.ZipFile) -> None:
    archive.writestr("Biology/corpus.jsonl", b"\0" * (2 * 1024**2), zipfile.ZIP_DEFLATED)


def in_two_cases(archive: zipfile.ZipFile) -> None:
    archive.writestr("Biology/corpus.jsonl", b"x")
    archive.writestr("biology/CORPUS.jsonl", b"y")


@pytest.mark.parametrize(
    ("hostile", "told"),
    [
        (member("../outside.jsonl"), "not a plain relative path"),
        (member("Biology/../../corpus.jsonl"), "not a plain relative path"),
        (member("/tmp/outside.jsonl"), "not a plain relative path"),
        (member("C:/outside.jsonl"), "not a plain relative path"),
        (member("c:outside.jsonl"), "not a plain relative path"),
        (member("..\\outside.jsonl"), "not a plain relative path"),
        (link, "is a link or a special file"),
        (device, "is a link or a special file"),
        (in_two_cases, "occurs twice"),
        (expanding, "expands more than 100 times"),
    ],
)
def test_a_hostile_archive_is_refused_whole(
    tmp_path: Path, hostile: Callable[[zipfile.ZipFile], None], told: str
) -> None:
    source = zipped(tmp_path / "Biology.zip", inside("good/MedQA-Diag", MEDQA))
    with zipfile.ZipFile(source, "a") as archive:
        hostile(archive)

    with pytest.raises(DataError) as error:
        import_from(source)

    assert told in str(error.value) and "Nothing was written" in str(error.value)
    assert everything_under(home_folder()) == []
    assert not (tmp_path.parent / "outside.jsonl").exists()


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    source = zipped(tmp_path / "Biology.zip", BIOLOGY)
    raw = bytearray(source.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(signature) + offset] |= 1
    source.write_bytes(raw)

    with pytest.raises(DataError, match=r"is encrypted\.\nNothing was written"):
        import_from(source)


def test_an_archive_that_lists_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = zipped(tmp_path / "Biology.zip", BIOLOGY)

    monkeypatch.setenv("R2MED_MAX_FILE_BYTES", "10")
    with pytest.raises(DataError, match="more than 10"):
        import_from(source)
    monkeypatch.setattr(local, "MAX_MEMBERS", 2)
    with pytest.raises(DataError, match="it lists 3 files"):
        import_from(source)


def test_a_damaged_member_is_named(tmp_path: Path) -> None:
    source = tmp_path / "Biology.zip"
    with zipfile.ZipFile(source, "w", zipfile.ZIP_STORED) as archive:
        for name, content in BIOLOGY.items():
            archive.writestr(name, content)
    source.write_bytes(source.read_bytes().replace(b"text 1", b"texx 1"))

    with pytest.raises(DataError, match=r"cannot be read: member 'corpus.jsonl': Bad CRC"):
        import_from(source)

    assert everything_under(home_folder()) == []


@pytest.mark.parametrize("name", ["corpus.jsonl.gz", "query.jsonl.gz"])
def test_a_packed_file_inside_an_archive_is_bounded_too(tmp_path: Path, name: str) -> None:
    bomb = gzip.compress(b'{"id": "1", "text": "' + b"x" * (1 << 22) + b'"}\n') * 40
    files = {**BIOLOGY, name: bomb}
    del files[name.removesuffix(".gz")]
    source = zipped(tmp_path / "Biology.zip", files)

    with pytest.raises(DataError, match="is refused: it unpacks to more than 100 times") as told:
        import_from(source)

    assert str(told.value).startswith(f"{source}, ")
    assert everything_under(home_folder()) == []


@pytest.mark.parametrize(
    "altered",
    [
        lambda raw: raw[: len(raw) // 2],
        lambda raw: raw.replace(b"PK\x01\x02", b"PK\x01\x03"),
        lambda raw: raw.replace(b"\x08\x00", b"\x63\x00"),
        lambda raw: raw.replace(b"\x08\x00", b"\x0c\x00"),
        lambda raw: raw.replace(b"\x08\x00", b"\x0e\x00"),
        lambda raw: b"PK\x05\x06" + bytes(18),
        lambda raw: bytes(100),
    ],
    ids=["cut", "directory", "unknown method", "bz2", "lzma", "empty", "zeros"],
)
def test_an_archive_that_cannot_be_read_is_named(
    tmp_path: Path, altered: Callable[[bytes], bytes]
) -> None:
    source = zipped(tmp_path / "Biology.zip", BIOLOGY)
    source.write_bytes(altered(source.read_bytes()))

    with pytest.raises(DataError, match=r"Biology\.zip"):
        import_from(source)

    assert everything_under(home_folder()) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(
    st.lists(
        st.sampled_from(
            ["..", ".", "", "Biology", "corpus.jsonl", "C:", "~", "a\\b", "query.jsonl"]
        ),
        min_size=1,
        max_size=5,
    )
)
def test_no_member_name_makes_a_file_appear_outside_the_home_folder(
    tmp_path: Path, parts: list[str]
) -> None:
    arena = tmp_path / "arena"
    arena.mkdir(exist_ok=True)
    source = arena / "Biology.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr(zipfile.ZipInfo("/".join(parts) or "x"), b"{}")
    before = everything_under(tmp_path)

    with pytest.raises(R2MedError):
        import_from(source)

    assert everything_under(tmp_path) == before
