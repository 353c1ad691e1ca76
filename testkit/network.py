"""A private network for tests: an authority, servers behind TLS, and a proxy that alone knows their names."""

import asyncio
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from testkit.faults.tcp_proxy import FaultProxy

HOST = "127.0.0.1"
# What the servers are called; no resolver knows it.
NAME = "mcp.corp.test"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Authority:
    """A certificate authority of a test's own, with everything that it signed in one directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test authority")])
        ca = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._certificate(self._name, self._key).add_extension(ca, critical=True)
        self.file = directory / "ca.pem"
        self.file.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM))
        self.key_file = directory / "ca.key"
        self.key_file.write_bytes(self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def _certificate(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, age_days: int = 0
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=age_days)
        return (
            x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    def sign(
        self, label: str, password: bytes = b"", *, age_days: int = 0, only_for: str = ""
    ) -> tuple[Path, Path]:
        """Return the files of a certificate for the servers' name and loopback, and of its key.

        It is valid for a day, `age_days` ago, and for the host `only_for` instead, if that is given.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, label)])
        here = [x509.DNSName(NAME), x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(HOST))]
        names = x509.SubjectAlternativeName([x509.DNSName(only_for)] if only_for else here)
        made = (
            self._certificate(name, key, age_days)
            .add_extension(names, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        cert_file, key_file = self._directory / f"{label}.pem", self._directory / f"{label}.key"
        cert_file.write_bytes(made.public_bytes(Encoding.PEM))
        locked: KeySerializationEncryption = BestAvailableEncryption(password) if password else NoEncryption()
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
        return cert_file, key_file

    def server_context(self, *, wants_client: bool = False) -> ssl.SSLContext:
        """What a server with a certificate of this authority offers."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.file)
        context.load_cert_chain(*self.sign("server"))
        context.verify_mode = ssl.CERT_REQUIRED if wants_client else ssl.CERT_NONE
        return context


@contextmanager
def serving(serve: Serve, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve connections on a thread of its own, and give the port."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    ports: list[int] = []
    ending = asyncio.Event()
    connections: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            with suppress(OSError, EOFError, asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            connections.discard(task)
            writer.transport.abort()

    async def run() -> None:
        server = await asyncio.start_server(handle, HOST, 0, ssl=context)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()
        await ending.wait()
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(10)
        assert not thread.is_alive()
        loop.close()


@contextmanager
def behind_tls(url: str, context: ssl.SSLContext) -> Iterator[str]:
    """Put TLS before a plain server; give the address by which the proxy alone finds it."""
    parts = urlsplit(url)
    assert parts.port is not None
    with serving(FaultProxy(parts.port).relay, context) as port:
        yield f"https://{NAME}:{port}{parts.path}"


@dataclass
class Proxy:
    """A proxy on loopback: where it is, and every head of a request that it was sent."""

    url: str = ""
    heads: list[str] = field(default_factory=list)
    # What it answers with instead of serving.
    refuses_with: str = ""
    # The value of Proxy-Authorization that it wants.
    wants: str = ""

    @property
    def tunnels(self) -> list[str]:
        """The hosts that it was asked to connect to."""
        return [head.split(" ")[1] for head in self.heads if head.startswith("CONNECT ")]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.heads.append(head)
        refusal = self.refuses_with
        if self.wants and f"proxy-authorization: {self.wants}\r\n" not in head:
            refusal = "407 Proxy Authentication Required"
        method, target, _ = head.split(" ", 2)
        if refusal:
            writer.write(f"HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
        elif method == "CONNECT":
            host, _, port = target.rpartition(":")
            assert host in (NAME, HOST)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await FaultProxy(int(port)).relay(reader, writer)
        else:
            # Requests on this connection go on as they are: servers take absolute URLs too.
            there = urlsplit(target)
            assert there.port is not None
            lines = [line for line in head.split("\r\n") if not line.lower().startswith("proxy-")]
            await FaultProxy(there.port).relay(reader, writer, "\r\n".join(lines).encode())


@contextmanager
def proxying(context: ssl.SSLContext | None = None) -> Iterator[Proxy]:
    """Run a proxy, which itself speaks TLS if it is given a context."""
    proxy = Proxy()
    with serving(proxy.serve, context) as port:
        proxy.url = f"{'https' if context else 'http'}://{HOST}:{port}"
        yield proxy
