"""Row: the kernel that reads each request's own draft vocabulary computes what plain torch does."""

from __future__ import annotations

from functools import partial

import torch

from mtpc.target_head import union
from tests.gpu.running import NotRunError, Run
from tests.gpu.timing import microseconds

SIZE, ROWS, LANGUAGES = 2048, 32_768, 4
CLOSE = {torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}


def difference(device: str, count: int, rows: int, size: int, dtype: torch.dtype) -> float:
    """The largest, of logits of about 1; in the kernel, rows that nobody drafts are not read."""
    from mtpc.target_head import kernel

    torch.manual_seed(0)
    states, head = torch.randn(count, size).to(device, dtype), (torch.randn(rows, size) / size**0.5).to(device, dtype)
    held, numbers = (torch.rand(3, rows) < 0.3).to(device), torch.randint(3, (count,)).to(device)
    held[:, :32] &= torch.arange(3, device=device)[:, None] == numbers[0]  # a block that no other row needs
    head[~held[numbers].any(0)] = torch.nan
    expected = union.logits_by_vocabulary(states.float(), head.nan_to_num().float(), held, numbers)
    found = kernel.logits_by_vocabulary(states, head, held, numbers).float()
    assert torch.equal(found.isinf(), expected.isinf()), "other tokens than those of the rows' vocabularies"
    return float((found - expected).nan_to_num(0.0, 0.0, 0.0).abs().max())


@torch.inference_mode()
def kernel_agrees(run: Run) -> str:
    """And what both take, where four languages hold a quarter of the rows each."""
    if not run.on_gpu:
        raise NotRunError("a Triton kernel needs a GPU")
    from mtpc.target_head import kernel

    largest = {}
    for dtype, close in CLOSE.items():
        largest[dtype] = max(difference("cuda", count, 5000, SIZE, dtype) for count in (1, 3, 16))
        assert largest[dtype] < close, f"{dtype}: {largest[dtype]:.1e} from plain torch"
    head = torch.randn(ROWS, SIZE, device=run.device, dtype=torch.bfloat16)
    languages = torch.arange(LANGUAGES, device=run.device)
    held, times = torch.arange(ROWS, device=run.device) // (ROWS // LANGUAGES) == languages[:, None], []
    for count in (1, 16):
        given = head[:count].clone(), head, held, torch.arange(count, device=run.device) % LANGUAGES
        both = (partial(compute, *given) for compute in (kernel.logits_by_vocabulary, union.logits_by_vocabulary))
        times += [microseconds(call, run.device) for call in both]
    found = ", ".join(f"{str(dtype).removeprefix('torch.')} {error:.0e}" for dtype, error in largest.items())
    return "off by {}; {:.0f} us against {:.0f} for 1 request, {:.0f} against {:.0f} for 16".format(found, *times)
