"""Which era a server speaks is found out by asking, and never guessed from an error of the other era."""

import asyncio
import json
from typing import Any

import pytest

from headgate.domain.errors import InvalidUpstreamResponse, UpstreamError, UpstreamLost, UpstreamTimeout
from headgate.domain.mcp_request import McpResponse
from headgate.domain.server_spec import ServerSpec, TransportType
from headgate.upstream.errors import UpstreamAuthRefused, UpstreamRequestRefused, VersionMismatch
from headgate.upstream.handshake import NegotiationResult, negotiate_protocol
from headgate.upstream.transport import OutgoingRequest
from testkit.virtual_time import virtual_time
from tests.upstream.scripted_server import SAMPLING, clients_own

SPEC = ServerSpec(name="far", transport=TransportType.STDIO, start_timeout_seconds=60.0)
MODERN, LEGACY = "2026-07-28", "2025-11-25"


def discovered(*versions: str) -> McpResponse:
    told = {"resultType": "complete", "supportedVersions": versions, "capabilities": {"tools": {}}}
    return McpResponse(json.dumps(told).encode())


def initialized(version: str) -> McpResponse:
    return McpResponse(json.dumps({"protocolVersion": version, "capabilities": {"tools": {}}}).encode())


def failed(code: int, **data: Any) -> McpResponse:
    return McpResponse(error=json.dumps({"code": code, "message": "no", "data": data}).encode())


UNKNOWN_METHOD = failed(-32601)


