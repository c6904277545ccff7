"""The one evaluation: what it reports of drafters of every draft method, and what it leaves as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from mtpc.errors import MTPCError
from mtpc.lab.evaluation.acceptance import counts_along
from mtpc.lab.evaluation.decoding import speculate
from mtpc.lab.evaluation.evaluate import DrafterScorer, EvaluationPlan, acceptance_table, evaluate, evaluate_folders
from mtpc.lab.evaluation.prompts import Prompts
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import generate_texts, text_features
from mtpc.lab.evaluation.trees import TreeSettings
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.methods.drafter import save_drafter
from mtpc.target_head.shared import SharedHead
from tests.mtpc.lab.evaluation.drafters import LORA, NAMES, SCORED, tiny_drafter
from tests.support.tiny_methods import EXAMPLES
from tests.support.tiny_models import VOCAB, make_fastmtp, make_target

PROMPTS = Prompts({"chat": [[3, 4, 5], [6, 7], [8, 9, 1, 4]], "code": [[5, 4], [9, 9, 2]]})
QUICK = EvaluationPlan(temperatures=(1.0, 0.0), length=14, loop=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    make_target("llama").save_pretrained(folder)
    GenerationConfig().save_pretrained(folder)  # no end
    return folder


@pytest.fixture(scope="module")
def target(folder: Path) -> FrozenTarget:
    return FrozenTarget(folder)


def test_every_kind_and_both_ways_for_every_family(target: FrozenTarget) -> None:
    results = evaluate(target, PROMPTS, {name: tiny_drafter(name, target.model) for name in SCORED}, QUICK)
    columns = [f"{kind} T={t}" for t in (1, 0) for kind in ("chat", "code", "all")]
    columns += [f"all T={t}, real loop" for t in (1, 0)]
    assert set(results) == set(SCORED)
    assert set(results["mtpc"]) == set(results[LORA]) == {*columns, "all T=1, no evidence"}
    assert set(results["fastmtp"]) == set(results["hybrid"]) == set(columns)
    for name, drafts in (("mtpc", 3), ("fastmtp", 3), ("hybrid", 4)):
        assert all(len(rates["marginal_acceptance"]) == drafts for rates in results[name].values())
    for name in SCORED:  # all kinds together lie between the kinds
        lengths = [results[name][f"{kind} T=1"]["acceptance_length"] for kind in ("chat", "code", "all")]
        assert min(lengths) <= lengths[-1] <= max(lengths)


@pytest.mark.parametrize("name", NAMES)
def test_a_kind_is_scored_on_its_own_texts_and_all_on_those_of_all(target: FrozenTarget, name: str) -> None:
    """Greedy texts do not depend on each other, so the kinds of one evaluation are those of one each."""
    drafter = tiny_drafter(name, target.model)
    plan = EvaluationPlan(temperatures=(0.0,), length=20, loop=0)

    def scored(by_kind: dict[str, list[list[int]]]) -> dict[str, Any]:
        return evaluate(target, Prompts(by_kind), {"x": drafter}, plan)["x"]

    chat, code = PROMPTS.by_kind["chat"], PROMPTS.by_kind["code"]
    together = scored(PROMPTS.by_kind)
    assert together["chat T=0"] == scored({"chat": chat})["chat T=0"]
    assert together["code T=0"] == scored({"code": code})["code T=0"]
    assert together["all T=0"] == scored({"one": chat + code})["one T=0"]
    assert len({str(rates) for rates in together.values()}) == 3


def test_without_evidence_is_the_scorers_blind_acceptance(target: FrozenTarget) -> None:
    drafter, plan = (
        tiny_drafter("mtpc", target.model),
        EvaluationPlan(temperatures=(1.0, 0.5), length=20, loop=0, seed=3),
    )
    results = evaluate(target, PROMPTS, {"x": drafter}, plan)["x"]
    texts = [text for of_kind in generate_texts(target, PROMPTS, 20, 1.0, 3).values() for text in of_kind]
    for column, conditioned in (("all T=1, no evidence", False), ("all T=1", True)):
        along = [
            step_acceptance(
                drafter, SharedHead.of(target.model), text_features(target, text), 3, 1.0, conditioned=conditioned
            )
            for text in texts
        ]
        assert results[column] == counts_along(along).to_json()
    assert results["all T=1, no evidence"] != results["all T=1"]
    assert "all T=0.5, no evidence" not in results


def test_the_real_loop_decodes_the_first_prompts_of_each_kind(target: FrozenTarget) -> None:
    drafter, head = tiny_drafter("mtpc", target.model), SharedHead.of(target.model)
    results = evaluate(target, PROMPTS, {"x": drafter}, EvaluationPlan(temperatures=(0.0,), length=25, loop=2))["x"]
    counts: list[int] = []
    for prompt in (*PROMPTS.by_kind["chat"][:2], *PROMPTS.by_kind["code"][:2]):
        counts += speculate(target, drafter, head, prompt, 25, 3).accepted
    assert results["all T=0, real loop"]["acceptance_length"] == pytest.approx(1 + sum(counts) / len(counts), abs=1e-4)


def test_trees_are_evaluated_alongside_the_chain(target: FrozenTarget) -> None:
    plan = EvaluationPlan(temperatures=(1.0,), length=14, loop=0, trees=TreeSettings((3, 6)))
    for name in ("mtpc", LORA):
        results = evaluate(target, PROMPTS, {"x": tiny_drafter(name, target.model)}, plan)
        assert set(results) == {"x", "x, tree of 3", "x, tree of 6"}
        assert set(results["x, tree of 6"]) == {"chat T=1", "code T=1", "all T=1"}


@pytest.mark.parametrize("name", SCORED)
def test_the_callers_module_stays_what_and_where_it_is(target: FrozenTarget, name: str) -> None:
    drafter = tiny_drafter(name, target.model).to(torch.bfloat16).train().requires_grad_(True)
    before = [(weight.data_ptr(), weight.clone()) for weight in drafter.parameters()]
    evaluate(target, PROMPTS, {"x": drafter}, EvaluationPlan(temperatures=(1.0, 0.0), length=8, loop=0))
    assert drafter.training
    for weight, (place, value) in zip(drafter.parameters(), before, strict=True):
        assert weight.dtype == torch.bfloat16
        assert weight.requires_grad
        assert weight.data_ptr() == place
        assert torch.equal(weight, value)


def test_it_scores_the_drafter_that_it_is_given(target: FrozenTarget, tmp_path: Path) -> None:
    """A sure drafter is better than one of noise, for any draft method."""
    for name in NAMES:
        drafters = {noise: tiny_drafter(name, target.model, noise) for noise in (0.0, 10.0)}
        named = {str(noise): drafter for noise, drafter in drafters.items()}
        found = evaluate(target, PROMPTS, named, EvaluationPlan(temperatures=(1.0,), length=40, loop=0))
        good, bad = (found[str(noise)]["all T=1"]["acceptance_length"] for noise in drafters)
        assert good > bad + 0.05


@pytest.mark.parametrize(("ends", "expected"), [(None, frozenset()), (3, {3}), ([3], {3}), ([3, 7], {3, 7})], ids=str)
def test_the_ends_of_a_target(folder: Path, tmp_path: Path, ends: object, expected: set[int]) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    GenerationConfig(eos_token_id=ends).save_pretrained(tmp_path)
    assert FrozenTarget(tmp_path).end_tokens == expected


def test_answers_end_at_any_of_several_ends_and_text_at_none(folder: Path, tmp_path: Path) -> None:
    """As Llama 3 and Qwen have them."""
    free = generate_texts(FrozenTarget(folder), PROMPTS, 30, 0.0, 0)
    first, second = (free["chat"][i].tokens[free["chat"][i].start + 3] for i in (0, 1))
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    GenerationConfig(eos_token_id=[first, second]).save_pretrained(tmp_path)
    target = FrozenTarget(tmp_path)
    for answered in (True, False):
        prompts = Prompts(PROMPTS.by_kind, answered)
        for (tokens, start), (whole, _) in zip(
            generate_texts(target, prompts, 30, 0.0, 0)["chat"], free["chat"], strict=True
        ):
            ends = [i for i, token in enumerate(whole) if i >= start and token in (first, second)] if answered else []
            assert tokens == whole[: min(ends, default=len(whole)) + 1]


def test_prompts_of_another_target(target: FrozenTarget) -> None:
    prompts = Prompts({"chat": [[1, target.facts.vocab_size]]})
    with pytest.raises(MTPCError, match="hold tokens beyond the target's vocabulary"):
        evaluate(target, prompts, {"mine": tiny_drafter("mtpc", target.model)}, EvaluationPlan())


def test_a_drafter_is_no_target(target: FrozenTarget, tmp_path: Path) -> None:
    save_drafter(tmp_path / "drafter", tiny_drafter("mtpc", target.model), {})
    with pytest.raises(MTPCError, match=r"drafter is an MTPC drafter, but a target was expected\.$"):
        FrozenTarget(tmp_path / "drafter")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"num_drafts": 4}, "the number of drafts is 4, but with mine it must be a whole number from 1 to 3"),
        ({"num_drafts": 0}, "the number of drafts is 0, but with mine"),
        ({"trees": TreeSettings((7,), (), 1)}, "a draft tree of 7 nodes does not fit"),
    ],
)
def test_what_a_drafter_cannot_draft(target: FrozenTarget, plan: dict, message: str) -> None:
    with pytest.raises(MTPCError, match=message):
        evaluate(target, PROMPTS, {"mine": tiny_drafter("mtpc", target.model)}, EvaluationPlan(**plan))


def test_outputs_end_with_the_positions_of_the_target(tmp_path: Path) -> None:
    make_target("llama", max_position_embeddings=20).save_pretrained(tmp_path)
    target = FrozenTarget(tmp_path)
    drafters = {"drafter": tiny_drafter("mtpc", target.model)}
    plan = EvaluationPlan(temperatures=(0.0,), length=128, loop=1)
    shorter, prompts = (
        EvaluationPlan(temperatures=(0.0,), length=20 - 16, loop=1),
        Prompts({"text": [[3] * 10, [4] * 16]}),
    )
    assert evaluate(target, prompts, drafters, plan) == evaluate(target, prompts, drafters, shorter)
    with pytest.raises(MTPCError, match=r"a prompt has 19 tokens, but .* reads 20 in all"):
        evaluate(target, Prompts({"text": [[3] * 19]}), drafters, plan)


def test_drafters_are_checked_before_the_target_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_target("llama").config.save_pretrained(tmp_path / "target")
    save_drafter(tmp_path / "other", make_fastmtp(make_target("llama", hidden_size=32)), {})
    monkeypatch.setattr("mtpc.lab.evaluation.evaluate.FrozenTarget", lambda *_, **__: pytest.fail("it is loaded"))
    for folder, message in ((tmp_path / "nothing", "nothing"), (tmp_path / "other", "hidden_size")):
        with pytest.raises(MTPCError, match=message):
            evaluate_folders(tmp_path / "target", [folder], Prompts({"text": [[3, 4]]}), EvaluationPlan())


def test_no_prompts(target: FrozenTarget) -> None:
    with pytest.raises(MTPCError, match="there is no held-out text"):
        evaluate(target, Prompts({"chat": []}), {"x": tiny_drafter("mtpc", target.model)}, QUICK)
    with pytest.raises(MTPCError, match="at least two tokens"):
        evaluate(target, Prompts({"chat": [[VOCAB - 1]]}), {"x": tiny_drafter("mtpc", target.model)}, QUICK)


def test_the_table_is_the_same_in_the_terminal_and_as_markdown() -> None:
    rates = {"acceptance_length": 2.5, "conditional_acceptance": [], "marginal_acceptance": []}
    table = acceptance_table({"a": {"all T=1": rates, "all T=1, no evidence": rates}, "b": {"all T=1": rates}})
    assert table.rows == [["all T=1", "2.500", "2.500"], ["all T=1, no evidence", "2.500", "-"]]
    assert "| all T=1, no evidence | 2.500 | - |" in table.to_markdown()
    assert table.to_rich().row_count == 2


def test_states_between_layers_are_not_computed_here(target: FrozenTarget) -> None:
    drafter = EXAMPLES["between-hmm"]()
    with pytest.raises(MTPCError, match=r"^mine reads a state between the target's layers, .* use `mtpc bench`\.$"):
        DrafterScorer("mine", drafter, SharedHead.of(target.model), QUICK)
