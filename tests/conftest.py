"""What all tests share.  Tests that need an engine are collected only where it is installed, see the folders' own."""

from __future__ import annotations

import torch

torch.set_num_threads(1)  # small tensors: a second thread only waits, and much longer where the machine is busy
