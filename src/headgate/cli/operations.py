"""`headgate operations`: recorded calls, and an operator's word on those in doubt."""

from pathlib import Path

import click

from headgate.cli.ledger import VERBOSE, options_of, tell_of_ledger
from headgate.cli.options import CONFIG, DATA_DIR, JSON

# The words of `State`, without what would have to be imported for them.
_STATES = ("in_doubt", "intent", "asked", "done", "failed")


@click.group()
def operations() -> None:
    """Look at recorded calls, settle those in doubt, and recover a damaged ledger."""


@operations.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Those in this state; several may be named. Usual are those in doubt and those under way.",
)
@CONFIG
@DATA_DIR
@VERBOSE
@JSON
def list_operations(
    states: tuple[str, ...],
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001 (the shape that click wants)
) -> None:
    """Name recorded calls, the oldest first."""
    from headgate.app import operations as ledger
    from headgate.delivery.ledger import OperationState

    wanted = tuple(map(OperationState, states)) or ledger.OPEN_STATES
    tell_of_ledger(
        config,
        data_dir,
        lambda settings: ledger.list_operations(settings, wanted),
        lambda found: ledger.printed_list(found, as_json=as_json, options=options_of(config, data_dir)),
    )


@operations.command("show")
@click.argument("op_id")
@CONFIG
@DATA_DIR
@VERBOSE
@JSON
def show_operation(
    op_id: str,
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Tell what is known of the recorded call OP_ID."""
    from headgate.app import operations as ledger

    tell_of_ledger(
        config,
        data_dir,
        lambda settings: ledger.show_operation(settings, op_id),
        lambda found: ledger.printed_operation(found, as_json=as_json),
    )


@operations.command("resolve")
@click.argument("op_id")
@click.option("--happened", is_flag=True, help="The call was carried out.")
@click.option("--did-not-happen", "did_not_happen", is_flag=True, help="The call was not carried out.")
@CONFIG
@DATA_DIR
@VERBOSE
def resolve_operation(
    op_id: str,
    happened: bool,  # noqa: FBT001
    did_not_happen: bool,  # noqa: FBT001
    config: Path | None,
    data_dir: Path | None,
) -> None:
    """Settle the call OP_ID, which is in doubt: a repeat with its key is carried out, or never again."""
    from headgate.app import operations as ledger

    if happened and did_not_happen:
        raise click.UsageError("--happened and --did-not-happen contradict each other: say one of them.")
    if not happened and not did_not_happen:
        raise click.UsageError("Say --happened or --did-not-happen.")
    tell_of_ledger(
        config,
        data_dir,
        lambda settings: ledger.resolve_operation(settings, op_id, happened=happened),
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
@VERBOSE
@JSON
def recover_ledger(
    accept_loss: bool,  # noqa: FBT001
    config: Path | None,
    data_dir: Path | None,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Check the ledger, list the records that are lost, and keep the rest in a new one."""
    from headgate.app import recovery

    tell_of_ledger(
        config,
        data_dir,
        lambda settings: recovery.recover_ledger(settings, accept_loss=accept_loss),
        lambda found: recovery.printed_recovery(found, as_json=as_json, options=options_of(config, data_dir)),
    )
