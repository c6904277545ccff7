"""Updates of the target's weights while it is served: the drafter stays as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.engine.prompts import prompts
from tests.engine_sglang.server import SGLangServer, drafting
from tests.support.random_mimo import make_mimo

pytestmark = pytest.mark.engine
WHOLE = ("--speculative-num-steps", "3", "--speculative-token-map", "?adaptive=false")


def with_another_layer(target: Path, folder: Path) -> Path:
    """A MiMo checkpoint with other weights in its MTP layer, which SGLang's model of the target does not read."""
    for file in shutil.copytree(target, folder).glob("*.safetensors"):
        weights = load_file(file)
        changed = {name: torch.randn_like(weights[name]) for name in weights if ".mtp_layers." in name}
        save_file(weights | changed, file, {"format": "pt"})
    return folder


def test_a_mimo_target_does_not_replace_its_drafter(tmp_path: Path) -> None:
    """Tensors of the target's own MTP layer have the names of the drafter's layer."""
    made, asked = make_mimo(tmp_path), prompts(4)
    updated = with_another_layer(made.target, tmp_path / "updated")
    # SGLang refuses to flush its cache until the step after the last request is over; here the cache remains right.
    arguments, update = (*drafting(made.drafter, *WHOLE), "--trust-remote-code"), {"flush_cache": False}
    with SGLangServer(made.target, tmp_path / "log", *arguments) as server:
        before = [server.generate(prompt, ignore_eos=True) for prompt in asked]
        with server.post("/update_weights_from_disk", {"model_path": str(updated), **update}) as answer:
            assert json.load(answer)["success"]
        after = [server.generate(prompt, ignore_eos=True) for prompt in asked]
    for one, other in zip(before, after, strict=True):
        assert one["output_ids"] == other["output_ids"]
        assert one["meta_info"]["spec_verify_ct"] == other["meta_info"]["spec_verify_ct"]
    assert (tmp_path / "log").read_text().count("updates and checks leave out the drafter") == 1
