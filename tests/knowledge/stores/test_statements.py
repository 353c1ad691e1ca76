"""The named statements of both engines."""

import re
from pathlib import Path

from headgate.knowledge import stores
from headgate.knowledge.stores.postgres.schema import POSTGRES_SQL
from headgate.knowledge.stores.sqlite.store import SQLITE_SQL


def test_both_engines_have_the_same_statements_and_the_code_uses_each_of_them() -> None:
    assert SQLITE_SQL.keys() == POSTGRES_SQL.keys()
    code = "\n".join(path.read_text("utf-8") for path in Path(stores.__path__[0]).glob("*.py"))
    # The statements on claims are named for what the claims are about.
    used = set(re.findall(r'"(\w+)"', code)) | {
        name.replace("{about}", about)
        for name in re.findall(r'f"([\w{}.]+)"', code)
        for about in ("entity", "relationship")
    }
    assert set(SQLITE_SQL) <= used
