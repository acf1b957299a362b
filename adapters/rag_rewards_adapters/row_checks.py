"""Checks of a data set before training: each row must be complete enough to score a response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from rag_rewards.errors import BackendError, DataError, RolloutError
from rag_rewards.evidence.contexts import Contexts
from rag_rewards.evidence.gather import run_coroutine
from rag_rewards.evidence.needs import LogProbsNeed
from rag_rewards.evidence.protocols import Judge, JudgeQuestion, Verdict
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Evidence, LogProbs, Rollout
from rag_rewards.rows.columns import rollout_from_columns
from rag_rewards.scorer import Scorer

CHECKED_PROMPTS = 200
"""The number of rows whose prompts are rendered without each document before training."""
_EXAMPLE_RESPONSES = (
    "<think>Read [1].</think><answer>It is x [1].</answer>",
    "<reason>Read 1.</reason><extract>x</extract><answer>x</answer>",
    "<think>Read 1.</think>\\boxed{y}",
)
"""Well-formed responses in the output forms of the recipes."""
_EXAMPLE_TURNS = [
    {"text": "<search>x</search>", "results": [{"text": "x"}]},
    {"text": "<answer>x</answer>"},
]
"""Two turns of a search agent."""


def example_rollouts() -> list[Rollout]:
    """Return rollouts with well-formed responses, which show the models that a recipe needs."""
    fields: dict[str, Any] = {
        "question": "?",
        "documents": [{"text": "x"}],
        "supporting": [1],
        "answers": ["x"],
        "answerable": True,
    }
    rollouts = [rollout_from_columns(fields, response=text) for text in _EXAMPLE_RESPONSES]
    rollouts.append(rollout_from_columns({**fields, "turns": _EXAMPLE_TURNS}))
    return [rollout for rollout in rollouts if isinstance(rollout, Rollout)]


def check_judge(judge: Judge | None, recipes: Sequence[Recipe]) -> None:
    """Ask a judge on a server one question of the recipes, before the training.

    Raises BackendError if it returns no verdict, for example because the server is down, the key is
    invalid, or the model is unknown. A verdict in the cache of the judge needs no server.
    """
    from rag_rewards.models.checked_judge import CheckedJudge
    from rag_rewards.models.openai import OpenAIJudge

    question = next(_questions(recipes), None)
    if question is None or not isinstance(judge, (CheckedJudge, OpenAIJudge)):
        return
    verdicts: Sequence[Verdict | Exception] = run_coroutine(judge.judge([question]))
    verdict = verdicts[0]
    if isinstance(verdict, Exception):
        raise BackendError(f"the judge is not ready for the training: {verdict}")


def _questions(recipes: Sequence[Recipe]) -> Iterator[JudgeQuestion]:
    """Yield the questions of recipes about well-formed responses."""
    for recipe in recipes:
        for rollout in example_rollouts():
            try:
                needs = recipe.needs(rollout)
            except RolloutError:
                continue
            for need in needs:
                yield from (each for each in need.requests if isinstance(each, JudgeQuestion))


def check_rows(
    rows: Iterable[tuple[str, Rollout | RolloutError]], recipes: Sequence[Recipe]
) -> None:
    """Raise the error of a row that no recipe can score, and of a recipe without any row.

    `rows` are the names of rows and their rollouts with empty responses. `recipes` are the stages
    of a curriculum, or a single recipe. A row can belong to one stage only.
    """
    stages_with_rows: set[int] = set()
    errors_by_stage: dict[int, RolloutError] = {}
    for name, rollout in rows:
        if isinstance(rollout, RolloutError):
            raise _with_row(rollout, name)
        results = [_scoring_error(recipe, rollout) for recipe in recipes]
        errors = [_with_row(error, name) for error in results if error is not None]
        if len(errors) == len(results):
            raise errors[0]
        for stage, error in enumerate(results):
            if error is None:
                stages_with_rows.add(stage)
            else:
                errors_by_stage.setdefault(stage, error)
    if without_rows := errors_by_stage.keys() - stages_with_rows:
        raise errors_by_stage[min(without_rows)]


def check_prompts(
    rows: Iterable[tuple[str, Rollout | RolloutError]], scorer: Scorer, length: int
) -> None:
    """Raise DataError for a prompt that is too long, or from which no document can be left out.

    `rows` are the names of rows and their rollouts with empty responses. `length` is the greatest
    number of tokens of a response. The first CHECKED_PROMPTS rows are checked. Without a policy, no
    prompt is read.
    """
    policy = scorer.models.policy
    if policy is None:
        return
    contexts = Contexts(
        policy.tokenizer,
        scorer.prompt,
        policy.max_length,
        scorer.prompt_options.truncate,
        scorer.prompt_options.template,
        scorer.prompt_options.response_limit,
    )
    for name, rollout in islice(rows, CHECKED_PROMPTS):
        if isinstance(rollout, RolloutError) or rollout.prompt is None:
            continue
        try:
            for labels in _labels_left_out(scorer.recipes, rollout):
                contexts.leave_one_out(rollout, labels, length)
        except DataError as error:
            raise _with_row(error, name) from None


def _labels_left_out(recipes: Sequence[Recipe], rollout: Rollout) -> set[tuple[str, ...]]:
    """Return the documents that recipes leave out of the prompt, for each need."""
    labels: set[tuple[str, ...]] = set()
    for recipe in recipes:
        try:
            needs = recipe.needs(rollout)
        except RolloutError:  # the row belongs to another stage
            continue
        labels |= {tuple(n.without) for n in needs if isinstance(n, LogProbsNeed) and n.without}
    return labels


def _scoring_error(recipe: Recipe, rollout: Rollout) -> RolloutError | None:
    """Return why a rollout with an empty response cannot be scored, or None.

    The log-probabilities of an empty response are empty, so no model is needed for them.
    """
    try:
        needs = recipe.needs(rollout)
    except RolloutError as error:
        return error.with_traceback(None)
    without = {label: () for n in needs if isinstance(n, LogProbsNeed) for label in n.without}
    if without:
        rollout = rollout.with_evidence(Evidence(logprobs=LogProbs(full=(), without={**without})))
    if not all(need.is_met(rollout) for need in needs):
        return None
    result = recipe.score_each([rollout], [[0]])[0]
    return result if isinstance(result, RolloutError) else None


def _with_row(error: RolloutError, name: str) -> RolloutError:
    error.row = name if error.row is None else f"{error.row} ({name})"
    return error
