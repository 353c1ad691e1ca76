"""The wheel and the sdist, installed into clean environments as users install them."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from headgate import __version__
from testkit.gateway_process import GatewayProcess, clean_environment, free_port
from testkit.parts import ROOT
from testkit.waiting import wait_until

NAME = f"headgate_mcp-{__version__}"
BUILD_SECONDS = 60
# Downloads of the dependencies included.
INSTALL_SECONDS = 240
USER_PROGRAM = """\
from headgate.tx import TxSession

def name(session: TxSession) -> int:
    return session
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both distributions, once."""
    directory = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    subprocess.run(build, cwd=ROOT, check=True, timeout=BUILD_SECONDS, capture_output=True)
    return directory


def install(built: Path, environment: Path, *choice: str) -> Path:
    """Install what was built into a new environment; return its directory of programs."""
    venv.create(environment, with_pip=True)
    programs = environment / "bin"
    found = os.environ | {"PIP_FIND_LINKS": f"{built} {os.environ.get('PIP_FIND_LINKS', '')}".strip()}
    subprocess.run(
        [programs / "python", "-m", "pip", "install", "--quiet", *choice, f"headgate-mcp=={__version__}"],
        env=found,
        check=True,
        timeout=INSTALL_SECONDS,
        cwd=environment,
    )
    return programs


def test_the_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    names = zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl").namelist()
    assert {name.split("/")[0] for name in names} == {"headgate", f"{NAME}.dist-info"}
    # Read at run time beside the code, so a build that misses them fails only when they are needed.
    source = {
        str(file.relative_to(ROOT / "src")) for file in (ROOT / "src/headgate").rglob("*") if file.is_file()
    }
    assert {name for name in source if "__pycache__" not in name} <= set(names)


def test_the_sdist_holds_what_its_readme_leads_to(built: Path) -> None:
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    expected = {"README.md", "CHANGELOG.md", "LICENSE", "docs/index.md", "examples/headgate.json"}
    assert expected | {"pyproject.toml", "src/headgate/__init__.py"} <= names


@pytest.mark.timeout(INSTALL_SECONDS + 60)
@pytest.mark.parametrize("choice", [(), ("--no-binary", "headgate-mcp")], ids=["wheel", "sdist"])
def test_an_installed_gateway_runs_and_is_typed(built: Path, tmp_path: Path, choice: tuple[str, ...]) -> None:
    programs = install(built, tmp_path / "environment", *choice)
    version = subprocess.run([programs / "headgate", "--version"], capture_output=True, text=True, check=True)
    assert __version__ in version.stdout
    check_that_it_serves(programs, tmp_path)
    check_that_types_are_seen(programs, tmp_path)


def check_that_it_serves(programs: Path, directory: Path) -> None:
    config, data, log = ROOT / "examples/headgate.json", directory / "data", directory / "log"
    port = free_port()
    command: list[str | Path] = [programs / "headgate", "serve", "--config", config, "--data-dir", data]
    with (
        log.open("wb") as written,
        subprocess.Popen(
            [*command, "--transport", "http", "--port", str(port)],
            stderr=written,
            env=clean_environment(),
            cwd=directory,
        ) as process,
    ):
        gateway = GatewayProcess(process, port, config, data, log)
        try:
            wait_until(gateway.answers, 15, "the installed gateway answers")
            gateway.wait_until_ready("example")
        finally:
            gateway.close(tracebacks_expected=False)


def check_that_types_are_seen(programs: Path, directory: Path) -> None:
    program = directory / "user_program.py"
    program.write_text(USER_PROGRAM)
    mypy: list[str | Path] = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        programs / "python",
        program,
    ]
    # Elsewhere than in the clone, whose own configuration and source would be found first.
    said = subprocess.run(mypy, check=False, capture_output=True, text=True, cwd=directory).stdout
    # Without py.typed the import is an error and the value has no type.
    assert 'got "TxSession", expected "int"' in said
    assert "Found 1 error" in said
