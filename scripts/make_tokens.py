"""Makes the vocabulary by which tokens are counted, from the ranks that OpenAI publishes with tiktoken.

    python scripts/make_tokens.py o200k_base.js

needs the Python package tiktoken 0.14.0, whose regular expressions say of what kind each character is. The
file is dist/ranks/o200k_base.js of the npm package js-tiktoken 1.0.21; its content is compared with the hash
of the original.
"""

import base64
import hashlib
import re
import sys
from array import array
from itertools import pairwise
from pathlib import Path
from typing import Final

import click
import msgspec
import tiktoken

from headgate.search.token_counter import CAPITAL, CASELESS, DIGIT, LONG_S, MARK, SIGN, SMALL, SPACE

TARGET: Final = Path(__file__).resolve().parent.parent / "src/headgate/search/data/o200k.msgpack"
# Of o200k_base.tiktoken, as tiktoken has it.
ORIGINAL: Final = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
KINDS: Final = {
    CAPITAL: r"[\p{Lu}\p{Lt}]",
    SMALL: r"\p{Ll}",
    CASELESS: r"[\p{Lm}\p{Lo}]",
    MARK: r"\p{M}",
    DIGIT: r"\p{N}",
    SPACE: r"\s",
}

Ranks = dict[bytes, int]


@click.command(help=__doc__)
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(source: Path) -> None:
    """Make the file."""
    ranks = _ranks(source.read_text("utf-8"))
    merges = sorted((*_parts(token, ranks), rank) for token, rank in ranks.items() if len(token) > 1)
    starts = [0] * (len(ranks) + 1)
    for left, _, _ in merges:
        starts[left + 1] += 1
    for token in range(len(ranks)):
        starts[token + 1] += starts[token]
    edges, kinds = _kinds()
    content = {
        "singles": bytes(ranks[bytes([byte])] for byte in range(256)),
        "starts": _packed(starts),
        "rights": _packed([right for _, right, _ in merges]),
        "wholes": _packed([whole for _, _, whole in merges]),
        "edges": _packed(edges),
        "kinds": kinds,
    }
    TARGET.write_bytes(msgspec.msgpack.encode(content))
    print(f"{TARGET.name}: {len(merges)} merges, {len(edges)} edges, {TARGET.stat().st_size} bytes")


def _ranks(source: str) -> Ranks:
    """The tokens with their ranks; the source lists them in base64, line after line, from a first rank on."""
    lines = msgspec.json.decode(source[source.index("{") : source.rindex("}") + 1])["bpe_ranks"].splitlines()
    ranks: Ranks = {}
    for _, first, *tokens in (line.split(" ") for line in lines):
        for rank, token in enumerate(tokens, int(first)):
            ranks[base64.b64decode(token)] = rank
    in_order = sorted(ranks.items(), key=lambda one: one[1])
    original = b"".join(b"%s %d\n" % (base64.b64encode(token), rank) for token, rank in in_order)
    if hashlib.sha256(original).hexdigest() != ORIGINAL:
        raise click.ClickException("these are not the ranks that OpenAI published")
    return ranks


def _parts(token: bytes, ranks: Ranks) -> tuple[int, int]:
    """The two tokens that it comes from."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        wholes = [ranks.get(left + right, len(ranks)) for left, right in pairwise(parts)]
        place = wholes.index(min(wholes))
        if wholes[place] == len(ranks):
            raise click.ClickException(f"nothing is ever merged into {token!r}")
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return ranks[parts[0]], ranks[parts[1]]


def _kinds() -> tuple[list[int], str]:
    """Where the kind of characters changes, and to what."""
    characters = [chr(code) for code in range(0x80, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    drawn = dict.fromkeys(characters, SIGN)
    for kind, expression in KINDS.items():
        drawn |= dict.fromkeys(_matching(expression, "".join(characters)), kind)
    drawn |= dict([LONG_S])
    ends = re.finditer(r"(.)\1*", "".join(drawn.values()), re.DOTALL)
    firsts = [run.start() for run in ends]
    return [ord(characters[first]) for first in firsts], "".join(drawn[characters[first]] for first in firsts)


def _matching(expression: str, characters: str) -> str:
    bytes_alone = {bytes([byte]): byte for byte in range(256)}
    encoding = tiktoken.Encoding("kind", pat_str=expression, mergeable_ranks=bytes_alone, special_tokens={})
    return bytes(encoding.encode_ordinary(characters)).decode()


def _packed(numbers: list[int]) -> bytes:
    packed = array("I", numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


if __name__ == "__main__":
    main()
