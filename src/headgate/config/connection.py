"""Reads how a URL server is reached: its proxy, its certificates, its version of HTTP."""

from headgate.config.entries import ServerEntry
from headgate.config.files import Places
from headgate.config.keys import camel
from headgate.config.values import shown
from headgate.domain.errors import ConfigError
from headgate.domain.http_proxy import DIRECT, ProxyUnusable, read_proxy
from headgate.domain.server import PLAIN_TLS, TlsFiles

# They are about TLS.
_ENCRYPTED = ("ca_file", "client_cert", "http2")


def check_connection(name: str, entry: ServerEntry, warnings: list[str]) -> None:
    """Raise ConfigError for a proxy that cannot be used; warn of what has no effect."""
    proxy = entry.proxy.strip()
    if proxy and proxy != DIRECT:
        try:
            read_proxy(proxy)
        except ProxyUnusable as error:
            # The URL itself is not shown: it may hold a password.
            raise ConfigError(
                f"its proxy is not usable, {error}",
                hint=f"write proxy as http://host:port or https://host:port, or {DIRECT} for none",
            ) from error
    if not entry.url.lower().startswith("http:"):
        return
    idle = [key for key in _ENCRYPTED if getattr(entry, key)]
    if proxy.lower().startswith("https:") and "ca_file" in idle:
        # The proxy's own certificate is checked against it.
        idle.remove("ca_file")
    warnings += [
        f"{camel(key)!r} in server {shown(name)} has no effect on a url with http: write https"
        for key in idle
    ]


def tls_of(entry: ServerEntry, here: Places) -> TlsFiles:
    """The files of the entry, relative to the configuration."""
    shown_to_it = entry.client_cert
    if not entry.ca_file and shown_to_it is None:
        return PLAIN_TLS
    ca_file = _path(entry.ca_file, "caFile", here)
    if shown_to_it is None:
        return TlsFiles(ca_file)
    cert, key = _path(shown_to_it.cert, "clientCert", here), _path(shown_to_it.key, "key in clientCert", here)
    return TlsFiles(ca_file, cert, key, shown_to_it.password)


def _path(text: str, where: str, here: Places) -> str:
    return str(here.resolve(text, where)) if text else ""
