"""One unit of the plan: the model as it is, a warmed-up model, or a training with a reward."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from language_model import model as language_model
from language_model import plan
from language_model.forms import FORMS, Form
from language_model.measures import measure, summary
from language_model.plan import ARMS, Arm
from language_model.questions import Question, digest_of, questions, split
from language_model.shared_prompt import trainer_class
from language_model.warmup import identity as warm_up_identity
from language_model.warmup import warmed_up

_DOCUMENTS = (("Ada", "Ada likes the rose."), ("Ben", "Ben likes tea."), ("Cleo", "Cleo sings."))
SPECIMENS = (
    Question("Which flower does Ada like?", "rose", _DOCUMENTS, (1,)),
    Question("Which flower does Dan like?", "lily", _DOCUMENTS, ()),
)
"""Made-up questions whose prompts and responses show what the form of a unit writes."""


@dataclass(frozen=True)
class Unit:
    """A part of the plan with an own result.

    kind  `model` (no warm-up), `before` (the warmed-up model) or `arm`
    of    name of the form or of the arm
    """

    kind: str
    of: str
    seed: int = 0

    @property
    def name(self) -> str:
        return {
            "model": f"{self.of}: model without warm-up",
            "before": f"{self.of}: before training",
            "arm": f"{self.of}, seed {self.seed}",
        }[self.kind]

    @property
    def file_name(self) -> str:
        return "".join(c if c.isalnum() else "-" for c in f"{self.kind}-{self.of}-{self.seed}")

    @property
    def arm(self) -> Arm | None:
        if self.kind != "arm":  # an arm and its form can have the same name
            return None
        return next(arm for arm in ARMS if arm.name == self.of)

    @property
    def form(self) -> Form:
        return FORMS[self.arm.form if self.arm else self.of]

    @property
    def primary(self) -> list[str]:
        """The primary measures of all arms with this form."""
        return sorted({arm.primary for arm in ARMS if arm.form == self.form.name})


def units() -> list[Unit]:
    """Return all units in the order in which they run: by seed, then by information."""
    result: list[Unit] = []
    for seed in plan.SEEDS:
        for arm in ARMS:
            needs = [Unit("before", arm.form), Unit("arm", arm.name, seed)]
            result += [unit for unit in needs if unit not in result]
    return result + [Unit("model", form) for form in FORMS]


@dataclass(frozen=True)
class Workplace:
    """The folders of a run. `build` contains finished units and checkpoints."""

    shared: Path
    build: Path

    @cached_property
    def split(self) -> tuple[list[Question], list[Question]]:
        """The training questions and the held-out ones. SystemExit if they are not the plan's."""
        every = questions(self.shared)
        if digest_of(every) != plan.QUESTIONS:
            raise SystemExit(
                f"the questions of {self.shared} have the digest {digest_of(every)}, not that of "
                f"plan.py, {plan.QUESTIONS}: use the files of the plan, or change the plan"
            )
        return split(every)

    def result(self, unit: Unit) -> Path:
        return self.build / f"{unit.file_name}-{identity(unit)}.json"


def identity(unit: Unit) -> str:
    """Return a digest of the parts of the plan that the result of a unit depends on.

    The texts of a form are those for SPECIMENS, so that the digest needs no data.
    """
    form = unit.form
    plain: list[Any] = [plan.QUESTIONS, plan.SAMPLES, unit.primary, language_model.WEIGHTS_DIGEST]
    plain += [form.correct, form.tokens, form.abstains, [form.row(q) for q in SPECIMENS]]
    if unit.kind != "model":
        plain.append(warm_up_identity(form, SPECIMENS))
    if unit.arm:
        plain += [asdict(unit.arm), plan.STEPS, plan.PROMPTS, plan.GROUP]
        plain += [plan.LEARNING_RATE, plan.TEMPERATURE, plan.KL_WEIGHT]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:8]


