"""vLLM adapter: serves drafters of every draft method through vLLM's speculative decoding (`"method": "eagle"`).

The package contains no mathematics and names no draft method.  A drafter has an autoregressive part, which vLLM's draft
loop runs, and a parallel part, which drafts the remaining tokens in one pass.  Both of vLLM's model runners are
supported.  `integration_points` lists everything in vLLM that this package uses or changes.
"""

from __future__ import annotations

import logging

from vllm_mtpc.dispatch import MODEL, architectures


def register() -> None:
    """Register the model class and the patches: the entry point in group ``vllm.general_plugins``.

    vLLM calls it in every process, including short-lived ones.  It is idempotent, imports no worker code and does not
    resolve the platform.  Each patch is applied after its module has been imported.
    """
    from vllm import ModelRegistry

    from vllm_mtpc.integration_points import install

    for architecture in architectures() - set(ModelRegistry.get_supported_archs()):
        ModelRegistry.register_model(architecture, MODEL)
    logging.getLogger("mtpc").parent = logging.getLogger("vllm")  # vLLM's handlers show the core's warnings as well
    install()
