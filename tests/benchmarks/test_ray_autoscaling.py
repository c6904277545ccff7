"""What applications of Ray Serve are made of that scale with the load."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ray_serve.autoscaling import autoscaled
from benchmarks.ray_serve.cluster import read_config

CONFIG = Path("serve_configs/ray/byte.yaml")


def test_only_the_drafted_model_scales() -> None:
    config = autoscaled(read_config(CONFIG, Path("weights")), most=3, delay=5.0)
    drafted, plain = (model["deployment_config"] for model in config["applications"][0]["args"]["llm_configs"])
    assert "num_replicas" not in drafted
    assert drafted["autoscaling_config"] == {
        "min_replicas": 1,
        "max_replicas": 3,
        "target_ongoing_requests": 12,  # three quarters of the 16 that an engine runs
        "upscale_delay_s": 5.0,
        "downscale_delay_s": 5.0,
    }
    assert drafted["health_check_period_s"] == plain["health_check_period_s"]
    assert plain["num_replicas"] == 1
