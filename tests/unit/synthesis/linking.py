"""Small and planted pairs of tables for tests of links."""

from __future__ import annotations

import numpy as np

from dpsql.synthesis.records import Answer, Cross, Links, Records, count_links, cross_workloads


def records(count, sizes, rng):
    rows = np.stack([rng.integers(0, n, count) for n in sizes], axis=1)
    return Records(rows.astype(np.int64), tuple(sizes))


def planted(parents, children, size=4, attributes=3, share=0.8, seed=5):
    """Children agree with their parent on attribute 0 and on attribute 1 with a probability."""
    rng = np.random.default_rng(seed)
    left = records(parents, (size,) * attributes, rng)
    right = records(children, (size,) * attributes, rng)
    parent = rng.integers(0, parents, children)
    for a in (0, 1):
        agree = rng.random(children) < share
        right.rows[agree, a] = left.rows[parent[agree], a]
    right._codes.clear()
    return left, right, Links(parent.astype(np.int64), np.arange(children))


class Supply:
    """Counts of true links; noise and choices from numpy; remembers what is asked."""

    def __init__(self, left, right, links, seed=1):
        self.left, self.right, self.links = left, right, links
        self.rng = np.random.default_rng(seed)
        self.batches, self.drawn, self.choices = [], [], []

    def batch(self, workloads):
        self.batches.append(list(workloads))
        return {w: count_links(self.left, self.right, self.links, w) for w in workloads}

    def gaussian(self, variance, count):
        self.drawn.append((variance, count))
        return np.rint(self.rng.normal(0, float(variance) ** 0.5, count)).astype(np.int64)

    def choose(self, scores, rate):
        assert all(type(score) is int for score in scores)
        self.choices.append((list(scores), rate))
        noise = self.rng.gumbel(size=len(scores))
        return int(np.argmax([float(rate * s) + e for s, e in zip(scores, noise, strict=True)]))


def exact_answers(left, right, links, workloads, variance):
    return [
        Answer(w, count_links(left, right, links, w).astype(float), variance) for w in workloads
    ]


def distance(left, right, one, other, workload):
    """Total variation of the shares."""
    a = count_links(left, right, one, workload) / max(len(one.left), 1)
    b = count_links(left, right, other, workload) / max(len(other.left), 1)
    return float(np.abs(a - b).sum() / 2)


def dense_queries(left, right, workloads):
    """The paper's Q: one row per cell, one column per pair of rows (Lemma 1)."""
    rows = []
    for w in workloads:
        for a in range(int(np.prod([left.sizes[i] for i in range(8) if w.left >> i & 1]))):
            for b in range(int(np.prod([right.sizes[i] for i in range(8) if w.right >> i & 1]))):
                one = (left.codes(w.left) == a).astype(float)
                other = (right.codes(w.right) == b).astype(float)
                rows.append(np.multiply.outer(one, other).reshape(-1))
    return np.array(rows)


__all__ = ["Cross", "Links", "Records", "cross_workloads"]
