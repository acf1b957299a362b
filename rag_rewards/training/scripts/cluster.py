"""Training on several nodes: a script that starts each node, and checks of what the nodes share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from rag_rewards.errors import OptionError, UsageError
from rag_rewards.models.addresses import is_url, without_credentials
from rag_rewards.training.scripts.start import GPUS, Start
from rag_rewards.training.scripts.writer import python_value

NODE_SCRIPT = "node.sh"
_RAY = """case "${{1:-}}" in
head)
    check
    ray start --head --port=6379
    ;;
worker)
    address="${{2:?node.sh worker ADDRESS}}"
    check
    ray start --address="$address:6379"
    ;;
stop)
    ray stop
    ;;
*)
    sed -n '2,6s/^# *//p' "$(basename "$0")" >&2
    exit 2
    ;;
esac
"""
_RAY_USE = """#   node.sh head             on the first node
#   node.sh worker ADDRESS   on each other node, with the address of the first one
#   train.sh                 on the first node, when all nodes have joined
#   node.sh stop             on each node, after the training
"""
_RANK = """rank="${{1:?node.sh RANK ADDRESS}}"
address="${{2:?node.sh RANK ADDRESS}}"
shift 2
check
"""
_RANK_USE = """#   node.sh RANK ADDRESS [OPTION...]
# on every node, with its rank (0 for the first node) and the address of the first node.
"""
_ACCELERATE = (
    _RANK
    + """exec accelerate launch --multi_gpu --num_machines {nodes} --num_processes {devices} \\
    --machine_rank "$rank" --main_process_ip "$address" \\
    --main_process_port "${{MASTER_PORT:-29500}}" --mixed_precision no --dynamo_backend no \\
    train.py "$@"
"""
)
_TORCHRUN = (
    _RANK
    + """export NNODES={nodes} NODE_RANK="$rank" NPROC_PER_NODE={gpus} MASTER_ADDR="$address"
export MASTER_PORT="${{MASTER_PORT:-29500}}"
exec ./train.sh "$@"
"""
)
_TEMPLATE = """#!/usr/bin/env bash
# Start a node for {trainer}, on {nodes} nodes with {gpus} GPUs each.
{use}set -euo pipefail
cd "$(dirname "$0")"
# All processes of this node find your own modules here.
{path}

# Checks that this node has the files, the packages and your own modules.
check() {{
    for file in {files}; do
        if [ ! -e "$file" ]; then
            echo "$(hostname): $file does not exist: put it in a folder that all nodes share" >&2
            exit 1
        fi
    done
    python3 -c {code}
}}

"""


def _ray(name: str) -> Callable[[Start], str]:
    return lambda start: _text(start, name, _RAY_USE, _RAY)


_WRITERS: dict[str, Callable[[Start], str]] = {
    "verl": _ray("verl"),
    "openrlhf": _ray("OpenRLHF"),
    "trl": lambda start: _text(start, "TRL", _RANK_USE, _ACCELERATE),
    "ms-swift": lambda start: _text(start, "ms-swift", _RANK_USE, _TORCHRUN),
}


def node_script(trainer: str, start: Start) -> str:
    """Return the script that starts a node.

    Raises UsageError for a trainer without such a script, and OptionError for a model that the
    nodes cannot share.
    """
    if trainer not in _WRITERS:
        names = ", ".join(_WRITERS)
        raise UsageError(f"no script for several nodes of {trainer}: choose one of {names}")
    _check_models(trainer, start)
    return _WRITERS[trainer](start)


def python_path(start: Start) -> str:
    """Return a shell command that adds the folder of the script and of your own modules."""
    folders = [*map(shlex.quote, dict.fromkeys(_module_folders(start))), '"$PWD"']
    return f'export PYTHONPATH={":".join(folders)}"${{PYTHONPATH:+:$PYTHONPATH}}"'


def ray_note(start: Start) -> str:
    """Return shell commands for a script that trains on the nodes of a Ray cluster."""
    if start.nodes == 1:
        return ""
    return (
        "# Fail, instead of training on this node alone, if `node.sh head` was not run.\n"
        'export RAY_ADDRESS="${RAY_ADDRESS:-auto}"\n' + python_path(start) + "\n"
    )


def _text(start: Start, trainer: str, use: str, commands: str) -> str:
    numbers = {"nodes": start.nodes, "gpus": GPUS, "devices": start.devices}
    head = _TEMPLATE.format(
        trainer=trainer,
        use=use,
        path=python_path(start),
        files=" ".join(shlex.quote(path) for path in _files(start)) or '"$PWD"',
        code=shlex.quote(_check_code(start)),
        **numbers,
    )
    return head + commands.format(**numbers)


def _files(start: Start) -> Iterator[str]:
    """Yield the absolute paths that every node must have."""
    options = (start.policy, start.data, start.validation, *vars(start.models).values())
    own = [reference.rpartition(":")[0] for reference in _references(start)]
    for value in dict.fromkeys((*options, *own)):
        if isinstance(value, str) and Path(value).is_absolute():
            yield value


def _check_code(start: Start) -> str:
    loads = [f"load_recipe({python_value(reference)})" for reference in _references(start)]
    code = [
        "import socket",
        "import rag_rewards, rag_rewards_adapters",
        "from rag_rewards.loading import load_recipe",
        *loads,
        'print(socket.gethostname() + ": rag-rewards " + rag_rewards.__version__)',
    ]
    return "; ".join(code)


def _references(start: Start) -> list[str]:
    stages = [stage.get("recipe") for stage in start.spec.stages]
    return [text for text in (start.spec.recipe, *stages) if isinstance(text, str) and text]


def _module_folders(start: Start) -> Iterator[str]:
    """Yield the folders of the modules of your own recipes that are not installed packages."""
    for reference in _references(start):
        place, colon, _ = reference.rpartition(":")
        if place.endswith(".py"):  # its folder has the modules that it imports
            yield str(Path(place).resolve().parent)
            continue
        module = sys.modules.get(place.partition(".")[0])
        if not colon or module is None:
            continue
        file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
        folder = Path(file).resolve().parent
        if hasattr(module, "__path__") and getattr(module, "__file__", None):
            folder = folder.parent
        if "site-packages" not in folder.parts:
            yield str(folder)


def _check_models(trainer: str, start: Start) -> None:
    """Raise OptionError for a model that each process would load, or that other nodes lack."""
    models = start.models
    for name in ("model", "nli", "similarity", "judge"):
        value = getattr(models, name)
        if value and is_url(value) and _is_loopback(value):
            raise OptionError(
                f"{{{name}}} {{url}} is another server on each node: use an address that all nodes "
                "reach",
                url=without_credentials(value),
            )
        is_loaded = value and not is_url(value) and name in ("nli", "similarity")
        if is_loaded and trainer in ("verl", "openrlhf"):
            raise OptionError(
                f"each reward worker of each node would load {{{name}}} {{path}}: run "
                f"`rag-rewards serve` with {{{name}}}, and set {{{name}}} to its URL",
                path=value,
            )


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
