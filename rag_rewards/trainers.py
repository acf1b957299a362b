"""The trainers: one record for each, which commands, scripts, pages, the Makefile and tests read.

The module is plain data and imports no other module. As a program, it prints the arguments of
`pip install` that make the environment of the tests, one step per line, or the names of trainers:

    python rag_rewards/trainers.py verl
    python rag_rewards/trainers.py --quick
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

CPU_TORCH = "torch==2.13.0"
"""It is installed first, so that an index with CPU builds provides it."""
_TRL = (
    CPU_TORCH,
    "trl==1.16.0 openenv==0.10.0 transformers==5.24.0 peft==0.21.2 pytest matplotlib==3.11.2 httpx",
)
"""The environment of TRL and OpenEnv, whose rewards run in TRL's trainer."""
Rows = Literal["trl", "ms-swift", "openrlhf", "skyrl", "nemo-gym", "verl"]


@dataclass(frozen=True)
class Trainer:
    """The facts of a trainer.

    title        its name in texts
    package      its package on an index
    since        the first version that works with this package
    tested       the version in the environment of the tests, or whose source the tests follow
    python       the versions of Python that `tested` accepts
    environment  arguments of `pip install` for the tests, one step each; none without an
                 environment. `doctor` accepts these versions
    is_quick     whether continuous integration runs the tests inside the trainer
    install      the command for a training without vLLM on a GPU, "" if there is none
    on_gpus      the commands for a training with vLLM on NVIDIA GPUs, in an empty environment
    extras       extras of this package that fit into the environment of `on_gpus`
    imports      packages that a training imports, although only extras of the trainer require them
    before       what works in versions before `since`
    rows         the form of the rows that `rag-rewards prepare` writes
    turn_credit  what gives turns their own advantages, "" if the trainer sums their rewards
    search       the dialects in which the policy can search in the script of `init`: those with
                 tags, that of tools, any dialect, or none
    has_components  whether the trainer normalizes the components of a reward one by one
    has_steps    whether the trainer passes the training step to the reward, for a curriculum
    passes_model whether a reward with log-probabilities can do without `--model`
    one_rollout  what to use for a reward of groups, if the trainer scores one rollout at a time
    """

    title: str
    package: str
    since: str
    tested: str
    python: str = ">=3.10"
    environment: tuple[str, ...] = ()
    is_quick: bool = False
    install: str = ""
    on_gpus: tuple[str, ...] = ()
    extras: tuple[str, ...] = ("http", "server")
    imports: tuple[str, ...] = ()
    before: str = ""
    rows: Rows = "trl"
    turn_credit: str = ""
    search: Literal["tags", "tools", "any", "none"] = "none"
    has_components: bool = False
    has_steps: bool = True
    passes_model: bool = False
    one_rollout: str = ""

    @property
    def versioned(self) -> str:
        """The title with the major and the minor version, as in "TRL 1.16"."""
        return f"{self.title} {'.'.join(self.tested.split('.')[:2])}"

    @property
    def installation(self) -> str:
        """The commands that install the trainer."""
        commands = " && ".join(self.on_gpus)
        return ", or with vLLM: ".join(filter(None, (self.install, commands)))

    @property
    def suffix(self) -> str:
        """The suffix of its data files."""
        return "parquet" if self.rows == "verl" else "jsonl"

    @property
    def requirements(self) -> tuple[str, ...]:
        """The requirements of the commands `on_gpus`."""
        words = (word for command in self.on_gpus for word in command.split()[2:])
        return tuple(word.strip('"') for word in words if not word.startswith("-"))

    @property
    def combination(self) -> tuple[str, ...]:
        """The requirements of the environment of the tests."""
        words = " ".join(self.environment).split()
        return tuple(word for word in words if not word.startswith("-"))


