"""Decode files that do not say how they are encoded."""

from __future__ import annotations

import codecs
import re

from r2med.build.readers.extracted import UnreadableFileError

#: The encoding of files that are neither UTF-8 nor marked, where nothing else is known.
FALLBACK = "cp1252"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: Control characters that no text has; form feeds and escapes occur.
_BINARY = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MOST_BINARY = 0.001


def decode(data: bytes, *fallbacks: str) -> tuple[str, str]:
    """Return the text and the name of its encoding.

    A byte order mark decides. Without one UTF-8 is tried first, then the fallbacks in order (cp1252
    if none is given).

    Raises:
        UnreadableFileError: The file is binary or in an unknown encoding.
    """
    encodings = [name for mark, name in _MARKS if data.startswith(mark)][:1]
    candidates = encodings or list(dict.fromkeys(["utf-8", *(fallbacks or (FALLBACK,))]))
    for encoding in candidates:
        try:
            text = data.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
        if len(_BINARY.findall(text[:100_000])) > _MOST_BINARY * min(len(text), 100_000):
            raise UnreadableFileError("not a text file (binary data)")
        return _BINARY.sub(" ", text).replace("\r\n", "\n").replace("\r", "\n"), encoding
    raise UnreadableFileError(f"not in the encoding {' or '.join(candidates)}")


def describe_encoding(encoding: str) -> tuple[str, ...]:
    """Return a notice that names the encoding of a file; empty for UTF-8."""
    if encoding in ("utf-8", "utf-8-sig"):
        return ()
    return (f"read as {encoding}",)
