"""Explains PostgreSQL errors to the operator, without the users, hosts and statements in their messages."""

import re
from typing import Final

import psycopg
from psycopg_pool import PoolTimeout

_GRANT: Final = "let an administrator grant him all on them, or give the URL of the user who made them"
# Errors of a connection attempt, from the server or the driver.
_REFUSALS: Final = tuple(
    (re.compile(pattern), explanation)
    for pattern, explanation in (
        (
            r"password authentication failed|role \".*\" (does not exist|is not permitted)|auth\w* failed",
            "the user or the password of the store's URL is wrong; correct the URL",
        ),
        (
            r"no password supplied",
            "the server wants a password, and the store's URL has none; add it to the URL",
        ),
        (
            r"pg_hba\.conf",
            "the server does not let this user in from here; let an administrator allow it in pg_hba.conf",
        ),
        (
            r"permission denied for database",
            "the user of the store's URL may not use its database; let an administrator GRANT CONNECT on it",
        ),
        (
            r"database \".*\" does not exist",
            "the database of the store's URL does not exist; run CREATE DATABASE, or correct the URL",
        ),
        (
            r"database \".*\" is not currently accepting",
            "the database of the store's URL takes no connections; let an administrator allow them",
        ),
        (
            r"too many (clients|connections)|connection slots",
            "the server has too many connections already; end some, or raise its max_connections",
        ),
        (
            r"(starting up|shutting down|recovery mode|not yet accepting)",
            "the server is starting or stopping; it is tried again",
        ),
        (
            r"resolve host|translate host name",
            "the host of the store's URL is not known here; correct the URL",
        ),
        (
            r"[Cc]onnection refused|No such file",
            "no server listens where the store's URL points to; start it, or correct the URL",
        ),
        (
            r"[Pp]ermission denied",
            "this process may not use the server's socket; let it, or give a host in the URL",
        ),
        (
            r"invalid response to SSL|expected authentication request|invalid response from",
            "what listens where the store's URL points to is no PostgreSQL server; correct the URL",
        ),
        (
            r"SSL|certificate",
            "the server and the store's URL do not agree about SSL; correct sslmode in the URL",
        ),
    )
)
_SILENT: Final = "the server does not answer in time; see whether it is well and can be reached from here"
_STATES: Final = {
    "53100": "the disk of the server is full; make room there",
    "53200": "the server has no memory left; give it more, or end what takes it",
    "53300": "the server has too many connections already; end some, or raise its max_connections",
    "42501": f"the user of the store's URL may not use the tables of the documents; {_GRANT}",
    "25006": "the database can only be read; give the URL of the primary, not of a replica",
    "3D000": "the database of the store's URL does not exist; run CREATE DATABASE, or correct the URL",
    "58P01": "the server lacks a file of the extension pgvector; install pgvector on the server again",
    "42P01": "tables of the documents are missing; they are made again with the next use",
    "57P01": "the server is stopping; it is tried again",
    "57P02": "the server has crashed; it is tried again",
    "57P03": "the server is starting or stopping; it is tried again",
    "XX001": "the data of the server is damaged; restore a backup, or ingest into a new database",
    "XX002": "an index of the server is damaged; run REINDEX DATABASE on it",
}


def _explain_refusal(error: Exception) -> str:
    """Why a connection was refused; empty for an unknown message."""
    message = str(error)
    return next((explanation for pattern, explanation in _REFUSALS if pattern.search(message)), "")


def explain_error(error: Exception) -> str:
    """Why a statement or a connection failed, and what to do."""
    if isinstance(error, PoolTimeout):
        return "no connection was free in time; raise knowledge.poolMax if the server is well"
    if isinstance(error, TimeoutError | psycopg.errors.ConnectionTimeout):
        return _SILENT
    state = error.sqlstate if isinstance(error, psycopg.Error) else None
    if state in _STATES:
        return _STATES[state]
    what = f"{type(error).__name__} {state}" if state else type(error).__name__
    if state:
        return f"the server answers {what}; its log says more"
    return _explain_refusal(error) or f"the connection to the server was lost ({what}); see whether it runs"
