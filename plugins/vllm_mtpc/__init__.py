"""vLLM adapter: serves MTPC drafters through vLLM's own speculative decoding (`"method": "eagle"`).

It holds no mathematics: it translates between vLLM's tensors and `mtpc.drafter.Drafter`, on both of vLLM's
model runners.  Every place where it touches vLLM is a line of the table in `touch_points`.
"""

from __future__ import annotations

ARCHITECTURE = "EagleMTPCForCausalLM"


def register() -> None:
    """Entry point of the group ``vllm.general_plugins``.

    vLLM calls it in every process, some of them short-lived: it is idempotent, imports no worker code and does
    not resolve the platform.  What it changes is changed when the module concerned has been imported.
    """
    from vllm import ModelRegistry

    from vllm_mtpc.touch_points import install

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, f"vllm_mtpc.model:{ARCHITECTURE}")
    install()
