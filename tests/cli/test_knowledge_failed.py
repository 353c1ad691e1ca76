"""A file that failed is not parsed again by the next command, until it changes."""

import json
from pathlib import Path

from headgate.knowledge.readers.file_library import FAILED_FILES_NAME
from tests.cli.test_knowledge import told


def failed(tmp_path: Path) -> list[dict[str, str]]:
    summary = json.loads(told(tmp_path, "ingest", tmp_path / "docs", "--json"))
    return [dict(one) for one in summary["failed"]]


def test_a_file_that_failed_is_not_parsed_again_until_it_changes(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "good.md").write_text("# Pumps")
    (docs / "bad.pdf").write_bytes(b"%PDF-1.7 broken")
    reason = "is no PDF that can be read; save it again"
    assert failed(tmp_path) == [{"file": "docs/bad.pdf", "reason": reason}]
    [record] = tmp_path.rglob(FAILED_FILES_NAME)
    record.write_bytes(record.read_bytes().replace(reason.encode(), b"is what was remembered"))
    assert failed(tmp_path) == [{"file": "docs/bad.pdf", "reason": "is what was remembered"}]
    (docs / "bad.pdf").write_bytes(b"%PDF-1.7 broken otherwise")
    assert failed(tmp_path) == [{"file": "docs/bad.pdf", "reason": reason}]
    (docs / "bad.pdf").unlink()
    assert failed(tmp_path) == []
    assert b"bad.pdf" not in record.read_bytes()


def test_another_edition_of_the_parsers_and_a_broken_record_forget_what_failed(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "good.md").write_text("# Pumps")
    (docs / "bad.pdf").write_bytes(b"%PDF-1.7 broken")
    [first] = failed(tmp_path)
    [record] = tmp_path.rglob(FAILED_FILES_NAME)
    kept = json.loads(record.read_bytes())
    changed = json.dumps(kept).replace(first["reason"], "is what was remembered")
    record.write_text(changed.replace(f'"edition": "{kept["edition"]}"', '"edition": "0"'))
    assert failed(tmp_path) == [first]
    record.write_text("{")
    assert failed(tmp_path) == [first]
