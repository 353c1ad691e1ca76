"""`headgate operations` and `headgate transactions`: list, show and resolve what the ledger records."""

import shlex
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from headgate.cli.command_runner import (
    CONFIG,
    DATA_DIR,
    JSON,
    VERBOSE,
    exit_on_error,
    load_settings,
    print_result,
    run,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headgate.app.operator_ledger import LedgerFilesSource
    from headgate.config.settings import Settings

T = TypeVar("T")


class LedgerCommand(NamedTuple):
    """The options that every command about the ledger takes."""

    config: Path | None
    data_dir: Path | None
    verbose: bool
    as_json: bool = False

    @property
    def repeated_options(self) -> str:
        """The options that a further command needs to find the same ledger, each after a space."""
        given = {"--config": self.config, "--data-dir": self.data_dir}
        return "".join(f" {name} {shlex.quote(str(path))}" for name, path in given.items() if path)

    def print_with_settings(
        self, work: "Callable[[Settings], Coroutine[Any, Any, T]]", printed: "Callable[[T], str]"
    ) -> None:
        """Print the report on the ledger; a refusal ends the command."""
        from headgate.config.settings import Flags

        with exit_on_error(verbose=self.verbose):
            found = run(work(load_settings(Flags(config=self.config, data_dir=self.data_dir))))
            print_result(printed(found))

    def print(
        self, work: "Callable[[LedgerFilesSource], Coroutine[Any, Any, T]]", printed: "Callable[[T], str]"
    ) -> None:
        """The same, of the files of the ledger."""
        from headgate.app.operator_ledger import LedgerFilesSource

        self.print_with_settings(lambda settings: work(LedgerFilesSource(settings.data_dir)), printed)


def _with_ledger(command: "Callable[..., None]") -> "Callable[..., None]":
    """Give a command its LedgerCommand as the first argument, and the options for it."""

    @CONFIG
    @DATA_DIR
    @VERBOSE
    @wraps(command)
    def with_options(
        *, config: Path | None, data_dir: Path | None, verbose: bool, as_json: bool = False, **given: Any
    ) -> None:
        command(LedgerCommand(config, data_dir, verbose, as_json), **given)

    return with_options


# The words of `State`, without what would have to be imported for them.
_OPERATION_STATES = ("in_doubt", "intent", "asked", "done", "failed")


@click.group()
def operations() -> None:
    """Look at recorded calls, settle those in doubt, and recover a damaged ledger."""


@operations.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_OPERATION_STATES),
    help="Those in this state; several may be named. Usual are those in doubt and those under way.",
)
@_with_ledger
@JSON
def list_operations(ledger: LedgerCommand, states: tuple[str, ...]) -> None:
    """Name recorded calls, the oldest first."""
    from headgate.cli.operation_text import format_operations
    from headgate.control import operations as control
    from headgate.delivery.ledger import OperationState

    chosen = tuple(map(OperationState, states)) or control.OPEN_STATES
    ledger.print(
        lambda source: control.list_operations(source, chosen),
        lambda found: format_operations(found, as_json=ledger.as_json, options=ledger.repeated_options),
    )


@operations.command("show")
@click.argument("op_id")
@_with_ledger
@JSON
def show_operation(ledger: LedgerCommand, op_id: str) -> None:
    """Tell what is known of the recorded call OP_ID."""
    from headgate.cli.operation_text import format_operation
    from headgate.control import operations as control

    ledger.print(
        lambda source: control.show_operation(source, op_id),
        lambda found: format_operation(found, as_json=ledger.as_json),
    )


@operations.command("resolve")
@click.argument("op_id")
@click.option("--happened", is_flag=True, help="The call was carried out.")
@click.option("--did-not-happen", "did_not_happen", is_flag=True, help="The call was not carried out.")
@_with_ledger
def resolve_operation(ledger: LedgerCommand, op_id: str, *, happened: bool, did_not_happen: bool) -> None:
    """Settle the call OP_ID, which is in doubt: a repeat with its key is carried out, or never again."""
    from headgate.control import operations as control

    if happened and did_not_happen:
        raise click.UsageError("--happened and --did-not-happen contradict each other: say one of them.")
    if not happened and not did_not_happen:
        raise click.UsageError("Say --happened or --did-not-happen.")
    ledger.print(
        lambda source: control.resolve_operation(source, op_id, happened=happened),
        lambda found: f"Operation {found.op_id} is {found.state}.",
    )


