"""CPU shim of SGLang's kernels: the names that SGLang imports to serve a dense text model, see `sglang_cpu`.

A name that is missing here raises ImportError or AttributeError, as in other builds of ``sgl_kernel``.
"""

import torch

from sglang_cpu import hashing
from sglang_cpu.accepted import fill_accept_out_cache_loc_cpu, fill_bonus_tokens_cpu, rotate_input_ids_cpu
from sglang_cpu.slots import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    copy_all_layer_kv_cache_cpu,
)
from sglang_cpu.trees import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

if torch.cuda.is_available():
    raise ImportError("This sgl_kernel is a CPU shim for machines without a GPU; install sglang-kernel.")

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

hashing.define_operator()
