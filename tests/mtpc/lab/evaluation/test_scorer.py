"""Acceptance along a text against slow reference implementations.

They are circuit operations, the layer in plain tensors, and the real decoding loop.
"""

from __future__ import annotations

import pytest
import torch

from mtpc.lab.evaluation.acceptance import counts_along
from mtpc.lab.evaluation.decoding import speculate
from mtpc.lab.evaluation.rates import rates_from_counts
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import GeneratedText, TextFeatures, features_for
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.targets.generation import generate
from mtpc.methods import draft_methods
from mtpc.parallel.circuit_part import CircuitPart
from mtpc.target_head.shared import SharedHead
from tests.mtpc.lab.evaluation.drafters import NAMES, SCORED, tiny_drafter
from tests.oracles import circuit_ops
from tests.support.often import each_of
from tests.support.random_hybrid import register_method
from tests.support.tiny_models import VOCAB, draft_layers_oracle, make_fastmtp, make_layer, make_mtpc, make_target

WINDOW, START, LENGTH, TEMPERATURE = 4, 3, 12, 0.7


def test_every_family_is_held_to_its_oracle_here() -> None:
    register_method()
    # One drafts nothing, one reads states that are not computed here, and one is tested in parallel/test_byte_part.py.
    unscored = {"copying", "between", "bytecircuit"}
    assert {method.name for method in draft_methods() if not method.reads_text} - unscored == set(NAMES)


def random_view(vocab: int, hidden: int, seed: int = 0) -> TextFeatures:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocab, (START + LENGTH,), generator=generator)
    states = torch.randn(START + LENGTH, hidden, generator=generator)
    return TextFeatures(tokens, states, torch.randn(START + LENGTH, vocab, generator=generator), START)


def unused_head(vocab: int, hidden: int) -> SharedHead:
    """A drafter without an autoregressive part does not read it."""
    return SharedHead(torch.full((vocab, hidden), torch.nan), torch.full((vocab, hidden), torch.nan))


@pytest.mark.parametrize("num_drafts", [2, WINDOW - 1])
@pytest.mark.parametrize("conditioned", [True, False])
@pytest.mark.parametrize("token_input", [False, True])
@pytest.mark.parametrize("circuit", ["ff", "cp", "hmm", "btree"])
@torch.inference_mode()
def test_a_circuit_position_by_position(circuit: str, token_input: bool, conditioned: bool, num_drafts: int) -> None:
    vocab, hidden = 5, 6
    drafter = make_mtpc(circuit, WINDOW, 2, hidden, vocab, leaves="table", trunk_size=7, token_input=token_input)
    part = drafter.parallel
    assert isinstance(part, CircuitPart)
    text = random_view(vocab, hidden)
    starts = range(START - 1, START - 1 + LENGTH - num_drafts)
    expected = torch.zeros(len(starts), num_drafts, dtype=torch.float64)
    for row, t in enumerate(starts):
        x = text.tokens[t + 1 : t + 2 + num_drafts]
        params = circuit_ops.temper(part.head(text.hidden[None, t], x[:1]), torch.tensor([TEMPERATURE]))
        padded = torch.cat([x, x.new_zeros(WINDOW - len(x))])[None]
        if token_input:
            q = circuit_ops.conditionals(part.circuit, params, padded[:, 1:]).exp()
        elif conditioned:
            q = circuit_ops.conditionals(part.circuit, circuit_ops.condition(part.circuit, params, x[:1]), padded)[
                :, 1:
            ].exp()
        else:  # the token summed out, by enumeration
            firsts = (torch.cat([torch.tensor([[v]]), padded[:, 1:]], 1) for v in range(vocab))
            joint = torch.stack(
                [circuit_ops.prefix_log_probs(part.circuit, params, first)[0] for first in firsts]
            ).logsumexp(0)
            without = (joint[1:] - joint[:-1]).exp()
        for i in range(num_drafts):
            p = (text.logits[t + 1 + i] / TEMPERATURE).softmax(-1)[x[i + 1]]
            own = q[0, i, x[i + 1]] if token_input or conditioned else without[i]
            expected[row, i] = min(1.0, float(own / p))
    head = unused_head(vocab, hidden)
    found = step_acceptance(drafter, head, text, num_drafts, TEMPERATURE, conditioned=conditioned)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.0, TEMPERATURE])
