"""Hostile documents, and good ones among them."""

import contextlib
import json
import os
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

_BOMB_BYTES = 400 << 20
_DEEP = 100_000
_COLUMNS = 10_000
_CONTENT_TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/><Override PartName="/word/document.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONSHIPS = (
    '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/'
    'officeDocument" Target="word/document.xml"/></Relationships>'
)
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
CANARY = "CANARY-OF-ANOTHER-FILE"
# Those of which nothing can be taken, at any size.
HOPELESS = (
    "bomb.docx", "entities.docx", "laughs.docx", "no-zip.docx", "loop.pdf", "huge.pdf", "locked.pdf",
    "torn.pdf", "deep.json", "deep-objects.json", "large.txt",
)  # fmt: skip


def write(top: Path, outside: Path, megabytes: int, depth: int) -> dict[str, Callable[[Path], None]]:
    """Write all of them below `top`; gives how each was made by its name. `outside` is what links lead to.

    `depth` is that of pages: a parser's time grows with its square.
    """
    outside.mkdir()
    (outside / "secret.txt").write_text(CANARY)
    large = megabytes << 20
    made: dict[str, Callable[[Path], None]] = {
        "bomb.docx": _bomb,
        "entities.docx": lambda path: _docx(path, _entities(outside / "secret.txt")),
        "laughs.docx": lambda path: _docx(path, _laughs()),
        "no-zip.docx": lambda path: _fill(path, b"PK\x03\x04" + b"\0" * 4096),
        "loop.pdf": lambda path: _pdf(path, _looping()),
        "huge.pdf": lambda path: _pdf(path, [(1, b"<< /Length 99999999999 /Size 99999999999 >>")]),
        "locked.pdf": lambda path: _pdf(path, _page(b"BT (x) Tj ET"), b"/Encrypt << /V 9 >>"),
        "torn.pdf": lambda path: _fill(path, b"%PDF-1.7\n" + os.urandom(50_000)),
        "deep.html": lambda path: _fill(path, b"<div>" * depth + b"deepest" + b"</div>" * depth),
        "deep-lists.html": lambda path: _fill(path, b"<ul><li>" * depth + b"deepest"),
        "deep.json": lambda path: _fill(path, b"[" * _DEEP + b"]" * _DEEP),
        "deep-objects.json": lambda path: _fill(path, b'{"a":' * _DEEP + b"1" + b"}" * _DEEP),
        "deep.md": lambda path: _fill(path, b"> " * 20_000 + b"deepest"),
        "line.txt": lambda path: _fill(path, b"word " * (large // 5)),
        "word.txt": lambda path: _fill(path, b"x" * (large // 4)),
        "line.json": lambda path: _fill(path, b'["' + b"word " * (large // 5) + b'"]'),
        "line.csv": lambda path: _fill(path, b"head\n" + b"word " * (large // 5)),
        "quote.csv": lambda path: _fill(path, b'a,b\n"' + b"word,\n" * (large // 24)),
        "columns.csv": _columns,
        "number.json": lambda path: _fill(path, b"[1" + b"0" * 1_000_000 + b", 1e999999]"),
        "latin.txt": lambda path: _fill(path, "Grüße aus Köln".encode("latin-1") * 20),
        "broken.txt": lambda path: _fill(path, bytes(range(256)) * 50),
        "nul.txt": lambda path: _fill(path, b"before\0after " * 200),
        "half.md": lambda path: _fill(path, b"# half \xed\xa0\x80 a surrogate \xff\xfe\n"),
        "wide.txt": lambda path: _fill(path, b"\xff\xfe" + b"\x00\xd8" * 500),
        "empty.md": lambda path: _fill(path, b""),
        "out.md": lambda path: path.symlink_to(outside / "secret.txt"),
        "out": lambda path: path.symlink_to(outside),
        "round": lambda path: path.symlink_to(top),
        "nowhere.md": lambda path: path.symlink_to(top / "nothing"),
        "pipe.txt": os.mkfifo,
        "zero.txt": _device,
        "large.txt": _sparse,
    }
    for name, make in made.items():
        with contextlib.suppress(PermissionError):
            make(top / name)
    return made


def good(top: Path, count: int) -> list[str]:
    """So many documents with which nothing is wrong; gives a word of each that no other has."""
    words = []
    for number in range(count):
        word = f"harmless{number}word"
        (top / f"good{number:03d}.md").write_text(f"# Good {number}\n\nNothing is wrong here: {word}.\n")
        words.append(word)
    return words


def _fill(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _docx(path: Path, document: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", _CONTENT_TYPES)
        archive.writestr("_rels/.rels", _RELATIONSHIPS)
        archive.writestr("word/document.xml", document)


def _bomb(path: Path) -> None:
    _docx(path, "")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("[Content_Types].xml", _CONTENT_TYPES)
        archive.writestr("_rels/.rels", _RELATIONSHIPS)
        with archive.open("word/document.xml", "w") as part:
            part.write(f'<w:document xmlns:w="{_WORD}"><w:body><w:p><w:r><w:t>'.encode())
            for _ in range(_BOMB_BYTES >> 20):
                part.write(b" " * (1 << 20))


def _entities(secret: Path) -> str:
    return (
        f'<?xml version="1.0"?><!DOCTYPE d [<!ENTITY x SYSTEM "file://{secret}">]>'
        f'<w:document xmlns:w="{_WORD}"><w:body><w:p><w:r><w:t>&x;</w:t></w:r></w:p></w:body></w:document>'
    )


def _laughs() -> str:
    lines = ['<!ENTITY a0 "ha">']
    lines += [f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12)]
    return (
        f'<?xml version="1.0"?><!DOCTYPE d [{"".join(lines)}]><w:document xmlns:w="{_WORD}"><w:body><w:p>'
        "<w:r><w:t>&a11;</w:t></w:r></w:p></w:body></w:document>"
    )


def _pdf(path: Path, objects: list[tuple[int, bytes]], trailer: bytes = b"") -> None:
    written = bytearray(b"%PDF-1.7\n")
    places = {}
    for number, body in objects:
        places[number] = len(written)
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(written)
    most = max(places) + 1
    written += b"xref\n0 %d\n0000000000 65535 f \n" % most
    for number in range(1, most):
        written += b"%010d 00000 n \n" % places.get(number, 0)
    written += b"trailer << /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (most, trailer, start)
    path.write_bytes(bytes(written))


def _looping() -> list[tuple[int, bytes]]:
    return [
        (1, b"<< /Type /Catalog /Pages 2 0 R /Outlines 4 0 R >>"),
        (2, b"<< /Type /Pages /Kids [2 0 R 3 0 R 2 0 R] /Count 3 /Parent 2 0 R >>"),
        (3, b"<< /Type /Pages /Kids [2 0 R] /Count 1 /Parent 2 0 R >>"),
        (4, b"<< /First 5 0 R /Last 5 0 R >>"),
        (5, b"<< /Title (again) /Next 5 0 R /First 5 0 R >>"),
    ]


def _page(content: bytes) -> list[tuple[int, bytes]]:
    stream = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content)
    return [
        (1, b"<< /Type /Catalog /Pages 2 0 R >>"),
        (2, b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"),
        (3, b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R >>"),
        (4, stream),
    ]


def _columns(path: Path) -> None:
    names = ",".join(f"column {n}" for n in range(_COLUMNS))
    row = ",".join(str(n) for n in range(_COLUMNS))
    path.write_text("\n".join([names, *[row] * 20]))


def _device(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(200 << 20)


def records(path: Path, count: int) -> None:
    """A file of JSON lines, one of which is broken."""
    lines = [json.dumps({"name": f"record {n}", "value": n}) for n in range(count)]
    lines[count // 2] = "{broken"
    path.write_text("\n".join(lines))
