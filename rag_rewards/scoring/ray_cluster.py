"""The engine of `score` and `serve`: processes of this machine, or a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import msgspec

from rag_rewards.errors import OptionError, UsageError, describe, needs_extra
from rag_rewards.files.storage import is_remote, local_path
from rag_rewards.loading import RecipeSpec
from rag_rewards.models.addresses import is_url, without_credentials
from rag_rewards.models.model_options import ModelOptions

Engine = Literal["local", "ray"]
"""Where rows are scored: in processes of this machine, or on a Ray cluster."""
ADDRESS_VARIABLE = "RAY_ADDRESS"
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""Environment variables of all processes that score rows. By default glibc returns the memory of
each chunk to the system. These variables keep it, which avoids seven of eight page faults."""
LOCAL_STORE_BYTES = 80 << 20
"""Object store of a cluster on this machine. It is near Ray's minimum: rows never pass it."""


@dataclass(frozen=True, kw_only=True)
class RayOptions:
    """The Ray cluster, and the resources of each process on it."""

    ray_address: str | None = None
    """Address of the Ray cluster. By default, that in RAY_ADDRESS, or a new one on this machine."""
    cpus_per_worker: float = 1.0
    """Number of processors that Ray reserves for each worker or replica."""
    gpus_per_worker: float = 0.0
    """Number of GPUs that Ray reserves for each worker or replica."""

    def __post_init__(self) -> None:
        for name in ("cpus_per_worker", "gpus_per_worker"):
            if not 0 <= (value := getattr(self, name)) < 1024:
                raise OptionError(
                    f"{{{name}}} must be from 0 to 1,023, found {{value}}", value=value
                )

    @property
    def resources(self) -> dict[str, float]:
        """The resources of a process, as options of a Ray actor."""
        return {"num_cpus": self.cpus_per_worker, "num_gpus": self.gpus_per_worker}


def check_engine(engine: Engine, options: RayOptions) -> None:
    """Raise OptionError for options of a Ray cluster with another engine."""
    if engine == "ray":
        return
    for each in fields(options):
        if getattr(options, each.name) != each.default:
            raise OptionError(f"{{{each.name}}} is for Ray: set {{engine}} ray, or remove it")


@contextmanager
def ray_cluster(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start one on this machine, and yield the module `ray`.

    A cluster that is started here has no dashboard, sends no usage reports and ends with the block.
    A connection that the process already has is used and stays open. Raises MissingExtraError
    without Ray, and UsageError when no cluster can be reached.
    """
    with needs_extra("ray"):
        import ray

    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get(ADDRESS_VARIABLE)
    quiet: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": False}
    try:
        if address:
            ray.init(address=address, runtime_env={"env_vars": KEEP_MEMORY}, **quiet)
        else:
            # Processes that Ray starts in advance have the variables of this process. They could
            # not be used for actors with a runtime environment.
            with environment(KEEP_MEMORY | {"RAY_USAGE_STATS_ENABLED": "0"}):
                ray.init(
                    address="local",
                    include_dashboard=False,
                    object_store_memory=LOCAL_STORE_BYTES,
                    _node_ip_address="127.0.0.1",
                    **quiet,
                )
    except Exception as error:  # Ray raises this class itself when a node starts too slowly
        where = without_credentials(address) if address else "on this machine"
        raise UsageError(
            f"cannot use the Ray cluster {where}: {describe(error)[:300]}: check that it runs "
            "(`ray status`) and has the same versions of Python and Ray, and that the machine is "
            "not overloaded"
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Set the environment variables that are missing, for the time of the block."""
    missing = defaults.keys() - os.environ.keys()
    os.environ.update({name: defaults[name] for name in missing})
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


# --- absolute paths, since each process on Ray has its own current folder -------------------------

MODEL_FOLDERS = ("model", "adapter", "tokenizer", "nli", "nli_tokenizer", "similarity")
"""The options of models that are a folder, the URL of a server, or a name on the hub."""
MODEL_FILES = ("judge_cache", "prompt_template")
"""The options of models that are the name of a file."""


def absolute_path(path: str) -> str:
    """Return a local path as an absolute path, and the URL of an object store unchanged."""
    return path if is_remote(path) else os.path.abspath(local_path(path))


def absolute_models(models: ModelOptions) -> ModelOptions:
    """Return options of models with absolute paths.

    A URL and a folder that does not exist, which can be a name on the hub, remain unchanged.
    """
    paths = [(name, getattr(models, name)) for name in (*MODEL_FOLDERS, *MODEL_FILES)]
    absolute = {
        name: os.path.abspath(path)
        for name, path in paths
        if path and (name in MODEL_FILES or (not is_url(path) and os.path.exists(path)))
    }
    return replace(models, **absolute)


def absolute_recipe(spec: RecipeSpec) -> RecipeSpec:
    """Return a recipe whose `path/to/file.py:name` is absolute, also in the stages.

    Objects remain unchanged.
    """
    stages = [each | {"recipe": _absolute_reference(each["recipe"])} for each in spec.stages]
    recipe = _absolute_reference(spec.recipe)
    return msgspec.structs.replace(spec, recipe=recipe, stages=stages)


def _absolute_reference(recipe: Any) -> Any:
    if not isinstance(recipe, str):
        return recipe
    place, _, name = recipe.rpartition(":")
    return f"{os.path.abspath(place)}:{name}" if place.endswith(".py") else recipe
