"""Lets vLLM take Ray's workers on a CPU, for tests: Ray counts cores as GPUs.

vLLM asks every worker for its devices before it loads the general plugins, so this is a plugin for its platforms.
"""

from __future__ import annotations


def register() -> None:
    """Entry point of ``vllm.platform_plugins``, which would return a platform's name: there is no other one."""
    from vllm.platforms.cpu import CpuPlatform

    CpuPlatform.ray_device_key = "GPU"
