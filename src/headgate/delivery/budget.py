"""How many second attempts an upstream is given: a share of what it answers, so that a storm stays small."""

# In tenths of a retry, so that nothing is lost in sums.
_FULL = 100
_PER_RETRY = 10
_PER_ANSWER = 1


class Budget:
    """Each answer earns a tenth of a retry; ten can be saved, and are there at the start."""

    def __init__(self) -> None:
        self._tenths = _FULL

    def earn(self) -> None:
        """An answer came."""
        if self._tenths < _FULL:
            self._tenths += _PER_ANSWER

    def spend(self) -> bool:
        """Whether there is one more retry, which then is used."""
        if self._tenths < _PER_RETRY:
            return False
        self._tenths -= _PER_RETRY
        return True

    def give_back(self) -> None:
        """A retry that was to be made was not."""
        self._tenths = min(_FULL, self._tenths + _PER_RETRY)

    @property
    def left(self) -> float:
        """How many retries there are now."""
        return self._tenths / _PER_RETRY