class ScriptedTransport:
    """Answers the two questions as its script says, each after some seconds."""

    pid = None
    limits = None

    def __init__(
        self,
        discover: McpResponse | UpstreamError | None,
        initialize: McpResponse | None,
        *,
        after: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        self._answers = {"server/discover": (discover, after[0]), "initialize": (initialize, after[1])}
        self.asked: list[str] = []
        self.params: list[dict[str, Any]] = []
        self.told: list[str] = []
        self.adopted: list[str] = []

    async def round_trip(self, outgoing: OutgoingRequest) -> McpResponse:
        self.asked.append(outgoing.method)
        self.params.append(json.loads(outgoing.params))
        answer, seconds = self._answers[outgoing.method]
        if answer is None:
            await asyncio.sleep(outgoing.timeout_seconds)
            raise UpstreamTimeout("far", outgoing.what, outgoing.timeout_seconds)
        await asyncio.sleep(seconds)
        if isinstance(answer, UpstreamError):
            raise answer
        return answer

    async def send_notification(self, message: bytes) -> None:
        self.told.append(json.loads(message)["method"])

    def set_protocol_version(self, version: str) -> None:
        self.adopted.append(version)

    async def wait_lost(self) -> str:
        await asyncio.Event().wait()
        return ""


async def agree(transport: ScriptedTransport, remembered: str | None = None) -> NegotiationResult:
    greeting = await negotiate_protocol(SPEC, transport, remembered)
    assert transport.adopted == [greeting.version]
    assert transport.told == (["notifications/initialized"] if greeting.version < MODERN else [])
    return greeting


@virtual_time
async def test_a_stateless_server_is_asked_once() -> None:
    transport = ScriptedTransport(discovered(MODERN), None)
    assert (await agree(transport)).version == MODERN
    assert transport.asked == ["server/discover"]
    meta = transport.params[0]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == MODERN
    assert clients_own(meta["io.modelcontextprotocol/clientCapabilities"]) == {}
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "headgate"


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@virtual_time
async def test_a_handshake_server_is_asked_again_in_its_own_words(version: str) -> None:
    transport = ScriptedTransport(UNKNOWN_METHOD, initialized(version))
    assert (await agree(transport)).version == version
    assert transport.asked == ["server/discover", "initialize"]
    assert transport.params[1]["protocolVersion"] == LEGACY
    assert clients_own(transport.params[1]["capabilities"]) == {}
    assert transport.params[1]["clientInfo"]["name"] == "headgate"


@pytest.mark.parametrize("code", [-32601, -32600, -32602, -32603, -32700, -32000, 0, 1])
@virtual_time
async def test_any_error_that_an_old_server_may_give_leads_to_the_handshake(code: int) -> None:
    transport = ScriptedTransport(failed(code), initialized(LEGACY))
    assert (await agree(transport)).version == LEGACY


@pytest.mark.parametrize("answer", [b"{}", b'{"tools":[]}', b"null", b"[]", b'{"supportedVersions":"x"}'])
@virtual_time
async def test_an_answer_that_makes_no_sense_leads_to_the_handshake(answer: bytes) -> None:
    transport = ScriptedTransport(McpResponse(answer), initialized(LEGACY))
    assert (await agree(transport)).version == LEGACY


@pytest.mark.parametrize(
    "error",
    [
        InvalidUpstreamResponse("far", "server/discover", "nonsense"),
        UpstreamRequestRefused("far", "HTTP 400"),
    ],
    ids=["nonsense", "refused"],
)
@virtual_time
async def test_an_answer_that_cannot_be_read_leads_to_the_handshake(error: UpstreamError) -> None:
    transport = ScriptedTransport(error, initialized(LEGACY))
    assert (await agree(transport)).version == LEGACY


@pytest.mark.parametrize(
    "error",
    [UpstreamAuthRefused("far", 401), UpstreamLost("far", "server/discover", "it ended")],
    ids=["credentials", "gone"],
)
@virtual_time
async def test_a_server_that_is_gone_or_wants_other_credentials_is_not_asked_again(
    error: UpstreamError,
) -> None:
    transport = ScriptedTransport(error, initialized(LEGACY))
    with pytest.raises(type(error)):
        await negotiate_protocol(SPEC, transport, None)
    assert transport.asked == ["server/discover"]


@pytest.mark.parametrize("code", [-32020, -32021])
@virtual_time
async def test_an_error_that_only_a_stateless_server_gives_does_not_lead_to_the_handshake(code: int) -> None:
    transport = ScriptedTransport(failed(code), initialized(LEGACY))
    with pytest.raises(InvalidUpstreamResponse):
        await negotiate_protocol(SPEC, transport, None)
    assert transport.asked == ["server/discover"]


@virtual_time
async def test_a_server_that_names_an_old_version_is_asked_for_the_handshake() -> None:
    transport = ScriptedTransport(
        failed(-32022, supported=["2025-06-18", "2025-11-25"]), initialized("2025-06-18")
    )
    assert (await agree(transport)).version == "2025-06-18"


@virtual_time
async def test_a_server_that_refused_the_version_and_names_it_all_the_same_is_asked_once_more() -> None:
    transport = ScriptedTransport(failed(-32022, supported=[MODERN]), failed(-32022, supported=[MODERN]))
    with pytest.raises(VersionMismatch):
        await negotiate_protocol(SPEC, transport, None)
    assert 2 <= transport.asked.count("server/discover") <= 3


@virtual_time
async def test_a_server_of_another_time_is_not_spoken_to() -> None:
    transport = ScriptedTransport(failed(-32022, supported=["2031-01-01", "2030-01-01"]), initialized(LEGACY))
    with pytest.raises(VersionMismatch, match="2031-01-01"):
        await negotiate_protocol(SPEC, transport, None)
    assert transport.asked == ["server/discover"]


@virtual_time
async def test_a_version_that_we_do_not_speak_is_refused() -> None:
    with pytest.raises(VersionMismatch, match="1999-01-01"):
        await negotiate_protocol(SPEC, ScriptedTransport(UNKNOWN_METHOD, initialized("1999-01-01")), None)


@virtual_time
async def test_a_server_that_is_silent_about_what_it_does_not_know_gets_the_handshake() -> None:
    loop = asyncio.get_running_loop()
    started = loop.time()
    transport = ScriptedTransport(None, initialized(LEGACY))
    assert (await agree(transport)).version == LEGACY
    assert loop.time() - started < 10.0


@virtual_time
async def test_a_slow_stateless_server_is_not_taken_for_an_old_one() -> None:
    transport = ScriptedTransport(discovered(MODERN), None, after=(20.0, 0.0))
    assert (await agree(transport)).version == MODERN


@virtual_time
async def test_a_slow_old_server_answers_both_questions_late() -> None:
    transport = ScriptedTransport(UNKNOWN_METHOD, initialized(LEGACY), after=(20.0, 25.0))
    assert (await agree(transport)).version == LEGACY
    assert transport.asked == ["server/discover", "initialize"]


@virtual_time
async def test_a_slow_stateless_server_that_refuses_the_handshake_first_is_asked_once_more() -> None:
    transport = ScriptedTransport(discovered(MODERN), failed(-32022, supported=[MODERN]), after=(7.0, 0.5))
    assert (await agree(transport)).version == MODERN


@virtual_time
async def test_a_server_that_never_answers_is_given_up() -> None:
    with pytest.raises(UpstreamTimeout):
        await negotiate_protocol(SPEC, ScriptedTransport(None, None), None)


@virtual_time
async def test_an_old_server_that_is_remembered_is_not_asked_twice() -> None:
    transport = ScriptedTransport(UNKNOWN_METHOD, initialized("2025-06-18"))
    assert (await agree(transport, "2025-03-26")).version == "2025-06-18"
    assert transport.asked == ["initialize"]


@virtual_time
async def test_an_old_server_that_has_become_a_new_one_is_noticed() -> None:
    transport = ScriptedTransport(discovered(MODERN), failed(-32022, supported=[MODERN]))
    assert (await agree(transport, LEGACY)).version == MODERN


@pytest.mark.parametrize(
    "answer", [failed(-32603), McpResponse(b"{}"), McpResponse(b'{"protocolVersion":5}')]
)
@virtual_time
async def test_a_handshake_that_fails_says_so(answer: McpResponse) -> None:
    with pytest.raises(InvalidUpstreamResponse, match="initialize"):
        await negotiate_protocol(SPEC, ScriptedTransport(UNKNOWN_METHOD, answer), None)


# On behalf of clients of one profile.


@virtual_time
async def test_a_handshake_declares_exactly_what_the_clients_declared() -> None:
    transport = ScriptedTransport(UNKNOWN_METHOD, initialized(LEGACY))
    await negotiate_protocol(SPEC, transport, LEGACY, SAMPLING)
    assert transport.asked == ["initialize"]
    assert clients_own(transport.params[0]["capabilities"]) == {"sampling": {}}


@virtual_time
async def test_what_a_server_says_about_itself_is_kept_as_it_came() -> None:
    told = b'{"protocolVersion":"2025-11-25","capabilities":{"x" : 1.0},"instructions":"be kind"}'
    greeting = await agree(ScriptedTransport(UNKNOWN_METHOD, McpResponse(told)))
    assert (greeting.capabilities, greeting.instructions) == (b'{"x" : 1.0}', "be kind")
    said = b'{"supportedVersions":["2026-07-28"],"capabilities":{"y" : 2.0},"instructions":null}'
    greeting = await agree(ScriptedTransport(McpResponse(said), None))
    assert (greeting.capabilities, greeting.instructions) == (b'{"y" : 2.0}', "")
