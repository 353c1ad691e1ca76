"""Small catalogs to search in."""

from collections.abc import Sequence

from headgate.catalog.search.lexical_index import LexicalIndex
from headgate.catalog.search.tool_document import ToolDocument


def tool(server: str, name: str, description: str = "", *, read_only: bool = False) -> ToolDocument:
    """One tool."""
    return ToolDocument(
        (server, name), f"{server}_{name}", name, description=description, read_only=read_only
    )


OFFICE = (
    tool("mail", "send_message", "Send an email to one or more recipients."),
    tool("mail", "searchInbox", "Search the inbox for messages of a sender.", read_only=True),
    tool("files", "read_file", "Read the complete contents of a file from the disk.", read_only=True),
    tool("files", "delete-file", "Delete a file from the disk for good."),
    tool("weather", "forecast", "The weather of the next days at a place.", read_only=True),
    tool("git", "commit.create", "Record changes to the repository."),
    tool("git", "log", "Show the history of a repository.", read_only=True),
)


def index_of(documents: Sequence[ToolDocument]) -> LexicalIndex:
    """An index of the documents, put server by server in the order in which they come."""
    index = LexicalIndex()
    for server in dict.fromkeys(document.key[0] for document in documents):
        index.put(server, [document for document in documents if document.key[0] == server])
    return index


def found(index: LexicalIndex, query: str) -> list[str]:
    """The names of what is found."""
    return [hit.key[1] for hit in index.search(query)]
