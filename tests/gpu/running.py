"""The settings of a card's row, its measurements so far, and the error of a row that cannot run here."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import BaseModel, ConfigDict

from mtpc.lab.servers.server import last_error

ROOT = Path(__file__).parents[2]
FIGURES = "figures.json"
LOG = "log"
# Of vLLM: whole steps in CUDA graphs, without torch.compile, which takes longer than what a card measures.
CAPTURED = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
# The same, and steps with new prompts in CUDA graphs that end at each attention; vLLM 0.33 needs no compilation for it.
PIECEWISE = {"mode": 0, "cudagraph_mode": "FULL_AND_PIECEWISE"}
BREAKABLE = {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}
# SGLang's own choice of attention and sampling needs flashinfer.
SGLANG_ON_GPU = ("--attention-backend", "triton", "--sampling-backend", "pytorch")
Figures = list[dict[str, Any]]  # one measurement each, by names


class NotRunError(Exception):
    """A row that this machine lacks something for: a sentence."""


class Paths(BaseModel):
    """Where a card finds models and texts.

    weights: what ships.  chat: the chat target, as `mtpc target smollm2` writes it.  prompts: what it is asked in
    measurements of speed.  questions: what it answers for training (JSON Lines); None: it asks itself.  data:
    conversations to train on; None: those that card 6 has written on this machine.
    """

    model_config = ConfigDict(frozen=True)

    weights: Path = ROOT / "weights"
    chat: Path = ROOT / "runs" / "smollm2"
    prompts: Path = ROOT / "benchmarks" / "chat_prompts.jsonl"
    questions: Path | None = None
    data: Path | None = None


class Run(BaseModel):
    """Of one row.

    device_name: what drafts; "cpu": the row in miniature.  folder: for the row's own files, empty.  out: for files that
    are worth carrying home.  seconds: until the row is stopped.  vllm: arguments of ``vllm.EngineArgs``, and sglang:
    words of SGLang's command line, that every engine is started with in addition.
    """

    model_config = ConfigDict(frozen=True)

    device_name: str
    folder: Path
    out: Path
    seconds: float = 600.0
    paths: Paths = Paths()
    vllm: dict[str, Any] = {}
    sglang: tuple[str, ...] = ()

    @property
    def device(self) -> torch.device:
        """What drafts."""
        return torch.device(self.device_name)

    @property
    def on_gpu(self) -> bool:
        """Whether this is the real thing, not the row in miniature."""
        return self.device.type == "cuda"

    @property
    def sglang_words(self) -> tuple[str, ...]:
        """Words that stand at the end of SGLang's command line, where the last one of a name counts."""
        return (*(SGLANG_ON_GPU if self.on_gpu else ()), *self.sglang)

    def compute_in_float32(self) -> None:
        """Let the SGLang servers of this row compute in float32 on a GPU: its norms take none, its attention rounds."""
        if self.on_gpu:
            path = os.environ.get("PYTHONPATH", "")
            os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "tests" / "support" / "plain_norms"), path])
            os.environ["TRITON_F32_DEFAULT"] = "ieee"

    def keep(self, figures: Figures) -> None:
        """Write what has been measured so far: it counts also where the row is stopped."""
        unfinished = self.folder / f"{FIGURES}.new"
        unfinished.write_text(json.dumps(figures))
        unfinished.replace(self.folder / FIGURES)

    def save(self) -> Path:
        """A file for `load`."""
        file = self.folder / "run.json"
        file.write_text(self.model_dump_json())
        return file

    @classmethod
    def load(cls, file: Path) -> Self:
        """What `save` has written."""
        return cls.model_validate_json(file.read_text())

    def mtpc(self, words: Sequence[str]) -> None:
        """Run the command line of this project in this process.

        Errors: AssertionError with its last error where it fails.
        """
        from mtpc.lab.cli.main import app

        print(shlex.join(["mtpc", *words]), flush=True)
        code = None
        try:
            app(words, prog_name="mtpc")
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        assert not code, f"mtpc {words[0]} ended with code {code}: {last_error(self.folder / LOG)}"

    def chat_target(self) -> Path:
        """The chat target.

        Errors: `NotRunError` where it is missing.
        """
        if not (self.paths.chat / "config.json").exists():
            raise NotRunError(f"{self.paths.chat} is missing: run `make chat-target`, or name it with --chat")
        return self.paths.chat


def kept(folder: Path) -> Figures:
    """What a row has measured before it ended or was stopped."""
    file = folder / FIGURES
    return json.loads(file.read_text()) if file.exists() else []
