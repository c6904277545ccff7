"""Import of torchvision where its compiled library does not load.

The published build is linked against CUDA.  With a CPU build of torch its operators are missing, and torchvision's
registrations raise ``RuntimeError: operator torchvision::nms does not exist``.  Declaring the operators is enough:
SGLang imports torchvision for every model, but text models do not call them.
"""

from __future__ import annotations

from typing import Any

import torch

OPERATORS = ("nms", "qnms")


def install(extension: Any) -> None:
    """Declare the operators that the module ``torchvision.extension`` could not load."""
    if not extension._has_ops():
        for name in OPERATORS:
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
