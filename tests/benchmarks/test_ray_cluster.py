"""Messages about applications that Ray Serve could not deploy, and where they name their drafter."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ray_serve.cluster import read_config, reason
from benchmarks.ray_serve.load import DRAFTED, drafted_model, drafter_setting


def test_the_reason_is_the_last_line_of_what_a_failed_deployment_says() -> None:
    failed = {
        "status": "DEPLOY_FAILED",
        "message": "Traceback\n  File\nRuntimeError: weights/gone is not a directory.\n",
    }
    healthy = {"status": "HEALTHY", "message": ""}
    application = {"message": "Failed to update the deployments ['a'].", "deployments": {"a": failed, "b": healthy}}
    assert reason(application) == "RuntimeError: weights/gone is not a directory."


def test_without_one_it_is_what_the_application_says() -> None:
    assert reason({"message": "import_path is wrong", "deployments": {}}) == "import_path is wrong"


def test_the_drafter_of_the_drafted_model_is_exchanged() -> None:
    for name in ("byte.yaml", "sglang/byte.yaml"):
        config = read_config(Path("serve_configs/ray", name), Path("weights"))
        settings, key = drafter_setting(config)
        assert settings[key] == str(Path("weights/byte-mtpc-hmm-n8").resolve())
        settings[key] = "another"
        models = config["applications"][0]["args"]["llm_configs"]
        changed = [model["model_loading_config"]["model_id"] for model in models if "another" in str(model)]
        assert changed == [DRAFTED] == [drafted_model(config)["model_loading_config"]["model_id"]]
