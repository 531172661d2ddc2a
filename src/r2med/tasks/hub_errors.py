"""What went wrong at the hub, in words that say what to do; never with a token in them."""

from __future__ import annotations

from collections.abc import Iterator

from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from r2med.errors import DataError, MissingError, R2MedError
from r2med.tasks.registry import HubSource

INSTEAD = (
    "Without the hub: `r2med fetch --from ZIP|DIR` takes files you already have, "
    "and `--data-root DIR` reads them where they lie."
)


def explain(error: Exception, hub: HubSource, endpoint: str) -> R2MedError:
    """The error a user should see for one the hub client raised."""
    cause = next((e for e in _chain(error) if not isinstance(e, LocalEntryNotFoundError)), error)
    where = f"{endpoint}/datasets/{hub.repo}"
    if isinstance(cause, GatedRepoError):
        return MissingError(
            f"{hub.repo} is gated (HTTP {_status(cause)}): its owners must grant access.\n"
            f"Accept the conditions at {where}, then set HF_TOKEN to a token of that account."
        )
    if isinstance(cause, RepositoryNotFoundError):
        return MissingError(
            f"{hub.repo}: {endpoint} has no such dataset, or it is private "
            f"(HTTP {_status(cause)}).\nIf it is private, set HF_TOKEN. {INSTEAD}"
        )
    if isinstance(cause, RevisionNotFoundError):
        return MissingError(
            f"{hub.repo} has no revision {hub.revision or 'main'} at {endpoint} "
            f"(HTTP {_status(cause)}).\n{INSTEAD}"
        )
    if isinstance(cause, HfHubHTTPError):
        return _refused(cause, hub, endpoint)
    if isinstance(cause, EntryNotFoundError):
        return DataError(f"{hub.repo}: a listed file is gone from {endpoint}. Try again.")
    if isinstance(cause, OSError) and cause.filename is not None:
        return MissingError(f"{cause.filename}: {cause.strerror}. Is there room to write?")
    if isinstance(cause, (OSError, OfflineModeIsEnabled)) or is_transport(cause):
        return MissingError(
            f"The connection to {endpoint} failed while fetching {hub.repo}: {_line(cause)}\n"
            f"Run the same command again to go on from the files that are complete. {INSTEAD}"
        )
    raise error


def _refused(error: HfHubHTTPError, hub: HubSource, endpoint: str) -> R2MedError:
    status = _status(error)
    if status in (401, 403):
        return MissingError(
            f"{hub.repo}: {endpoint} refused access (HTTP {status}).\n"
            "Check the token in HF_TOKEN, or unset it: the benchmark is public."
        )
    if status == 404:
        return MissingError(f"{hub.repo}: {endpoint} does not have it (HTTP 404).\n{INSTEAD}")
    return MissingError(f"{endpoint} answered HTTP {status} for {hub.repo}. Try later.\n{INSTEAD}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _status(error: HfHubHTTPError) -> int:
    return int(error.response.status_code)


def is_transport(error: BaseException) -> bool:
    """Whether the HTTP library raised it; its name differs between versions of the client."""
    return type(error).__module__.split(".")[0].startswith(("httpx", "httpcore", "requests"))


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__
