"""Which documents are passages of one source, where the ids tell it (`PMC123_4`, `book-7#2`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

_NUMBERED = re.compile(r"(.+?)[-_#:./ ]+(?:p|s|passage|chunk|part|para)?[-_ ]?\d+(?:\.txt)?")
#: A stem that covers more of the corpus than this is the corpus's own name, not a source.
_MOST = 0.05
_LEAST_SHARED = 0.2


def sources_of(document_ids: Iterable[str]) -> Mapping[str, str]:
    """Source by document id; empty when the ids do not seem to name sources.

    Numbered ids are believed only where no stem covers much of the corpus and where a good part
    of the documents share theirs with another.
    """
    stems = {name: found[1] for name in document_ids if (found := _NUMBERED.fullmatch(name))}
    sizes = Counter(stems.values())
    if not sizes or max(sizes.values()) > max(2, _MOST * len(stems)):
        return {}
    shared = sum(size for size in sizes.values() if size > 1)
    return stems if shared >= _LEAST_SHARED * len(stems) else {}
