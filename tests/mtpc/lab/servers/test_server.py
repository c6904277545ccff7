"""Server processes: waited for, reported on when they fail, and gone with their children."""

import os
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mtpc.errors import MTPCError
from mtpc.lab.servers import server as server_module
from mtpc.lab.servers.draft_counters import NO_DRAFTS
from mtpc.lab.servers.engine import NGRAM, Engine, ServerSettings
from mtpc.lab.servers.server import Launch, Server, base_url, exit_on_signals, free_port, last_error, side_by_side
from tests.mtpc.lab.servers.fake_server import serving

SETTINGS = ServerSettings(Path("target"), max_batch=4, max_length=512)
FAKE = Path(__file__).parent / "fake_server.py"


def engine(*command: str) -> Engine:
    """An engine whose server is this command; PORT in it stands for the port."""
    return Engine(
        "fake",
        "Fake",
        lambda settings, port: [part.replace("PORT", str(port)) for part in command],
        lambda samples: NO_DRAFTS,
    )


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_server_answers_and_is_gone_afterwards(tmp_path: Path) -> None:
    fake = engine(sys.executable, str(FAKE), "PORT")
    drafted = replace(SETTINGS, drafter=Path("drafter"))
    logs = tmp_path / "made" / "as well"
    with side_by_side(fake, {"no drafter": SETTINGS, "one 2-4:5": drafted}, logs) as servers:
        plain, other = servers.values()
        assert list(servers) == ["no drafter", "one 2-4:5"]
        assert plain.model() == other.model() == "some-model"
        assert plain.draft_times is None
        assert other.draft_times == logs / "draft_times_one-2-4-5.json"
    with pytest.raises(MTPCError, match=r"does not answer, check that the server runs: .*refused"):
        plain.metrics()
    assert plain.url != other.url
    assert {file.name for file in logs.iterdir()} == {"server_no-drafter.log", "server_one-2-4-5.log"}


def test_a_benchmark_that_is_told_to_end_takes_its_servers_with_it(tmp_path: Path) -> None:
    fake = engine(sys.executable, str(FAKE), "PORT")
    before = signal.getsignal(signal.SIGTERM)
    settings = dict.fromkeys(("one", "other", "third"), SETTINGS)
    with pytest.raises(SystemExit), side_by_side(fake, settings, tmp_path) as servers:
        os.kill(os.getpid(), signal.SIGTERM)
    for server in servers.values():
        with pytest.raises(MTPCError, match="does not answer"):
            server.metrics()
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_ignored_signal_stays_ignored() -> None:
    """Under ``nohup`` a closed terminal does not end the process."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with exit_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_children_of_a_server_go_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"sleep 300 & echo $! > {note}; exec {sys.executable} {FAKE} PORT"
    launch = Launch(engine("bash", "-c", script), SETTINGS, tmp_path / "log")
    try:
        launch.wait(60)
        child = int(note.read_text())
        assert alive(child)
    finally:
        launch.stop()
    deadline = time.monotonic() + 60
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def test_a_server_that_fails_is_reported_with_its_own_error(tmp_path: Path) -> None:
    script = "print('starting'); print('(worker) ValueError: no such model'); print('bye'); raise SystemExit(3)"
    launch = Launch(engine(sys.executable, "-c", script), SETTINGS, tmp_path / "log")
    with pytest.raises(MTPCError, match=r"ended with code 3.*ValueError: no such model"):
        launch.wait(60)
    launch.stop()


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    launch = Launch(engine("sleep", "300"), SETTINGS, tmp_path / "log")
    try:
        with pytest.raises(MTPCError, match="did not answer within 1 s"):
            launch.wait(1)
    finally:
        launch.stop()
    assert not alive(launch.process.pid)


def test_the_draft_clock_is_asked_for_by_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    launch = Launch(engine("bash", "-c", "echo $MTPC_DRAFT_TIMES"), SETTINGS, Path("log"), Path("times.json"))
    launch.process.wait(60)
    assert Path("log").read_text().strip() == str(tmp_path / "times.json")
    assert "MTPC_DRAFT_TIMES" not in os.environ


def test_last_error_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\nRuntimeError: first\nmtpc.errors.MTPCError: the window is 8.\n\ntwo\n")
    assert last_error(log) == "mtpc.errors.MTPCError: the window is 8"
    log.write_text("only this\n")
    assert last_error(log) == "only this"
    log.write_text("")
    assert last_error(log) == "it printed nothing"


def test_only_the_engines_own_drafter_is_made_to_forget(tmp_path: Path) -> None:
    forgotten: list[str] = []
    fake = replace(engine("true"), clear_history=forgotten.append)
    launches = [Launch(fake, settings, tmp_path / "log") for settings in (SETTINGS, replace(SETTINGS, ngram=NGRAM))]
    for launch in launches:
        launch.process.wait(60)
        launch.server.clear_history()
    assert forgotten == [launches[1].server.url]


def test_a_free_port_is_free_and_no_connection_gets_it() -> None:
    port = free_port()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
    assert 20_000 <= port < 32_768


def test_no_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        taken = listener.getsockname()[1]
        monkeypatch.setattr(server_module, "PORTS", [taken] * 100)
        with pytest.raises(MTPCError, match="is free for a server"):
            free_port()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:99999999", "http://127.0.0.1:1", "http://[", "file:///dev/null", "http://a b/", "x"]
)
def test_what_is_no_server_does_not_answer(url: str) -> None:
    with pytest.raises(MTPCError, match="does not answer"):
        Server(url, []).model()


def test_a_server_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request._opener", None)  # it keeps the proxies of its first request
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with serving() as (url, _):
        assert Server(url, []).model() == "some-model"


@pytest.mark.parametrize(
    "answer", ["", "[]", "{", '{"data": []}', '{"data": [{}]}', '{"data": [{"id": 5}]}', "[" * 9999]
)
def test_another_service_names_no_model(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtpc.lab.servers.server.fetch", lambda url: answer)
    with pytest.raises(MTPCError, match="http://x/v1/models lists no model: "):
        Server("http://x", []).model()


def test_the_address_of_an_openai_client() -> None:
    for url in ("http://host:8000", "http://host:8000/", "http://host:8000/v1", "http://host:8000/v1/"):
        assert base_url(url) == "http://host:8000"
