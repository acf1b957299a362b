"""GRPO in the tiny world: TRL's own trainer, a reward of rag-rewards, half a minute a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError
from tiny_world.formats import Format
from tiny_world.model import CHECKPOINT, load
from tiny_world.play import LONGEST, world_models
from tiny_world.world import UNANSWERABLE, Question, questions

RATE = 5e-4
GROUP = 8
PROMPTS = 16
"""Questions of a step, each with a group of responses."""
SAVED = 20
"""Steps after which a run is saved, to go on from there when it was interrupted."""


@dataclass(frozen=True)
class Run:
    """One training: where it starts, what it is rewarded for, and how long.

    reward        options of the adapter's RagReward: `recipe`, `settings`, `std_floor`, …
    unanswerable  their share; or shares with the step until which each holds
    trainer       further options of TRL's GRPOConfig
    """

    form: Format
    reward: Mapping[str, Any]
    steps: int = 60
    seed: int = 0
    start: Path = CHECKPOINT
    unanswerable: float | tuple[tuple[int, float], ...] = UNANSWERABLE
    trainer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> list[Question]:
        """A fresh question for every group, in the order of the steps."""
        shares = self.unanswerable
        if not isinstance(shares, tuple):
            shares = ((self.steps, shares),)
        asked, begun = [], 0
        for until, share in shares:
            count = (min(until, self.steps) - begun) * PROMPTS
            asked += questions(count, f"training {self.seed} from {begun}", share)
            begun = until
        return asked


def trainer_of(
    run: Run,
    folder: Path,
    rows: Sequence[Mapping[str, Any]] | None = None,
    kind: Any = None,
    callbacks: Sequence[Any] = (),
) -> Any:
    """TRL's GRPOTrainer, or a `kind` of it, bound to the reward and ready to train.

    `rows` are those of the run's questions, where they have columns of their own.
    """
    from datasets import Dataset
    from rag_rewards_adapters.trl import RagReward
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    model, words = load(run.start)
    ours = {"models": world_models(), "prompt": run.form.prompt, "response_prefix": ""}
    reward = RagReward(**{**ours, **run.reward})
    options = {
        "output_dir": str(folder),
        "per_device_train_batch_size": PROMPTS * GROUP,
        "num_generations": GROUP,
        "max_completion_length": LONGEST,
        "max_steps": run.steps,
        "learning_rate": RATE,
        "lr_scheduler_type": "constant",
        "temperature": 1.0,
        "beta": 0.0,
        "scale_rewards": "group",
        "seed": run.seed,
        "shuffle_dataset": False,
        "remove_unused_columns": False,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "steps",
        "save_steps": SAVED,
        "save_total_limit": 1,
        "logging_steps": 1,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        **run.trainer,
    }
    trainer = (kind or GRPOTrainer)(
        model,
        reward_funcs=reward,
        args=GRPOConfig(**options),
        train_dataset=Dataset.from_list(list(rows or map(run.form.row, run.asked))),
        processing_class=words,
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    reward.bind(trainer)
    return trainer


def train(run: Run, folder: Path, **how: Any) -> Any:
    """Train to the end and return the trainer; `how` as for `trainer_of`.

    A folder that an interrupted run has left is gone on with. UsageError where it was another run,
    and after the first step where the reward gives one value for all.
    """
    from transformers.trainer_utils import get_last_checkpoint

    trainer = trainer_of(run, folder, **how)
    trainer.add_callback(_signal())
    signatures = [reward.signature for reward in trainer.reward_funcs]
    told = f"{replace(run, reward={})} {signatures} {run.reward.get('std_floor')}\n"
    mark = folder / "run.txt"
    if mark.exists() and mark.read_text("utf-8") != told:
        raise UsageError(f"{folder} holds another run: remove it, or choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    mark.write_text(told, "utf-8")
    trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
    return trainer


def _signal() -> Any:
    """Says at once when a reward has nothing to teach."""
    from transformers import TrainerCallback

    class Signal(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
            if state.global_step == 1 and logs.get("frac_reward_zero_std") == 1:
                raise UsageError(
                    f"nothing can be learned from this reward: all responses of a group got the "
                    f"same, in each of {PROMPTS} groups (mean {logs['reward']:g})"
                )

    return Signal()
