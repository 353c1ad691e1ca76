"""What clients keep for us opens only as it was sealed, for what it was sealed, and not for ever."""

import stat
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from headgate.domain.errors import ConfigError
from headgate.storage.files.sealer import Sealer, SealExpired, SealInvalid, load_seal_key

OLD, NEW = b"o" * 32, b"n" * 32
CONTENT = b'{"version":"2025-11-25"}\x00\xff'


class Clock:
    """A time of day that the test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Way(NamedTuple):
    """One of the two ways in which a token is made and read."""

    close: Callable[[Sealer, str, bytes, float], str]
    open: Callable[[Sealer, str, str], bytes]


@pytest.fixture(
    params=[Way(Sealer.seal, Sealer.open), Way(Sealer.sign, Sealer.verify)], ids=["sealed", "signed"]
)
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


@pytest.mark.parametrize("content", [b"", CONTENT, bytes(range(256)) * 100])
def test_what_was_sealed_opens(way: Way, content: bytes) -> None:
    token = way.close(Sealer([OLD]), "session", content, 60)
    assert way.open(Sealer([OLD]), "session", token) == content
    assert token.isascii()
    assert all(character.isalnum() or character in "-_" for character in token)


def test_no_two_tokens_are_alike(way: Way) -> None:
    seal = Sealer([OLD])
    assert len({way.close(seal, "session", CONTENT, 60) for _ in range(100)}) == 100


def test_what_is_sealed_does_not_show() -> None:
    token = Sealer([OLD]).seal("session", CONTENT, 60)
    assert b"2025" not in urlsafe_b64decode(token + "==")


def test_what_is_signed_is_not_sealed_and_the_other_way_round() -> None:
    seal = Sealer([OLD])
    with pytest.raises(SealInvalid):
        seal.open("session", seal.sign("session", CONTENT, 60))
    with pytest.raises(SealInvalid):
        seal.verify("session", seal.seal("session", CONTENT, 60))


def test_every_changed_bit_breaks_it(way: Way) -> None:
    seal = Sealer([OLD])
    token = way.close(seal, "session", b"x", 60)
    sealed = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    for place in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(SealInvalid):
            way.open(seal, "session", urlsafe_b64encode(bytes(changed)).rstrip(b"=").decode())


@pytest.mark.parametrize("length", range(5))
def test_a_token_has_one_spelling(way: Way, length: int) -> None:
    seal = Sealer([OLD])
    token = way.close(seal, "session", b"x" * length, 60)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    others = [token[:-1] + letter for letter in alphabet if letter != token[-1]]
    others += [token + "=", token + "==", token + " ", " " + token, token[:9] + "!" + token[9:], token + "\n"]
    for other in others:
        with pytest.raises(SealInvalid):
            way.open(seal, "session", other)


@pytest.mark.parametrize(
    "token", ["", "x", "nonsense", "é", "A" * 15, "A" * 16, "A" * 5000, "\ud83d", "=" * 40]
)
def test_nonsense_is_broken(way: Way, token: str) -> None:
    with pytest.raises(SealInvalid):
        way.open(Sealer([OLD]), "session", token)


def test_a_token_serves_one_purpose(way: Way) -> None:
    seal = Sealer([OLD])
    with pytest.raises(SealInvalid):
        way.open(seal, "state", way.close(seal, "session", CONTENT, 60))


def test_a_token_ends(way: Way) -> None:
    clock = Clock()
    seal = Sealer([OLD], clock)
    token = way.close(seal, "session", CONTENT, 60)
    clock.now += 59.9
    assert way.open(seal, "session", token) == CONTENT
    clock.now += 0.2
    with pytest.raises(SealExpired):
        way.open(seal, "session", token)


def test_the_first_key_seals_and_every_key_opens(way: Way) -> None:
    before, during, after = Sealer([OLD]), Sealer([NEW, OLD]), Sealer([NEW])
    assert way.open(during, "session", way.close(before, "session", CONTENT, 60)) == CONTENT
    assert way.open(after, "session", way.close(during, "session", CONTENT, 60)) == CONTENT
    with pytest.raises(SealInvalid):
        way.open(after, "session", way.close(before, "session", CONTENT, 60))


@pytest.mark.parametrize("keys", [[], [b""], [b"short"], [OLD, b"x" * 16]])
def test_a_key_of_another_length_is_refused(keys: list[bytes]) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Sealer(keys)


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    key = load_seal_key(directory)
    assert len(key) == 32
    assert load_seal_key(directory) == key
    assert stat.S_IMODE((directory / "seal.key").stat().st_mode) == 0o600
    assert [path.name for path in directory.iterdir()] == ["seal.key"]
    assert load_seal_key(tmp_path / "other") != key


def test_starts_at_the_same_time_agree_on_one_key(tmp_path: Path) -> None:
    keys: list[bytes] = []
    starts = [threading.Thread(target=lambda: keys.append(load_seal_key(tmp_path))) for _ in range(16)]
    for start in starts:
        start.start()
    for start in starts:
        start.join(10)
    assert len(keys) == 16
    assert len(set(keys)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["seal.key"]


@pytest.mark.parametrize("content", [b"", b"half a key", b"x" * 33])
def test_a_file_that_holds_no_key_is_said_to(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "seal.key").write_bytes(content)
    with pytest.raises(ConfigError, match="seal\\.key"):
        load_seal_key(tmp_path)


def test_where_nothing_can_be_kept_the_key_lasts_for_this_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    assert len(load_seal_key(blocked)) == 32
    assert "seal key not kept" in caplog.text
