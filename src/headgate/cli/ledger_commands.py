"""`headgate operations` and `headgate transactions`: list, show and resolve what the ledger records."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.cli.command_runner import exit_on_error, load_settings, print_result, run
from headgate.cli.options import CONFIG, DATA_DIR, JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from headgate.config.settings import Settings

T = TypeVar("T")

_VERBOSE_KEY = "headgate.verbose"


def _keep_verbose(context: click.Context, _: click.Parameter, given: bool) -> None:  # noqa: FBT001
    context.meta[_VERBOSE_KEY] = given


# Read by `print_from_ledger`, so that no command has to pass it on.
LEDGER_VERBOSE = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_keep_verbose,
    help="Show the traceback of an error.",
)


def print_from_ledger(
    config: Path | None,
    data_dir: Path | None,
    work: "Callable[[Settings], Coroutine[Any, Any, T]]",
    printed: "Callable[[T], str]",
) -> None:
    """Print the report on the ledger; a refusal ends the command."""
    from headgate.config.settings import Flags

    with exit_on_error(verbose=click.get_current_context().meta[_VERBOSE_KEY]):
        found = run(work(load_settings(Flags(config=config, data_dir=data_dir))))
        print_result(printed(found))


def repeated_options(config: Path | None, data_dir: Path | None) -> str:
    """The options that a further command needs to find the same ledger, each after a space."""
    given = {"--config": config, "--data-dir": data_dir}
    return "".join(f" {name} {shlex.quote(str(path))}" for name, path in given.items() if path is not None)


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
@CONFIG
@DATA_DIR
@LEDGER_VERBOSE
@JSON
def list_operations(
    states: tuple[str, ...],
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001 (the shape that click wants)
) -> None:
    """Name recorded calls, the oldest first."""
    from headgate.app.operator_ledger import LedgerFilesSource
    from headgate.cli.operation_text import format_operations
    from headgate.control import operations as control
    from headgate.delivery.ledger import OperationState

    chosen = tuple(map(OperationState, states)) or control.OPEN_STATES
    print_from_ledger(
        config,
        data_dir,
        lambda settings: control.list_operations(LedgerFilesSource(settings.data_dir), chosen),
        lambda found: format_operations(found, as_json=as_json, options=repeated_options(config, data_dir)),
    )


@operations.command("show")
@click.argument("op_id")
@CONFIG
@DATA_DIR
@LEDGER_VERBOSE
@JSON
def show_operation(
    op_id: str,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Tell what is known of the recorded call OP_ID."""
    from headgate.app.operator_ledger import LedgerFilesSource
    from headgate.cli.operation_text import format_operation
    from headgate.control import operations as control

    print_from_ledger(
        config,
        data_dir,
        lambda settings: control.show_operation(LedgerFilesSource(settings.data_dir), op_id),
        lambda found: format_operation(found, as_json=as_json),
    )


@operations.command("resolve")
@click.argument("op_id")
@click.option("--happened", is_flag=True, help="The call was carried out.")
@click.option("--did-not-happen", "did_not_happen", is_flag=True, help="The call was not carried out.")
@CONFIG
@DATA_DIR
@LEDGER_VERBOSE
def resolve_operation(
    op_id: str,
    happened: bool,  # noqa: FBT001
    did_not_happen: bool,  # noqa: FBT001
    config: Path | None,
    data_dir: Path | None,
) -> None:
    """Settle the call OP_ID, which is in doubt: a repeat with its key is carried out, or never again."""
    from headgate.app.operator_ledger import LedgerFilesSource
    from headgate.control import operations as control

    if happened and did_not_happen:
        raise click.UsageError("--happened and --did-not-happen contradict each other: say one of them.")
    if not happened and not did_not_happen:
        raise click.UsageError("Say --happened or --did-not-happen.")
    print_from_ledger(
        config,
        data_dir,
        lambda settings: control.resolve_operation(
            LedgerFilesSource(settings.data_dir), op_id, happened=happened
        ),
        lambda found: f"Operation {found.op_id} is {found.state}.",
    )


@operations.command("recover")
@click.option(
    "--accept-loss",
    "accept_loss",
    is_flag=True,
    help="End the refusal although records are lost: a lost call that is repeated is carried out again.",
)
@CONFIG
@DATA_DIR
@LEDGER_VERBOSE
@JSON
def recover_ledger(
    accept_loss: bool,  # noqa: FBT001
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Check the ledger, list the records that are lost, and keep the rest in a new one."""
    from headgate.app.operator_ledger import recover_ledger_files
    from headgate.cli.recovery_text import format_recovery

    print_from_ledger(
        config,
        data_dir,
        lambda settings: recover_ledger_files(settings, accept_loss=accept_loss),
        lambda found: format_recovery(found, as_json=as_json, options=repeated_options(config, data_dir)),
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
@CONFIG
@DATA_DIR
@LEDGER_VERBOSE
@JSON
def list_transactions(
    states: tuple[str, ...],
    every: bool,  # noqa: FBT001 (the shape that click wants)
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """List transactions: stuck ones first, the oldest first."""
    from headgate.app.operator_ledger import LedgerFilesSource
    from headgate.cli.transaction_text import format_transactions
    from headgate.control import transactions as control

    if states and every:
        raise click.UsageError("--all already names every state: give it without --state.")
    chosen = _TRANSACTION_STATES if every else states or control.OPEN_PHASES
    print_from_ledger(
        config,
        data_dir,
        lambda settings: control.list_transactions(LedgerFilesSource(settings.data_dir), chosen),
        lambda found: format_transactions(found, as_json=as_json, options=repeated_options(config, data_dir)),
    )


@transactions.command("show")
@click.argument("id")
@_PRINCIPAL
@CONFIG
@DATA_DIR
@LEDGER_VERBOSE
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
    from headgate.app.operator_ledger import LedgerFilesSource
    from headgate.cli.transaction_text import format_transaction
    from headgate.control import transactions as control

    print_from_ledger(
        config,
        data_dir,
        lambda settings: control.show_transaction(LedgerFilesSource(settings.data_dir), id, principal),
        lambda found: format_transaction(found, as_json=as_json, options=repeated_options(config, data_dir)),
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
@LEDGER_VERBOSE
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
    from headgate.app.operator_ledger import LedgerFilesSource
    from headgate.cli.transaction_text import format_resolution
    from headgate.control import transactions as control
    from headgate.control.operator_decision import OperatorDecision

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
    # On one line, without bytes that are no text.
    note = " ".join(note.encode("utf-8", "replace").decode().split())
    print_from_ledger(
        config,
        data_dir,
        lambda settings: control.resolve_transaction(
            LedgerFilesSource(settings.data_dir),
            id,
            principal,
            decisions[0],
            repeats_doubt=on_doubt is not None,
            note=note,
        ),
        lambda found: format_resolution(found, as_json=as_json, options=repeated_options(config, data_dir)),
    )