def run(unit: Unit, place: Workplace) -> dict[str, Any]:
    """Return the result of a unit: measures with intervals, seconds, and the curve of an arm."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    form, (training, held_out) = unit.form, place.split
    start = language_model.folder() if unit.kind == "model" else warmed_up(form, training)
    result: dict[str, Any] = {"plan": identity(unit), "form": form.name}
    if unit.arm:
        model, tokenizer, course = trained(unit, unit.arm, start, place)
        result |= course
    else:
        model = AutoModelForCausalLM.from_pretrained(start)
        tokenizer = AutoTokenizer.from_pretrained(start)
    if unit.kind == "before":
        result["warm-up"] = json.loads((start / "made.json").read_text("utf-8"))
    begin = time.perf_counter()
    for mode, temperature, samples in (("greedy", 0.0, 1), ("sampled", 1.0, plan.SAMPLES)):
        values = measure(model, tokenizer, form, held_out, samples=samples, temperature=temperature)
        result[mode] = {name: summary(each) for name, each in values.items()}
        if mode == "sampled":
            result["primary"] = {
                name: [None if v is None else round(v, 4) for v in values[name]]
                for name in unit.primary
            }
    return result | {"measuring seconds": round(time.perf_counter() - begin)}


def trained(unit: Unit, arm: Arm, start: Path, place: Workplace) -> tuple[Any, Any, dict[str, Any]]:
    """Train an arm, or resume it. Return its model, its tokenizer, and its course.

    The folder of the arm contains a checkpoint and the course. It is left there, so that an
    interrupted measurement does not repeat the training.
    """
    folder = place.result(unit).with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    training, held_out = place.split
    rows = rows_of(arm, unit.form, training, unit.seed)
    course = Course(folder / "course.json")
    callbacks = [curve(unit.form, arm.primary, held_out, course), clock(course)]
    trainer = trainer_of(arm, unit.form, start, folder, rows, unit.seed, callbacks)
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    logs = [each for each in trainer.state.log_history if "reward" in each]
    seconds = [each for _, each in course.values("seconds")]
    result = {
        "points": course.values(arm.primary),
        "rewards": [round(each["reward"], 4) for each in logs],
        "groups without signal": round(fmean(each["frac_reward_zero_std"] for each in logs), 4),
        "training seconds": round(sum(seconds)),
    }
    return trainer.model, trainer.processing_class, result


def last_checkpoint(folder: Path) -> str | None:
    """Return the last complete checkpoint. Delete the ones that an interruption left incomplete.

    The trainer writes `trainer_state.json` last.
    """
    from transformers.trainer_utils import get_last_checkpoint

    for checkpoint in folder.glob("checkpoint-*"):
        try:
            json.loads((checkpoint / "trainer_state.json").read_text("utf-8"))
        except (FileNotFoundError, ValueError):
            shutil.rmtree(checkpoint)
    last: str | None = get_last_checkpoint(str(folder))
    return last


def rows_of(arm: Arm, form: Form, training: Sequence[Question], seed: int) -> list[dict[str, Any]]:
    """Return one row for each group of a training, in the order of the steps."""
    chosen = [q for q in training if q.is_answerable or not arm.answerable]
    rng = random.Random(f"order {seed}")
    rows: list[dict[str, Any]] = []
    count = plan.STEPS * plan.PROMPTS
    while len(rows) < count:
        rows += [form.row(question) for question in rng.sample(chosen, len(chosen))]
    return rows[:count]


def trainer_of(
    arm: Arm,
    form: Form,
    start: Path,
    folder: Path,
    rows: Sequence[dict[str, Any]],
    seed: int,
    callbacks: Sequence[Any] = (),
    **options: Any,
) -> Any:
    """Return TRL's GRPOTrainer with the reward of an arm. `options` replace those of GRPOConfig."""
    from datasets import Dataset
    from rag_rewards_adapters.trl import RagReward
    from transformers import PrinterCallback
    from trl import GRPOConfig

    settings = dict(arm.settings)
    reward = RagReward(arm.reward, settings=settings, prompt=form.prompt, response_prefix="")
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": plan.PROMPTS * plan.GROUP,
        "num_generations": plan.GROUP,
        "max_completion_length": form.tokens,
        "max_steps": plan.STEPS,
        "learning_rate": plan.LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "temperature": plan.TEMPERATURE,
        "beta": plan.KL_WEIGHT,
        "scale_rewards": "group",
        "seed": seed,
        "shuffle_dataset": False,
        "remove_unused_columns": False,
        "use_cpu": True,
        "bf16": True,
        "model_init_kwargs": {"dtype": "float32"},
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_steps": plan.SAVE_INTERVAL,
        "save_total_limit": 1,
        "logging_steps": 1,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
    }
    trainer = trainer_class()(
        str(start),
        reward_funcs=reward,
        args=GRPOConfig(**defaults | options),
        train_dataset=Dataset.from_list(list(rows)),
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    reward.bind(trainer)
    return trainer


# --- the course of a training --------------------------------------------------------------------


class Course:
    """Numbers by step in a file, so that a resumed training keeps those before its checkpoint."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.steps: dict[str, dict[str, float]] = (
            json.loads(file.read_text("utf-8")) if file.exists() else {}
        )

    def add(self, step: int, name: str, value: float) -> None:
        self.steps.setdefault(str(step), {})[name] = value
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.steps), "utf-8")
        part.replace(self.file)

    def values(self, name: str) -> list[tuple[int, float]]:
        """Return the steps with this number, in order."""
        pairs = sorted((int(step), each) for step, each in self.steps.items())
        return [(step, each[name]) for step, each in pairs if name in each]


def curve(form: Form, name: str, held_out: Sequence[Question], course: Course) -> Any:
    """Return a callback that measures the primary measure on the held-out questions."""
    import torch
    from transformers import TrainerCallback

    class Curve(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **context: Any) -> None:
            step = state.global_step
            if step % plan.CURVE_INTERVAL == 0 and step < args.max_steps:
                model, tokenizer = context["model"], context["processing_class"]
                # The random numbers of the training must not depend on the measurements.
                with torch.random.fork_rng():
                    values = measure(model, tokenizer, form, held_out, seed=step)
                course.add(step, name, (summary(values[name]) or [0.0])[0])

    return Curve()


def clock(course: Course) -> Any:
    """Return a callback that stores the seconds of each step, without measurements."""
    from transformers import TrainerCallback

    class Clock(TrainerCallback):  # type: ignore[misc]
        begin = 0.0

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.begin = time.perf_counter()

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seconds = time.perf_counter() - self.begin
            course.add(state.global_step + 1, "seconds", round(seconds, 1))
            print(f"step {state.global_step + 1}: {seconds:.0f} s", flush=True)

    return Clock()
