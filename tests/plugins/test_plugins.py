"""Packages and registry files add systems, tasks, backends, metrics and exporters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2med
from r2med.errors import DataError, UsageError
from r2med.plugins import load_plugins
from r2med.remote.registry import find_llm, llms
from r2med.systems.registry import entries, find_entry
from r2med.tasks.registry import resolve

EXAMPLE = Path(__file__).parents[2] / "examples" / "r2med-example-plugin"


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """The example as an installed package: its code and the metadata that pip would write."""
    site = tmp_path / "site"
    metadata = site / "r2med_example_plugin-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: r2med-example-plugin\nVersion: 0.1.0\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[r2med.plugins]\nexample = r2med_example:register\n"
    )
    (site / "r2med_example").symlink_to(EXAMPLE / "src" / "r2med_example")
    yield site


def run_python(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    prelude = f"import sys; sys.path.insert(0, {str(site)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + code], capture_output=True, text=True, check=False
    )


def test_an_installed_package_adds_a_system_a_metric_and_an_exporter(
    installed: Path, tmp_path: Path
) -> None:
    code = f"""
import r2med
from pathlib import Path
from r2med.callbacks.exporters import find_exporter
result = r2med.evaluate("letter-counts", "demo/biology", metrics=["second@10"])
vowels = r2med.evaluate("letter-counts[alphabet=aeiou]", "demo/biology")
assert 0 < result.metrics["ndcg@10"] < 1
assert 0 <= result.metrics["second@10"] <= 1
assert result.key != vowels.key
[path] = find_exporter("markdown")([result], Path({str(tmp_path)!r}), print)
print(path.read_text())
"""

    done = run_python(installed, code)

    assert done.returncode == 0, done.stderr
    assert "| letter-counts | demo/biology |" in done.stdout


def test_a_package_whose_plugin_fails_is_named(installed: Path) -> None:
    entry_points = installed / "r2med_example_plugin-0.1.0.dist-info" / "entry_points.txt"
    entry_points.write_text("[r2med.plugins]\nexample = r2med_example:missing\n")

    done = run_python(installed, "import r2med; r2med.evaluate('no-such-system', 'demo/biology')")

    assert "plugin example (r2med_example:missing) failed" in done.stderr


def test_bm25_is_found_without_reading_plugins(installed: Path) -> None:
    code = "import r2med, sys; r2med.evaluate('bm25', 'demo/biology'); print(*sys.modules)"

    done = run_python(installed, code)

    assert "r2med_example" not in done.stdout.split()


def test_a_registry_file_adds_a_system_like_one_of_r2med() -> None:
    Path("r2med.toml").write_text('[systems.my-bm25]\nlike = "bm25"\nk1 = 1.2\n')

    result = r2med.evaluate("my-bm25", "demo/biology")

    assert (
        result.metrics["ndcg@10"]
        == r2med.evaluate("bm25[k1=1.2]", "demo/biology").metrics["ndcg@10"]
    )
    assert "my-bm25" in entries()


def test_a_registry_file_adds_a_task_by_its_folder(tmp_path: Path, repository: Path) -> None:
    data = repository / "src" / "r2med" / "tasks" / "demo" / "biology"
    Path("r2med.toml").write_text(f'[tasks.mine]\npath = "{data}"\n')

    assert resolve("mine") == [data]


def test_a_registry_file_named_by_the_environment_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "team.toml"
    file.write_text('[systems.team-bm25]\nlike = "bm25"\n')
    monkeypatch.setenv("R2MED_REGISTRY", str(file))

    assert find_entry("Team-BM25") is not None


def test_a_name_of_r2med_cannot_be_replaced() -> None:
    Path("r2med.toml").write_text('[systems.bm25]\nbackend = "dense"\n')

    with pytest.raises(UsageError, match="already has a system 'bm25'"):
        entries()
    assert r2med.evaluate("bm25", "demo/biology").metrics["ndcg@10"] > 0


def test_a_file_in_the_working_folder_cannot_run_code() -> None:
    Path("evil.py").write_text("raise SystemExit('imported')\n")
    Path("r2med.toml").write_text('[systems.helpful]\nbackend = "custom"\ntarget = "evil:Model"\n')

    with pytest.raises(UsageError, match="runs Python code"):
        r2med.evaluate("helpful", "demo/biology")


def test_errors_name_the_file_and_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("r2med.toml")
    path.write_text("[system.mine]\n")
    with pytest.raises(DataError, match=r"r2med.toml: 'system' is not a section"):
        load_plugins()
    path.write_text("[systems.mine]\nk1 = 1\n")
    with pytest.raises(UsageError, match=r'r2med.toml, \[mine\]: the field "backend" is missing'):
        entries()
    monkeypatch.setenv("R2MED_REGISTRY", "nowhere.toml")
    with pytest.raises(UsageError, match=r"nowhere.toml: file not found"):
        load_plugins()


def test_a_registry_file_adds_a_language_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r2med.toml").write_text(
        '[llms.ward-model]\nurl = "http://127.0.0.1:8000/v1"\nmodel = "qwen3-32b"\n'
    )

    llm = find_llm("ward-model")

    assert (llm.model, llm.url, llm.name) == ("qwen3-32b", "http://127.0.0.1:8000/v1", "ward-model")
    assert "ward-model" in llms()


def test_a_language_model_of_r2med_cannot_be_replaced_by_a_registry_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r2med.toml").write_text('[llms.gpt4]\nurl = "http://127.0.0.1:8000/v1"\n')

    with pytest.raises(UsageError, match="'gpt4' is a model of r2med"):
        find_llm("gpt4")


def test_a_file_of_the_working_folder_sends_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    registry = Path("r2med.toml")
    registry.write_text('[llms.ward-model]\nmodel = "m"\nkey_env = "OPENAI_API_KEY"\n')

    with pytest.raises(UsageError, match="cannot use key_env"):
        find_llm("ward-model")

    monkeypatch.setenv("R2MED_REGISTRY", str(registry.resolve()))
    assert find_llm("ward-model").key_env == "OPENAI_API_KEY"
