"""Says in one sentence why `auto` came to what it came to."""

from headgate.domain.listing import Mode


def why(
    came_to: Mode, *, tools: int, full_tokens: int, slim_tokens: int, budget_tokens: int, most: int | None
) -> str:
    """The reason, with the numbers that decided."""
    whole = f"in full {_tools(tools)} take {full_tokens:,} tokens"
    words = f"in few words {slim_tokens:,}"
    budget = f"the budget is {budget_tokens:,}"
    if most is not None and tools > most:
        return f"there are {_tools(tools)}, and the client is known to handle {most}"
    if came_to is Mode.FULL:
        return f"{whole}, and {budget}"
    if came_to is Mode.SLIM and full_tokens > budget_tokens:
        return f"{whole} and {words}; {budget}"
    if came_to is Mode.BUDGET and slim_tokens > budget_tokens:
        return f"{whole} and even {words}; {budget}"
    return f"{whole}, and servers that have a listing of their own decide too"


def _tools(number: int) -> str:
    return "1 tool" if number == 1 else f"{number:,} tools"
