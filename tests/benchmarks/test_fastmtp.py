"""The benchmark of FastMTP drafters: its setups, its acceptance, its tables, and a whole run on tiny models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import fastmtp
from benchmarks.fastmtp_acceptance import Acceptance, rates_along
from benchmarks.fastmtp_setups import Setup, tables
from benchmarks.fastmtp_tables import Found, make_tables
from benchmarks.make_chat_prompts import choose
from benchmarks.questions import MT_BENCH, Question, read_questions
from mtpc.errors import MTPCError
from mtpc.lab.evaluation.acceptance import counts_along
from mtpc.lab.evaluation.scorer import step_acceptance
from mtpc.lab.evaluation.texts import Text, view
from mtpc.lab.servers.engine import Engine, ServerSettings
from mtpc.lab.servers.vllm_engine import vllm_counters
from mtpc.lab.targets.frozen import FrozenTarget
from mtpc.lab.text.byte_tokenizer import VOCAB_SIZE
from mtpc.lab.text.chat_template import ChatTemplate
from mtpc.lab.text.conversations import FILE, Conversation
from mtpc.lab.training.recipes.byte_target import build_byte_llama
from mtpc.lab.training.settings import ByteTargetConfig
from mtpc.lab.training.start import start_from_target
from mtpc.methods.drafter import Drafter, save_drafter
from mtpc.methods.fastmtp import FastMTP, config_for
from mtpc.target_head.shared import SharedHead
from mtpc.verify import rates_from_marginal
from mtpc.vocabulary.ranking import Ranking, Rankings
from tests.mtpc.lab.bench.figures import point
from tests.mtpc.lab.chat_folder import make_chat_folder
from tests.support.tiny_models import VOCAB, make_fastmtp, make_target

FAKE = Path(__file__).parents[1] / "mtpc" / "lab" / "servers" / "fake_server.py"
SHIPPED = Path(fastmtp.__file__).parent / "chat_prompts.jsonl"
# Two languages that share no token.
LANGUAGES = Rankings(VOCAB, {"even": Ranking(tuple(range(0, VOCAB, 2))), "odd": Ranking(tuple(range(1, VOCAB, 2)))})


def test_every_drafter_is_measured_with_every_k_and_the_last_with_draft_vocabularies() -> None:
    found = tables(["vanilla", "trained"], "trained", [16, 32], ["english"])
    assert [(one.num_drafts, one.label) for one in found.methods[:3]] == [
        (1, "vanilla"),
        (1, "trained"),
        (1, "trained + FR 16"),
    ]
    assert [one.num_drafts for one in found.methods] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert [one.label for one in found.sizes] == ["trained + FR 16", "trained + FR 32", "trained"]
    assert [one.label for one in found.languages] == ["trained + FR 16", "trained + FR 16, english for all", "trained"]
    assert len(found.all) == 9 + 1 + 1
    assert tables(["vanilla"], None, [16], []).all == [Setup("vanilla", number) for number in (1, 2, 3)]


def test_a_setup_says_what_the_engine_drafts_from() -> None:
    assert Setup("x", 3).additional_config(None) == {"mtpc": {"language": "none"}}
    with_vocabulary = Setup("x", 3, 16, "french").additional_config(Path("v.json"))
    assert with_vocabulary == {"mtpc": {"vocabulary": "v.json", "size": 16, "language": "french"}}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> FrozenTarget:
    folder = tmp_path_factory.mktemp("target")
    make_target("llama").save_pretrained(folder)
    return FrozenTarget(folder)


@pytest.fixture(scope="module")
def answers(target: FrozenTarget) -> dict[str, list[Text]]:
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(VOCAB, (length,), generator=generator).tolist() for length in (30, 21, 9, 24)]
    return {"chat": [Text(texts[0], 5), Text(texts[1], 3), Text(texts[2], 6)], "code": [Text(texts[3], 4)]}


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("size", [None, 7])
def test_a_vocabulary_for_all_is_scored_as_the_core_scores_it(
    target: FrozenTarget, answers: dict[str, list[Text]], temperature: float, size: int | None
) -> None:
    drafter, head = make_fastmtp(target.model), SharedHead.of(target.model)
    scored = Acceptance(target, {"x": drafter}, LANGUAGES, answers, temperature)
    found = scored.rates(Setup("x", 3) if size is None else Setup("x", 3, size, "odd"))
    if size is not None:
        head = head.restricted(torch.from_numpy(LANGUAGES.cut("odd", size)))
    for kind, texts in answers.items():
        along = (step_acceptance(drafter, head, view(target, text), 3, temperature) for text in texts)
        expected = counts_along(along).rates
        assert found[kind].marginal == pytest.approx(expected.marginal)


def test_the_vocabulary_of_a_step_is_that_of_what_was_read_before_it(target: FrozenTarget) -> None:
    drafter = make_fastmtp(target.model)
    # The answer changes from one language to the other, and so must the vocabulary: its tokens are drafted.
    even, odd = [2, 4, 6, 8] * 12, [3, 5, 7, 9] * 24
    answer = {"chat": [Text([*even, *odd], 4)]}
    found = {}
    for language in ("even", "odd", "none", "auto"):
        scored = Acceptance(target, {"x": drafter}, LANGUAGES, answer, 1.0)
        scored.rates(Setup("x", 1, None if language == "none" else 11, language))
        (found[language],) = next(iter(scored.known.values()))["chat"]
    # Row 44 is the step after the first odd token.  Until odd is surer than none, all tokens are drafted from.
    first, last = ((found["auto"] != found[one]).any(-1).int() for one in ("even", "odd"))
    changed, settled = int(first.argmax()), len(last) - int(last.flip(0).argmax())
    assert 44 < changed < settled < 110
    assert torch.equal(found["auto"][:changed], found["even"][:changed])
    assert torch.equal(found["auto"][changed:settled], found["none"][changed:settled])
    assert torch.equal(found["auto"][settled:], found["odd"][settled:])
    assert not torch.equal(found["even"][:changed], found["odd"][:changed])


def test_fewer_drafts_are_the_first_of_more() -> None:
    chances = [torch.tensor([[0.5, 0.25, 0.1]] * 400, dtype=torch.float64)]
    assert rates_along(chances, 2).conditional == pytest.approx([0.5, 0.25])
    assert rates_along(chances, 1).length == pytest.approx(1.5)
    assert rates_along([torch.zeros(0, 3, dtype=torch.float64)], 2).length == 1


def conversation(user: str, kind: str = "chat", answer: int = 60) -> Conversation:
    return Conversation(0, kind, user, "x", tuple(range(5 + answer)), 5, "stop")


def heldout_users(count: int) -> list[str]:
    """Questions that a hash holds out."""
    users = (f"What is the number {number} good for?" for number in range(10_000))
    found = [user for user in users if conversation(user).heldout]
    return found[:count]


def test_held_out_questions_by_kind(tmp_path: Path) -> None:
    users = heldout_users(5)
    kinds = ("source", "chat", "chat", "code", "chat")
    lines = [conversation(user, kind).to_json() for user, kind in zip(users, kinds, strict=True)]
    lines.append(conversation("One that is in the training data?", "french").to_json())
    (tmp_path / FILE).write_text("\n".join(lines) + "\n")
    found = read_questions(tmp_path, SHIPPED, tmp_path, 2)
    assert [question.kind for question in found] == ["chat", "chat", "code", "code"]
    assert found[0] == Question("chat", [0, 1, 2, 3, 4])


def test_spec_benchs_questions_by_its_groups(tmp_path: Path) -> None:
    make_chat_folder(tmp_path)
    kinds = [*MT_BENCH, "qa", "writing", "rag", "coding", "qa", "writing"]
    lines = [json.dumps({"category": kind, "turns": [f"{number}?", "b"]}) for number, kind in enumerate(kinds)]
    (tmp_path / "spec.jsonl").write_text("\n".join(lines) + "\n")
    found = read_questions(None, tmp_path / "spec.jsonl", tmp_path, 9)
    assert [one.kind for one in found] == ["MT-bench"] * 9 + ["qa"] * 2 + ["rag"]
    first = ChatTemplate(tmp_path)
    asked = [*range(8), kinds.index("coding", 8), kinds.index("qa"), kinds.index("qa", 9), kinds.index("rag")]
    assert [one.tokens for one in found] == [first.question(f"{number}?") for number in asked]


def test_no_question_is_held_out(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(conversation("One that is in the training data?").to_json() + "\n")
    with pytest.raises(MTPCError, match="no question for a chat model that is held out"):
        read_questions(tmp_path, SHIPPED, tmp_path, 2)


def test_the_questions_that_ship_are_held_out_by_every_run_of_distillation() -> None:
    lines = [json.loads(line) for line in SHIPPED.read_text(encoding="utf-8").splitlines()]
    assert {line["kind"] for line in lines} == {"chat", "code", "french", "reasoning", "spanish"}
    assert all(conversation(line["user"]).heldout for line in lines)


def test_questions_are_chosen_whatever_their_order() -> None:
    users = heldout_users(30)
    short = conversation(heldout_users(31)[-1], answer=20)
    found = list(choose([short, *map(conversation, users)]))
    assert found == list(choose(map(conversation, reversed(users))))
    assert len(found) == 12
    assert {line["user"] for line in found} < set(users)


def found_of(setup: Setup, measured: bool) -> Found:
    found = Found(setup, {"chat": rates_from_marginal([0.5, 0.25, 0.25]), "code": rates_from_marginal([1.0, 0.5, 0.1])})
    if measured:
        found.points = {"chat": point(), "code": point()}
    return found


def test_a_row_has_the_core_s_acceptance_and_the_engine_s_speed() -> None:
    chosen = tables(["trained"], None, [], [])
    found = {setup: found_of(setup, measured=setup.num_drafts == 3) for setup in chosen.all}
    (table,) = make_tables(chosen, found, [0.9, 0.85, 0.8])
    assert table.columns[:4] == ["K", "method", "chat τ", "tokens/s"]
    base, first, _, third = table.rows
    assert base == ["0", "no drafter", "1.00", "100.0", "1.00", "100.0", "1.00", "100.0", "1.00", "1.00", "-"]
    assert first == ["1", "trained", "2.00", "-", "2.60", "-", "2.30", "-", "-", "-", "-"]
    # 400 tokens in 1.5 s, 2.67 times 100 tokens/s; the engine counted 2.5 tokens a step: 2.67 / (0.8 * 2.5) = 133 %.
    assert third == ["3", "trained", "2.00", "266.7", "2.60", "266.7", "2.30", "266.7", "2.67", "2.50", "133 %"]


def fake_engine(settings_seen: list[ServerSettings]) -> Engine:
    """An engine that answers with the prompt's own characters and counts every second token as an accepted draft."""

    def command(settings: ServerSettings, port: int) -> list[str]:
        settings_seen.append(settings)
        return [sys.executable, str(FAKE), str(port)]

    return Engine("fake", "Fake", command, vllm_counters)


