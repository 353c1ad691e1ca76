"""Makes the patch that lets the offline model multiply in 8-bit integers.

    python scripts/quantize_minilm.py

needs headgate-mcp[semantic]. It rewrites the ONNX graph of the packaged model and writes the difference to
src/headgate/embedding/data; nearly all of the rewritten model are weights of the packaged one. Run it again
when the model changes, and put the printed SHA-256 into headgate/embedding/minilm.py.
"""

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from headgate.embedding.minilm import PASSAGE_PATCH_FILE, packaged_model

TARGET: Final = Path(__file__).resolve().parent.parent / "src/headgate/embedding" / PASSAGE_PATCH_FILE
# A smaller tensor is written into the patch: a reference to the model would hardly be shorter.
SMALLEST_REFERENCE: Final = 64

# What the format (ONNX, written as protocol buffers) calls the fields that matter here.
_MODEL_GRAPH: Final = 7
_MODEL_OPERATORS: Final = 8
_GRAPH_NODE: Final = 1
_GRAPH_TENSOR: Final = 5
_NODE_INPUT: Final = 1
_NODE_OUTPUT: Final = 2
_NODE_OPERATOR: Final = 4
_NODE_DOMAIN: Final = 7
_TENSOR_SIZE: Final = 1
_TENSOR_NAME: Final = 8
_SET_DOMAIN: Final = 1
_SET_VERSION: Final = 2

# How a field is written.
_NUMBER: Final = 0
_EIGHT_BYTES: Final = 1
_BYTES: Final = 2
_FOUR_BYTES: Final = 5

_OF_ONNXRUNTIME: Final = b"com.microsoft"
_MORE: Final = 0x80
_SEVEN_BITS: Final = 0x7F


def main() -> None:
    """Write the patch and print its SHA-256."""
    model = packaged_model().read_bytes()
    patch = zlib.compress(msgspec.msgpack.encode(make_patch(model, quantize_model(model))), 9)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(patch)
    print(f"{TARGET.name}: {len(patch):,} bytes, SHA-256 {hashlib.sha256(patch).hexdigest()}")


def make_patch(model: bytes, rewritten: bytes) -> list[tuple[int, int] | bytes]:
    """The pieces of the rewritten model: start and end of a piece of the model, or bytes of its own."""
    pieces: list[tuple[int, int] | bytes] = []
    done = 0
    for tensor in _tensors(model):
        place = rewritten.find(tensor, done) if len(tensor) >= SMALLEST_REFERENCE else -1
        if place < 0:
            continue
        if place > done:
            pieces.append(rewritten[done:place])
        start = model.index(tensor)
        done = place + len(tensor)
        pieces.append((start, start + len(tensor)))
    return [*pieces, rewritten[done:]]


def _tensors(model: bytes) -> Iterator[bytes]:
    """The numbers of each tensor, in the order of the model."""
    for graph in _all(_fields(model), _MODEL_GRAPH):
        for tensor in _all(_fields(graph), _GRAPH_TENSOR):
            yield from (one.content for one in _fields(tensor) if one.kind == _BYTES)


def quantize_model(model: bytes) -> bytes:
    """The model with nearly the same vectors, in half the time."""
    fields = list(_fields(model))
    changed = [
        _ProtobufField(_MODEL_GRAPH, _BYTES, _rewritten(one.content)) if one.number == _MODEL_GRAPH else one
        for one in fields
    ]
    operators = [
        _ProtobufField(_SET_DOMAIN, _BYTES, _OF_ONNXRUNTIME),
        _ProtobufField(_SET_VERSION, _NUMBER, _number(1)),
    ]
    return _written([*changed, _ProtobufField(_MODEL_OPERATORS, _BYTES, _written(operators))])


class _OnnxNode(NamedTuple):
    """One step of the model."""

    operator: bytes
    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]
    written: bytes

    @classmethod
    def read(cls, written: bytes) -> "_OnnxNode":
        fields = list(_fields(written))
        [operator] = _all(fields, _NODE_OPERATOR)
        return cls(operator, _all(fields, _NODE_INPUT), _all(fields, _NODE_OUTPUT), written)

    @classmethod
    def made(
        cls, operator: bytes, inputs: Sequence[bytes], outputs: tuple[bytes, ...], domain: bytes = b""
    ) -> "_OnnxNode":
        fields = [
            *(_ProtobufField(_NODE_INPUT, _BYTES, one) for one in inputs),
            *(_ProtobufField(_NODE_OUTPUT, _BYTES, one) for one in outputs),
            _ProtobufField(_NODE_OPERATOR, _BYTES, operator),
            _ProtobufField(_NODE_DOMAIN, _BYTES, domain),
        ]
        return cls(operator, tuple(inputs), outputs, _written(fields))


