"""Files for a trial of a trainer: the tiny model, questions of the tiny world, and settings.

`rag-rewards init TRAINER --tiny` writes them. The policy is a copy of the committed checkpoint. Its
chat template is the text of the messages, because the model knows no other words.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rag_rewards.datasets.gold import Gold
from rag_rewards.errors import UsageError
from rag_rewards.files.output import Output
from rag_rewards.preparation.suitability import suitability_problem
from rag_rewards.preparation.trainer_rows import trainer_file, trainer_row
from rag_rewards.recipes import definition_of
from rag_rewards.rollout import Criterion, Document
from rag_rewards.tiny_world.formats import ARENA, GROUND, PLAIN, TRUTHRL, ResponseFormat
from rag_rewards.tiny_world.model import CHECKPOINT
from rag_rewards.tiny_world.train import LEARNING_RATE
from rag_rewards.tiny_world.world import WorldQuestion, questions
from rag_rewards.trainers import TRAINERS
from rag_rewards.training.settings import Stated

FORMS = {
    "arena": ARENA,
    "truthrl": TRUTHRL,
    "ground-grpo": GROUND,
    "rag-total": PLAIN,
    "rubric": PLAIN,
}
"""The recipes whose responses the tiny model writes, with their formats."""
QUESTIONS = 400
_SOURCE = "tiny model"
SETTINGS: Mapping[str, Stated[Any]] = {
    "prompts": Stated(4, _SOURCE),
    "learning_rate": Stated(LEARNING_RATE, _SOURCE),
    "prompt_tokens": Stated(64, _SOURCE),
    "response_tokens": Stated(32, _SOURCE),
}
"""The training settings of a trial in place of those of the recipe."""
_CHAT_TEMPLATE = "{{ bos_token }}{% for message in messages %} {{ message['content'] }}{% endfor %}"
_ABSENT = ("query_time", "out_of_knowledge", "search_keys", "rubrics", "rubric", "gold_documents")


class Trial(NamedTuple):
    """The folder of the tiny model and the data file."""

    model: Path
    data: Path


def write_trial(trainer: str, recipe: str, folder: Path) -> Trial:
    """Write the tiny model and a data file to a folder.

    Raises UsageError for a recipe whose responses the model does not write, and if a file already
    exists.
    """
    if recipe not in FORMS:
        raise UsageError(
            f"the tiny model does not write the responses of {recipe}: choose {', '.join(FORMS)}, "
            "or train another model with --policy"
        )
    trial = Trial(folder / "model", folder / f"train.{TRAINERS[trainer].suffix}")
    for path in trial:
        if path.exists():
            raise UsageError(f"{path} already exists: choose another folder with -o")
    trial.model.mkdir(parents=True)
    for file in sorted(CHECKPOINT.iterdir()):
        shutil.copyfile(file, trial.model / file.name)
    (trial.model / "chat_template.jinja").write_text(_CHAT_TEMPLATE, "utf-8")
    _write_rows(trainer, recipe, trial.data)
    return trial


def _write_rows(trainer: str, recipe: str, path: Path) -> None:
    with (
        Output(str(path)) as output,
        contextlib.closing(trainer_file(trainer, output, ("documents",))) as file,
    ):
        for row in _rows(trainer, recipe):
            file.write(row)
        file.commit()


def _rows(trainer: str, recipe: str) -> Iterator[dict[str, Any]]:
    form, definition = FORMS[recipe], definition_of(recipe)
    for number, question in enumerate(questions(QUESTIONS, "trial")):
        gold = _gold(question, form, number)
        if suitability_problem(gold, definition) is not None:
            continue
        prompt = form.row(question)["prompt"]
        absent = [name for name in _ABSENT if name not in definition.fields]
        fields = {name: value for name, value in gold.fields(False).items() if name not in absent}
        yield trainer_row(
            trainer,
            [{"role": "user", "content": prompt}],
            fields,
            source="tiny-world",
            index=number,
        )


def _gold(question: WorldQuestion, form: ResponseFormat, number: int) -> Gold:
    row = form.row(question)
    return Gold(
        id=f"tiny-{number}",
        question=question.person,
        documents=tuple(Document(text=document["text"]) for document in row["documents"]),
        answers=tuple(tuple(aliases) for aliases in row["answers"]),
        supporting=(question.support - 1,) if question.support else (),
        answerable=question.answerable,
        rubric=_rubric(question),
    )


def _rubric(question: WorldQuestion) -> tuple[Criterion, ...]:
    """Return criteria of a response: one for a judge, and one with a rule."""
    if question.support is None:
        text, rule = "Says that no document has it.", Criterion(name="brief", max_words=8)
    else:
        text = f"Names the flower {question.answer}."
        rule = Criterion(name="cites", cites=(question.support,))
    return Criterion(name="answer", criterion=text, weight=2.0), rule
