"""Kernels of ``sgl_kernel.speculative`` that SGLang's n-gram drafter imports."""

from sglang_cpu.trees import reconstruct_indices_from_tree_mask

__all__ = ["reconstruct_indices_from_tree_mask"]
