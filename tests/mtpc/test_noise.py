"""Counter-based noise: uniform, a function of its keys, and free of patterns that a draft would notice."""

import torch
from scipy import stats

from mtpc.noise import counter_uniforms


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
