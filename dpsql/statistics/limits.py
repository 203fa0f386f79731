"""Sizes at which the array kernel changes its way of working; never a result.

They are read when they are needed, so that a test can make all of them tiny.
"""

from __future__ import annotations

#: Rows (or pairs, or cells) handled between two ticks: a few milliseconds.
BLOCK = 1 << 17
#: Rows or pairs that one call of the compiled loops may handle, at most 30 ms even where every
#: one of them misses the caches.
BUDGET = 1 << 18
#: Cells of the largest dense accumulator; wider keys are hashed.
MOST_CELLS = 1 << 22
#: Widest range of values that is compacted through a bitmap.
BITMAP = 1 << 23
#: Counted groups that are handed over at once.
ROOM = 1 << 17
#: Slots of the first hash table of a run; a power of two.
SLOTS = 1 << 12
#: Pages of a range, at most.
PAGES = 4096
#: Bytes of values that one statement reads, about.
PACKED = 1 << 23
#: The same where rows are forgotten at once.
PIECE = 24 << 20
#: Times that rows just read exist, at most: in the processes that pack them, on their way to the
#: leader, there, as the result, in SPI's hands and in Python's.
COPIES = 6
