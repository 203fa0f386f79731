"""What travels between servers is counted right however the stream is cut into blocks."""

from __future__ import annotations

import random

import pytest

from bench.wire import Messages


def message(kind: str, body: bytes) -> bytes:
    return kind.encode() + (4 + len(body)).to_bytes(4, "big") + body


@pytest.mark.parametrize("longest", [1, 3, 7, 64, 10_000])
def test_messages_are_found_across_blocks(longest: int) -> None:
    generator = random.Random(longest)
    sent = [
        (generator.choice("DTCZQ"), generator.randbytes(generator.choice([0, 1, 5, 300])))
        for _ in range(200)
    ]
    stream = b"".join(message(kind, body) for kind, body in sent)
    reader, found = Messages(), []
    while stream:
        size = generator.randint(1, longest)
        found += reader.read(stream[:size], (ord("Q"),))
        stream = stream[size:]
    assert [chr(kind) for kind, _ in found] == [kind for kind, _ in sent]
    asked = [body for kind, body in sent if kind == "Q"]
    assert [body for kind, body in found if kind == ord("Q")] == asked


def test_a_client_begins_with_a_message_without_kind() -> None:
    startup = (8).to_bytes(4, "big") + b"\0\3\0\0"
    reader = Messages(startup=True)
    found = list(reader.read(startup + message("Q", b"select 1\0"), (ord("Q"),)))
    assert found == [(ord("Q"), b"select 1\0")]
