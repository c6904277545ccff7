"""What serves a drafter: one model class, one proposer and one speculator for every architecture of the registry."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from mtpc.methods import DrafterConfig, Family, families, family_of
from vllm_mtpc.additional import vocabulary_values

MODEL = "vllm_mtpc.model:DrafterForCausalLM"
RUNNER_V2 = "vllm.v1.worker.gpu.model_runner"


def architectures() -> set[str]:
    """Of all families, as their drafters' config.json names them."""
    return {family.architecture for family in families()}


def serves(vllm_config: Any) -> bool:
    """Whether vLLM's configuration asks for one of our drafters."""
    draft = vllm_config.speculative_config.draft_model_config
    return draft is not None and not architectures().isdisjoint(draft.architectures or ())


def drafter_of(vllm_config: Any) -> tuple[Family, DrafterConfig]:
    """The drafter that vLLM's configuration asks for.

    Errors: `MTPCError`, see `mtpc.methods.family_of` and `Family.read_config`.
    """
    folder = Path(vllm_config.speculative_config.draft_model_config.model)
    family = family_of(folder)
    return family, family.read_config(folder)


def install_v1(eagle: Any) -> None:
    """Let ``EagleProposer(...)`` become ours for our drafters; all import sites keep their name."""

    def choose(cls: type, vllm_config: Any, *_: Any, **__: Any) -> Any:
        if cls is not eagle.EagleProposer or not serves(vllm_config):
            return object.__new__(cls)
        from vllm_mtpc.v1.proposer import Proposer

        return object.__new__(Proposer)

    eagle.EagleProposer.__new__ = staticmethod(choose)


def install_v2(spec_decode: Any) -> None:
    """Wrap ``init_speculator``, also under the name by which the runner may already have imported it."""
    original = spec_decode.init_speculator

    @functools.wraps(original)
    def init_speculator(vllm_config: Any, device: Any, req_states: Any) -> Any:
        if not serves(vllm_config):
            speculator = original(vllm_config, device, req_states)
            if vocabulary_values(vllm_config.additional_config):
                speculator.req_states = req_states  # `vllm_mtpc.native.restrict` finds the requests' languages there
            return speculator
        from vllm_mtpc.v2.speculator import Speculator

        return Speculator(vllm_config, device, req_states)

    spec_decode.init_speculator = init_speculator
    runner: Any = sys.modules.get(RUNNER_V2)
    if hasattr(runner, "init_speculator"):
        runner.init_speculator = init_speculator
