"""Whether what is written for a shorter form of a tool can be turned into what the tool itself asks for."""

from headgate.catalog.dialects.changes import Changes
from headgate.catalog.dialects.reading import read
from headgate.catalog.dialects.shapes import Choice, Shape
from headgate.catalog.dialects.source import schema_in
from headgate.catalog.dialects.strict import is_text, level_inside, root_of


def agrees(short: bytes, definition: bytes) -> bool:
    """Whether `restored` by the definition is right for arguments under the strict form of `short`.

    It is not if one names arguments that the other does not, or where a text may hold JSON for one and not
    for the other. Never raises.
    """
    try:
        seen, own = (root_of(read(schema_in(form.decode())[1], Changes())) for form in (short, definition))
    except (ValueError, RecursionError):
        return False
    if seen.properties.keys() != own.properties.keys():
        return False
    return all(_agree(inner, own.properties[name], 2) for name, inner in seen.properties.items())


def _agree(seen: Choice, own: Choice, level: int) -> bool:
    # Where the tool takes no text, JSON is taken out of every one.
    if any(shape.kind == "string" for shape in own.shapes):
        kinds = {shape.kind for shape in own.shapes}
        texts, own_texts = _texts(seen, level), _texts(own, level)
        if bool(texts) != bool(own_texts) or not texts & kinds <= own_texts:
            return False
    return _lists_agree(seen, own, level)


def _texts(choice: Choice, level: int) -> set[str]:
    inside = level_inside(choice, level)
    return {shape.kind for shape in choice.shapes if is_text(shape, inside)}


def _lists_agree(seen: Choice, own: Choice, level: int) -> bool:
    lists, own_lists = _lists(seen), _lists(own)
    if not lists or not own_lists:
        return True
    if len(lists) + len(own_lists) > 2:
        # Which of several was meant is found by what is in them, and that is not the same for both.
        return False
    items, own_items = lists[0].items, own_lists[0].items
    if items is None:
        # The whole list is JSON in a text.
        return True
    return own_items is not None and _agree(items, own_items, level + 1)


def _lists(choice: Choice) -> list[Shape]:
    return [shape for shape in choice.shapes if shape.kind == "array"]
