"""Lets torchvision be imported where its compiled half does not load.

The published build is linked against CUDA.  Beside a CPU torch its operators are missing, and torchvision's own
registrations for them then raise ``RuntimeError: operator torchvision::nms does not exist``.  Declaring them is enough
for SGLang, which imports torchvision for every model and calls these for none that reads text only.
"""

from __future__ import annotations

from typing import Any

import torch

OPERATORS = ("nms", "qnms")


def install(extension: Any) -> None:
    """Declare what the module ``torchvision.extension`` could not load."""
    if not extension._has_ops():
        for name in OPERATORS:
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
