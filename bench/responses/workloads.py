"""The large results that are measured: made here from a fixed seed, so that anybody has the same."""

import json
import random
from typing import Any, Final

import msgspec

_SEED: Final = 20_260_728
_WORDS: Final = (
    *("account", "archive", "balance", "batch", "cache", "carrier", "checkout", "cluster", "contract"),
    *("currency", "customer", "delivery", "deposit", "discount", "export", "forecast", "freight", "gateway"),
    *("handover", "import", "index", "invoice", "ledger", "licence", "merchant", "mirror", "notice", "order"),
    *("parcel", "payment", "pension", "pickup", "policy", "premium", "quota", "rebate", "receipt", "refund"),
    *("region", "rental", "replica", "report", "return", "route", "schedule", "session", "shipment", "stock"),
    *("storage", "supplier", "tariff", "tenant", "ticket", "transfer", "transit", "voucher", "warehouse"),
)
_CITIES: Final = ("Rome", "Oslo", "Porto", "Ghent", "Turku", "Lviv", "Graz", "Brno", "Malmö", "Gdańsk")
_SURNAMES: Final = (
    "Okafor",
    "Lindqvist",
    "Moreau",
    "Nakamura",
    "Silva",
    "Kowalski",
    "Haddad",
    "Byrne",
    "Rossi",
)
_LEVELS: Final = ("INFO", "INFO", "INFO", "INFO", "INFO", "DEBUG", "DEBUG", "WARN")
# Stands once in every log and in every list, at two thirds of it.
NEEDLE: Final = "Quendale handshake refused"
SECTION: Final = "# shift 7"


