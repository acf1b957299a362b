"""The start and the end of Ray Serve by `serve`, with a double of Ray."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.server import on_ray
from rag_rewards.server.logs import LogOptions
from rag_rewards.server.options import ServerOptions

pytest.importorskip("prometheus_client", reason="needs the extra server")
cloudpickle = pytest.importorskip("ray.cloudpickle", reason="needs the extra ray")


class ServeDouble(ModuleType):
    """Ray Serve on one cluster. `on_run` is called while the application starts.

    It sends SIGTERM by default, so that no test waits for ever.
    """

    def __init__(self) -> None:
        super().__init__("ray.serve")
        self.proxies: dict[str, str] = {}
        self.applications: dict[str, str] = {}
        self.on_run: Callable[[], None] = lambda: signal.raise_signal(signal.SIGTERM)
        self.calls: list[str] = []

    def status(self) -> SimpleNamespace:
        return SimpleNamespace(proxies=self.proxies, applications=self.applications)

    def deployment(self, **_: Any) -> Callable[[Any], Any]:
        return lambda _: SimpleNamespace(bind=lambda: None)

    def ingress(self, application: Callable[[], Any]) -> Callable[[], Any]:
        self.application = application
        return lambda: None

    def start(self, **_: Any) -> None:
        self.calls.append("start")
        self.proxies["node"] = "HEALTHY"

    def run(self, _: Any, *, name: str, **__: Any) -> None:
        self.applications[name] = "DEPLOYING"
        self.on_run()

    def delete(self, name: str, *, _blocking: bool) -> None:
        assert not _blocking
        self.calls.append(f"delete {name}")
        del self.applications[name]

    def shutdown(self) -> None:
        self.calls.append("shutdown")
        self.proxies, self.applications = {}, {}


@pytest.fixture
def serve(monkeypatch) -> Iterator[ServeDouble]:
    """Yield a double of Ray Serve, which the package uses instead of Ray Serve."""
    serve, ray, exceptions = ServeDouble(), ModuleType("ray"), ModuleType("ray.exceptions")
    vars(ray).update(serve=serve, exceptions=exceptions, is_initialized=lambda: True)
    exceptions.RayError = type("RayError", (Exception,), {})
    for module in (ray, serve, exceptions):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(on_ray, "configure_logs", lambda _: None)  # it is for the whole process
    numbers = (signal.SIGTERM, signal.SIGINT)
    previous = [signal.getsignal(number) for number in numbers]
    yield serve
    for number, handler in zip(numbers, previous, strict=True):
        signal.signal(number, handler)


def run_serve(recipe: RecipeSpec | None = None, models: ModelOptions | None = None) -> None:
    recipe, models = recipe or RecipeSpec(recipe="arena"), models or ModelOptions()
    options = ("127.0.0.1", 8000, ServerOptions(), LogOptions(), on_ray.ReplicaOptions())
    on_ray.serve_on_ray(recipe, models, *options)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_start(serve, number):
    serve.on_run = lambda: signal.raise_signal(number)
    with pytest.raises(UsageError, match=r"^the server was stopped before its replicas"):
        run_serve()
    assert serve.calls == ["start", "delete rag-rewards", "shutdown"]


def test_a_second_signal_does_not_end_the_stop(serve):
    delete = serve.delete

    def delete_slowly(name: str, *, _blocking: bool) -> None:
        signal.raise_signal(signal.SIGINT)
        delete(name, _blocking=_blocking)

    serve.delete = delete_slowly
    with pytest.raises(UsageError, match=r"^the server was stopped before its replicas"):
        run_serve()
    assert serve.calls == ["start", "delete rag-rewards", "shutdown"]


def test_serve_of_others_remains(serve):
    for state in ({"proxies": {"node": "HEALTHY"}}, {"applications": {"other": "RUNNING"}}):
        vars(serve).update({"proxies": {}, "applications": {}} | state)
        with pytest.raises(UsageError, match="Ray Serve already runs on this cluster: stop it"):
            run_serve()
        assert serve.calls == []


def test_an_application_that_was_added_later_remains(serve):
    def fail() -> None:
        serve.applications["other"] = "RUNNING"
        raise RuntimeError("no such model")

    serve.on_run = fail
    with pytest.raises(UsageError, match=r"the server did not start on Ray: .*no such model"):
        run_serve()
    assert serve.calls == ["start", "delete rag-rewards"]
    assert serve.applications == {"other": "RUNNING"}


def test_a_replica_that_waits_for_a_gpu_does_not_delay_the_end(serve, monkeypatch):
    monkeypatch.setattr(on_ray.time, "sleep", lambda _: pytest.fail("it waits"))
    serve.delete = lambda name, _blocking: serve.calls.append(f"delete {name}")
    with pytest.raises(UsageError, match=r"^the server was stopped before its replicas"):
        run_serve()
    assert serve.calls == ["start", "delete rag-rewards", "shutdown"]


@pytest.mark.parametrize("has_file", [True, False])
def test_the_token_is_read_by_the_replicas(tmp_path, monkeypatch, has_file):
    (tmp_path / "token").write_text("s3cret-token\n")
    file = Path("token") if has_file else None
    monkeypatch.chdir(tmp_path)
    options = ServerOptions(token="s3cret-token")
    recipe, no_models, logs = RecipeSpec(recipe="arena"), ModelOptions(), LogOptions()
    build = on_ray._builder(recipe, no_models, options, logs, file)
    assert b"s3cret" not in cloudpickle.dumps(build)
    monkeypatch.chdir("/")  # that of a replica
    monkeypatch.setattr(on_ray, "configure_logs", lambda _: None)
    monkeypatch.delenv("RAG_REWARDS_TOKEN", raising=False)
    if not has_file:
        with pytest.raises(OptionError, match="a replica has no token"):
            build()
        monkeypatch.setenv("RAG_REWARDS_TOKEN", "s3cret-token")
    assert build().server.options.token == "s3cret-token"


def test_replicas_receive_absolute_paths(serve, tmp_path, monkeypatch):
    (tmp_path / "my.py").write_text("def reward(rollout):\n    return 1.0\n")
    (tmp_path / "nli").mkdir()
    monkeypatch.chdir(tmp_path)
    server_of, arguments = on_ray.server_of, []

    def record(recipe: Any, models: Any, *options: Any, **traces: Any) -> Any:
        arguments.append((recipe, models))
        return server_of(recipe, models, *options, **traces)

    monkeypatch.setattr(on_ray, "server_of", record)
    with pytest.raises(UsageError, match=r"^the server was stopped before its replicas"):
        run_serve(RecipeSpec(recipe="my.py:reward"), ModelOptions(nli="nli"))
    monkeypatch.chdir("/")  # that of a replica
    serve.application()
    recipe = RecipeSpec(recipe=f"{tmp_path}/my.py:reward")
    assert arguments[-1] == (recipe, ModelOptions(nli=f"{tmp_path}/nli"))
