"""dp.draw: SipHash-2-4 of walk and step, scaled to a choice; a function of its arguments alone."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any

import psycopg
import pytest

MASK = 2**64 - 1
KEY = bytes(range(16))


def sip_hash(key: bytes, message: bytes) -> int:
    """SipHash-2-4 as its authors write it."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rotate(x: int, bits: int) -> int:
        return ((x << bits) | (x >> (64 - bits))) & MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[2] = (v[2] + v[3]) & MASK
            v[1], v[3] = rotate(v[1], 13) ^ v[0], rotate(v[3], 16) ^ v[2]
            v[0] = (rotate(v[0], 32) + v[3]) & MASK
            v[2] = (v[2] + v[1]) & MASK
            v[1], v[3] = rotate(v[1], 17) ^ v[2], rotate(v[3], 21) ^ v[0]
            v[2] = rotate(v[2], 32)

    whole = message + bytes(7 - len(message) % 8) + bytes([len(message) & 255])
    for at in range(0, len(whole), 8):
        word = int.from_bytes(whole[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


@pytest.fixture(scope="module")
def session(server: Any) -> Any:
    database = server.create_database()
    yield database.connect()
    server.drop_database(database)


def draw(session: Any, *arguments: object) -> Any:
    sql = "select dp.draw(%s::bytea, %s::bigint, %s::integer, %s::bigint)"
    return session.execute(sql, arguments).fetchone()[0]


def test_the_reference_hashes_as_published() -> None:
    """The first, thirteenth and sixteenth of the authors' test vectors."""
    assert sip_hash(KEY, b"").to_bytes(8, "little").hex() == "310e0edd47db6f72"
    assert sip_hash(KEY, bytes(range(12))).to_bytes(8, "little").hex() == "fbe50e86bc8f1e75"
    assert sip_hash(KEY, bytes(range(15))) == 0xA129CA6149BE45E5


def test_the_authors_vector_of_twelve_bytes(session: Any) -> None:
    hashed = int.from_bytes(bytes.fromhex("fbe50e86bc8f1e75"), "little")
    walk, step = 0x0706050403020100, 0x0B0A0908
    for choices in (1, 2, 3, 1000, 2**32 + 1, 2**62, 2**63 - 1):
        assert draw(session, KEY, walk, step, choices) == hashed * choices >> 64


def test_equals_the_reference_on_many_arguments(session: Any) -> None:
    key = secrets.token_bytes(16)
    print(f"key {key.hex()}")  # noqa: T201
    numbers = [0, 1, 2**31, 2**32, 2**63 - 1, -1, -(2**63)]
    for walk in numbers:
        for step in (0, 1, 2**31 - 1, -1):
            for choices in (1, 7, 2**33, 2**63 - 1):
                message = (walk & MASK).to_bytes(8, "little")
                message += (step & 0xFFFFFFFF).to_bytes(4, "little")
                expected = sip_hash(key, message) * choices >> 64
                assert draw(session, key, walk, step, choices) == expected


def test_choices_are_equally_likely(session: Any) -> None:
    """Chi-squared with six degrees of freedom beyond 60: less than once in 1e10 runs."""
    key = secrets.token_bytes(16)
    print(f"key {key.hex()}")  # noqa: T201
    sql = "select dp.draw(%s::bytea, i, 3, 7), count(*) from generate_series(1, 70000) i group by 1"
    counts = Counter(dict(session.execute(sql, [key]).fetchall()))
    assert set(counts) == set(range(7))
    assert sum((n - 10000) ** 2 / 10000 for n in counts.values()) < 60


def test_nothing_that_a_session_sets_changes_a_draw(session: Any) -> None:
    before = draw(session, KEY, 5, 1, 10**9)
    session.execute("select setseed(0.5), random()")
    session.execute("set search_path = pg_temp; set work_mem = '64kB'")
    assert draw(session, KEY, 5, 1, 10**9) == before
    session.execute("reset all")


def test_null_in_null_out(session: Any) -> None:
    assert draw(session, KEY, 1, 1, None) is None
    assert draw(session, None, 1, 1, 1) is None


@pytest.mark.parametrize(("key", "choices"), [(KEY[:15], 1), (KEY + b"x", 1), (KEY, 0), (KEY, -1)])
def test_a_bad_key_or_nothing_to_choose_is_an_error(session: Any, key: bytes, choices: int) -> None:
    with pytest.raises(psycopg.errors.InternalError):
        draw(session, key, 1, 1, choices)


def test_analysts_may_not_draw(database: Any) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        database.sql("select dp.draw('x', 1, 1, 1)", user="alice")