def log(size: int, errors: int | None = None) -> str:
    """Lines of a service, of about so many bytes; so many of them are errors, or one in a hundred."""
    draw = random.Random(_SEED)
    lines: list[str] = []
    length = 0
    while length < size:
        lines.append(_line(draw, len(lines)))
        length += len(lines[-1]) + 1
    wrong = len(lines) // 100 if errors is None else errors
    for number in draw.sample(range(10, len(lines) - 10), wrong):
        words = " ".join(draw.choices(_WORDS, k=3))
        lines[number] = f"{_begin(number)} ERROR {words} failed: code {draw.randrange(400, 600)}"
    for shift in range(10):
        lines[len(lines) * shift // 10] = f"# shift {shift}"
    at = len(lines) * 2 // 3
    lines[at] = f"{_begin(at)} FATAL payment {NEEDLE} by merchant 4471"
    return "\n".join(lines)


def _line(draw: random.Random, number: int) -> str:
    verb, path = draw.choice(("GET", "POST", "PUT")), "/".join(draw.choices(_WORDS, k=2))
    return (
        f"{_begin(number)} {draw.choice(_LEVELS)} {verb} /v1/{path}/{draw.randrange(10**6)} "
        f"{draw.choice((200, 200, 201, 204, 304))} {draw.randrange(1, 900)}ms user=u{draw.randrange(5000)}"
    )


def _begin(number: int) -> str:
    seconds, thousandths = divmod(number * 137, 1000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    return f"2026-03-{hours // 24 % 28 + 1:02}T{hours % 24:02}:{minute:02}:{second:02}.{thousandths:03}Z"


def items(size: int) -> str:
    """An API's list of orders, of about so many bytes."""
    draw = random.Random(_SEED + 1)
    orders: list[dict[str, Any]] = []
    length = 0
    while length < size:
        orders.append(_order(draw, len(orders)))
        length += len(json.dumps(orders[-1])) + 2
    orders[len(orders) * 2 // 3] |= {"note": f"payment {NEEDLE} by merchant 4471", "status": "blocked"}
    return json.dumps({"total": len(orders), "page": 1, "items": orders}, ensure_ascii=False)


def _order(draw: random.Random, number: int) -> dict[str, Any]:
    surname = draw.choice(_SURNAMES)
    return {
        "id": 100_000 + number,
        "status": draw.choice(("open", "paid", "sent", "closed")),
        "price": round(draw.uniform(5, 900), 2),
        "customer": {
            "name": f"{surname} {draw.randrange(900)}",
            "email": f"{surname.lower()}{number}@example.com",
            "address": {"city": draw.choice(_CITIES), "zip": f"{draw.randrange(10**5):05}"},
        },
        "tags": draw.sample(_WORDS, 3),
        "note": " ".join(draw.choices(_WORDS, k=9)),
    }


def rows(count: int = 100) -> str:
    """What a database query gives: objects with fifteen columns."""
    draw = random.Random(_SEED + 2)
    return json.dumps([_row(draw, number) for number in range(count)])


def _row(draw: random.Random, number: int) -> dict[str, Any]:
    surname = draw.choice(_SURNAMES)
    return {
        "id": 7_000 + number,
        "name": f"{draw.choice(_WORDS).title()} {surname}",
        "email": f"{surname.lower()}.{number}@example.com",
        "phone": f"+44 20 {draw.randrange(10**8):08}",
        "company": f"{surname} {draw.choice(_WORDS).title()} Ltd",
        "department": draw.choice(_WORDS),
        "street": f"{draw.randrange(1, 200)} {draw.choice(_WORDS).title()} Street",
        "city": draw.choice(_CITIES[:8]),
        "postal_code": f"{draw.randrange(10**5):05}",
        "country": draw.choice(("IT", "NO", "PT", "BE", "FI", "UA", "AT", "CZ")),
        "created_at": f"2026-05-{draw.randrange(1, 29):02}T08:{draw.randrange(60):02}:00Z",
        "last_login": f"2026-07-{draw.randrange(1, 29):02}T17:{draw.randrange(60):02}:00Z",
        "plan": draw.choice(("free", "team", "business")),
        "balance": round(draw.uniform(-50, 5000), 2),
        "notes": " ".join(draw.choices(_WORDS, k=8)),
    }


def deep() -> str:
    """An API's reply that is nested: regions, zones, nodes, pods, containers; one of them fails."""
    draw = random.Random(_SEED + 3)
    regions: list[dict[str, Any]] = [
        {"name": region, "zones": [_zone(draw, f"{region}-{letter}") for letter in "abc"]}
        for region in ("north", "south", "west")
    ]
    broken = regions[1]["zones"][1]["nodes"][3]["pods"][2]
    broken["status"] = {
        "phase": "CrashLoopBackOff",
        "restarts": 41,
        "message": f"payment {NEEDLE}: certificate expired 2026-07-01",
    }
    return json.dumps({"apiVersion": "v2", "cluster": {"name": "harbour", "regions": regions}})


def _zone(draw: random.Random, name: str) -> dict[str, Any]:
    return {"name": name, "nodes": [_node(draw, f"{name}-node-{number}") for number in range(6)]}


def _node(draw: random.Random, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "labels": {"arch": draw.choice(("arm64", "amd64")), "pool": draw.choice(_WORDS), "tier": "standard"},
        "capacity": {"cpu": draw.choice((8, 16, 32)), "memory": f"{draw.choice((32, 64, 128))}Gi"},
        "conditions": [
            {"type": kind, "status": "True", "since": f"2026-06-{draw.randrange(1, 29):02}"}
            for kind in ("Ready", "DiskSpace", "Network")
        ],
        "pods": [_pod(draw, number) for number in range(5)],
    }


def _pod(draw: random.Random, number: int) -> dict[str, Any]:
    app = draw.choice(_WORDS)
    return {
        "name": f"{app}-{draw.getrandbits(40):010x}",
        "namespace": draw.choice(("shop", "billing", "ops")),
        "containers": [
            {
                "image": f"registry.example/{app}:{draw.randrange(1, 9)}.{draw.randrange(30)}",
                "ports": [8000 + number],
                "env": {word.upper(): draw.choice(_WORDS) for word in draw.sample(_WORDS, 3)},
                "resources": {"cpu": f"{draw.choice((100, 250, 500))}m", "memory": "256Mi"},
            }
        ],
        "status": {"phase": "Running", "restarts": draw.randrange(3), "message": ""},
    }


def result_of(text: str) -> bytes:
    """The text as the result of a tool."""
    return msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": False})
