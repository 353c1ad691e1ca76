"""How a statement uses column values, read from the bytecode that SQLite compiles it to (EXPLAIN)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple


class ValueUse(Enum):
    """How a statement uses a value, as far as that matters for text that looks like numbers."""

    COMPUTED = auto()
    CAST = auto()
    COMPARED = auto()
    EQUALLED = auto()
    ORDERED = auto()


class SqliteInstruction(NamedTuple):
    """One instruction of a program, as EXPLAIN returns it."""

    opcode: str
    p1: int
    p2: int
    p3: int
    p4: str
    p5: int


@dataclass(frozen=True, slots=True)
class ColumnUse:
    """A column by its index, its use, and the column that it is compared with, if any."""

    column: int
    use: ValueUse
    other: int | None = None


class _ValueOrigin(Enum):
    """The origin of a value that is not from a column."""

    NUMBER = auto()
    TEXT = auto()
    UNKNOWN = auto()


Origin = int | _ValueOrigin

_ARITHMETIC_NAMES: Final = """
    Add Subtract Multiply Divide Remainder BitAnd BitOr ShiftLeft ShiftRight
"""
_ARITHMETIC: Final = frozenset(_ARITHMETIC_NAMES.split())
_ORDERING: Final = frozenset(("Lt", "Le", "Gt", "Ge"))
_EQUALITY: Final = frozenset(("Eq", "Ne"))
SUMS: Final = ("sum", "avg", "total")
_NUMERIC_AGGREGATES: Final = frozenset((*SUMS, "median", "percentile", "percentile_cont", "percentile_disc"))
_NUMERIC_FUNCTION_NAMES: Final = """
    abs round sign ceil ceiling floor trunc sqrt exp ln log log10 log2 mod pow power sin cos tan
    asin acos atan atan2 sinh cosh tanh asinh acosh atanh degrees radians
"""
_NUMERIC_FUNCTIONS: Final = frozenset(_NUMERIC_FUNCTION_NAMES.split())
_EXTREMES: Final = frozenset(("min", "max"))
_NUMBERS: Final = frozenset(("number", "length", "instr", "unicode", "count", *_NUMERIC_FUNCTIONS))
# This and higher affinities are numeric.
_NUMERIC_AFFINITY: Final = ord("C")

# The operand with the register that an instruction writes.
_WRITES_P2_NAMES: Final = """
    Integer Int64 Real String String8 Blob Variable Rowid Count NewRowid Sequence SCopy IntCopy Not
    BitNot SorterData RowData IsTrue Null Copy Move
"""
_WRITES_P2: Final = frozenset(_WRITES_P2_NAMES.split())
_WRITES_P3: Final = frozenset(
    ("Column", "VColumn", "Function", "PureFunc", "Concat", "And", "Or", "MakeRecord", "AggValue")
)
_WRITES_P1: Final = frozenset(("Cast", "AggFinal"))
_FALLS_NOT_THROUGH: Final = frozenset(("Goto", "Halt", "Gosub", "Jump", "EndCoroutine", "Init"))
# Instructions whose second operand is a jump address.
_JUMP_NAMES: Final = """
    Init Goto Gosub If IfNot IsNull NotNull Once Rewind Next Prev Last Sort SorterSort SorterNext Eq
    Ne Lt Le Gt Ge ElseEq ElseNotEq SeekGE SeekGT SeekLE SeekLT SeekRowid SeekScan NotExists
    NotFound Found NoConflict IfNoHope IfNotOpen IfPos IfNotZero IfNullRow IfSmaller IfEmpty
    DecrJumpZero Filter InitCoroutine Yield VFilter VNext RowSetRead RowSetTest IdxGE IdxGT IdxLE
    IdxLT IsType VInitIn
