"""A connection that TLS refuses says why, and what to do."""

import asyncio
import ssl
from pathlib import Path

import pytest

from headgate.domain.server_spec import TlsFiles
from headgate.upstream.http.http_connector import ConnectFailed, Origin, OriginConnector
from testkit.network import Authority, serving


async def refuse_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()
    await reader.read()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)


async def refusal(port: int, ca_file: str) -> str:
    connector = OriginConnector(Origin(f"https://localhost:{port}/"), 5.0, tls=TlsFiles(ca_file=ca_file))
    with pytest.raises(ConnectFailed) as refused:
        await connector.connect(asyncio.Protocol)
    return str(refused.value)


def context(authority: Authority, label: str, age_days: int = 0, only_for: str = "") -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*authority.sign(label, age_days=age_days, only_for=only_for))
    return made


@pytest.mark.parametrize(
    ("made", "cause", "advice"),
    [
        ({"age_days": 30}, "certificate has expired", "renew the certificate of the server"),
        ({"age_days": -30}, "not yet valid", "check the clocks"),
        ({"only_for": "elsewhere.test"}, "not valid for 'localhost'", "write a host name of its certificate"),
    ],
)
async def test_a_certificate_of_a_known_authority_is_not_blamed_on_that(
    tmp_path: Path, made: dict[str, int | str], cause: str, advice: str
) -> None:
    authority = Authority(tmp_path)
    with serving(hang_up, context(authority, "server", **made)) as port:  # type: ignore[arg-type]
        told = await refusal(port, str(authority.file))
    assert cause in told
    assert advice in told
    assert "caFile" not in told


async def test_an_authority_that_is_not_in_the_file_is_named_as_the_cause(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    with serving(hang_up, context(theirs, "server")) as port:
        told = await refusal(port, str(ours.file))
    assert "caFile has no authority that signed its certificate; add that authority" in told


async def test_a_server_without_tls_is_known_by_its_answer(tmp_path: Path) -> None:
    with serving(refuse_plainly) as port:
        assert "does not speak TLS; if it is a plain HTTP server, write http://" in await refusal(port, "")


async def test_a_connection_that_ends_during_the_handshake_has_a_cause() -> None:
    with serving(hang_up) as port:
        assert await refusal(port, "") == "the connection ended before it was ready"
