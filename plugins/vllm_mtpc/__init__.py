"""vLLM adapter: serves MTPC and FastMTP drafters through vLLM's own speculative decoding (`"method": "eagle"`).

It holds no mathematics: it translates between vLLM's tensors and `mtpc.drafter.Drafter`, on both of vLLM's
model runners.  Every place where it touches vLLM is a line of the table in `touch_points`.
"""

from __future__ import annotations

ARCHITECTURE = "EagleMTPCForCausalLM"
FASTMTP_ARCHITECTURE = "EagleFastMTPForCausalLM"
MODELS = {ARCHITECTURE: "vllm_mtpc.model", FASTMTP_ARCHITECTURE: "vllm_mtpc.fastmtp"}


def register() -> None:
    """Entry point of the group ``vllm.general_plugins``.

    vLLM calls it in every process, some of them short-lived: it is idempotent, imports no worker code and does
    not resolve the platform.  What it changes is changed when the module concerned has been imported.
    """
    from vllm import ModelRegistry

    from vllm_mtpc.touch_points import install

    known = ModelRegistry.get_supported_archs()
    for architecture, module in MODELS.items():
        if architecture not in known:
            ModelRegistry.register_model(architecture, f"{module}:{architecture}")
    install()
