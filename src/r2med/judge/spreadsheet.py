"""Read and write the first sheet of .xlsx files, as rows of texts.

Written by hand because openpyxl is a large dependency for one sheet of texts.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from r2med.errors import DataError

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_FILES = {
    "[Content_Types].xml": (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        '<Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-'
        'officedocument.spreadsheetml.sheet.main+xml"/>'
        '<Override PartName="/xl/worksheets/sheet1.xml" '
        'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>'
    ),
    "_rels/.rels": (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/'
        'relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>'
    ),
    "xl/workbook.xml": (
        '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
        'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">'
        '<sheets><sheet name="review" sheetId="1" r:id="rId1"/></sheets></workbook>'
    ),
    "xl/_rels/workbook.xml.rels": (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/'
        'relationships/worksheet" Target="worksheets/sheet1.xml"/></Relationships>'
    ),
}
_SHEET = (
    '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    "{}</sheetData></worksheet>"
)
#: Characters that XML cannot hold.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_COLUMN = re.compile(r"[A-Z]+")
_LONGEST_CELL = 32_767
_LARGEST = 200_000_000


def write_spreadsheet(rows: Sequence[Sequence[str]]) -> bytes:
    """Return rows of texts as the content of an .xlsx file; cells above its limit are cut."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in _FILES.items():
            archive.writestr(name, _XML + text)
        body = "".join(_row(number, row) for number, row in enumerate(rows, start=1))
        archive.writestr("xl/worksheets/sheet1.xml", _XML + _SHEET.format(body))
    return content.getvalue()


def read_spreadsheet(path: Path) -> list[list[str]]:
    """Return the rows of the first sheet of an .xlsx file.

    Raises:
        DataError: The file is not a spreadsheet, or unpacks to more than 200 MB.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(info.file_size for info in archive.infolist()) > _LARGEST:
                raise DataError(f"{path}: the spreadsheet unpacks to more than 200 MB.")
            names = set(archive.namelist())
            shared = _read_shared(archive) if "xl/sharedStrings.xml" in names else []
            sheets = sorted(n for n in names if re.fullmatch(r"xl/worksheets/sheet\d+\.xml", n))
            if not sheets:
                raise DataError(f"{path}: the spreadsheet has no sheet.")
            sheet = ElementTree.fromstring(archive.read(sheets[0]))
            return list(_rows(sheet, shared))
    except (
        zipfile.BadZipFile,
        ElementTree.ParseError,
        KeyError,
        IndexError,
        ValueError,
    ) as problem:
        raise DataError(f"{path}: not a readable .xlsx file ({problem}).") from None


def _row(number: int, cells: Sequence[str]) -> str:
    written = "".join(
        f'<c r="{_letters(column)}{number}" t="inlineStr"><is><t xml:space="preserve">'
        f"{escape(_FORBIDDEN.sub(' ', cell)[:_LONGEST_CELL])}</t></is></c>"
        for column, cell in enumerate(cells)
    )
    return f'<row r="{number}">{written}</row>'


def _letters(column: int) -> str:
    letters = ""
    column += 1
    while column:
        column, remainder = divmod(column - 1, 26)
        letters = chr(ord("A") + remainder) + letters
    return letters


def _read_shared(archive: zipfile.ZipFile) -> list[str]:
    table = ElementTree.fromstring(archive.read("xl/sharedStrings.xml"))
    return [_text(entry) for entry in table.findall(f"{_MAIN}si")]


def _rows(sheet: ElementTree.Element, shared: Sequence[str]) -> Iterator[list[str]]:
    for row in sheet.iter(f"{_MAIN}row"):
        cells: dict[int, str] = {}
        for position, cell in enumerate(row.findall(f"{_MAIN}c")):
            reference = _COLUMN.match(cell.get("r", ""))
            column = _index(reference[0]) if reference else position
            cells[column] = _value(cell, shared)
        yield [cells.get(column, "") for column in range(max(cells, default=-1) + 1)]


def _index(letters: str) -> int:
    index = 0
    for letter in letters:
        index = 26 * index + ord(letter) - ord("A") + 1
    return index - 1


def _value(cell: ElementTree.Element, shared: Sequence[str]) -> str:
    if cell.get("t") == "inlineStr":
        inline = cell.find(f"{_MAIN}is")
        return "" if inline is None else _text(inline)
    value = cell.findtext(f"{_MAIN}v") or ""
    return shared[int(value)] if cell.get("t") == "s" and value else value


def _text(element: ElementTree.Element) -> str:
    return "".join(part.text or "" for part in element.iter(f"{_MAIN}t"))
