"""A draft model with the target's tokens in another order, converted, through SGLang's own `STANDALONE`.

It is accepted exactly as often as the model whose tokens were given another order; where it is not converted, never.
SGLang's draft model does not read the first token of a text.  On a CPU SGLang verifies greedily at every temperature.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.exact import Reference
from tests.engine.permuted import Accepted, accepted
from tests.engine.prompts import prompts
from tests.engine_sglang.conftest import LARGE
from tests.engine_sglang.server import SGLangServer, texts
from tests.support.random_pair import make_permuted_pair
from tests.support.small_tokenizers import byte_level

pytestmark = [pytest.mark.engine, pytest.mark.thorough]
DRAFTS, TOKENS = 4, 48


@pytest.mark.parametrize("draft", ["converted", "control"])
def test_greedy_texts_and_acceptance(draft: str, tmp_path: Path) -> None:
    models = make_permuted_pair(tmp_path)
    exact, plain = Reference(models.target), Reference(models.plain)
    arguments = ["--speculative-algorithm", "STANDALONE", "--speculative-num-steps", str(DRAFTS)]
    arguments += ["--speculative-draft-model-path", str(getattr(models, draft)), "--speculative-eagle-topk", "1"]
    arguments += ["--speculative-num-draft-tokens", str(DRAFTS + 1), "--disable-radix-cache"]
    found, expected = [], []
    with SGLangServer(models.target, tmp_path / "log", *LARGE, *arguments) as server:
        for prompt in prompts(12):
            ids = byte_level().encode(prompt)
            text = exact.greedy(ids, TOKENS + DRAFTS)
            answer = server.generate(ids, max_new_tokens=TOKENS, ignore_eos=True)
            assert texts([answer]) == [text[:TOKENS]]
            found.append(
                Accepted(*(answer["meta_info"][name] for name in ("spec_verify_ct", "spec_num_correct_drafts")))
            )
            expected.append(accepted(plain, ids, text, TOKENS, DRAFTS, 1))
    if draft == "control":
        assert sum(each.tokens for each in found) < 0.1 * sum(each.steps for each in found)
    else:
        assert found == expected
        assert sum(each.tokens for each in found) > sum(each.steps for each in found)
