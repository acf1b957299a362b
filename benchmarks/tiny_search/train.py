"""Train in the tiny search world with TRL, with or without an advantage for each turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiny_search.arms import Arm
from tiny_search.base import load_search
from tiny_search.episode import Episode, episodes
from tiny_search.likelihoods import BatchPolicy
from tiny_search.measures import Measures, measure
from tiny_search.rollouts import prompt_of, trajectories

from rag_rewards.evidence.protocols import Models
from rag_rewards.tiny_world.train import GROUP_SIZE, LEARNING_RATE, PROMPTS

STEPS = 40
INTERVAL = 2
"""Steps between two measurements."""
QUESTIONS = 400
"""Questions of a measurement, which are not part of any training."""
Points = list[tuple[int, Measures]]


@dataclass(frozen=True)
class SearchRun:
    """The configuration of one training run.

    start       folder of the policy before the training
    prompts     questions of a step, each with a group of rollouts
    group_size  rollouts of a group
    recall      probability that a search finds the fact about its person
    """

    arm: Arm
    start: Path
    steps: int = STEPS
    seed: int = 0
    prompts: int = PROMPTS
    group_size: int = GROUP_SIZE
    recall: float = 1.0

    @property
    def episodes(self) -> list[Episode]:
        """One fresh episode for every group, in the order of the steps."""
        return episodes(self.steps * self.prompts, f"training {self.seed}", self.recall)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of the data set.

        TRL passes only prompts to a rollout function. Therefore a prompt begins with the number of
        its episode, which the policy does not see.
        """
        return [
            {"prompt": f"{i} {prompt_of(each)}", **each.row()}
            for i, each in enumerate(self.episodes)
        ]


class RolloutFunction:
    """Rollouts of the policy in training, in the form that TRL expects of a `rollout_func`."""

    def __init__(self, run: SearchRun) -> None:
        self._episodes = run.episodes
        self._seed = run.seed

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """Return token ids, their mask and log-probabilities, and the column `turns`."""
        tokenizer = trainer.processing_class
        asked = [self._episodes[int(prompt.split()[0])] for prompt in prompts]
        seed = f"{self._seed} step {trainer.state.global_step}"
        finished = trajectories(trainer.model, tokenizer, asked, seed=seed)
        vocabulary = tokenizer.get_vocab()
        return {
            "prompt_ids": [tokenizer(prompt_of(each))["input_ids"] for each in asked],
            "completion_ids": [[vocabulary[word] for word in each.words] for each in finished],
            "logprobs": [each.logprobs for each in finished],
            "env_mask": [[int(own) for own in each.own] for each in finished],
            "turns": [each.turns for each in finished],
        }


def search_trainer(run: SearchRun, folder: Path, callbacks: Sequence[Any] = ()) -> Any:
    """Return a TurnGRPOTrainer that is ready to train."""
    from datasets import Dataset
    from rag_rewards_adapters.trl import RagReward, TurnGRPOTrainer
    from transformers import PrinterCallback
    from trl import GRPOConfig

    model, tokenizer = load_search(run.start)
    arm = run.arm
    recipe = arm.reward["recipe"]
    options = {
        **arm.reward,
        "recipe": recipe() if callable(recipe) else recipe,
        "models": Models(policy=BatchPolicy(model, tokenizer, is_live=True)),
        "response_prefix": "",
    }
    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=run.prompts * run.group_size,
        num_generations=run.group_size,
        max_completion_length=64,
        max_steps=run.steps,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        temperature=1.0,
        beta=0.0,
        scale_rewards="group" if arm.credit == "group" else "none",
        seed=run.seed,
        shuffle_dataset=False,
        remove_unused_columns=False,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = TurnGRPOTrainer(
        model,
        reward_funcs=RagReward(**options),
        args=config,
        train_dataset=Dataset.from_list(run.rows()),
        processing_class=tokenizer,
        rollout_func=RolloutFunction(run),
        credit=arm.credit,
        credit_options=dict(arm.credit_options) or None,
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def search_curve(
    interval: int = INTERVAL,
    count: int = QUESTIONS,
    on_point: Callable[[int, Measures], None] | None = None,
    recall: float = 1.0,
) -> Any:
    """Return a callback that measures the policy before training and every `interval` steps.

    Its `points` grow during training. `on_point` is called with the step and the measures.
    """
    from transformers import TrainerCallback

    class SearchCurve(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.points: Points = []
            self._episodes = episodes(count, "curve", recall)

        def on_train_begin(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            self._measure(0, **context)

        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            if state.global_step % interval == 0:
                self._measure(state.global_step, **context)

        def _measure(self, step: int, model: Any, processing_class: Any, **_: Any) -> None:
            measures = measure(model, processing_class, self._episodes, f"curve {step}")
            self.points.append((step, measures))
            if on_point:
                on_point(step, measures)

    return SearchCurve()


def dead_groups(history: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the share of groups whose advantages are all 0, for each step of a log."""
    names = ("credit/zero_groups", "frac_reward_zero_std")
    return [
        next(float(entry[name]) for name in names if name in entry)
        for entry in history
        if any(name in entry for name in names)
    ]