@operations.command("recover")
@click.option(
    "--accept-loss",
    "accept_loss",
    is_flag=True,
    help="End the refusal although records are lost: a lost call that is repeated is carried out again.",
)
@_with_ledger
@JSON
def recover_ledger(ledger: LedgerCommand, *, accept_loss: bool) -> None:
    """Check the ledger, list the records that are lost, and keep the rest in a new one."""
    from headgate.app.operator_ledger import recover_ledger_files
    from headgate.cli.operation_text import format_recovery

    ledger.print_with_settings(
        lambda settings: recover_ledger_files(settings, accept_loss=accept_loss),
        lambda found: format_recovery(found, as_json=ledger.as_json, options=ledger.repeated_options),
    )


# The words of `control.transactions`, without what would have to be imported for them.
_TRANSACTION_STATES = ("stuck", "rolling_back", "running", "left", "rolled_back", "completed")
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
    type=click.Choice(_TRANSACTION_STATES),
    help="Those in this state; repeatable. Default: stuck, rolling_back and running.",
)
@click.option("--all", "every", is_flag=True, help="Those in every state.")
@_with_ledger
@JSON
def list_transactions(ledger: LedgerCommand, states: tuple[str, ...], *, every: bool) -> None:
    """List transactions: stuck ones first, the oldest first."""
    from headgate.cli.transaction_text import format_transactions
    from headgate.control import transactions as control

    if states and every:
        raise click.UsageError("--all already names every state: give it without --state.")
    chosen = _TRANSACTION_STATES if every else states or control.OPEN_PHASES
    ledger.print(
        lambda source: control.list_transactions(source, chosen),
        lambda found: format_transactions(found, as_json=ledger.as_json, options=ledger.repeated_options),
    )


@transactions.command("show")
@click.argument("id")
@_PRINCIPAL
@_with_ledger
@JSON
def show_transaction(ledger: LedgerCommand, id: str, principal: str | None) -> None:
    """Show the steps and the history of transaction ID, and how to resolve it if it is stuck.

    ID may be the beginning of an id, if no other one begins so.
    """
    from headgate.cli.transaction_text import format_transaction
    from headgate.control import transactions as control

    ledger.print(
        lambda source: control.show_transaction(source, id, principal),
        lambda found: format_transaction(found, as_json=ledger.as_json, options=ledger.repeated_options),
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
@_with_ledger
@JSON
def resolve_transaction(
    ledger: LedgerCommand, id: str, principal: str | None, on_doubt: str | None, note: str, **given: bool
) -> None:
    """Decide about transaction ID, which is stuck: exactly one of --retry, --compensated and --leave."""
    from headgate.cli.transaction_text import format_resolution
    from headgate.control import transactions as control
    from headgate.control.operator_decision import OperatorDecision

    # The other options have the names of the decisions.
    decisions = [decision for decision in OperatorDecision if given[decision]]
    if len(decisions) != 1:
        raise click.UsageError("Give exactly one of --retry, --compensated and --leave.")
    if on_doubt is not None and decisions[0] is not OperatorDecision.RETRY:
        raise click.UsageError("--on-doubt goes with --retry.")
    if len(note) > _LONGEST_NOTE:
        raise click.UsageError(f"--note has {len(note)} characters: give at most {_LONGEST_NOTE}.")
    # On one line, without bytes that are no text.
    note = " ".join(note.encode("utf-8", "replace").decode().split())
    ledger.print(
        lambda source: control.resolve_transaction(
            source, id, principal, decisions[0], repeats_doubt=on_doubt is not None, note=note
        ),
        lambda found: format_resolution(found, as_json=ledger.as_json, options=ledger.repeated_options),
    )
