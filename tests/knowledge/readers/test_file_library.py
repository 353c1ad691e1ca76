"""Finding and reading files: only what belongs to the tree, and an unreadable file is reported."""

import asyncio
import hashlib
import os
import signal
from pathlib import Path

import pytest

from headgate.domain.errors import ConfigError
from headgate.knowledge.ingestion.document_source import DocumentUnreadable, FileInventory
from headgate.knowledge.readers.file_discovery import ExclusionPatterns, discover_files, root_of
from headgate.knowledge.readers.file_library import open_library
from testkit.procfs import descendants


def write(directory: Path, *names: str, text: str = "words") -> None:
    """Files with the same text."""
    for name in names:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


async def inventory(*paths: Path, exclude: tuple[str, ...] = ()) -> FileInventory:
    async with open_library(paths, exclude) as library:
        return await library.inventory()


async def test_files_are_called_by_their_root_and_their_path(tmp_path: Path) -> None:
    write(tmp_path / "docs", "a.md", "sub/b.TXT", "sub/c.xyz", "none")
    write(tmp_path, "single.csv")
    found = await inventory(tmp_path / "docs", tmp_path / "single.csv")
    assert [listed.file for listed in found.files] == ["docs/a.md", "docs/sub/b.TXT", "single.csv"]
    assert found.skipped == {"": 1, ".xyz": 1}
    assert [(root.name, root.is_file) for root in found.roots] == [("docs", False), ("single.csv", True)]


async def test_hidden_files_and_packages_of_others_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, ".git/a.md", ".b.md", "node_modules/c.md", "~$d.docx", "e.md")
    assert [listed.file for listed in (await inventory(tmp_path)).files] == [f"{tmp_path.name}/e.md"]


async def test_links_out_of_the_tree_and_round_in_it_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "outside/secret.md", "docs/a.md")
    docs = tmp_path / "docs"
    (docs / "out.md").symlink_to(tmp_path / "outside/secret.md")
    (docs / "outside").symlink_to(tmp_path / "outside")
    (docs / "round").symlink_to(docs)
    (docs / "self.md").symlink_to("self.md")
    os.mkfifo(docs / "pipe.md")
    assert [listed.file for listed in (await inventory(docs)).files] == ["docs/a.md"]


async def test_a_link_is_taken_only_for_a_file_that_is_not_taken_itself(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "versions/b")
    (tmp_path / "0 link.md").symlink_to("a.md")
    (tmp_path / "current.md").symlink_to("versions/b")
    (tmp_path / "latest.md").symlink_to("current.md")
    found = await inventory(tmp_path)
    assert [Path(listed.file).name for listed in found.files] == ["a.md", "current.md"]


@pytest.mark.parametrize("pattern", ["private/", "/private", "p.md", "private/**", "**/p.*"])
async def test_a_link_to_what_is_excluded_is_left_out_too(tmp_path: Path, pattern: str) -> None:
    write(tmp_path, "docs/private/p.md", "docs/real/a.md")
    (tmp_path / "docs/real/pub.md").symlink_to("../private/p.md")
    found = await inventory(tmp_path / "docs", exclude=(pattern,))
    assert [listed.file for listed in found.files] == ["docs/real/a.md"]


async def test_that_a_link_leads_to_what_is_excluded_is_known_of_its_root(tmp_path: Path) -> None:
    write(tmp_path, "docs/private/p")
    (tmp_path / "docs/pub.md").symlink_to("private/p")
    found = await inventory(tmp_path / "docs", exclude=("p",))
    assert found.files == ()
    assert found.excluded_from == {"docs"}


