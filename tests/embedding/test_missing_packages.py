"""Choosing an embedder without its packages says in one sentence what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from headgate.domain.errors import ConfigError
from headgate.embedding.embedder import PackagesMissing, import_extra

# Stands before everything that is installed, so that the interpreter sees a base install.
HIDDEN = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numpy", "onnxruntime", "sentence_transformers"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
from headgate.domain.errors import ConfigError
try:
    %s
except ConfigError as error:
    print(f"{error} | {error.hint}")
"""


def said(statement: str) -> str:
    """What a base install says to a statement."""
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN % statement], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("statement", "package", "extra"),
    [
        ("from headgate.embedding.minilm import MiniLMEmbedder; MiniLMEmbedder()", "onnxruntime", "semantic"),
        (
            "from headgate.embedding.embedder_factory import HuggingFaceEmbedder; HuggingFaceEmbedder()",
            "sentence_transformers",
            "huggingface",
        ),
        ("from headgate.embedding.vector_index import VectorIndex; VectorIndex(3)", "numpy", "semantic"),
    ],
)
def test_a_base_install_says_what_to_install(statement: str, package: str, extra: str) -> None:
    sentence = said(statement)
    assert f"needs the package '{package}', which is not installed" in sentence
    assert sentence.endswith(f'pip install "headgate-mcp[{extra}]"')


def test_every_module_can_be_imported_without_its_packages() -> None:
    package = Path(str(sys.modules["headgate.embedding"].__file__)).parent
    modules = [f"headgate.embedding.{file.stem}" for file in package.glob("*.py")]
    assert len(modules) > 5
    assert said(f"import {', '.join(modules)}") == ""


def test_a_package_that_is_there_and_broken_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package.py").write_text("raise ImportError('libfoo.so.1: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="'broken_package', which is installed and cannot be imp") as broken:
        import_extra("broken_package", choice="SEMANTIC", extra="semantic")
    assert not isinstance(broken.value, PackagesMissing)
    assert broken.value.hint == (
        'see why with python -c "import broken_package", '
        'or pip install --force-reinstall "headgate-mcp[semantic]"'
    )


def test_it_is_an_error_of_the_configuration() -> None:
    with pytest.raises(PackagesMissing) as missing:
        import_extra("no_such_package.part", choice="SEMANTIC", extra="semantic")
    assert isinstance(missing.value, ConfigError)
    assert "'no_such_package'" in str(missing.value)