def test_a_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = build_byte_llama(ByteTargetConfig(hidden_size=64, layers=1, heads=1, kv_heads=1)).eval()
    make_chat_folder(tmp_path / "target")
    model.save_pretrained(tmp_path / "target")
    drafter = Drafter(FastMTP(), config_for(model.config, 3))
    assert drafter.serial is not None
    start_from_target(drafter.serial, model)
    save_drafter(tmp_path / "drafter", drafter, {})
    rankings = Rankings(VOCAB_SIZE, {"english": Ranking(tuple(range(32, 127))), "french": Ranking(tuple(range(200)))})
    rankings.save(tmp_path / "vocabulary.json", {})
    (tmp_path / "prompts.jsonl").write_text('{"kind": "chat", "user": "Hello"}\n{"kind": "code", "user": "x = 1"}\n')
    seen: list[ServerSettings] = []
    monkeypatch.setattr(fastmtp, "find_engine", lambda *_, **__: fake_engine(seen))
    monkeypatch.setattr(fastmtp, "must_be_installed", lambda _: None)
    given = ["--target", str(tmp_path / "target"), "--drafter", f"trained={tmp_path / 'drafter'}"]
    given += ["--vocabulary", str(tmp_path / "vocabulary.json"), "--sizes", "64,128", "--languages", "french"]
    given += ["--prompts", str(tmp_path / "prompts.jsonl"), "--max-tokens", "8", "--limits", "0.9,0.8,0.7"]
    assert fastmtp.main([*given, "--out", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["label"] for one in results["setups"]] == [
        *["trained", "trained + FR 64"] * 3,
        "trained + FR 128",
        "trained + FR 64, french for all",
    ]
    for setup in results["setups"]:
        assert set(setup["kinds"]) == {"chat", "code"}
        assert len(setup["kinds"]["chat"]["expected"]["marginal_acceptance"]) == setup["num_drafts"]
        assert setup["kinds"]["code"]["engine"]["tokens_per_second_with"] > 0
    assert [settings.num_drafts for settings in seen] == [0, 1, 1, 2, 2, 3, 3, 3, 3]
    assert '"size": 128' in seen[-2].extra[-1]
    page = (tmp_path / "out" / "results.md").read_text()
    assert page.count("| K | method | chat τ | tokens/s | code τ |") == 3
    assert "1 chat, 1 code; temperature 0" in page


def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--no-engine", "--target", str(tmp_path / "nowhere"), "--drafter", f"x={tmp_path}"]
    assert fastmtp.main([*given, "--data", str(tmp_path)]) == 2
    assert "holds no conversations" in capsys.readouterr().err