"""
_JUMPS: Final = frozenset(_JUMP_NAMES.split())
_INSERTS: Final = frozenset(("Insert", "IdxInsert", "SorterInsert"))


class SqliteProgram:
    """The compiled program of one statement."""

    def __init__(self, explained: Iterable[Sequence[Any]], roots: Iterable[int]) -> None:
        """`explained` are the rows of EXPLAIN, `roots` the root pages of the examined tables."""
        self._steps = [
            SqliteInstruction(opcode, p1, p2, p3, str(p4 or ""), p5)
            for _, opcode, p1, p2, p3, p4, p5, *_ in explained
        ]
        self._tables = {
            step.p1 for step in self._steps if step.opcode == "OpenRead" and step.p2 in set(roots)
        }
        self._twins = {step.p1: step.p2 for step in self._steps if step.opcode == "OpenDup"}
        self._pseudo = {step.p1: step.p2 for step in self._steps if step.opcode == "OpenPseudo"}
        self._before = _predecessors(self._steps)

    def uses(self) -> set[ColumnUse]:
        """Every use of a column that could go wrong with text."""
        return {use for at, step in enumerate(self._steps) for use in self._uses_of(at, step)}

    def sums_other_values(self) -> bool:
        """Whether a sum has an argument other than a plain column, such as the value of a function."""
        return any(
            step.opcode == "AggStep"
            and _name(step) in SUMS
            and _ValueOrigin.UNKNOWN in self._origins(step.p2, at)
            for at, step in enumerate(self._steps)
        )

    def _uses_of(self, at: int, step: SqliteInstruction) -> Iterator[ColumnUse]:
        opcode = step.opcode
        if opcode in _ARITHMETIC:
            yield from self._all((step.p1, step.p2), at, ValueUse.COMPUTED)
        elif opcode == "Cast" and step.p2 >= _NUMERIC_AFFINITY:
            yield from self._all((step.p1,), at, ValueUse.CAST)
        elif opcode == "AggStep":
            yield from self._aggregate_uses(at, step)
        elif opcode in ("Function", "PureFunc") and _name(step) in (_NUMERIC_FUNCTIONS | _EXTREMES):
            use = ValueUse.ORDERED if _name(step) in _EXTREMES else ValueUse.COMPUTED
            yield from self._all(range(step.p2, step.p2 + _arguments(step)), at, use)
        elif opcode in (_ORDERING | _EQUALITY):
            left, right = self._origins(step.p1, at), self._origins(step.p3, at)
            yield from _comparisons(left, right, ordering=opcode in _ORDERING)
        elif opcode in ("Found", "NotFound") and step.p1 not in self._tables:
            yield from _comparisons(self._origins(step.p3, at), self._list_origins(step.p1), ordering=False)

    def _aggregate_uses(self, at: int, step: SqliteInstruction) -> Iterator[ColumnUse]:
        if _name(step) in _NUMERIC_AGGREGATES:
            yield from self._all((step.p2,), at, ValueUse.COMPUTED)
        elif _name(step) in _EXTREMES:
            yield from self._all((step.p2,), at, ValueUse.ORDERED)

    def _all(self, registers: Iterable[int], at: int, use: ValueUse) -> Iterator[ColumnUse]:
        for register in registers:
            for origin in self._origins(register, at):
                if isinstance(origin, int):
                    yield ColumnUse(origin, use)

    def _list_origins(self, cursor: int) -> set[Origin]:
        """The origins of the values of a list, as in `x IN (1, 2)`."""
        records = [at for at in self._records(cursor) if self._steps[at].p2 == 1]
        return {origin for at in records for origin in self._origins(self._steps[at].p1, at)}

    def _origins(self, register: int, at: int) -> set[Origin]:
        """The possible origins of a register's value when the instruction at an address reads it."""
        found: set[Origin] = set()
        waiting, seen = [(register, at)], {(register, at)}
        while waiting:
            target, place = waiting.pop()
            for before in self._before[place]:
                step = self._steps[before]
                if _writes(step, target):
                    further = self._came_from(step, target, before, found)
                else:
                    further = [(target, before)]
                waiting += (each for each in further if each not in seen)
                seen.update(further)
        return found

    def _came_from(
        self, step: SqliteInstruction, target: int, at: int, found: set[Origin]
    ) -> list[tuple[int, int]]:
        """Record the origin of a written value, or return the registers that it is a copy of."""
        if step.opcode in ("Copy", "SCopy", "Move"):
            return [(step.p1 + target - step.p2, at)]
        if step.opcode == "Column":
            return self._read(step, found)
        found.update(_written_origins(step))
        return []

    def _read(self, step: SqliteInstruction, found: set[Origin]) -> list[tuple[int, int]]:
        if step.p1 in self._tables:
            found.add(step.p2)
            return []
        records = list(self._records(step.p1))
        if not records:
            found.add(_ValueOrigin.UNKNOWN)
        return [(self._steps[at].p1 + step.p2, at) for at in records]

    def _records(self, cursor: int) -> Iterator[int]:
        """The addresses of the instructions that make the records which a cursor reads."""
        registers = {self._pseudo[cursor]} if cursor in self._pseudo else set()
        sorters = {step.p1 for step in self._steps if step.opcode == "SorterData" and step.p2 in registers}
        stores = {self._base(one) for one in (sorters or {cursor})}
        registers |= {
            step.p2 for step in self._steps if step.opcode in _INSERTS and self._base(step.p1) in stores
        }
        for at, step in enumerate(self._steps):
            if step.opcode == "MakeRecord" and step.p3 in registers:
                yield at

    def _base(self, cursor: int) -> int:
        return self._twins.get(cursor, cursor)


