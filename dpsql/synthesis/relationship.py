"""What is known about the links of two synthetic tables before any of them is drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpsql.errors import InvalidParameter
from dpsql.workload.residual_bases import Integers


@dataclass(frozen=True)
class End:
    """One end of a relationship.

    Attributes
    ----------
    count : int
        Rows.
    degrees : array of int64, shape (count,), optional
        How many links each row has, exactly.
    most : int, optional
        No row has more links: 1 for a child of a foreign key, ``d_max`` of a protected parent.
    wanted : array of shape (count,), optional
        Degrees to follow in proportion among rows of a type, whose sum is what is learnt; of no
        effect where there are ``degrees``.
    """

    count: int
    degrees: Integers | None = None
    most: int | None = None
    wanted: Integers | None = None

    def limit(self, others: int) -> int:
        """Bound the links of any row, where the other end has so many rows."""
        return others if self.most is None else min(self.most, others)


@dataclass(frozen=True)
class Relationship:
    """Numbers of rows and links, and what every row may have.

    Parameters
    ----------
    left, right : End
    total : int
        Links, all of them different.

    Raises
    ------
    InvalidParameter
        If no set of links can be so.

    Notes
    -----
    Many-to-many: nothing more, or degrees of either end.  One-to-many: children are the right end
    and have ``most=1``; with ``total`` below their number the others' foreign keys are NULL.
    """

    left: End
    right: End
    total: int

    def __post_init__(self) -> None:
        sides = (("left", self.left, self.right.count), ("right", self.right, self.left.count))
        for name, end, others in sides:
            limit = end.limit(others)
            if end.wanted is not None and end.wanted.shape != (end.count,):
                raise InvalidParameter(f"the {name} end has not one wanted degree a row")
            if end.count < 0 or limit < 0:
                raise InvalidParameter(f"the {name} end has fewer than 0 rows or links a row")
            if end.degrees is None:
                if not 0 <= self.total <= end.count * limit:
                    raise InvalidParameter(
                        f"{self.total} links do not fit {end.count} rows of the {name} end",
                        detail=f"Each of them has at most {limit} links.",
                    )
                continue
            if end.degrees.shape != (end.count,):
                raise InvalidParameter(f"the {name} end has not one degree a row")
            if end.count and (end.degrees.min() < 0 or end.degrees.max() > limit):
                raise InvalidParameter(
                    f"a degree of the {name} end is outside 0 to {limit}",
                    hint="Cut degrees off at the bound, and at the rows of the other end.",
                )
            if int(end.degrees.sum()) != self.total:
                raise InvalidParameter(
                    f"the degrees of the {name} end do not add up to {self.total} links",
                    hint="Use degrees.to_total first.",
                )

    @property
    def single(self) -> bool:
        """Whether rows of one end have one link at most, so that no link occurs twice."""
        return any(
            end.most == 1 or (end.degrees is not None and int(end.degrees.max(initial=0)) <= 1)
            for end in (self.left, self.right)
        )


def one_to_many(
    parents: int,
    children: int,
    *,
    without: int = 0,
    degrees: Integers | None = None,
    most: int | None = None,
    wanted: Integers | None = None,
) -> Relationship:
    """Describe a foreign key: every child has one parent, but for ``without`` of them.

    Parameters
    ----------
    parents, children : int
        Rows; parents are the left end.
    without : int
        Children whose key is NULL, whichever they are.
    degrees : array of int64, shape (parents,), optional
        Children of each parent.
    most : int, optional
        ``d_max`` of a parent.
    wanted : array of int64, shape (parents,), optional
        How children should be spread over parents of a type.
    """
    ones = None if without else np.ones(children, dtype=np.int64)
    return Relationship(
        End(parents, degrees, most, wanted), End(children, ones, 1), children - without
    )


def many_to_many(
    left: int,
    right: int,
    total: int,
    *,
    left_degrees: Integers | None = None,
    right_degrees: Integers | None = None,
    most_left: int | None = None,
    most_right: int | None = None,
) -> Relationship:
    """Describe a link table."""
    return Relationship(
        End(left, left_degrees, most_left), End(right, right_degrees, most_right), total
    )
