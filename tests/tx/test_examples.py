"""The examples run, and the library starts without the SDK."""

import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest

from testkit.parts import ROOT

CANCELLED = """\
failed: TRANSACTION_ERROR
state: rolled_back
book flight
book hotel
cancel hotel number 2
cancel flight number 1
"""


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("retry", "completed after 3 attempts: Bern: sunny\n"),
        ("idempotency", "duplicates: [False, True, True]\nrefused: CONFLICT\npaid: [5]\n"),
        ("transaction", CANCELLED),
    ],
)
async def test_an_example_says_it(name: str, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    await loaded(name).main()
    assert capsys.readouterr().out == printed


def loaded(name: str) -> ModuleType:
    """The example as a module."""
    found = importlib.util.spec_from_file_location(name, ROOT / "examples" / "tx" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_the_library_imports_neither_the_sdk_nor_the_gateway() -> None:
    program = "import sys, headgate.tx; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    modules = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()
    assert "headgate" in modules
    assert not {"mcp", "mcp_types", "anyio", "pydantic", "httptools", "click"} & set(modules)
