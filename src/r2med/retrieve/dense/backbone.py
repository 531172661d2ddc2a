"""The transformer itself: token ids in, hidden states out."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2med.errors import DataError, UsageError
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.loading import failures_told
from r2med.retrieve.dense.settings import Settings
from r2med.retrieve.dense.tokens import Features

if TYPE_CHECKING:
    import torch

#: Weights of a head that hidden states do not pass; many encoders are saved without it.
_UNUSED = ("pooler.",)


class Backbone:
    """A transformers model in evaluation mode."""

    def __init__(
        self, folder: Path, settings: Settings, conditions: Conditions, *, bidirectional: bool
    ) -> None:
        import torch

        self.device = torch.device(chosen_device(conditions))
        self.autocast = settings.autocast and self.device.type == "cuda"
        self.bidirectional = bidirectional
        self.model = load_model(folder, settings.dtype, conditions).to(self.device).eval()

    def hidden(self, features: Features) -> torch.Tensor:
        """Run the model on one batch."""
        import torch

        tensors = {name: torch.from_numpy(told).to(self.device) for name, told in features.items()}
        if self.bidirectional:
            tensors["attention_mask"] = self._both_ways(tensors["attention_mask"])
        mixed = torch.autocast("cuda", torch.float16) if self.autocast else nullcontext()
        with torch.inference_mode(), mixed:
            states: torch.Tensor = self.model(**tensors).last_hidden_state
        return states

    def facts(self) -> Mapping[str, object]:
        """Where and how it ran."""
        return {
            "device": str(self.device),
            "dtype": str(self.model.dtype).removeprefix("torch."),
        }

    def _both_ways(self, mask: torch.Tensor) -> torch.Tensor:
        """An additive mask that hides padding alone, which takes the place of the causal one."""
        import torch

        hidden = (1 - mask[:, None, None, :]).to(self.model.dtype)
        lowest = torch.finfo(self.model.dtype).min
        return (hidden * lowest).expand(-1, 1, mask.shape[1], -1)


def load_model(folder: Path, dtype: str, conditions: Conditions) -> Any:
    """A checkpoint's encoder; of an encoder-decoder, the encoder alone."""
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

    trust = conditions.trust_remote_code
    with failures_told(folder), quiet_loading():
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust)
        loader = AutoModelForTextEncoding if _has_decoder(config) else AutoModel
        model, told = loader.from_pretrained(
            folder, dtype=dtype, trust_remote_code=trust, output_loading_info=True
        )
    absent = sorted(key for key in told["missing_keys"] if not key.startswith(_UNUSED))
    if absent:
        raise DataError(
            f"{folder}: the checkpoint lacks {len(absent)} of the model's weights, such as "
            f"{absent[0]}; they would be random."
        )
    return model


def _has_decoder(config: Any) -> bool:
    """Whether the architecture has a decoder, also where only its encoder was saved."""
    saved = getattr(config, "architectures", None) or []
    return bool(config.is_encoder_decoder) or any(name.endswith("EncoderModel") for name in saved)


def chosen_device(conditions: Conditions) -> str:
    """The device that is asked for, tried with a number; else the best there is."""
    import torch

    if conditions.device is None:
        return best_device()
    try:
        torch.zeros(1, device=conditions.device).tolist()
    except (RuntimeError, AssertionError):
        raise UsageError(
            f"--device {conditions.device}: not a device of this machine, which has "
            f"{', '.join(_devices())}."
        ) from None
    return conditions.device


def _devices() -> list[str]:
    import torch

    cards = [f"cuda:{place}" for place in range(torch.cuda.device_count())]
    return ["cpu", *cards, *(["mps"] if torch.backends.mps.is_available() else [])]


def best_device() -> str:
    """cuda, mps or cpu."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Transformers' bars and warnings off, and back to what they were; errors are raised."""
    logging: Any = importlib.import_module("transformers.utils.logging")

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()
