"""Train in the tiny world with TRL's GRPOTrainer and a reward of rag-rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rag_rewards.errors import UsageError
from rag_rewards.tiny_world.evidence import world_models
from rag_rewards.tiny_world.formats import ResponseFormat
from rag_rewards.tiny_world.generation import MAX_TOKENS
from rag_rewards.tiny_world.model import CHECKPOINT, load
from rag_rewards.tiny_world.world import UNANSWERABLE, WorldQuestion, questions

LEARNING_RATE = 5e-4
GROUP_SIZE = 8
PROMPTS = 16
"""Questions of a step, each with a group of responses."""
SAVE_INTERVAL = 20
"""Steps between two saved states, from which an interrupted run resumes."""


@dataclass(frozen=True)
class Run:
    """The configuration of one training run.

    reward        options of the adapter's RagReward: `recipe`, `settings`, `std_floor`, …
    unanswerable  the share of unanswerable questions, or pairs (last step, share)
    trainer       further options of TRL's GRPOConfig
    """

    form: ResponseFormat
    reward: Mapping[str, Any]
    steps: int = 60
    seed: int = 0
    start: Path = CHECKPOINT
    unanswerable: float | tuple[tuple[int, float], ...] = UNANSWERABLE
    trainer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def questions(self) -> list[WorldQuestion]:
        """One fresh question for every group, in the order of the steps."""
        shares = self.unanswerable
        if not isinstance(shares, tuple):
            shares = ((self.steps, shares),)
        drawn, start = [], 0
        for end, share in shares:
            count = (min(end, self.steps) - start) * PROMPTS
            drawn += questions(count, f"training {self.seed} from {start}", share)
            start = end
        return drawn


def trainer_of(
    run: Run,
    folder: Path,
    rows: Sequence[Mapping[str, Any]] | None = None,
    trainer_class: Any = None,
    callbacks: Sequence[Any] = (),
) -> Any:
    """Return TRL's GRPOTrainer, or a subclass, that is bound to the reward and ready to train.

    `rows` replace the rows of the run's questions, for example to add columns.
    """
    from datasets import Dataset
    from rag_rewards_adapters.trl import RagReward
    from transformers import PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    model, tokenizer = load(run.start)
    defaults = {"models": world_models(), "prompt": run.form.prompt, "response_prefix": ""}
    reward = RagReward(**{**defaults, **run.reward})
    options = {
        "output_dir": str(folder),
        "per_device_train_batch_size": PROMPTS * GROUP_SIZE,
        "num_generations": GROUP_SIZE,
        "max_completion_length": MAX_TOKENS,
        "max_steps": run.steps,
        "learning_rate": LEARNING_RATE,
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
        "save_steps": SAVE_INTERVAL,
        "save_total_limit": 1,
        "logging_steps": 1,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        **run.trainer,
    }
    trainer = (trainer_class or GRPOTrainer)(
        model,
        reward_funcs=reward,
        args=GRPOConfig(**options),
        train_dataset=Dataset.from_list(list(rows or map(run.form.row, run.questions))),
        processing_class=tokenizer,
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    reward.bind(trainer)
    return trainer


def train(run: Run, folder: Path, **options: Any) -> Any:
    """Train to the end and return the trainer. `options` are those of `trainer_of`.

    An interrupted run that left its state in the folder is resumed. Raises UsageError if the folder
    contains another run, and after the first step if every group's rewards are equal.
    """
    from transformers.trainer_utils import get_last_checkpoint

    trainer = trainer_of(run, folder, **options)
    trainer.add_callback(_spread_check())
    signatures = [reward.signature for reward in trainer.reward_funcs]
    identity = f"{replace(run, reward={})} {signatures} {run.reward.get('std_floor')}\n"
    file = folder / "run.txt"
    if file.exists() and file.read_text("utf-8") != identity:
        raise UsageError(f"{folder} contains another run: delete it, or choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(identity, "utf-8")
    trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
    return trainer


def _spread_check() -> Any:
    """Return a callback that raises after the first step if no group has different rewards."""
    from transformers import TrainerCallback

    class SpreadCheck(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **_: Any) -> None:
            if state.global_step == 1 and logs.get("frac_reward_zero_std") == 1:
                raise UsageError(
                    f"the reward gives no training signal: all rewards are equal within each of "
                    f"{PROMPTS} groups (mean {logs['reward']:g}); choose another reward or format"
                )

    return SpreadCheck()
