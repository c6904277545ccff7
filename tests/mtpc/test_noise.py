"""Counter-based noise: uniform, a function of its keys, and free of patterns that a draft would notice."""

import pytest
import torch
from scipy import stats

from mtpc.noise import counter_uniforms

WORD, GOLDEN = 2**64, 0x9E3779B97F4A7C15
STREAM = 0x4D545043  # of drafting


def split_mix(state: int) -> int:
    """SplitMix64's next number after a state, as it is published, in whole numbers."""
    z = (state + GOLDEN) % WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return z ^ z >> 31


def mixed(z: int) -> int:
    """Its finaliser."""
    return split_mix(z - GOLDEN)


def test_the_reference_is_the_published_generator() -> None:
    assert [split_mix(GOLDEN * i) for i in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("position", [0, 1, 4095, 2**40])
@pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, -(2**63)])
def test_known_answers(seed: int, position: int) -> None:
    """The numbers of one generator for each seed and position: its first 53 bits each."""
    state = mixed(mixed(seed + STREAM) + position * GOLDEN) % WORD
    expected = [(split_mix(state + i * GOLDEN) >> 11) / 2**53 for i in range(6)]
    assert counter_uniforms(torch.tensor([seed]), torch.tensor([position]), 6).tolist() == [expected]


def uniforms(seeds: int, positions: int, size: int) -> torch.Tensor:
    """[seeds * positions, size] over a grid of small consecutive keys, the hardest case for a hash."""
    seed, position = torch.meshgrid(torch.arange(seeds), torch.arange(positions), indexing="ij")
    return counter_uniforms(seed.flatten(), position.flatten(), size)


def test_uniform_on_consecutive_keys():
    noise = uniforms(40, 50, 23)
    assert noise.min() >= 0
    assert noise.max() < 1
    for sample in (noise.flatten(), noise[:, 0], noise[7], noise[:50, 3]):
        assert stats.kstest(sample.numpy(), "uniform").pvalue > 1e-4


def test_there_are_more_bits_than_in_single_precision():
    seeds, positions = torch.arange(2000), torch.full((2000,), 7)
    rest = (counter_uniforms(seeds, positions, 5) * 2**24) % 1
    assert stats.kstest(rest.flatten().numpy(), "uniform").pvalue > 1e-4


def test_neighbouring_keys_are_independent():
    noise = uniforms(60, 60, 8).view(60, 60, 8)
    for left, right in ((noise[1:], noise[:-1]), (noise[:, 1:], noise[:, :-1]), (noise[..., 1:], noise[..., :-1])):
        cells = torch.stack([(left.flatten() * 8).long(), (right.flatten() * 8).long()])
        counts = torch.zeros(8, 8).index_put_(tuple(cells), torch.ones(cells.shape[1]), accumulate=True)
        assert stats.chisquare(counts.flatten().numpy()).pvalue > 1e-4


def test_a_function_of_the_keys_alone():
    seeds, positions = torch.tensor([3, -5, 2**62]), torch.tensor([10, 0, 7])
    together = counter_uniforms(seeds, positions, 9)
    for row in range(3):
        alone = counter_uniforms(seeds[row : row + 1], positions[row : row + 1], 4)
        assert torch.equal(alone[0], together[row, :4])
    assert not torch.equal(together, counter_uniforms(seeds, positions + 1, 9))
