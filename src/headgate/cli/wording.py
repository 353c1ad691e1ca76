"""What the tools say to models, in the words of the command line."""

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
# Further on only what surely is meant so: the rest may be quoted.
_PHRASES: Final = tuple(
    (re.compile(tools), commands)
    for tools, commands in (
        (r"\b(?:using )?semantic_search\b", "headgate knowledge search"),
        (r"\blist_sources\b", "headgate knowledge sources"),
        # There is no command for it.
        (r": use neighbours\b", ""),
        (r"\bas vendor_name\b", "as NAME"),
        (r"\bwith the cursor\b", "with its --cursor"),
        (r"\bresponse_mode '?(\w+)'?", r"--mode \1"),
        (r"\bpage_size (?=\d)", "--limit "),
        (r"\bstrategy '(\w+)'", r"--strategy \1"),
        (r"\ba strategy (?=other)", "a --strategy "),
        (r"(?<=No document has )source_category", "the category"),
        (r"(?<=No document has )doc_type", "the type"),
        (r"(?<=No document has )source_file", "the file name"),
        *((rf"\b{name} (?=['\d]|up to)", f"{option} ") for name, option in _OPTIONS.items()),
    )
)


def in_commands(sentence: str) -> str:
    """What a tool says of its arguments, and what it advises, with the commands and options of ours."""
    sentence = _FIRST.sub(lambda found: _OPTIONS.get(found[1], found[0]), sentence)
    for tools, commands in _PHRASES:
        sentence = tools.sub(commands, sentence)
    return sentence
