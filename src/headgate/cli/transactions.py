"""`headgate transactions`: calls that are undone together, and decisions about those that are stuck."""

from pathlib import Path

import click

from headgate.cli.ledger import VERBOSE, options_of, tell_of_ledger
from headgate.cli.options import CONFIG, DATA_DIR, JSON

# The words of `app.transactions`, without what would have to be imported for them.
_STATES = ("stuck", "rolling_back", "running", "left", "rolled_back", "completed")
_LONGEST_NOTE = 500
_PRINCIPAL = click.option(
    "--principal", help="The caller whose transaction it is, where several use the same id."
)


@click.group()
def transactions() -> None:
    """Look at transactions, and resolve those that are stuck."""


@transactions.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Those in this state; repeatable. Default: stuck, rolling_back and running.",
)
@click.option("--all", "every", is_flag=True, help="Those in every state.")
@CONFIG
@DATA_DIR
@VERBOSE
@JSON
def list_transactions(
    states: tuple[str, ...],
    every: bool,  # noqa: FBT001 (the shape that click wants)
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """List transactions: stuck ones first, the oldest first."""
    from headgate.app import transactions as ledger
    from headgate.app.transaction_text import printed_transactions

    if states and every:
        raise click.UsageError("--all already names every state: give it without --state.")
    wanted = _STATES if every else states or ledger.OPEN_PHASES
    tell_of_ledger(
        config,
        data_dir,
        lambda settings: ledger.list_transactions(settings, wanted),
        lambda found: printed_transactions(found, as_json=as_json, options=options_of(config, data_dir)),
    )


@transactions.command("show")
@click.argument("id")
@_PRINCIPAL
@CONFIG
@DATA_DIR
@VERBOSE
@JSON
def show_transaction(
    id: str,
    principal: str | None,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Show the steps and the history of transaction ID, and how to resolve it if it is stuck.

    ID may be the beginning of an id, if no other one begins so.
    """
    from headgate.app import transactions as ledger
    from headgate.app.transaction_text import printed_transaction

    tell_of_ledger(
        config,
        data_dir,
        lambda settings: ledger.show_transaction(settings, id, principal),
        lambda found: printed_transaction(found, as_json=as_json, options=options_of(config, data_dir)),
    )


@transactions.command("resolve")
@click.argument("id")
@click.option("--retry", is_flag=True, help="Run the remaining compensations again.")
@click.option("--compensated", is_flag=True, help="Everything was undone by hand.")
@click.option("--leave", is_flag=True, help="It stays failed, and no longer waits for a person.")
@click.option(
    "--on-doubt",
    type=click.Choice(("retry",)),
    help="With --retry: make a compensation again that may have been carried out.",
)
@click.option("--note", default="", help="Why, for the history; the transaction's client can read it.")
@_PRINCIPAL
@CONFIG
@DATA_DIR
@VERBOSE
@JSON
def resolve_transaction(  # noqa: PLR0913 (one for each option)
    id: str,
    retry: bool,  # noqa: FBT001
    compensated: bool,  # noqa: FBT001
    leave: bool,  # noqa: FBT001
    on_doubt: str | None,
    note: str,
    principal: str | None,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Decide about transaction ID, which is stuck: exactly one of --retry, --compensated and --leave."""
    from headgate.app import transactions as ledger
    from headgate.app.transaction_text import printed_resolution
    from headgate.delivery.transactions.operator_decision import OperatorDecision

    given = {
        OperatorDecision.RETRY: retry,
        OperatorDecision.COMPENSATED: compensated,
        OperatorDecision.LEAVE: leave,
    }
    decisions = [decision for decision, is_given in given.items() if is_given]
    if len(decisions) != 1:
        raise click.UsageError("Give exactly one of --retry, --compensated and --leave.")
    if on_doubt is not None and not retry:
        raise click.UsageError("--on-doubt goes with --retry.")
    if len(note) > _LONGEST_NOTE:
        raise click.UsageError(f"--note has {len(note)} characters: give at most {_LONGEST_NOTE}.")
    tell_of_ledger(
        config,
        data_dir,
        lambda settings: ledger.resolve_transaction(
            settings,
            id,
            principal,
            decisions[0],
            repeats_doubt=on_doubt is not None,
            note=_one_line(note),
        ),
        lambda found: printed_resolution(found, as_json=as_json, options=options_of(config, data_dir)),
    )


def _one_line(note: str) -> str:
    """The note on one line, without what is no text."""
    return " ".join(note.encode("utf-8", "replace").decode().split())
