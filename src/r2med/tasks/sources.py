"""Which documents are passages of one source, where their ids say so (`PMC123_4`, `book-7#2`)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

_NUMBERED = re.compile(r"(.+?)[-_#:./ ]+(?:p|s|passage|chunk|part|para)?[-_ ]?\d+(?:\.[a-z]{1,5})?")
#: A stem on more documents than both of these is the corpus's own name (`doc-17`), not a source.
_MOST_PASSAGES, _MOST_OF_CORPUS = 10, 0.05


def sources_of(document_ids: Iterable[str]) -> Mapping[str, str]:
    """Source by document id, for the documents that share theirs with another.

    Two ids name the same source when they differ only in the number of the passage.
    """
    ids = list(document_ids)
    stems = {name: match[1] for name in ids if (match := _NUMBERED.fullmatch(name))}
    sizes = Counter(stems.values())
    most = max(_MOST_PASSAGES, _MOST_OF_CORPUS * len(ids))
    return {name: stem for name, stem in stems.items() if 1 < sizes[stem] <= most}
