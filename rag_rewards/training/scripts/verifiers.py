"""Environments of verifiers: a package with a taskset, and the configuration of prime-rl."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rag_rewards.errors import UsageError
from rag_rewards.training.scripts.start import Start
from rag_rewards.training.scripts.writer import (
    FOR_REWARD,
    YOUR_SETUP,
    Line,
    ScriptWriter,
    python_call,
)

_TASKSET = '''"""Tasks of verifiers with the reward {name}."""

from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf
from rag_rewards_adapters.verifiers import reward
from rag_rewards_adapters.verifiers_taskset import RagData, read_data

score = {call}


class {prefix}Task(vf.Task[RagData]):
    @vf.reward
    async def {function}(self, trace: vf.Trace) -> float:
        return await score(self.data, trace)


class {prefix}Config(vf.TasksetConfig):
    data: Path = Path({data})
    """The rows that `rag-rewards prepare -t trl` wrote."""


class {prefix}Taskset(vf.Taskset[{prefix}Task, {prefix}Config]):
    def load(self) -> Iterator[{prefix}Task]:
        return ({prefix}Task(data, self.config.task) for data in read_data(self.config.data))


__all__ = ["{prefix}Taskset"]
'''
_PROJECT = """[project]
name = "{package}"
version = "0.1.0"
description = "Tasks with the reward {name} of rag-rewards"
requires-python = ">=3.11"
dependencies = ["rag-rewards", "verifiers"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
only-include = ["{module}.py"]
"""
_README = """# {package}

Tasks for verifiers and prime-rl with the reward `{name}` of rag-rewards.

    pip install .
    {evaluation}
    rl @ rl.toml

The first command installs the package. The second one evaluates the model of a local server, runs
the harness in a local process and uploads nothing. Without these flags, verifiers uses its hosted
models and sandboxes, and uploads the results. The third command trains with prime-rl.
"""
EVALUATION = (
    "vf-eval {package} --env.agent.harness.id null --env.agent.runtime.type subprocess --no-push "
    "--client.base-url http://localhost:8000/v1 -m MODEL -n 5"
)
"""The command that evaluates a local model. By default, verifiers 0.4.0 uses a remote runtime and a
remote endpoint, and uploads the results."""


def write(start: Start) -> dict[str, str]:
    """Return the package and the configuration. Raise UsageError for a reward of a group."""
    if start.scores_groups:
        raise UsageError(
            f"{start.name} compares the rollouts of a group, and verifiers scores one trace at a "
            "time: use GroupCredit of rag_rewards_adapters.verifiers in an algorithm of prime-rl"
        )
    start.refuse_searches("verifiers")
    start.check_model("verifiers")
    function = re.sub(r"\W", "_", start.name)
    package = f"rag-{function}".replace("_", "-").lower()
    module = package.replace("-", "_")
    values = {
        "name": start.name,
        "package": package,
        "module": module,
        "function": function,
        "prefix": "".join(word.capitalize() for word in function.split("_")),
        "call": python_call("reward", start.options, first="recipe"),
        "data": json.dumps(start.data),
        "evaluation": EVALUATION.format(package=package),
    }
    return {
        "pyproject.toml": _PROJECT.format(**values),
        f"{module}.py": _TASKSET.format(**values),
        "rl.toml": _configuration(start, package),
        "README.md": _README.format(**values),
    }


def _configuration(start: Start, package: str) -> str:
    return (
        f"# GRPO with prime-rl, with the reward {start.name}: rl @ rl.toml\n"
        + "\n".join(_written(_lines(start, package)))
        + "\n"
    )


def _lines(start: Start, package: str) -> Iterator[Line]:
    """Yield tables (`[NAME]`) and their keys, each with the source of its value."""
    training = start.training
    yield YOUR_SETUP, ("[model]",)
    yield YOUR_SETUP, (f"name = {json.dumps(start.policy)}",)
    yield "", ("[orchestrator]",)
    group, prompts = training.group, training.prompts
    sources = dict.fromkeys((group.source, prompts.source))
    yield (
        f"{' and '.join(sources)}: {prompts.value} prompts with {group.value} rollouts",
        (f"batch_size = {prompts.value * group.value}",),
    )
    yield group.source, (f"group_size = {group.value}",)
    yield "", ("[orchestrator.train.sampling]",)
    tokens, temperature = training.response_tokens, training.temperature
    yield tokens.source, (f"max_completion_tokens = {tokens.value}",)
    yield temperature.source, (f"temperature = {temperature.value}",)
    yield "", ("[[orchestrator.train.source]]",)
    yield YOUR_SETUP, (f'name = "{package}"',)
    yield "", ("[orchestrator.train.source.env.taskset]",)
    yield FOR_REWARD, (f'id = "{package}"',)
    yield "", ("[orchestrator.train.source.env.agent.harness]",)
    yield "one chat without tools", ('id = "null"',)
    yield "", ("[orchestrator.train.source.env.agent.runtime]",)
    yield YOUR_SETUP, ('type = "subprocess"',)
    yield "", ("[trainer.optim]",)
    rate = training.learning_rate
    yield rate.source, (f"lr = {rate.value}",)
    yield "", ("[ckpt]",)
    yield "", ("[inference]",)


def _written(lines: Iterator[Line]) -> Iterator[str]:
    previous = ""
    for comment, (text,) in lines:
        if text.startswith("["):
            yield f"\n{text}"
            previous = ""
            continue
        if comment != previous:
            yield f"# {comment}"
        previous = comment
        yield text


_CHECK = """
import json, sys
from pathlib import Path
from verifiers.v1.utils.loaders import taskset_class
sys.path.insert(0, folder)
[module] = [path.stem for path in Path(folder).glob("*.py")]
taskset_class(module)
print("\\n" + json.dumps({"unknown": []}))
"""

WRITER = ScriptWriter(write, "verifiers", _CHECK)
