"""HTTP upstreams whose TLS cannot be trusted (F31)."""

import asyncio
import contextlib
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from campaign.trial import Trial, case
from campaign.upstream_http import SPARE_FILES
from testkit.async_gateway_process import AsyncGatewayProcess
from testkit.clients.async_http import Client, client
from testkit.misbehaving_upstreams import MisbehavingHttpProcess, misbehaving_http
from testkit.network import NAME, Authority, behind_tls
from testkit.waiting import eventually

# What the error says of each: the cause, and the next step.
_TOLD = {
    "expired": ("certificate has expired", "renew"),
    "wrong host": ("not valid for", "url"),
    "self-signed": ("self-signed certificate", "caFile"),
    "other authority": ("not accepted", "caFile"),
    "TLS 1.0": ("TLS 1.2", "update"),
    "no TLS": ("does not speak TLS", "http://"),
}
_CANARY = "Bearer tls-canary"


def _context(files: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


def _old(context: ssl.SSLContext) -> ssl.SSLContext:
    """A server of TLS 1.0 only, or a client that takes it; OpenSSL needs an explicit setting for this."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        if context.protocol == ssl.PROTOCOL_TLS_SERVER:
            context.maximum_version = ssl.TLSVersion.TLSv1
    return context


def _contexts(directory: Path, authority: Authority) -> dict[str, ssl.SSLContext]:
    other = Authority(directory / "other")
    return {
        "good": _context(authority.sign("good")),
        "expired": _context(authority.sign("expired", age_days=30)),
        "wrong host": _context(authority.sign("elsewhere", only_for="elsewhere.test")),
        "self-signed": _context((other.file, other.key_file)),
        "other authority": _context(other.sign("stranger")),
    }


@contextlib.contextmanager
def _urls(upstream: MisbehavingHttpProcess, contexts: dict[str, ssl.SSLContext]) -> Iterator[dict[str, str]]:
    """The upstream behind each kind of TLS, by its label."""
    with contextlib.ExitStack() as stack:
        urls = {
            label: stack.enter_context(behind_tls(upstream.url, context)).replace(NAME, "localhost")
            for label, context in contexts.items()
        }
        yield urls


@contextlib.contextmanager
def _answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server with a thread for each connection; unlike asyncio it sends the alerts of TLS."""

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            answer(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"https://localhost:{listener.getsockname()[1]}/mcp"
        listener.shutdown(socket.SHUT_RDWR)


def _speak_old(context: ssl.SSLContext, connection: socket.socket) -> None:
    with context.wrap_socket(connection, server_side=True) as wrapped:
        wrapped.recv(1)


def _refuse_plainly(connection: socket.socket) -> None:
    connection.recv(1 << 16)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


@case(
    "F31",
    "TLS: expired, wrong host, self-signed, other authority, TLS 1.0 only, no TLS; a good private CA",
    "refused, nothing sent; the error names the cause and the next step; the good one works",
)
async def bad_certificates(trial: Trial) -> None:
    """What cannot be trusted gets neither a call nor a credential."""
    authority = Authority(trial.directory / "authority")
    contexts = _contexts(trial.directory, authority)
    async with misbehaving_http(trial.directory) as upstream:
        old = _old(_context(authority.sign("old")))
        with (
            _urls(upstream, contexts) as urls,
            _answering(partial(_speak_old, old)) as old_url,
            _answering(_refuse_plainly) as plain_url,
        ):
            urls |= {"TLS 1.0": old_url, "no TLS": plain_url}
            trial.check("an old client reaches the server with TLS 1.0", await _speaks_old(urls, authority))
            settings = {
                "caFile": str(authority.file),
                "headers": {"Authorization": _CANARY},
                "proxy": "direct",
            }
            servers = {
                label.replace(" ", "-").replace(".", "-").lower(): {"url": url, "timeout": 5, **settings}
                for label, url in urls.items()
            }
            await _only_the_good_one(trial, upstream, servers)


async def _speaks_old(urls: dict[str, str], authority: Authority) -> bool:
    """Whether it is the age of the protocol, and nothing else, for which this server is refused."""
    context = _old(ssl.create_default_context(cafile=authority.file))
    port = int(urls["TLS 1.0"].split(":")[2].split("/")[0])
    _, writer = await asyncio.open_connection("localhost", port, ssl=context)
    version = writer.get_extra_info("ssl_object").version()
    writer.transport.abort()
    return bool(version == "TLSv1")


async def _only_the_good_one(
    trial: Trial, upstream: MisbehavingHttpProcess, servers: dict[str, dict[str, object]]
) -> None:
    # The good one starts only when it is called, so that everything before that came by mistake.
    bad = {name: entry for name, entry in servers.items() if name != "good"}
    async with (
        trial.gateway(bad, ready=[], spare_files=SPARE_FILES) as gateway,
        client(gateway.port) as caller,
    ):
        for label in _TOLD:
            await _refused(trial, gateway, caller, label)
        arrived = upstream.received()
        trial.measure("requests at those refused", len(arrived))
        trial.check("nothing was sent", not arrived, arrived[:1])
    async with (
        trial.gateway({"good": servers["good"]}, spare_files=SPARE_FILES) as gateway,
        client(gateway.port) as caller,
    ):
        answer = await caller.call("good_echo", {"text": "trusted"})
        trial.measure("good, by caFile", answer.outcome)
        trial.check("a private authority works", answer.text == "trusted", answer.outcome)
        trial.check("with its credential", _CANARY in str(upstream.received()))


async def _refused(trial: Trial, gateway: AsyncGatewayProcess, caller: Client, label: str) -> None:
    name = label.replace(" ", "-").replace(".", "-").lower()

    async def failed() -> bool:
        return bool((await gateway.servers())[name].get("last_error"))

    await eventually(failed, 10, f"{name} to fail")
    answer = await caller.call(f"{name}:echo", {"text": "x"})
    failure = answer.failure
    trial.measure(label, answer.outcome)
    refused = failure is not None and failure.effect == "none" and not answer.ok
    trial.check(f"{label}: refused, nothing happened", refused, answer.outcome)
    shown = str((await gateway.servers())[name]["last_error"])
    for where, text in (("the error", answer.text), ("/ready", shown)):
        trial.check(f"{label}: {where} names the cause and what to do", _tells(label, text), text)
        trial.check(f"{label}: {where} has no credential", "tls-canary" not in text, text)


def _tells(label: str, text: str) -> bool:
    return all(part.lower() in text.lower() for part in _TOLD[label])
