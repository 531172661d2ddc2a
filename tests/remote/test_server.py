"""Addresses are read generously, keys are handled narrowly."""

from __future__ import annotations

import pytest

from r2med.errors import MissingError, UsageError
from r2med.remote.server import find_server

VENDOR = {
    "entry_url": "https://api.vendor.example/v1",
    "entry_key_env": "VENDOR_KEY",
    "environment": "R2MED_LLM",
}
NOWHERE = {"entry_url": "", "entry_key_env": "", "environment": "R2MED_LLM"}


@pytest.mark.parametrize(
    "given",
    [
        "http://host:8000/v1",
        "http://host:8000/v1/",
        "http://host:8000",
        "host:8000",
        "http://host:8000/v1/chat/completions",
        "http://host:8000/v1/models",
    ],
)
def test_addresses_as_people_write_them(given: str) -> None:
    assert find_server("m", **NOWHERE, url=given).url == "http://host:8000/v1"


@pytest.mark.parametrize("given", ["ftp://host/v1", "http://", "http:///v1", "http://[x/v1"])
def test_what_is_no_address_is_an_error(given: str) -> None:
    with pytest.raises(UsageError, match="expected one like http://localhost:8000/v1") as caught:
        find_server("m", **NOWHERE, url=given)

    assert repr(given) in str(caught.value)


@pytest.mark.parametrize(
    "given", ["http://me:secret@host/v1", "http://host/v1?key=secret", "http://me:secret@[host/v1"]
)
def test_a_key_in_an_address_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(UsageError, match="environment variable") as caught:
        find_server("m", **NOWHERE, url=given)

    assert "secret" not in str(caught.value)


def test_a_vendors_key_goes_to_the_vendor_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_KEY", "v")
    monkeypatch.setenv("R2MED_LLM_KEY", "mine")

    at_vendor = find_server("m", **VENDOR)
    elsewhere = find_server("m", **VENDOR, url="http://host:1")
    look_alike = find_server("m", **VENDOR, url="https://api.vendor.example.evil.example/v1")

    assert at_vendor.headers() == {"Authorization": "Bearer v"}
    assert elsewhere.headers() == look_alike.headers() == {"Authorization": "Bearer mine"}


def test_the_environments_server_comes_before_the_vendors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_LLM_URL", "http://proxy:1/v1")

    assert find_server("m", **VENDOR).url == "http://proxy:1/v1"


def test_a_key_is_missed_when_something_is_sent_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("VENDOR_KEY", raising=False)
    server = find_server("m", **VENDOR)

    with pytest.raises(MissingError, match="VENDOR_KEY"):
        server.headers()


def test_a_server_never_shows_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_KEY", "sk-secret")
    server = find_server("m", **VENDOR)

    assert "sk-secret" not in repr(server)
    assert server.redact("wrong key sk-secret!") == "wrong key ***!"
