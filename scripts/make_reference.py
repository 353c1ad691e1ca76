"""Write the reference pages that the code knows: metrics, error codes and commands.

python scripts/make_reference.py           # writes docs/reference
python scripts/make_reference.py --check   # exits with 1 if a page is not what the code says
"""

import argparse
import pkgutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import click

import headgate
from headgate.cli.commands import cli
from headgate.domain.errors import HeadgateError
from headgate.web.metric_help import METRIC_HELP, METRIC_LABELS

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by scripts/make_reference.py: change the code and run `make reference`. -->"
WIDTH = 100


def metrics() -> str:
    """Every metric of /metrics."""
    latency = "| `tools_call_latency` | histogram | | Seconds from the arrival of a call to its answer. |"
    rows = [
        f"| `headgate_{name}` | {'counter' if name.endswith('_total') else 'gauge'} | "
        f"{', '.join(f'`{label}`' for label in METRIC_LABELS.get(name, ()))} | {text} |"
        for name, text in METRIC_HELP.items()
    ]
    return page(
        "Metrics",
        "Every metric that `GET /metrics` exposes, in the Prometheus text format. "
        "[Monitoring](../operations/monitoring.md) says which to alert on.",
        "| metric | type | labels | what it counts |\n|---|---|---|---|",
        "\n".join([latency, *rows]),
    )


def error_codes() -> str:
    """Every error code, with the cases in which a client receives it."""
    by_code: dict[str, list[type[HeadgateError]]] = {}
    for kind in error_classes():
        by_code.setdefault(kind.code, []).append(kind)
    sections = [error_section(code, kinds) for code, kinds in sorted(by_code.items())]
    return page(
        "Error codes",
        "Every error of the gateway has a stable code, the possible effect of the call and a hint. A failed "
        "tool call returns them in `_meta`, under `io.headgate/error`, and as text for the model; other "
        "methods return them in `error.data`.",
        "The effect is `none` when nothing happened at the server, `unknown` when the call may have been "
        "executed, and `done` when it was. Retryable says whether the same request may succeed later. A "
        "single error can deviate from its row where the gateway knows better.",
        *sections,
    )


def error_section(code: str, kinds: list[type[HeadgateError]]) -> str:
    rows = [
        f"| {sentence(kind)} | {kind.number} | {kind.http_status} | `{kind.effect.value}` | "
        f"{'yes' if kind.retryable else 'no'} |"
        for kind in sorted(kinds, key=lambda kind: kind.__name__)
    ]
    head = "| case | number | HTTP status | effect | retryable |\n|---|---|---|---|---|\n"
    return f"## {code}\n\n{head}" + "\n".join(dict.fromkeys(rows))


def error_classes() -> Iterator[type[HeadgateError]]:
    """The errors of every package that are raised: those that nothing is derived from."""
    for module in pkgutil.walk_packages(headgate.__path__, "headgate."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    waiting = [HeadgateError]
    while waiting:
        kind = waiting.pop()
        derived = kind.__subclasses__()
        waiting += derived
        if not derived and kind.__module__.startswith("headgate."):
            yield kind


def sentence(kind: type[HeadgateError]) -> str:
    """The first sentence of the docstring of a class."""
    text = " ".join((kind.__doc__ or "").split())
    return text.partition(". ")[0].rstrip(".").replace("|", "\\|")


def commands() -> str:
    """Every command with its arguments and options, except those on a page of their own."""
    sections = command_sections(cli, "headgate")
    return page(
        "Commands",
        "Every command of the `headgate` program; `headgate COMMAND --help` prints the same. The commands of "
        "the document server are [on their own page](commands-knowledge.md). [Settings](settings.md) says "
        "what each setting does.",
        *(text for text in sections if not text.startswith("## headgate knowledge ")),
    )


def knowledge_commands() -> str:
    """Every command of the document server."""
    sections = list(command_sections(cli, "headgate"))
    return page(
        "Commands of the document server",
        "Every `headgate knowledge` command, which ingests, searches and exports the documents of a team. "
        "[Documents](../guides/documents.md) shows how they work together.",
        *(text for text in sections if text.startswith("## headgate knowledge ")),
    )


def command_sections(command: click.Command, path: str) -> Iterator[str]:
    """A section for a command and each one below it."""
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    rows = [
        option_row(option, context) for option in options if not option.hidden and "--help" not in option.opts
    ]
    table = "\n\n| option | meaning |\n|---|---|\n" + "\n".join(rows) if rows else ""
    yield f"## {path}\n\n{wrapped(help_text(command))}\n\n```text\n{usage}\n```{table}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from command_sections(below, f"{path} {name}")


def help_text(command: click.Command) -> str:
    return " ".join((command.help or command.short_help or "").replace("\b", "").split())


def option_row(option: click.Option, context: click.Context) -> str:
    names, text = option.get_help_record(context) or ("", "")
    # A bar would end the cell.
    return f"| `{names.replace('|', ', ')}` | {' '.join(text.split()).replace('|', ', ')} |"


def page(title: str, purpose: str, *parts: str) -> str:
    prose = [
        wrapped(part) if not part.startswith(("|", "#", "`", "<")) else part for part in (purpose, *parts)
    ]
    text = "\n\n".join([f"# {title}", NOTE, *prose]) + "\n"
    # The head of a table and its rows may come as two parts.
    return text.replace("|---|\n\n|", "|---|\n|")


def wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def main(arguments: Iterable[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; name the pages that are not current"
    )
    check = parser.parse_args(list(arguments)).check
    pages = {
        "metrics.md": metrics(),
        "error-codes.md": error_codes(),
        "commands.md": commands(),
        "commands-knowledge.md": knowledge_commands(),
    }
    changed = [name for name, text in pages.items() if not same(REFERENCE / name, text)]
    for name in changed:
        if check:
            print(f"docs/reference/{name} is not what the code says: run `make reference`")
        else:
            REFERENCE.mkdir(exist_ok=True)
            (REFERENCE / name).write_text(pages[name])
            print(f"wrote docs/reference/{name}")
    return 1 if check and changed else 0


def same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
