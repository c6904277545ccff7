"""`mtpc distill`."""

from __future__ import annotations

from mtpc.lab.distill.settings import DistillRequest
from mtpc.lab.options.settings import with_settings


@with_settings
def distill(request: DistillRequest) -> None:
    """Generate conversations with a chat model, to train a drafter for it (self-distillation).

    The target first answers --questions, if given: use prompts like those of your users. Then it continues user turns
    that begin with a few given words (questions, reasoning, code, other languages) or that ask about source code and
    texts, and answers them. Repetitions and near duplicates are left out, and token ids are kept as sampled.

    Conversations are appended one by one. Stop a run at any time and continue it with the same command. The default
    temperature, top-k and top-p are those of FastMTP (arXiv 2509.18362).

    Examples:
    ```
    mtpc distill --target runs/smollm2 --out runs/distilled

    # Run faster on a CPU.
    mtpc distill --target runs/smollm2 --out runs/distilled --offline --top-p 1

    # Answer your own prompts first.
    mtpc distill --target runs/smollm2 --out runs/distilled --questions my.jsonl

    # Use a running server.
    mtpc distill --target runs/smollm2 --out data --url http://127.0.0.1:8000
    ```
    """
    from mtpc.lab.console import console
    from mtpc.lab.distill.command import distill as run

    run(request, console())
