"""The hash of seeded requests against the algorithm on Python's integers."""

from __future__ import annotations

import torch

from sglang_cpu import hashing


def murmur(data: bytes) -> int:
    """MurmurHash3, 32 bits, seed 0, for whole words."""
    state = 0
    for place in range(0, len(data), 4):
        key = int.from_bytes(data[place : place + 4], "little") * 0xCC9E2D51 % 2**32
        key = (key << 15 | key >> 17) % 2**32 * 0x1B873593 % 2**32
        state ^= key
        state = ((state << 13 | state >> 19) % 2**32 * 5 + 0xE6546B64) % 2**32
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B % 2**32
    state = (state ^ state >> 13) * 0xC2B2AE35 % 2**32
    return state ^ state >> 16


def test_the_published_example() -> None:
    assert murmur(b"test") == 0xBA6BD213


def test_every_row_and_column() -> None:
    seeds, positions, columns = [0, 1, 2**40 + 17, 2**63 - 1], [0, 5, 1023, 77], [0, 1, 255, 150_000]
    found = hashing.murmur_hash32(torch.tensor(seeds), torch.tensor(positions), torch.tensor(columns))
    assert found.dtype == torch.uint32
    for row, (seed, position) in enumerate(zip(seeds, positions, strict=True)):
        words = seed.to_bytes(8, "little") + position.to_bytes(4, "little")
        assert found[row].tolist() == [murmur(words + column.to_bytes(4, "little")) for column in columns]


def test_the_operator_is_registered_once() -> None:
    hashing.define_operator()
    hashing.define_operator()
    arguments = torch.tensor([3]), torch.tensor([4]), torch.arange(6)
    found = torch.ops.sgl_kernel.murmur_hash32_cpu.default(*arguments)
    assert found.tolist() == hashing.murmur_hash32(*arguments).tolist()