def _rewritten(graph: bytes) -> bytes:
    fields = list(_fields(graph))
    tensors = {
        name: one.content
        for one in fields
        if one.number == _GRAPH_TENSOR
        for name in _all(_fields(one.content), _TENSOR_NAME)
    }
    nodes = [_OnnxNode.read(one.content) for one in fields if one.number == _GRAPH_NODE]
    rewriting = _GraphRewriter(nodes, tensors)
    steps = [_ProtobufField(_GRAPH_NODE, _BYTES, node.written) for node in rewriting.nodes()]
    kept = {**tensors, **rewriting.scales}
    return _written(
        [
            *steps,
            *(_ProtobufField(_GRAPH_TENSOR, _BYTES, tensor) for tensor in kept.values()),
            *(one for one in fields if one.number not in (_GRAPH_NODE, _GRAPH_TENSOR)),
        ]
    )


class _GraphRewriter:
    """The steps of the model, and what takes the place of some of them."""

    def __init__(self, nodes: Sequence[_OnnxNode], tensors: Mapping[bytes, bytes]) -> None:
        self._nodes = nodes
        self._tensors = tensors
        self._maker = {output: node for node in nodes for output in node.outputs}
        # Of the weights of each product, by name, as the operator wants them.
        self.scales: dict[bytes, bytes] = {}

    def nodes(self) -> list[_OnnxNode]:
        """All steps that are left, in order."""
        changed = [self._product(node) or self._unguarded(node) or node for node in self._nodes]
        used = {name for node in changed for name in node.inputs}
        # Widening a weight was there for a product alone, and so was looking for what is no number.
        return [
            node
            for node in changed
            if node.operator not in (b"Cast", b"Mul", b"IsNaN") or not used.isdisjoint(node.outputs)
        ]

    def _product(self, node: _OnnxNode) -> _OnnxNode | None:
        """`A x (weights as numbers of 32 bits x scale)`, with the weights as they are kept."""
        widening = self._maker.get(node.inputs[1]) if node.operator == b"MatMul" else None
        if widening is None or widening.operator != b"Mul":
            return None
        kept = [one.inputs[0] for name in widening.inputs if (one := self._maker.get(name)) is not None]
        scales = [name for name in widening.inputs if name in self._tensors]
        if len(kept) != 1 or len(scales) != 1 or kept[0] not in self._tensors:
            return None
        return _OnnxNode.made(
            b"DynamicQuantizeMatMul",
            (node.inputs[0], kept[0], self._listed(scales[0])),
            node.outputs,
            _OF_ONNXRUNTIME,
        )

    def _listed(self, name: bytes) -> bytes:
        """The name of the same numbers as a list: they are kept as a table of one row."""
        fields = list(_fields(self._tensors[name]))
        size = _ProtobufField(_TENSOR_SIZE, _NUMBER, _sizes(fields)[-1])
        self.scales[name] = _written([size, *(one for one in fields if one.number != _TENSOR_SIZE)])
        return name

    def _unguarded(self, node: _OnnxNode) -> _OnnxNode | None:
        """`0 where x is no number, else x`: only a text without a piece would have such an x."""
        looked = self._maker.get(node.inputs[0]) if node.operator == b"Where" else None
        if looked is None or looked.operator != b"IsNaN" or looked.inputs[0] != node.inputs[2]:
            return None
        return _OnnxNode.made(b"Identity", node.inputs[2:], node.outputs)


# The format.


class _ProtobufField(NamedTuple):
    """A field of a message, as it is written behind its tag and length."""

    number: int
    kind: int
    content: bytes


def _all(fields: Iterable[_ProtobufField], number: int) -> tuple[bytes, ...]:
    return tuple(one.content for one in fields if one.number == number)


def _sizes(fields: Iterable[_ProtobufField]) -> list[bytes]:
    """The dimensions of a tensor, each as a written number; a list of them may be written as one field."""
    sizes: list[bytes] = []
    for one in fields:
        if one.number == _TENSOR_SIZE:
            place = 0
            while place < len(one.content):
                end = _end_of_number(one.content, place)
                sizes.append(one.content[place:end])
                place = end
    return sizes


def _fields(message: bytes) -> Iterator[_ProtobufField]:
    place = 0
    while place < len(message):
        start = _end_of_number(message, place)
        tag = _read_number(message[place:start])
        number, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            size_end = _end_of_number(message, start)
            place = size_end + _read_number(message[start:size_end])
            start = size_end
        else:
            sizes = {_EIGHT_BYTES: start + 8, _FOUR_BYTES: start + 4}
            place = sizes[kind] if kind in sizes else _end_of_number(message, start)
        yield _ProtobufField(number, kind, message[start:place])


def _written(fields: Iterable[_ProtobufField]) -> bytes:
    parts: list[bytes] = []
    for one in fields:
        size = _number(len(one.content)) if one.kind == _BYTES else b""
        parts += (_number(one.number << 3 | one.kind), size, one.content)
    return b"".join(parts)


def _end_of_number(message: bytes, place: int) -> int:
    while message[place] & _MORE:
        place += 1
    return place + 1


def _read_number(written: bytes) -> int:
    return sum((byte & _SEVEN_BITS) << 7 * place for place, byte in enumerate(written))


def _number(value: int) -> bytes:
    written = bytearray()
    while value > _SEVEN_BITS:
        written.append(value & _SEVEN_BITS | _MORE)
        value >>= 7
    return bytes((*written, value))


if __name__ == "__main__":
    main()
