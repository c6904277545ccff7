"""vLLM's own schedule of fewer drafts for larger batches, with the drafter that ships."""

from pathlib import Path

import pytest

from tests.engine.conftest import CAPACITY, Models
from tests.engine.prompts import prompts
from tests.engine.server import Server, speculative_config, tokens

pytestmark = pytest.mark.engine
SCHEDULE = [[1, 2, 7], [3, 5, 3], [6, 128, 0]]  # first and last batch size, number of drafts


def drafted_and_generated(server: Server) -> tuple[float, float]:
    return server.metric("vllm:spec_decode_num_draft_tokens_total"), server.metric("vllm:generation_tokens_total")


def test_the_text_is_the_same_and_larger_batches_get_fewer_drafts(models: Models, plain: Server, tmp_path: Path):
    chosen, body = prompts(12), {"max_tokens": 64, "ignore_eos": True}
    expected = [tokens(answer) for answer in plain.complete_all(chosen, 8, **body)]
    arguments = speculative_config(models.drafter, models.drafts, num_speculative_tokens_per_batch_size=SCHEDULE)
    drafts_per_token = []
    with Server(models.target, tmp_path / "log", *CAPACITY, *arguments) as scheduled:
        for together in (1, 4, 12):
            before = drafted_and_generated(scheduled)
            assert [tokens(answer) for answer in scheduled.complete_all(chosen, together, **body)] == expected
            after = drafted_and_generated(scheduled)
            drafts_per_token.append((after[0] - before[0]) / (after[1] - before[1]))
    assert drafts_per_token[0] > drafts_per_token[1] > 2 * drafts_per_token[2]
