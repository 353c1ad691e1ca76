"""How a statement uses column values, read from the bytecode that SQLite compiles it to (EXPLAIN)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import product
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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ARITHMETIC: Final = _words("Add Subtract Multiply Divide Remainder BitAnd BitOr ShiftLeft ShiftRight")
_ORDERING: Final = _words("Lt Le Gt Ge")
_EQUALITY: Final = _words("Eq Ne")
SUMS: Final = ("sum", "avg", "total")
_NUMERIC_AGGREGATES: Final = _words("median percentile percentile_cont percentile_disc").union(SUMS)
_NUMERIC_FUNCTIONS: Final = _words("""
    abs round sign ceil ceiling floor trunc sqrt exp ln log log10 log2 mod pow power sin cos tan
    asin acos atan atan2 sinh cosh tanh asinh acosh atanh degrees radians
""")
_EXTREMES: Final = _words("min max")
_NUMBERS: Final = _words("number length instr unicode count") | _NUMERIC_FUNCTIONS
# This and higher affinities are numeric.
_NUMERIC_AFFINITY: Final = ord("C")

# The operand with the register that an instruction writes.
_WRITES_P2: Final = _words("""
    Integer Int64 Real String String8 Blob Variable Rowid Count NewRowid Sequence SCopy IntCopy Not
    BitNot SorterData RowData IsTrue Null Copy Move
""")
_WRITES_P3: Final = _words("Column VColumn Function PureFunc Concat And Or MakeRecord AggValue")
_WRITES_P1: Final = _words("Cast AggFinal")
_FALLS_NOT_THROUGH: Final = _words("Goto Halt Gosub Jump EndCoroutine Init")
# Instructions whose second operand is a jump address.
_JUMPS: Final = _words("""
    Init Goto Gosub If IfNot IsNull NotNull Once Rewind Next Prev Last Sort SorterSort SorterNext Eq
    Ne Lt Le Gt Ge ElseEq ElseNotEq SeekGE SeekGT SeekLE SeekLT SeekRowid SeekScan NotExists
    NotFound Found NoConflict IfNoHope IfNotOpen IfPos IfNotZero IfNullRow IfSmaller IfEmpty
    DecrJumpZero Filter InitCoroutine Yield VFilter VNext RowSetRead RowSetTest IdxGE IdxGT IdxLE
    IdxLT IsType VInitIn
""")
_INSERTS: Final = _words("Insert IdxInsert SorterInsert")


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
        opcode, name = step.opcode, _name(step)
        use = ValueUse.ORDERED if name in _EXTREMES else ValueUse.COMPUTED
        if opcode in _ARITHMETIC:
            yield from self._all((step.p1, step.p2), at, ValueUse.COMPUTED)
        elif opcode == "Cast" and step.p2 >= _NUMERIC_AFFINITY:
            yield from self._all((step.p1,), at, ValueUse.CAST)
        elif opcode == "AggStep" and name in (_NUMERIC_AGGREGATES | _EXTREMES):
            yield from self._all((step.p2,), at, use)
        elif opcode in ("Function", "PureFunc") and name in (_NUMERIC_FUNCTIONS | _EXTREMES):
            count = step.p4.partition("(")[2].rstrip(")")
            # For a function with any number of arguments it is -1, and the actual number is in p5.
            arguments = int(count) if count.isdigit() else max(step.p5, 1)
            yield from self._all(range(step.p2, step.p2 + arguments), at, use)
        elif opcode in (_ORDERING | _EQUALITY):
            left, right = self._origins(step.p1, at), self._origins(step.p3, at)
            yield from _comparisons(left, right, ordering=opcode in _ORDERING)
        elif opcode in ("Found", "NotFound") and step.p1 not in self._tables:
            # The values of a list, as in `x IN (1, 2)`.
            listed: set[Origin] = set()
            for record in self._records(step.p1):
                if self._steps[record].p2 == 1:
                    listed |= self._origins(self._steps[record].p1, record)
            yield from _comparisons(self._origins(step.p3, at), listed, ordering=False)

    def _all(self, registers: Iterable[int], at: int, use: ValueUse) -> Iterator[ColumnUse]:
        for register in registers:
            for origin in self._origins(register, at):
                if isinstance(origin, int):
                    yield ColumnUse(origin, use)

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
        if step.opcode == "Column" and step.p1 not in self._tables:
            records = list(self._records(step.p1))
            found.update([] if records else [_ValueOrigin.UNKNOWN])
            return [(self._steps[record].p1 + step.p2, record) for record in records]
        if step.opcode == "Column":
            found.add(step.p2)
        elif step.opcode != "Null":
            found.add(_written_origin(step))
        return []

    def _records(self, cursor: int) -> Iterator[int]:
        """The addresses of the instructions that make the records which a cursor reads."""
        registers = {self._pseudo[cursor]} if cursor in self._pseudo else set()
        sorters = {step.p1 for step in self._steps if step.opcode == "SorterData" and step.p2 in registers}
        base = self._twins.get
        stores = {base(one, one) for one in (sorters or {cursor})}
        registers |= {
            step.p2 for step in self._steps if step.opcode in _INSERTS and base(step.p1, step.p1) in stores
        }
        for at, step in enumerate(self._steps):
            if step.opcode == "MakeRecord" and step.p3 in registers:
                yield at


def _comparisons(left: set[Origin], right: set[Origin], *, ordering: bool) -> Iterator[ColumnUse]:
    compared = ValueUse.COMPARED if ordering else ValueUse.EQUALLED
    for column, other in (*product(left, right), *product(right, left)):
        if not isinstance(column, int):
            continue
        if other is _ValueOrigin.NUMBER:
            yield ColumnUse(column, compared)
        elif isinstance(other, int) and other != column:
            yield ColumnUse(column, compared, other)
        elif ordering and other is not _ValueOrigin.UNKNOWN:
            yield ColumnUse(column, ValueUse.ORDERED)


def _written_origin(step: SqliteInstruction) -> Origin:
    opcode, name = step.opcode, _name(step)
    if opcode in ("Integer", "Int64", "Real", "Rowid") or opcode in _ARITHMETIC:
        return _ValueOrigin.NUMBER
    if opcode == "Cast":
        return _ValueOrigin.NUMBER if step.p2 >= _NUMERIC_AFFINITY else _ValueOrigin.TEXT
    if opcode in ("Function", "PureFunc", "AggFinal", "AggValue"):
        numeric = name in _NUMBERS or name in _NUMERIC_AGGREGATES
        return _ValueOrigin.NUMBER if numeric else _ValueOrigin.UNKNOWN
    return _ValueOrigin.TEXT if opcode in ("String8", "String", "Concat") else _ValueOrigin.UNKNOWN


def _writes(step: SqliteInstruction, register: int) -> bool:
    opcode = step.opcode
    if opcode in _WRITES_P2:
        more = {"Null": max(step.p3 - step.p2, 0), "Copy": step.p3, "Move": step.p3 - 1}
        return step.p2 <= register <= step.p2 + more.get(opcode, 0)
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
        following = set() if step.opcode in _FALLS_NOT_THROUGH else {at + 1}
        if step.opcode in _JUMPS and step.p2:
            following.add(step.p2)
        if step.opcode == "Jump":
            following |= {step.p1, step.p2, step.p3}
        if step.opcode in ("Return", "Yield", "EndCoroutine"):
            following |= resumed.get(step.p1, set())
        for after in following:
            before[after].append(at)
    return before


def _name(step: SqliteInstruction) -> str:
    return step.p4.partition("(")[0].lower()
