"""Errors of the engine `ray` that need no cluster."""

from __future__ import annotations

import sys

import pytest

from rag_rewards.errors import MissingExtraError, OptionError, UsageError
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.model_options import ModelOptions
from rag_rewards.scoring.input_files import InputFile
from rag_rewards.scoring.on_ray import RayWorker
from rag_rewards.scoring.options import ScoreOptions
from rag_rewards.scoring.plan import Grouping, plan_shards
from rag_rewards.scoring.ray_cluster import RayOptions, ray_cluster
from rag_rewards.scoring.shard import ShardJob, ShardTask
from rag_rewards.scoring.workers import ScorerArguments
from rag_rewards.server import on_ray
from rag_rewards.server.logs import LogOptions
from rag_rewards.server.on_ray import ReplicaOptions
from rag_rewards.server.options import ServerOptions


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(MissingExtraError, match=r'pip install "rag-rewards\[ray\]"'),
        ray_cluster(None),
    ):
        pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "-"}, "engine ray requires output with the name of a file, and no sort"),
        ({"sort": True}, "engine ray requires output with the name of a file, and no sort"),
        ({"engine": "local", "ray": RayOptions(gpus_per_worker=1)}, "set engine ray"),
        ({"engine": "local", "workers": 2, "models": ModelOptions(model="m")}, "engine ray loads"),
    ],
)
def test_options_that_contradict_each_other(options, message):
    with pytest.raises(OptionError, match=message):
        ScoreOptions(**{"source": "rows.jsonl", "output": "out.jsonl", "engine": "ray"} | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus_per_worker": -1}, "gpus_per_worker must be from 0 to 1,023"),
        ({"cpus_per_worker": float("nan")}, "cpus_per_worker must be from 0 to 1,023"),
        ({"replicas": 0}, "replicas must be at least 1"),
        ({"replicas": 3, "max_replicas": 2}, "max_replicas must be at least replicas"),
        ({"target_requests": 0}, "target_requests must be above 0"),
    ],
)
def test_options_of_replicas(options, message):
    with pytest.raises(OptionError, match=message):
        ReplicaOptions(**options)


def test_traces_without_their_packages_are_refused_before_a_cluster_starts(monkeypatch):
    pytest.importorskip("prometheus_client", reason="needs the extra server")
    exporter = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
    monkeypatch.setitem(sys.modules, exporter, None)
    monkeypatch.setattr(on_ray, "configure_logs", lambda _: None)  # it is for the whole process
    options = (ModelOptions(), "127.0.0.1", 8000, ServerOptions(), LogOptions(traces=True))
    with pytest.raises(MissingExtraError, match=r'pip install "rag-rewards\[otel\]"'):
        on_ray.serve_on_ray("arena", *options, ReplicaOptions())


def test_autoscaling_needs_a_maximum():
    assert ReplicaOptions(replicas=2).scaling == {"num_replicas": 2}
    scaling = ReplicaOptions(replicas=2, max_replicas=8, target_requests=4).scaling
    assert scaling["autoscaling_config"] == {
        "min_replicas": 2,
        "max_replicas": 8,
        "target_ongoing_requests": 4,
    }


def worker_of(recipe: str) -> RayWorker:
    return RayWorker(ScorerArguments(RecipeSpec(recipe=recipe), False, False))


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"response": "a", "answers": ["a"]}\n')
    return path


def score(recipe, rows, folder):
    files = [InputFile.of(str(rows))]
    (shard,) = plan_shards(files, 1 << 20, Grouping())
    job = ShardJob(files=files, folder=str(folder))
    return worker_of(recipe).score(job, ShardTask(shard))


def test_a_worker_scores_a_shard_to_part_files(rows, tmp_path):
    assert score("naive-grpo", rows, tmp_path).totals.rows == 1
    assert b'"reward":' in (tmp_path / "part-00000.jsonl").read_bytes()


@pytest.mark.parametrize("fault", ["no input", "changed", "no folder"])
def test_a_worker_that_cannot_use_the_files_names_its_node(rows, tmp_path, fault):
    pytest.importorskip("ray", reason="needs Ray: pip install 'rag-rewards[ray]'")
    files = [InputFile.of(str(rows))]
    (shard,) = plan_shards(files, 1 << 20, Grouping())
    folder = tmp_path / "absent" if fault == "no folder" else tmp_path
    if fault == "no input":
        rows.unlink()
    elif fault == "changed":
        rows.write_bytes(b"{}\n{}\n")
    with pytest.raises(UsageError, match=r"a worker on the node .* on a shared file") as raised:
        worker_of("arena").score(ShardJob(files=files, folder=str(folder)), ShardTask(shard))
    reasons = {"no input": "No such file", "changed": "changed while", "no folder": "no folder"}
    assert reasons[fault] in str(raised.value)


def test_a_worker_that_cannot_load_its_scorer_raises_the_reason(rows, tmp_path):
    with pytest.raises(UsageError, match="arina"):
        worker_of("arina").signature()
    with pytest.raises(UsageError, match="arina"):
        score("arina", rows, tmp_path)


def test_a_cluster_that_does_not_start_is_an_error_without_the_token(monkeypatch):
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'rag-rewards[ray]'")

    def fail(**options):
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", fail)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with (
        pytest.raises(
            UsageError, match=r"ray://\*\*\*@host:1: .* timed out during startup"
        ) as error,
        ray_cluster("ray://user:secret@host:1"),
    ):
        pass
    assert "secret" not in str(error.value)