@pytest.mark.parametrize("restricted", [False, True])
@torch.inference_mode()
def test_an_autoregressive_layer_position_by_position(restricted: bool, temperature: float) -> None:
    model, drafts = make_target("llama"), 3
    drafter, whole = make_fastmtp(model), SharedHead.of(model)
    ids = torch.arange(0, VOCAB, 2) if restricted else torch.arange(VOCAB)
    head = whole.restricted(ids) if restricted else whole
    text = random_view(VOCAB, 16)
    oracle, tokens = draft_layers_oracle(make_layer(model), whole), text.tokens.tolist()
    rows = []
    for t in range(START - 1, START - 1 + LENGTH - drafts):
        _, logits = oracle.draft(
            text.hidden[: t + 1], tokens[: t + 2], drafts, lambda step, _, t=t: tokens[t + 2 + step]
        )
        row = []
        for i in range(drafts):
            x, q = tokens[t + 2 + i], torch.full((VOCAB,), -torch.inf, dtype=torch.float64)
            q[ids] = logits[i, ids]
            if temperature == 0:
                row.append(float(int(q.argmax()) == x))
            else:
                p = (text.logits[t + 1 + i] / temperature).softmax(-1)[x]
                row.append(min(1.0, float((q / temperature).softmax(-1)[x] / p)))
        rows.append(row)
    found = step_acceptance(drafter, head, text, drafts, temperature)
    torch.testing.assert_close(found, torch.tensor(rows, dtype=torch.float64), rtol=1e-3, atol=1e-5)


def test_a_text_without_room_for_a_step() -> None:
    drafter = make_mtpc("hmm", WINDOW, 2, 6, 5)
    for length in range(START, START + WINDOW):
        short = TextFeatures(*(whole[:length] for whole in random_view(5, 6)[:3]), START)
        assert step_acceptance(drafter, unused_head(5, 6), short, 3, 1.0).shape == (max(0, length - START - 3), 3)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    folder = tmp_path_factory.mktemp("target")
    make_target("llama").save_pretrained(folder)
    return FrozenTarget(folder)


def prompts(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randint(VOCAB, (4 + i % 3,), generator=generator).tolist() for i in range(count)]


@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("name", SCORED)
def test_greedy_acceptance_is_that_of_the_real_loop(target: FrozenTarget, name: str, restricted: bool) -> None:
    if restricted and name == "subset":
        pytest.skip("its head is its own")
    drafter = tiny_drafter(name, target.model)
    head = drafter.head(SharedHead.of(target.model))
    head = head.restricted(torch.arange(0, VOCAB, 2)) if restricted else head
    asked, drafts, length = prompts(6), 3, 60
    lengths = []
    for prompt, text in zip(asked, generate(target, asked, length, 0.0), strict=True):
        # The prediction covers steps that start before the last K tokens, as the loop is cut off at the end.
        seen = features_for(target, drafter, GeneratedText(text, len(prompt)))
        foretold = counts_along([step_acceptance(drafter, head, seen, drafts, 0.0)]).rates
        counts, emitted = [], 1
        for accepted in speculate(target, drafter, head, prompt, length, drafts).accepted:
            if emitted <= length - drafts:
                counts.append(accepted)
            emitted += accepted + 1
        measured = rates_from_counts(len(counts), [sum(count > i for count in counts) for i in range(drafts)])
        assert measured.marginal == pytest.approx(foretold.marginal)
        assert measured.length == pytest.approx(foretold.length)
        lengths.append(measured.length)
    assert max(lengths) > 1.05


@pytest.mark.parametrize("name", each_of(SCORED, ("mtpc", "gumiho", "hybrid")))
def test_sampled_acceptance_is_that_of_the_real_loop(target: FrozenTarget, name: str) -> None:
    drafter = tiny_drafter(name, target.model)
    head = drafter.head(SharedHead.of(target.model))
    generator, temperature, drafts = torch.Generator().manual_seed(1), 0.9, 3
    asked = prompts(16)
    texts = generate(target, asked, 80, temperature, generator=generator)
    views = [
        features_for(target, drafter, GeneratedText(text, len(prompt)))
        for prompt, text in zip(asked, texts, strict=True)
    ]
    foretold = counts_along([step_acceptance(drafter, head, seen, drafts, temperature) for seen in views]).rates
    counts: list[int] = []
    for prompt in asked:
        found = speculate(target, drafter, head, prompt, 80, drafts, temperature=temperature, generator=generator)
        counts += found.accepted
    measured = 1 + sum(counts) / len(counts)
    assert measured == pytest.approx(foretold.length, rel=0.08)
    assert foretold.length > 1.2
