"""Rows of the training card: train drafters of the chat target on its answers, as long as the row's time allows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.answers import folder_of
from mtpc.lab.text.conversations import FILE
from tests.gpu.running import NotRunError, Run
from tests.support.random_chat import make_chat_target, make_conversations

SCORING = 75.0  # seconds that are reserved for scoring after the training
# The options of the included drafters, with larger batches.  "circuit" has joint heads.
OPTIONS = {
    "fastmtp": ("fastmtp", "--batch", "16", "--learning-rate", "5e-3"),
    "gumiho": ("gumiho", "--circuits", "ff", "--batch", "16", "--learning-rate", "2e-3"),
    "circuit": ("gumiho", "--circuits", "hmm", "--batch", "16", "--learning-rate", "2e-3"),
}
SHARED = ("--loss", "kl", "--optimizer", "muon", "--head-rows", "8192", "--learn-from", "all", "--epochs", "3")


def command(run: Run, name: str, target: Path, data: Path, out: Path) -> list[str]:
    """Return the arguments of `mtpc train`; the training ends when the time is up."""
    recipe, *own = OPTIONS[name]
    size = "32" if run.on_gpu else "2"
    minutes = max(0.05, (run.seconds - SCORING) / 60) if run.on_gpu else 0.1
    return [
        "train", recipe, "--target", str(target), "--data", str(data), "--out", str(out), *own,
        *(SHARED if run.on_gpu else ("--epochs", "1")), "--micro-batch", size, "--minutes", f"{minutes:.2f}",
        "--questions", "4" if run.on_gpu else "0",
    ]  # fmt: skip


def trained(name: str) -> Callable[[Run], str]:
    """Row: train one drafter, and keep its checkpoint."""

    def row(run: Run) -> str:
        if run.on_gpu:
            target, data = run.chat_target(), run.paths.data or folder_of(run)
        else:
            target = make_chat_target(run.folder / "target")
            data = make_conversations(run.folder / "data", 12)
        if not (data / FILE).exists():
            raise NotRunError(f"{data} holds no {FILE}: run the card `data` first, or pass conversations with --data")
        out = run.folder / name
        run.mtpc(command(run, name, target, data, out))
        (checkpoint,) = (file.parent for file in run.folder.rglob("model.safetensors") if file.parent != target)
        shutil.copytree(checkpoint, run.out / name, dirs_exist_ok=True)
        facts: dict[str, Any] = json.loads((checkpoint / "provenance.json").read_text())
        done = facts["training"]
        run.keep([{"drafter": name, "training": done, "heldout_acceptance": facts.get("heldout_acceptance")}])
        rate = done["epochs"] * done["tokens"] * done["updates"] / done["planned_updates"] / done["seconds"]
        loss = f"loss {done['final_loss']:.3f}, {rate:,.0f} tokens/s"
        return f"{done['updates']:,} of {done['planned_updates']:,} updates in {done['seconds']:.0f} s, {loss}"

    return row
