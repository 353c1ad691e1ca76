"""Rewrites messages of the knowledge tools in terms of commands and options."""

import re
from typing import Final

# What the arguments of the tools are called here.
_OPTIONS: Final = {
    "source_category": "--category",
    "source_file": "--file",
    "doc_type": "--type",
    "date_from": "--since",
    "date_to": "--until",
    "min_score": "--min-score",
    "cursor": "--cursor",
    "vendor_name": "NAME",
    "chunk_ids": "ID...",
}
# The argument that a sentence begins with.
_FIRST: Final = re.compile(r"^(?:filters\.)?([a-z_]+)")
# What somebody else said; an apostrophe inside of a word neither begins nor ends it.
_QUOTED: Final = re.compile(
    r"""(?<!\w)(?:'(?:[^'\\]|\\.|(?<=\w)'(?=\w))*'|"(?:[^"\\]|\\.)*")(?!\w)""", re.DOTALL
)
# Further on only what surely is meant so.
_PHRASES: Final = tuple(
    (re.compile(tools), commands)
    for tools, commands in (
        (r"\b(?:using )?semantic_search\b", "headgate knowledge search"),
        (r"\blist_sources\b", "headgate knowledge sources"),
        (r"\bfind_vendor_info\b", "headgate knowledge vendor"),
        # There is no server either.
        (r"\bthis server gave\b", "an answer ended with"),
        # There is no command for it.
        (r": use neighbours\b", ""),
        (r"\bas vendor_name\b", "as NAME"),
        (r"\bwith the cursor\b", "with its --cursor"),
        (r"\bresponse_mode '?(\w+)'?", r"--mode \1"),
        (r"\bpage_size (?=\d)", "--limit "),
        (r"\bstrategy '(\w+)' or '(\w+)'", r"--strategy \1 or \2"),
        (r"\bstrategy '(\w+)'", r"--strategy \1"),
        (r"\ba strategy (?=other)", "a --strategy "),
        (r"(?<=No document has )source_category", "the category"),
        (r"(?<=No document has )doc_type", "the type"),
        (r"(?<=No document has )source_file", "the file name"),
        *((rf"\b{name} (?=['\d]|up to)", f"{option} ") for name, option in _OPTIONS.items()),
    )
)


def in_command_terms(sentence: str) -> str:
    """What a tool says of its arguments, and what it advises, with the commands and options of ours.

    What it quotes stays as it is.
    """
    sentence = _FIRST.sub(lambda found: _OPTIONS.get(found[1], found[0]), sentence)
    for tools, commands in _PHRASES:
        sentence = _outside_quotes(tools, commands, sentence)
    return sentence


def _outside_quotes(tools: re.Pattern[str], commands: str, sentence: str) -> str:
    quoted = [found.span() for found in _QUOTED.finditer(sentence)]

    def replaced(found: re.Match[str]) -> str:
        inside = any(start < found.start() < end for start, end in quoted)
        return found[0] if inside else found.expand(commands)

    return tools.sub(replaced, sentence)
