"""Public names of real tools: what the benchmark counts."""

import json
from pathlib import Path

import pytest

from bench.listing.names import counted, main, read_tools

SIGNALS = "awslabs.cloudwatch-applicationsignals-mcp-server"


def test_names_of_both_versions_are_counted() -> None:
    tools = [("git", "status"), (SIGNALS, "list_slis"), (SIGNALS, "audit_service_operations")]
    before, now = counted(tools, 49)
    assert (before.shortened, before.hashed, before.own_cut, before.unreadable, before.untidy) == (
        1,
        1,
        2,
        2,
        2,
    )
    assert (now.shortened, now.hashed, now.own_cut, now.unreadable, now.untidy) == (2, 0, 0, 0, 0)


def test_the_catalogs_of_a_directory_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "git.json").write_text(json.dumps({"tools": [{"name": "status"}]}))
    monkeypatch.setenv("HEADGATE_CATALOG_DATA", str(tmp_path))
    assert read_tools() == [("git", "status")]
    main()
    assert "| 49 | now | 1 | 0 | 0 | 0 | 0 | 0 |" in capsys.readouterr().out


def test_no_name_of_a_real_tool_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_CATALOG_DATA", raising=False)
    for limit in (49, 60):
        before, now = counted(read_tools(), limit)
        assert now.tools == before.tools == 3250
        assert now.unreadable == now.untidy == 0
        assert now.hashed < before.hashed
        assert now.own_cut < before.own_cut
