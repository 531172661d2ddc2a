"""What `r2med eval bm25` loads, and what becomes of pandas in the command line."""

import subprocess
import sys
from pathlib import Path

#: Modules that `r2med eval bm25` may load, those of Python itself included.
MOST_MODULES = 455
EVALUATE = """
import sys
from r2med.cli.main import run
sys.argv = ["r2med", "eval", "bm25", "--task", "demo/biology"]
assert run() == 0
"""


def output_of(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder
    )
    return done.stdout


def test_evaluating_bm25_loads_few_modules_and_never_pandas(tmp_path: Path) -> None:
    loaded = output_of(f"{EVALUATE}\nprint('LOADED', *sys.modules)", tmp_path)
    modules = loaded.rpartition("LOADED")[2].split()

    assert not {name.split(".")[0] for name in modules} & {"pandas", "pydantic", "torch", "aiohttp"}
    assert len(modules) <= MOST_MODULES


def test_pyarrow_knows_pandas_once_other_code_imports_it(tmp_path: Path) -> None:
    code = f"""{EVALUATE}
import pandas, pyarrow
print("NULLS", pyarrow.array(pandas.Series([1.0, float("nan")])).null_count)
"""
    assert output_of(code, tmp_path).rpartition("NULLS")[2].split() == ["1"]


def test_pandas_that_is_loaded_first_is_left_alone(tmp_path: Path) -> None:
    code = f"""
import pandas, pyarrow
{EVALUATE}
print("NULLS", pyarrow.array(pandas.Series([1.0, float("nan")])).null_count)
"""
    assert output_of(code, tmp_path).rpartition("NULLS")[2].split() == ["1"]
