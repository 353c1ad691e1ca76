"""The fixture itself: a scripted model and bounded agents whose failures explain themselves."""

import json
import os
import re
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from testkit.procfs import still_alive
from testkit.waiting import wait_until
from tests.model_view.agents import AgentFailed, run_bounded
from tests.model_view.model import ScriptedModel, Step, serving

GREET = {"type": "function", "name": "greet", "parameters": {"type": "object", "properties": {}}}


def post(model: ScriptedModel, path: str, body: Any, **headers: str) -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(model.url).netloc, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_the_model_makes_the_calls_of_the_script_in_turn_and_ends() -> None:
    steps = [Step("one", "greet", {"name": "Ada"}), Step("two", "greet", lambda read: {"name": read["one"]})]
    asked: list[Any] = [{"role": "user", "content": "go"}]
    with serving(ScriptedModel(steps)) as model:
        for _ in range(3):
            _, reply = post(model, "/v1/responses", {"input": asked, "tools": [GREET]})
            item = json.loads(reply)["output"][0]
            if item["type"] == "function_call":
                said = f"Hello {json.loads(item['arguments'])['name']}"
                asked += [item, {"type": "function_call_output", "call_id": item["call_id"], "output": said}]
    assert model.complete
    assert model.view().results == {"one": "Hello Ada", "two": "Hello Hello Ada"}


def test_a_tool_that_is_not_offered_is_named_in_the_failure() -> None:
    with serving(ScriptedModel([Step("one", "pay")])) as model:
        post(model, "/v1/responses", {"input": "go", "tools": [GREET]})
    assert not model.complete
    assert "pay is not offered, but ['greet']" in model.progress()


def test_a_compressed_request_is_refused_with_the_way_out() -> None:
    with serving(ScriptedModel([Step("one", "greet")])) as model:
        status, reply = post(model, "/v1/responses", {}, **{"Content-Encoding": "zstd"})
    assert status == 415
    assert "switch compression off" in reply
    assert "zstd" in model.progress()


def test_an_agent_that_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    script = "sleep 100 & echo child $!; wait"
    with pytest.raises(AgentFailed, match=re.escape("no end within 0.5 s")) as failure:
        run_bounded(["sh", "-c", script], os.environ, tmp_path, seconds=0.5)
    child = re.search(r"child (\d+)", str(failure.value))
    assert child is not None
    wait_until(lambda: not still_alive({int(child[1])}), 10, "the child is gone")
