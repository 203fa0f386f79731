"""Protocols at the edges: plpy inside the server, psycopg outside, fakes in tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, BinaryIO, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")


class Database(Protocol):
    """Where base data is read, by set-oriented SQL, always in the caller's one snapshot."""

    def execute(
        self, sql: str, parameters: Sequence[tuple[str, object]] = ()
    ) -> list[tuple[object, ...]]:
        """Run one statement; ``parameters`` are (type name, value) pairs for ``$1 ...``."""
        ...

    def stream(self, sql: str, size: int) -> Iterator[list[tuple[object, ...]]]:
        """Run one statement and give its rows in batches of ``size``, never all at once."""
        ...

    def file(self) -> BinaryIO:
        """Open a temporary file without a name; it disappears when it is closed."""
        ...

    def before_reading(self, relations: Sequence[int]) -> None:
        """Refuse relations (their OIDs) that are read as of one moment only (`at_one_moment`)."""
        ...

    def reads_shards(self, relations: Sequence[int]) -> bool:
        """Whether some of these relations are, in part, on other servers."""
        ...

    def meet(
        self,
        relations: Sequence[int],
        check: Callable[[], None],
        *,
        named: Sequence[int] = (),
        by_steps: bool = False,
        charged: bool = False,
    ) -> None:
        """Make sure, reading no row, that all servers which hold these relations answer.

        Whatever has to be waited for until they can be read is waited for here, before the charge.
        What is read together later is as of this moment; ``check`` looks at it.  ``by_steps``: what
        will be read needs no such moment; without it relations that have none are refused.
        ``named`` are the relations and types that the question names, by OID: the types stay as
        they are until the question ends.
        ``charged``: this was done before, in a transaction that the charge ended.
        """
        ...

    def at_one_moment(self, relations: Sequence[int], work: Callable[[], T]) -> T:
        """Do what reads these relations, all of them as of one moment."""
        ...

    def tick(self) -> None:
        """Give the server a chance to cancel; call between iterations of long loops (50 ms)."""
        ...


class NoiseSource(Protocol):
    """Integer noise with exact rational parameters (PRIVACY.md section 3), and secret keys."""

    def key(self) -> bytes:
        """Draw 16 bytes that nobody can guess."""
        ...

    def discrete_laplace(self, scale: Fraction) -> int:
        """Draw from ``P(x) proportional to exp(-|x|/scale)``."""
        ...

    def geometric(self, scale: Fraction) -> int:
        """Draw from ``P(x) proportional to exp(-x/scale)`` on 0, 1, ..."""
        ...

    def discrete_cauchy(self, scale: Fraction) -> int:
        """Draw from ``P(x) proportional to 1/(1 + (x/scale)**4)``."""
        ...

    def gaussians(
        self, variance: Fraction, count: int, tick: Callable[[], None] | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """Draw ``count`` times from ``P(x) proportional to exp(-x**2/(2 variance))``, in blocks.

        For many cells.  Not exact: ``core.wide.gaussian(variance).distance`` of each draw, known
        without drawing, belongs to the price (``core.composition``).
        """
        ...

    def laplaces(
        self, scale: Fraction, count: int, tick: Callable[[], None] | None = None
    ) -> Iterator[NDArray[np.int64]]:
        """Draw ``count`` times from ``P(x) proportional to exp(-|x|/scale)``, as `gaussians`."""
        ...
