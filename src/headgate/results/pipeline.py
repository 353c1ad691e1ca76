"""The Processor protocol, its result and its error, and the pipeline that runs several in order."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from headgate.results.content import Content


class ProcessorResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a content; `error` is a sentence, and then the content is the one that was given."""

    content: Content
    metadata: Mapping[str, Any] = {}
    # In bytes.
    original_size: int
    processed_size: int
    applied: bool
    error: str | None = None
    # Where in the given content each hit begins that is shown, in bytes, in the order of a search.
    places: Sequence[int] = ()
    # Or, of JSON, in which of the outermost elements each of them is.
    elements: Sequence[int] = ()


class ProcessingError(ValueError):
    """Parameters that a processor cannot work with; the message is one sentence that names them."""


class Processor(Protocol):
    """One way to look at a content."""

    @property
    def name(self) -> str:
        """Under which its parameters are given and its metadata collected."""

    def process(self, content: Content, params: Any) -> ProcessorResult:
        """What is left of the content; `params` is the structure that belongs to this processor."""


def processed(
    given: Content,
    made: bytes,
    metadata: Mapping[str, Any],
    *,
    places: Sequence[int] = (),
    elements: Sequence[int] = (),
) -> ProcessorResult:
    """What a processor gives that has worked."""
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
    """What a processor gives that has nothing to do here."""
    size = len(given)
    return ProcessorResult(
        content=given, metadata=metadata or {}, original_size=size, processed_size=size, applied=False
    )


class Pipeline:
    """Runs processors in order; it never raises, unless there is no memory."""

    def __init__(self, processors: Sequence[Processor]) -> None:
        self._processors = processors

    def run(self, content: Content, params: Mapping[str, Any]) -> ProcessorResult:
        """What is left in the end; a processor without parameters is skipped, a failure ends the run."""
        given, metadata, applied = content, {}, False
        error: str | None = None
        places: Sequence[int] = ()
        elements: Sequence[int] = ()
        for processor in self._processors:
            if params.get(processor.name) is None:
                continue
            try:
                result = processor.process(content, params[processor.name])
            except ProcessingError as refused:
                error = str(refused)
            except MemoryError:
                # Whoever runs it knows what to give back.
                raise
            except Exception as failure:  # noqa: BLE001 (whatever a processor does, the pipeline gives a result)
                error = f"{processor.name} failed: {type(failure).__name__}: {failure}"
            else:
                error = result.error
            if error is not None:
                break
            content, applied = result.content, applied or result.applied
            places, elements = result.places, result.elements
            metadata[processor.name] = dict(result.metadata)
        if error is not None:
            content = given
        return ProcessorResult(
            content=content,
            metadata=metadata,
            original_size=len(given),
            processed_size=len(content),
            applied=applied and error is None,
            error=error,
            places=places,
            elements=elements,
        )
