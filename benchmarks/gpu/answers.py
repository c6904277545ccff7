"""Row of the data card: generate the chat target's answers for training, in files that are small enough to copy."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from mtpc.lab.text.conversations import FILE, read_conversations
from tests.gpu.running import Run
from tests.support.random_chat import make_chat_target

CONCURRENCY, TOKENS = 512, 20_000_000  # concurrent requests; tokens at most
PACKING = 90.0  # seconds that are reserved for compression
PART = 15 << 20  # largest bytes of a result file
PACKED = "answers.xz"


def folder_of(run: Run) -> Path:
    """Return the folder of the conversations, which card 7 reads on the same machine."""
    return run.folder.parent / "answers"


def command(run: Run, target: Path, out: Path) -> list[str]:
    """Return the arguments of `mtpc distill` for as many tokens as the time allows, from the target's distribution."""
    minutes = max(0.05, (run.seconds - PACKING) / 60) if run.on_gpu else 5.0
    concurrency, tokens = (CONCURRENCY, TOKENS) if run.on_gpu else (2, 60)
    arguments = {**({"enforce_eager": True, "dtype": "float32"} if not run.on_gpu else {}), **run.vllm}
    words = [
        "distill", "--target", str(target), "--out", str(out), "--offline", "--top-p", "1", "--top-k", "0",
        "--concurrency", str(concurrency), "--tokens", str(tokens), "--minutes", f"{minutes:.2f}",
        "--answer-tokens", "512" if run.on_gpu else "24",
    ]  # fmt: skip
    if run.paths.questions is not None:
        words += ["--questions", str(run.paths.questions)]
    for key, value in arguments.items():
        name = f"--{key.replace('_', '-')}"
        words += [f"--server-arg={name}" if value is True else f"--server-arg={name}={value}"]
    return words


def packed(out: Path, folder: Path) -> list[Path]:
    """Compress the conversations into files of at most `PART` bytes, which `cat` joins; return the files."""
    for old in folder.glob(f"{PACKED}.*"):
        old.unlink()
    with (out / FILE).open("rb") as file:
        compressor = subprocess.Popen(["xz", "-T0", "-6", "--stdout"], stdin=file, stdout=subprocess.PIPE)
        assert compressor.stdout is not None
        parts: list[Path] = []
        while part := compressor.stdout.read(PART):
            parts.append(folder / f"{PACKED}.{len(parts):02d}")
            parts[-1].write_bytes(part)
    assert compressor.wait() == 0, "xz failed"
    return parts


def written(run: Run) -> str:
    """Row: generate as many answers as the time allows."""
    target = run.chat_target() if run.on_gpu else make_chat_target(run.folder / "target")
    out = folder_of(run)
    run.mtpc(command(run, target, out))
    conversations = list(read_conversations(out))
    tokens = sum(len(each.tokens) - each.start for each in conversations)
    assert conversations, "no conversation was written"
    parts = packed(out, run.out)
    size = sum(part.stat().st_size for part in parts)
    facts = json.loads((out / "provenance.json").read_text())
    left = sum(facts["left_out_in_this_run"].values())
    run.keep([{"conversations": len(conversations), "answer_tokens": tokens, "left_out": left, "bytes": size}])
    return (
        f"{len(conversations):,} conversations, {tokens:,} tokens of answers, {left:,} left out; "
        f"{len(parts)} files, {size / 2**20:.1f} MiB"
    )
