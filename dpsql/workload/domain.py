"""The attributes of a workload and the numbers of their levels."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dpsql.errors import InvalidParameter


@dataclass(frozen=True, slots=True)
class Domain:
    """Attributes in order, and how many levels each has (HDMM, section 2.1).

    Parameters
    ----------
    attributes : tuple of str
        Distinct names.
    sizes : tuple of int
        Levels of each, at least 1; one level is allowed, and such an attribute changes nothing.

    Raises
    ------
    InvalidParameter
        When names repeat, sizes are not positive, or there are not as many of both.
    """

    attributes: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.attributes) != len(self.sizes):
            raise InvalidParameter(
                "every attribute of a domain needs one size",
                detail=f"There are {len(self.attributes)} attributes and {len(self.sizes)} sizes.",
            )
        if len(set(self.attributes)) != len(self.attributes):
            raise InvalidParameter("an attribute occurs twice in a domain")
        for attribute, size in zip(self.attributes, self.sizes, strict=True):
            if size < 1:
                raise InvalidParameter(
                    f'the domain of attribute "{attribute}" has no level',
                    hint="Declare at least one level.",
                )

    @classmethod
    def of(cls, *sizes: int) -> Domain:
        """Name attributes ``a1, a2, ...`` after their place."""
        return cls(tuple(f"a{i + 1}" for i in range(len(sizes))), sizes)

    @property
    def cells(self) -> int:
        """The number of cells, exactly: the length of a data vector."""
        return math.prod(self.sizes)

    def index(self, attribute: str) -> int:
        """Find the place of an attribute, from 0."""
        try:
            return self.attributes.index(attribute)
        except ValueError:
            raise InvalidParameter(
                f'attribute "{attribute}" is not in the domain',
                detail=f"Its attributes are {', '.join(self.attributes)}.",
            ) from None

    def project(self, attributes: Iterable[str]) -> Domain:
        """Keep the named attributes, in the order given."""
        kept = tuple(attributes)
        return Domain(kept, tuple(self.sizes[self.index(a)] for a in kept))
