"""The legal forms of companies: what may stand at the end of a name, or not."""

from typing import Final

_LISTED: Final = """
    ab ag aps as asa bhd bv co company corp corporation doo ggmbh gmbh inc incorporated kft kg kgaa kk
    limited llc llp lp ltd mbh nv ohg oy oyj plc pte pty pvt sa sarl sas sdn se spa srl sro ug
    """
# In lower case and without dots.
LEGAL_FORMS: Final = frozenset(_LISTED.split())
_SAME: Final = {"company": "co", "corporation": "corp", "incorporated": "inc", "limited": "ltd"}


def without_legal_form(name: str) -> tuple[str, str]:
    """A name without its legal form, and that form as it compares with others; empty where there is none.

    A name that is nothing else stays as it is.
    """
    words = name.split()
    forms: list[str] = []
    while len(words) > 1:
        last = words[-1].strip(",").replace(".", "").casefold()
        # GmbH & Co. KG
        joining = last == "&" and forms
        if last not in LEGAL_FORMS and not joining:
            break
        words.pop()
        if not joining:
            forms.append(_SAME.get(last, last))
    return (" ".join(words).rstrip(","), " ".join(reversed(forms))) if forms else (name, "")


def form_alone(written: str) -> str:
    """A legal form as `without_legal_form` tells it."""
    # Before it stands the name of any company.
    return without_legal_form(f"Any {written}")[1] or written


def agree(one: str, other: str) -> bool:
    """Whether two legal forms, as `without_legal_form` tells them, may be of one company."""
    return not one or not other or one == other