def _comparisons(left: set[Origin], right: set[Origin], *, ordering: bool) -> Iterator[ColumnUse]:
    for one, others in ((left, right), (right, left)):
        for column in one:
            if isinstance(column, int):
                yield from _against(column, others, ordering=ordering)


def _against(column: int, others: Iterable[Origin], *, ordering: bool) -> Iterator[ColumnUse]:
    for other in others:
        if other is _ValueOrigin.NUMBER:
            yield ColumnUse(column, ValueUse.COMPARED if ordering else ValueUse.EQUALLED)
        elif isinstance(other, int) and other != column:
            yield ColumnUse(column, ValueUse.COMPARED if ordering else ValueUse.EQUALLED, other)
        elif ordering and other is not _ValueOrigin.UNKNOWN:
            yield ColumnUse(column, ValueUse.ORDERED)


def _written_origins(step: SqliteInstruction) -> set[Origin]:
    opcode = step.opcode
    if opcode in ("Integer", "Int64", "Real", "Rowid") or opcode in _ARITHMETIC:
        return {_ValueOrigin.NUMBER}
    if opcode == "Cast":
        return {_ValueOrigin.NUMBER if step.p2 >= _NUMERIC_AFFINITY else _ValueOrigin.TEXT}
    if opcode in ("Function", "PureFunc", "AggFinal", "AggValue"):
        numeric = _name(step) in _NUMBERS or _name(step) in _NUMERIC_AGGREGATES
        return {_ValueOrigin.NUMBER if numeric else _ValueOrigin.UNKNOWN}
    if opcode == "Null":
        return set()
    return {_ValueOrigin.TEXT if opcode in ("String8", "String", "Concat") else _ValueOrigin.UNKNOWN}


def _writes(step: SqliteInstruction, register: int) -> bool:
    opcode = step.opcode
    if opcode in _WRITES_P2:
        last = step.p2
        if opcode == "Null":
            last = max(step.p2, step.p3)
        elif opcode == "Copy":
            last += step.p3
        elif opcode == "Move":
            last += step.p3 - 1
        return step.p2 <= register <= last
    if opcode in _WRITES_P3 or opcode in _ARITHMETIC:
        return step.p3 == register
    return opcode in _WRITES_P1 and step.p1 == register


def _predecessors(steps: Sequence[SqliteInstruction]) -> Mapping[int, list[int]]:
    before: dict[int, list[int]] = defaultdict(list)
    resumed: dict[int, set[int]] = defaultdict(set)
    for at, step in enumerate(steps):
        # A subroutine or coroutine returns to the instruction after the one that called or resumed it.
        if step.opcode in ("Gosub", "Yield"):
            resumed[step.p1].add(at + 1)
        elif step.opcode == "InitCoroutine":
            resumed[step.p1].add(step.p3)
    for at, step in enumerate(steps):
        for after in _successors(at, step, resumed):
            before[after].append(at)
    return before


def _successors(at: int, step: SqliteInstruction, resumed: Mapping[int, set[int]]) -> set[int]:
    after = set() if step.opcode in _FALLS_NOT_THROUGH else {at + 1}
    if step.opcode in _JUMPS and step.p2:
        after.add(step.p2)
    if step.opcode == "Jump":
        after |= {step.p1, step.p2, step.p3}
    if step.opcode in ("Return", "Yield", "EndCoroutine"):
        after |= resumed.get(step.p1, set())
    return after


def _name(step: SqliteInstruction) -> str:
    return step.p4.partition("(")[0].lower()


def _arguments(step: SqliteInstruction) -> int:
    count = step.p4.partition("(")[2].rstrip(")")
    # For a function with any number of arguments it is -1, and the actual number is in p5.
    return int(count) if count.isdigit() else max(step.p5, 1)
