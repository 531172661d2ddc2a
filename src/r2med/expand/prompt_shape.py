"""What a method's prompt files may and must say: the texts and places of the ones that ship."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from r2med.errors import DataError
from r2med.tasks.reading.exact import described

PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
EXAMPLES = "examples"

#: Places that only help the wording; a prompt without any other place would lose what it asks
#: about, or what was found or written for it.
_OPTIONAL = frozenset({"kind", "number", "turns"})


@dataclass(frozen=True)
class Shape:
    """The texts of a method's prompt files, and which places are filled in each."""

    method: str
    places: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, method: str, shipped: Mapping[str, object]) -> Shape:
        """Told by a prompt file that ships with the method."""
        texts = {name: text for name, text in shipped.items() if isinstance(text, str)}
        return cls(method, {name: frozenset(PLACE.findall(text)) for name, text in texts.items()})

    @property
    def reads(self) -> bool:
        """Whether the request itself holds passages that a search found."""
        return "passages" in self.places["user"]

    @property
    def shows_examples(self) -> bool:
        """Whether the request holds examples, which the file then lists."""
        return EXAMPLES in self.places["user"]

    def check(self, table: Mapping[str, object], where: str) -> None:
        """Refuse a file with a text or place that is never used, or without one that is needed."""
        known = [*self.places, *([EXAMPLES] if self.shows_examples else [])]
        for name in table:
            if name not in known:
                raise DataError(
                    f"{where}: {name!r} is not known to {self.method}, expected {', '.join(known)}."
                )
        for name in known:
            if name not in table:
                raise DataError(f"{where}: {name!r} is missing, {self.method} needs it.")
        for name in self.places:
            self._check_text(name, table[name], where)

    def _check_text(self, name: str, text: object, where: str) -> None:
        if not isinstance(text, str):
            raise DataError(f"{where}: {name!r} is {described(text)}, expected a string.")
        filled, found = self.places[name], PLACE.findall(text)
        for place in found:
            if place not in filled:
                raise DataError(
                    f"{where}: {name!r} holds {{{place}}}, which {self.method} never fills in; "
                    f"known there: {_listed(filled)}."
                )
        lacking = filled - _OPTIONAL - set(found)
        if lacking:
            raise DataError(
                f"{where}: {name!r} lacks {_listed(lacking)}, which {self.method} needs there; "
                f"known: {_listed(filled)}."
            )


def _listed(places: frozenset[str]) -> str:
    return ", ".join(f"{{{place}}}" for place in sorted(places)) or "none"
