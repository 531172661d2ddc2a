"""Find weights that a library initialises at random because a checkpoint lacks them.

sentence-transformers does not report them. So random initialisation writes NaN while a model is
loaded: a weight that is NaN afterwards was not read from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def initialise_with_nan() -> Iterator[None]:
    """Let every operation of torch that draws random numbers write NaN while the block runs."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class WriteNan(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        """Runs operations, and fills the results of random operations with NaN."""

        def __torch_dispatch__(
            self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            output = operation(*args, **(kwargs or {}))
            draws_numbers = torch.Tag.nondeterministic_seeded in operation.tags
            if draws_numbers and isinstance(output, torch.Tensor) and output.is_floating_point():
                output.fill_(float("nan"))
            return output

    with torch.random.fork_rng(devices=[]), WriteNan():
        yield


def find_missing_weights(model: Any) -> list[str]:
    """Return the names of the weights that are NaN in a model loaded by `initialise_with_nan`."""
    return [
        name
        for name, weight in model.state_dict().items()
        if weight.is_floating_point() and bool(weight.isnan().any())
    ]
