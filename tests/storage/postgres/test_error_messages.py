"""What a server or its driver says becomes a sentence for the operator, with what to do and no secret."""

import psycopg
import pytest
from psycopg import errors
from psycopg_pool import PoolTimeout

from headgate.storage.postgres.connection_pool import explain_error

AT = 'connection failed: connection to server at "10.1.2.3", port 5432 failed: '


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (
            'FATAL:  password authentication failed for user "u-canary"',
            "password of the store's URL is wrong",
        ),
        ('FATAL:  role "u-canary" does not exist', "password of the store's URL is wrong"),
        ("fe_sendauth: no password supplied", "add it to the URL"),
        ('FATAL:  no pg_hba.conf entry for host "10.1.2.3", user "u-canary"', "allow it in pg_hba.conf"),
        ('FATAL:  database "password-canary" does not exist', "run CREATE DATABASE"),
        ('FATAL:  permission denied for database "d-canary"', "GRANT CONNECT"),
        ("FATAL:  sorry, too many clients already", "too many connections"),
        ("FATAL:  the database system is starting up", "starting or stopping"),
        ("server does not support SSL, but SSL was required", "sslmode"),
        ("received invalid response to SSL negotiation: H", "no PostgreSQL server"),
        ("Connection refused\n\tIs the server running on that host", "no server listens"),
        (
            "failed to resolve host 'h-canary': [Errno -2] Name or service not known",
            "host of the store's URL",
        ),
        ("something new about canary", "see whether it runs"),
    ],
)
def test_who_is_not_let_in_is_told_what_to_do(said: str, meant: str) -> None:
    told = explain_error(psycopg.OperationalError(AT + said))
    assert meant in told
    assert "; " in told
    assert not any(secret in told for secret in ("canary", "10.1.2.3", "FATAL"))


@pytest.mark.parametrize(
    ("error", "meant"),
    [
        (errors.DiskFull('could not extend file "base/1/canary"'), "the disk of the server is full"),
        (errors.ReadOnlySqlTransaction("cannot execute canary"), "give the URL of the primary"),
        (errors.InsufficientPrivilege("permission denied for table canary"), "grant him all"),
        (errors.DivisionByZero("canary"), "DivisionByZero 22012; its log says more"),
        (errors.ConnectionTimeout("canary"), "does not answer in time"),
        (TimeoutError("canary"), "does not answer in time"),
        (PoolTimeout("canary"), "poolMax"),
    ],
)
def test_what_fails_later_is_told_by_its_kind(error: Exception, meant: str) -> None:
    told = explain_error(error)
    assert meant in told
    assert "canary" not in told
