"""Which names of Host and Origin are the gateway's own."""

import pytest

from headgate.server.guard import HttpRefusal, RequestGuard


@pytest.mark.parametrize("host", ["127.0.0.2", "::1", "127.0.0.1", "localhost"])
def test_the_address_that_it_listens_on_is_always_let_in(host: str) -> None:
    shown = f"[{host}]" if ":" in host else host
    RequestGuard(host, 8000, (), ()).check({b"host": f"{shown}:8000".encode()})


@pytest.mark.parametrize("host", [b"127.0.0.2:8000", b"127.0.0.1", b"localhost:80", b"evil.example", b""])
def test_every_other_name_is_refused(host: bytes) -> None:
    with pytest.raises(HttpRefusal) as refused:
        RequestGuard("127.0.0.1", 8000, (), ()).check({b"host": host})
    assert refused.value.status == 421
