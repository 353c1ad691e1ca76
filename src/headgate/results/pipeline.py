"""The Processor protocol, its result and its error, and the pipeline that runs several in order."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from headgate.results.content import Content


class ProcessorResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a processor; with `error`, one sentence, the content is the unchanged input."""

    content: Content
    metadata: Mapping[str, Any] = {}
    # In bytes.
    original_size: int
    processed_size: int
    applied: bool
    error: str | None = None
    # The byte offset of each shown hit in the input, in the order of the search.
    places: Sequence[int] = ()
    # Or, for JSON, the index of the outermost element with each hit.
    elements: Sequence[int] = ()


class ProcessingError(ValueError):
    """Parameters or content that a processor cannot work with; the message is one sentence."""


class Processor(Protocol):
    """One way to transform a content."""

    # The key of its parameters and of its metadata.
    name: str

    def process(self, content: Content, params: Any) -> ProcessorResult:
        """The transformed content; `params` is the struct of this processor. Raises ProcessingError."""


def processed(
    given: Content,
    made: bytes,
    metadata: Mapping[str, Any],
    *,
    places: Sequence[int] = (),
    elements: Sequence[int] = (),
) -> ProcessorResult:
    """The result of a processor that has changed the content."""
    return ProcessorResult(
        content=made,
        metadata=metadata,
        original_size=len(given),
        processed_size=len(made),
        applied=True,
        places=places,
        elements=elements,
    )


def unchanged(given: Content, metadata: Mapping[str, Any] | None = None) -> ProcessorResult:
    """The result of a processor that does not apply."""
    size = len(given)
    return ProcessorResult(
        content=given, metadata=metadata or {}, original_size=size, processed_size=size, applied=False
    )


class Pipeline:
    """Runs processors in order; it raises nothing except MemoryError."""

    def __init__(self, processors: Sequence[Processor]) -> None:
        self._processors = processors

    def run(self, content: Content, params: Mapping[str, Any]) -> ProcessorResult:
        """The final output; a processor without parameters is skipped, a failure ends the run."""
        made, metadata = unchanged(content), dict[str, Any]()
        for processor in self._processors:
            if params.get(processor.name) is None:
                continue
            error: str | None = None
            try:
                result = processor.process(made.content, params[processor.name])
                error = result.error
            except ProcessingError as refused:
                error = str(refused)
            except MemoryError:
                # The caller knows what to free.
                raise
            except Exception as failure:  # noqa: BLE001 (whatever a processor does, the pipeline gives a result)
                error = f"{processor.name} failed: {type(failure).__name__}: {failure}"
            if error is not None:
                return msgspec.structs.replace(unchanged(content, metadata), error=error)
            metadata[processor.name] = dict(result.metadata)
            made = msgspec.structs.replace(result, applied=made.applied or result.applied)
        return msgspec.structs.replace(
            made, metadata=metadata, original_size=len(content), processed_size=len(made.content)
        )