async def test_a_link_to_what_is_hidden_is_left_out_too(tmp_path: Path) -> None:
    write(tmp_path, "docs/.hid/deep/a.md", "docs/.env", "docs/node_modules/b.md", "docs/c.md")
    for number, target in enumerate((".hid/deep/a.md", ".env", "node_modules/b.md")):
        (tmp_path / f"docs/{number}.md").symlink_to(target)
    assert [listed.file for listed in (await inventory(tmp_path / "docs")).files] == ["docs/c.md"]
    # What is hidden may be asked for by itself.
    assert [listed.file for listed in (await inventory(tmp_path / "docs/.hid")).files] == [".hid/deep/a.md"]


async def test_files_are_found_as_kubernetes_mounts_them(tmp_path: Path) -> None:
    write(tmp_path, "docs/..2026_11_17/a.md")
    (tmp_path / "docs/..data").symlink_to("..2026_11_17")
    (tmp_path / "docs/a.md").symlink_to("..data/a.md")
    assert [listed.file for listed in (await inventory(tmp_path / "docs")).files] == ["docs/a.md"]


@pytest.mark.parametrize(
    ("pattern", "left"),
    [
        ("*.txt", {"a.md", "drafts/c.md", "deep/drafts/d.md"}),
        ("drafts/", {"a.md", "b.txt"}),
        ("/drafts", {"a.md", "b.txt", "deep/drafts/d.md"}),
        ("deep/**", {"a.md", "b.txt", "drafts/c.md"}),
        ("**/[cd].md", {"a.md", "b.txt"}),
        ("?.md", {"b.txt"}),
        ("# *", {"a.md", "b.txt", "drafts/c.md", "deep/drafts/d.md"}),
    ],
)
def test_patterns_leave_files_out_as_a_gitignore_does(tmp_path: Path, pattern: str, left: set[str]) -> None:
    write(tmp_path, "a.md", "b.txt", "drafts/c.md", "deep/drafts/d.md")
    found = discover_files([(tmp_path, root_of(tmp_path))], ExclusionPatterns([pattern]))
    assert {name.removeprefix(f"{tmp_path.name}/") for name in found.files} == left


async def test_patterns_leave_out_files_that_are_named_too(tmp_path: Path) -> None:
    write(tmp_path, "a.md", "readme.md")
    found = await inventory(tmp_path / "a.md", tmp_path / "readme.md", exclude=("readme.*",))
    assert [listed.file for listed in found.files] == ["a.md"]
    # So that what was ingested before leaves.
    assert len(found.roots) == 2


def test_a_later_pattern_takes_a_file_in_again() -> None:
    exclusion = ExclusionPatterns(["*.md", "!keep.md"])
    assert exclusion.covers("a/b.md", is_directory=False)
    assert not exclusion.covers("a/keep.md", is_directory=False)


async def test_a_file_is_read_with_its_digest_and_only_when_that_is_new(tmp_path: Path) -> None:
    write(tmp_path, "a.md", text="# Title\n")
    async with asyncio.timeout(30), open_library([tmp_path / "a.md"]) as library:
        await library.inventory()
        reading = await library.read("a.md", "")
        assert reading is not None
        assert reading.digest == hashlib.sha256(b"# Title\n").hexdigest()
        assert (reading.parsed.title, reading.size_bytes) == ("Title", 8)
        assert await library.read("a.md", reading.digest) is None


async def test_a_day_in_the_name_is_taken_where_the_document_says_none(tmp_path: Path) -> None:
    write(tmp_path, "2026-09-14-jour-fixe.txt")
    write(tmp_path, "2026-09-14-plan.md", text="---\ndate: 2025-01-02\n---\nwords")
    write(tmp_path, "plan.txt")
    async with asyncio.timeout(30), open_library([tmp_path]) as library:
        found = await library.inventory()
        readings = [await library.read(listed.file, "") for listed in found.files]
    assert [reading and reading.parsed.date for reading in readings] == ["2026-09-14", "2025-01-02", ""]


