"""What is told of applications that Ray Serve could not deploy."""

from __future__ import annotations

from benchmarks.ray_serve.cluster import reason


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
