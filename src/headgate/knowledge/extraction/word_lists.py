"""Lists of words and names that are written as text, to be read and changed easily."""


def words(text: str) -> frozenset[str]:
    """Words with spaces between them."""
    return frozenset(text.split())


def names(text: str) -> frozenset[str]:
    """Names of one or more words with commas or ends of lines between them."""
    return frozenset(phrases(text))


def phrases(text: str) -> tuple[str, ...]:
    """The same in their order."""
    return tuple(name.strip() for line in text.splitlines() for name in line.split(",") if name.strip())
