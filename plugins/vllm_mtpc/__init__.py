"""vLLM adapter: serves drafters of any draft method through vLLM's own speculative decoding (`"method": "eagle"`).

It holds no mathematics and knows no draft method: a drafter has an autoregressive part, which vLLM's draft loop runs, and a window
part, drafted in one shot after it, on both of vLLM's model runners.  Every place where it touches vLLM is a line of
the table in `integration_points`.
"""

from __future__ import annotations

from vllm_mtpc.dispatch import MODEL, architectures


def register() -> None:
    """Entry point of the group ``vllm.general_plugins``.

    vLLM calls it in every process, some of them short-lived: it is idempotent, imports no worker code and does
    not resolve the platform.  What it changes is changed when the module concerned has been imported.
    """
    from vllm import ModelRegistry

    from vllm_mtpc.integration_points import install

    for architecture in architectures() - set(ModelRegistry.get_supported_archs()):
        ModelRegistry.register_model(architecture, MODEL)
    install()