async def test_a_file_that_went_away_or_is_too_large_is_told(tmp_path: Path) -> None:
    write(tmp_path, "gone.md", "large.txt")
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate(100 * 1024 * 1024 + 1)
    async with open_library([tmp_path]) as library:
        await library.inventory()
        (tmp_path / "gone.md").unlink()
        with pytest.raises(DocumentUnreadable, match=r"^cannot be opened: No such file or directory$"):
            await library.read(f"{tmp_path.name}/gone.md", "")
        with pytest.raises(DocumentUnreadable, match=r"^is larger than 100 MiB; split it$"):
            await library.read(f"{tmp_path.name}/large.txt", "")


async def test_a_file_that_cannot_be_parsed_is_tried_again_only_when_it_has_changed(tmp_path: Path) -> None:
    write(tmp_path, "a.json", text="{")
    name = f"{tmp_path.name}/a.json"
    async with asyncio.timeout(30), open_library([tmp_path]) as library:
        await library.inventory()
        with pytest.raises(DocumentUnreadable, match="is no JSON"):
            await library.read(name, "")
        for process in descendants(os.getpid()):
            os.kill(process, signal.SIGKILL)
        with pytest.raises(DocumentUnreadable, match="is no JSON"):
            await library.read(name, "")
        write(tmp_path, "a.json", text="[")
        with pytest.raises(DocumentUnreadable, match="ended the process that read it"):
            await library.read(name, "")


async def test_a_root_that_goes_away_is_a_failure_and_not_empty(tmp_path: Path) -> None:
    write(tmp_path, "docs/a.md")
    async with open_library([tmp_path / "docs"]) as library:
        (tmp_path / "docs/a.md").unlink()
        (tmp_path / "docs").rmdir()
        found = await library.inventory()
    assert found.failed == (("docs", "cannot be looked through: No such file or directory"),)


async def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        await inventory(tmp_path / "nowhere")


async def test_a_path_that_leads_to_no_file_and_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe.md")
    write(tmp_path, "a.md")
    for name, reason in {
        "loop": "link to itself|Too many levels",
        "pipe.md": "neither a file nor a directory",
        "n" * 300: "cannot be looked at: File name too long",
        "a.md/b.md": "does not exist",
    }.items():
        with pytest.raises(ConfigError, match=reason):
            await inventory(tmp_path / name)


async def test_names_that_are_no_text_can_be_stored_and_stay_apart(tmp_path: Path) -> None:
    names = [b"caf\xe9.md", b"caf\xe8.md", rb"caf\xe9.md", rb"caf\\xe9.md", rb"a\b.md", b"caf\xc3\xa9.md"]
    for name in names:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(name)
    async with asyncio.timeout(30), open_library([tmp_path]) as library:
        found = await library.inventory()
        readings = {listed.file: await library.read(listed.file, "") for listed in found.files}
    assert found.failed == ()
    written = {Path(file).name: reading.size_bytes for file, reading in readings.items() if reading}
    assert written == {
        r"caf\xe9.md": 7,
        r"caf\xe8.md": 7,
        r"caf\\xe9.md": 10,
        r"caf\\\\xe9.md": 11,
        r"a\b.md": 6,
        "café.md": 8,
    }


async def test_a_directory_whose_name_is_no_text_has_the_same_name_by_each_path(tmp_path: Path) -> None:
    directory = Path(os.fsdecode(os.fsencode(tmp_path / "docs") + rb"/\caf" + b"\xe9"))
    write(directory, "a.md")
    [outer] = (await inventory(tmp_path / "docs")).files
    [inner] = (await inventory(directory)).files
    assert (outer.file, inner.file) == (r"docs/\\caf\xe9/a.md", r"\\caf\xe9/a.md")


def test_a_file_that_is_called_as_another_is_told(tmp_path: Path) -> None:
    write(tmp_path, "one/docs/a.md", "two/docs/a.md")
    paths = [tmp_path / "one/docs", tmp_path / "two/docs"]
    found = discover_files([(path, root_of(path)) for path in paths], ExclusionPatterns())
    assert len(found.files) == 1
    assert found.failed == [("docs/a.md", "is called as another file that was found; rename one of the two")]
