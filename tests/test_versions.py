"""Versions read from metadata folders are those that `importlib.metadata` reports."""

from importlib.metadata import PackageNotFoundError, version

import pytest

from r2med.versions import installed_versions


def test_versions_are_those_of_the_metadata() -> None:
    names = ["scipy", "numpy", "pyarrow", "r2med"]

    assert installed_versions(names) == {name: version(name) for name in names}
    assert list(installed_versions(names)) == names


def test_a_package_that_is_not_installed_is_an_error() -> None:
    with pytest.raises(PackageNotFoundError):
        installed_versions(["no-such-package"])