TRAINERS: dict[str, Trainer] = {
    "trl": Trainer(
        title="TRL",
        package="trl",
        since="1.15",
        tested="1.16.0",
        python=">=3.11",
        environment=_TRL,
        is_quick=True,
        install="pip install trl",
        on_gpus=('pip install "trl[vllm,peft]==1.16.0"',),
        extras=("http", "server", "transformers"),
        turn_credit="rag_rewards_adapters.trl.TurnGRPOTrainer",
        search="tools",
        has_components=True,
        passes_model=True,
    ),
    "verl": Trainer(
        title="verl",
        package="verl",
        since="0.9",
        tested="0.9.1",
        python=">=3.10,<3.13",
        environment=(
            CPU_TORCH,
            "verl==0.9.1 transformers==5.10.4 TransferQueue==0.1.11 cachetools uvicorn fastapi "
            "pytest",
        ),
        is_quick=True,
        on_gpus=(
            'pip install "verl[vllm]==0.9.1"',
            "pip install flash-attn==2.8.3 --no-build-isolation",
        ),
        imports=("TransferQueue", "cachetools", "fastapi", "uvicorn"),
        before="before 0.9 only compute_score works: "
        "reward.custom_reward_function.path=pkg://rag_rewards_adapters.verl",
        rows="verl",
        turn_credit="agent loop rag_group with an estimator rag_turn_return, rag_turn_igpo, "
        "rag_turn_mt_grpo or rag_turn_given",
        search="tools",
        has_components=True,
        passes_model=True,
    ),
    "openrlhf": Trainer(
        title="OpenRLHF",
        package="openrlhf",
        since="0.9.1",
        tested="0.11.2",
        # It cannot be installed whole without a GPU (flash-attn, deepspeed): its client and agent.
        environment=(
            CPU_TORCH,
            "--no-deps openrlhf==0.11.2",
            "pylatexenc transformers==5.15.0 aiohttp pytest fastapi uvicorn[standard] "
            "prometheus-client httpx",
        ),
        is_quick=True,
        on_gpus=(
            "pip install torch==2.13.0 setuptools wheel ninja packaging psutil",
            'pip install "openrlhf[vllm]==0.11.2" --no-build-isolation',
        ),
        rows="openrlhf",
        search="tags",
        has_steps=False,
        passes_model=True,
    ),
    "ms-swift": Trainer(
        title="ms-swift",
        package="ms-swift",
        since="4.0",
        tested="4.6.0",
        environment=(CPU_TORCH, "ms-swift==4.6.0 transformers==5.19.0 trl==0.29.1 pytest"),
        is_quick=True,
        install="pip install ms-swift",
        on_gpus=('pip install ms-swift==4.6.0 "vllm>=0.32"',),
        extras=("http", "server", "transformers"),
        rows="ms-swift",
        search="tags",
        has_components=True,
        passes_model=True,
    ),
    "skyrl": Trainer(
        title="SkyRL",
        package="skyrl",
        since="0.4",
        tested="0.4.0",
        python=">=3.12",
        # Without packages for GPUs: the generator, the environments, the advantages and the
        # settings.
        environment=(
            CPU_TORCH,
            "--no-deps skyrl==0.4.0 skyrl-gym==0.4.0",
            "transformers==5.6.2 datasets func_timeout requests pandas polars omegaconf "
            "hydra-core==1.3.2 loguru tqdm jaxtyping tensordict torchdata ray==2.57.0 cloudpathlib "
            "zstandard typer httpx aiohttp orjson pybase64 fastapi uvicorn pytest",
        ),
        install='pip install "skyrl[fsdp]==0.4.0" skyrl-gym==0.4.0',
        rows="skyrl",
        turn_credit="rag_rewards_adapters.skyrl.experiment with a credit method",
        search="tags",
    ),
    "slime": Trainer(
        title="slime",
        package="slime",
        since="0.3",
        tested="0.3",
        install="install slime from a clone of its repository",
        rows="openrlhf",
        turn_credit="the three functions of rag_rewards_adapters.slime.SlimeRecipe",
        search="any",
        has_steps=False,
    ),
    "nemo-gym": Trainer(
        title="NeMo Gym",
        package="nemo-gym",
        since="0.4",
        tested="0.4.0",
        python=">=3.12",
        # Without the servers of wandb and mlflow: what the resources server and the agent import.
        environment=(
            "--no-deps nemo-gym==0.4.0",
            "openai<=2.7.2 anthropic<=0.109.2 pydantic fastapi itsdangerous uvicorn uvloop "
            "hydra-core omegaconf aiohttp psutil orjson tqdm rich devtools mcp>=1.27,<2 "
            "python-multipart ray==2.57.0 yappi gprof2dot pydot gitpython datasets pandas wandb "
            "mlflow-skinny pytest httpx",
        ),
        install="pip install nemo-gym==0.4.0",
        rows="nemo-gym",
        search="tools",
        has_steps=False,
    ),
    "verifiers": Trainer(
        title="verifiers",
        package="verifiers",
        since="0.4",
        tested="0.4.0",
        python=">=3.11",
        environment=("verifiers==0.4.0 prime==0.18.0 pytest",),
        install="pip install verifiers",
        turn_credit="reward(turn_rewards=True) or EpisodeReward(credit=METHOD) of "
        "rag_rewards_adapters.verifiers, with the algorithm turn_credit of prime-rl",
    ),
    "openenv": Trainer(
        title="OpenEnv",
        package="openenv",
        since="0.10",
        tested="0.10.0",
        python=">=3.11",
        environment=_TRL,
        is_quick=True,
        install="pip install openenv trl",
        search="tools",
        has_steps=False,
        one_rollout="use RagReward beside an environment without a reward in TRL",
    ),
    "tinker": Trainer(
        title="tinker-cookbook",
        package="tinker-cookbook",
        since="0.5",
        tested="0.5",
        python=">=3.11",
        environment=(CPU_TORCH, "tinker-cookbook pytest"),
        install="pip install tinker-cookbook",
    ),
    "axolotl": Trainer(
        title="Axolotl",
        package="axolotl",
        since="0.18",
        tested="0.21.0",
        python=">=3.12",
        # The tests use the loader of rewards, the trainer and the configuration: not vLLM or
        # bitsandbytes.
        environment=(
            CPU_TORCH,
            "trl==1.14.1 transformers==5.20.1 peft==0.21.2 datasets==5.0.1 accelerate==1.15.0 "
            "tokenizers==0.23.3 pydantic==2.13.5 packaging==26.0 typing-extensions==4.15.0 "
            "PyYAML==6.0.3 typer==0.25.1 pytest",
            "--no-deps axolotl==0.21.0",
            "addict numba pillow requests",
        ),
        install="pip install axolotl==0.21.0",
    ),
}
"""The record of each trainer, by the name that `rag-rewards init` and `prepare` take."""


def environments(*, is_quick: bool) -> list[str]:
    """Return the folders of the tests inside trainers that an index provides.

    The tests of trainers with the same environment run together, under the name of the first one.

    >>> environments(is_quick=True)
    ['trl', 'verl', 'openrlhf', 'ms_swift']
    """
    first = {each.environment: name for name, each in reversed(TRAINERS.items())}
    return [
        name.replace("-", "_")
        for name, trainer in TRAINERS.items()
        if first[trainer.environment] == name
        and trainer.environment
        and trainer.is_quick == is_quick
    ]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--quick"]:
            print(*environments(is_quick=True))
        case ["--more"]:
            print(*environments(is_quick=False))
        case [name] if (key := name.replace("_", "-")) in TRAINERS and TRAINERS[key].environment:
            print(*TRAINERS[key].environment, sep="\n")
        case arguments:
            names = " ".join(environments(is_quick=True) + environments(is_quick=False))
            message = f"no environment {' '.join(arguments)!r}: use --quick, --more or a name of"
            print(message, names, file=sys.stderr)
            sys.exit(2)
