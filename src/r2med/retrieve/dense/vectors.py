"""Plain arithmetic on vectors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vectors at length 1; zero vectors stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1
    lengthened: NDArray[np.float32] = vectors / norms
    return lengthened
