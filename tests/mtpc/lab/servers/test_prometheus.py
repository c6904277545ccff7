"""The text format of Prometheus."""

import pytest

from mtpc.errors import MTPCError
from mtpc.lab.servers.prometheus import parse, total, totals_by

PAGE = r"""
# HELP vllm:spec_decode_num_drafts_total Number of spec decoding drafts.
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="target"} 20.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="target"} 5.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="target"} 1.7e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="target"} 75.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="target"} 30.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="target",position="10"} 3.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="target",position="2"} 7.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="target",position="0"} 14.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="target",position="0"} 6.0
up 1
odd{path="a\"b\\c\nd,e}"} NaN 1700000000
"""


def test_reads_names_labels_and_values() -> None:
    samples = parse(PAGE)
    assert samples[-2][:3] == ("up", {}, 1.0)
    assert samples[-1].labels == {"path": 'a"b\\c\nd,e}'}
    assert samples[-1].value != samples[-1].value
    assert total(samples, "vllm:spec_decode_num_drafts_total") == 25
    assert total(samples, "absent") == 0
    assert totals_by(samples, "vllm:spec_decode_num_drafts_total", "engine") == {"0": 20, "1": 5}


@pytest.mark.parametrize("line", ["<html>", "name{a=1 2", "name notanumber", "name"])
def test_refuses_what_is_not_metrics(line: str) -> None:
    with pytest.raises(MTPCError, match="metrics"):
        parse(line)
