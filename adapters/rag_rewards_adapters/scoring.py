"""Scoring for trainers: load a recipe, score batches, and return the numbers that trainers need.

`GroupRecipe` is the base of adapters that score complete groups, and `SingleRecipe` scores one
rollout at a time. `trainer_reward` has the base of reward functions that a trainer calls with the
columns of a batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from rag_rewards.errors import BackendError, DataError, RolloutError, UsageError, plain, shorten
from rag_rewards.groups import Groups
from rag_rewards.loading import RecipeSource
from rag_rewards.recipe_object import Recipe
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows.decisions import decisions_of, undecided_share
from rag_rewards.scorer import Scorer
from rag_rewards.training.advantages import advantages_of_groups
from rag_rewards.training.credit import Credit, spread
from rag_rewards.training.credit.entries import Advantages
from rag_rewards.training.credit.gigpo import anchors_of
from rag_rewards.training.credit.settings import GROUP
from rag_rewards.training.curriculum import Curriculum, refusal
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards_adapters.reading import Span, runs

log = logging.getLogger("rag_rewards")

FAILED_SHARE = 0.1
"""The share of unscored rollouts or groups from which a batch with failures of models counts."""
FIRST_ROLLOUTS = 16
"""The number of rollouts without any search result after which the message is logged."""


# --- loading -------------------------------------------------------------------------------------


def load(recipe: RecipeSource | None, options: Mapping[str, Any]) -> Scorer:
    """Return the scorer of a recipe in any form, or of the options `recipe` or `stages`."""
    return Scorer.load(options if recipe is None else {"recipe": recipe, **options})


def check_scope(
    reward: Recipe | Curriculum, trainer: str, *, for_groups: str = "", for_stages: str = ""
) -> None:
    """Raise UsageError with the reason of `refusal`, whose arguments these are."""
    if reason := refusal(reward, trainer, for_groups=for_groups, for_stages=for_stages):
        raise UsageError(reason)


def credit_of(
    credit: Credit | str | None,
    options: Mapping[str, Any] | None,
    scorer: Scorer,
    std_floor: float | None,
) -> Credit | None:
    """Return the credit of the arguments, or that of the recipe. None is the method `group`.

    credit     a Credit, the name of a method, or None for the settings of the recipe
    options    options of the method, which take precedence over those of the recipe
    std_floor  the floor of the advantage of LEAR, which excludes a credit method

    Raises UsageError for options without a method, for a method with `std_floor`, and for stages
    of a curriculum with different methods.
    """
    if options and isinstance(credit, Credit):
        raise UsageError("credit_options belong to a credit that is a name: remove them")
    if credit is None:
        credit = _credit_of_recipes(scorer)
    elif isinstance(credit, str):
        credit = None if credit == GROUP else Credit(credit, options or {})
    if options:
        if credit is None:
            raise UsageError("credit_options requires a credit method: pass credit=")
        credit = Credit(credit.method, {**credit.options, **options})
    if credit is not None and std_floor is not None:
        raise UsageError("std_floor and credit are both advantages: remove one of them")
    return credit


def _credit_of_recipes(scorer: Scorer) -> Credit | None:
    methods = {recipe.name: Credit.of_settings(recipe.settings) for recipe in scorer.recipes}
    first, *others = methods.values()
    if any(other != first for other in others):
        raise UsageError(f"the stages {', '.join(methods)} have different credit: pass credit=")
    return first


# --- unscored rollouts ---------------------------------------------------------------------------


class UnscoredHandler:
    """Raises the errors of the first batch, and counts and logs those of later batches.

    An error in the first batch means that data or settings are wrong, so it is raised before any
    training is lost. Later, an unscored rollout is counted (`count`) and logged. After `patience`
    consecutive batches in which a model or server failed and at least a tenth of the rollouts is
    unscored, or in which no rollout is scored, the error is raised: the policy would learn nothing,
    or only from the groups that need no model. A single failure in a large batch ends no training.
    """

    def __init__(self, patience: int = 3) -> None:
        self.patience = patience
        self.count = 0
        self._is_first = True
        self._failed_batches = 0

    def handle(
        self,
        results: Sequence[ScoreOrError],
        rollouts: Sequence[Rollout | RolloutError] = (),
        positions: Sequence[int] | None = None,
    ) -> list[Score | None]:
        """Return the scores, with None for unscored rollouts. Raise the first error as described.

        `positions` are those of the rollouts in the trainer's batch, if only some are scored. An
        error whose row has no id names its position and the start of its question.
        """
        results = [with_value(result) for result in results]
        for i, result in enumerate(results):
            if isinstance(result, RolloutError) and result.row is None:
                rollout = rollouts[i] if i < len(rollouts) else None
                result.row = _place_of(i if positions is None else positions[i], rollout)
        scores = [result if isinstance(result, Score) else None for result in results]
        errors = [result for result in results if isinstance(result, RolloutError)]
        failures = [error for error in errors if isinstance(error, BackendError)]
        causes = failures or errors
        if errors and self._is_first:
            raise causes[0]
        self._is_first = False
        self.count += len(errors)
        if errors:
            reason = plain(str(causes[0]))
            log.warning("%d of %d rollouts are unscored: %s", len(errors), len(scores), reason)
        share = FAILED_SHARE if failures else 1.0
        has_failed = bool(errors) and len(errors) >= share * len(scores)
        self._failed_batches = self._failed_batches + 1 if has_failed else 0
        if self._failed_batches >= self.patience:
            raise self._end(causes[0])
        return scores

    def _end(self, cause: RolloutError) -> RolloutError:
        """Return the error that ends the training."""
        what = "a model failed in" if isinstance(cause, BackendError) else "no rollout is scored in"
        error = type(cause)(
            f"{cause.message} ({what} {self._failed_batches} consecutive batches: repair the cause "
            f"and continue from a checkpoint, or increase patience={self.patience})",
            cause.path,
        )
        error.row, error.__cause__ = cause.row, cause
        return error


def _place_of(position: int, rollout: Rollout | RolloutError | None) -> str:
    """Return the name of a row without an id in a message.

    >>> _place_of(5, Rollout(response="", question="Which river runs through Paris?"))
    "5 of the batch (question 'Which river runs through Paris?')"
    """
    question = rollout.question if isinstance(rollout, Rollout) else None
    place = f"{position} of the batch"
    return place if question is None else f"{place} (question {shorten(question, 60)!r})"


def with_value(result: ScoreOrError) -> ScoreOrError:
    """Return the result, or a DataError for a score without a value."""
    if isinstance(result, Score) and result.value is None:
        return DataError("the recipe gives this rollout no reward", "response")
    return result


def score_of(result: ScoreOrError) -> Score:
    """Return a score that has a value. Raise the RolloutError of an unscored rollout."""
    result = with_value(result)
    if isinstance(result, RolloutError):
        raise result
    return result


class SearchCheck:
    """Logs once that the first rollouts contain no search results, although the recipe reads turns.

    The agent loop then has no search tool, or its results are not read.
    """

    def __init__(self) -> None:
        self._rollouts = 0
        self._is_done = False

    def check(self, recipes: Sequence[Recipe], rollouts: Sequence[Rollout | RolloutError]) -> None:
        """Log the message after FIRST_ROLLOUTS rollouts. `recipes` are those of the reward."""
        if self._is_done or not any(recipe.needs_turns for recipe in recipes):
            return
        present = [rollout for rollout in rollouts if isinstance(rollout, Rollout)]
        self._is_done = any(map(_has_results, present))
        self._rollouts += len(present)
        if self._rollouts >= FIRST_ROLLOUTS and not self._is_done:
            self._is_done = True
            log.warning(
                "none of the first %d rollouts has search results, but %s reads searches: give the "
                "trainer a search tool, and check that the tags of its results are those of the "
                "recipe",
                self._rollouts,
                recipes[-1].name,
            )


def _has_results(rollout: Rollout) -> bool:
    if rollout.turns is None:
        return bool(rollout.retrieved)
    return any(turn.results for turn in rollout.turns)


# --- the numbers of a batch ----------------------------------------------------------------------


def group_values(
    scores: Sequence[Score | None], groups: Groups, std_floor: float | None = None
) -> list[float]:
    """Return the reward of each rollout, or with `std_floor` the advantage of LEAR.

    An unscored rollout (None) gets the mean of its group.
    """
    values = [score.value if score else None for score in scores]
    if std_floor is not None:
        values = advantages_of_groups(values, groups, std_floor=std_floor)
    return with_group_means(values, groups)


def with_group_means(values: Sequence[float | None], groups: Groups) -> list[float]:
    """Return the values; a missing one is the mean of its group, or else of the batch.

    The advantage of an unscored rollout is then 0 in a trainer that subtracts the mean.

    >>> with_group_means([1.0, None, 3.0, 8.0], [[0, 1, 2], [3]])
    [1.0, 2.0, 3.0, 8.0]
    >>> with_group_means([1.0, 2.0, None], [])
    [1.0, 2.0, 1.5]
    """
    present = [value for value in values if value is not None]
    mean = fmean(present) if present else 0.0
    filled = [mean if value is None else value for value in values]
    for group in groups:
        scored = [value for i in group if (value := values[i]) is not None]
        for i in group:
            if values[i] is None and scored:
                filled[i] = fmean(scored)
    return filled


def component_metrics(name: str, score: Score) -> dict[str, float]:
    """Return the components that have a value, as `name/component`, and `name/undecided`."""
    values = {f"{name}/{key}": v for key, v in score.components.items() if v is not None}
    return values | _undecided_metric(name, [score])


def component_columns(
    name: str, components: Sequence[str], scores: Sequence[Score | None]
) -> dict[str, list[float | None]]:
    """Return the values of each component as `name/component`; None where there is none."""
    return {
        f"{name}/{key}": [score.components.get(key) if score else None for score in scores]
        for key in components
    }


def batch_metrics(
    name: str, columns: Mapping[str, Sequence[float | None]], scores: Sequence[Score | None]
) -> dict[str, float]:
    """Return the mean of each column, `name/not_scored` and `name/undecided`.

    A column without any value is left out. `not_scored` is a number of rollouts, and `undecided` is
    the share of undecided answers. Answers with nothing in common with a gold answer do not count
    as undecided; without any decision on an answer, the metric is left out.

    >>> batch_metrics("arena", {}, [Score(0.0, details={"decision": "wrong"}), None])
    {'arena/not_scored': 1.0, 'arena/undecided': 0.0}
    """
    means = {}
    for column, values in columns.items():
        present = [value for value in values if value is not None]
        if present:
            means[column] = fmean(present)
    means[f"{name}/not_scored"] = float(sum(score is None for score in scores))
    return means | _undecided_metric(name, scores)


def _undecided_metric(name: str, scores: Sequence[Score | None]) -> dict[str, float]:
    share = undecided_share(decisions_of(scores))
    return {} if share is None else {f"{name}/undecided": share}


# --- the values of turns -------------------------------------------------------------------------


def turn_anchors(score: Score | None, rollout: Rollout | RolloutError | None) -> list[str] | None:
    """Return the state before each turn of a score, which the credit method `gigpo` compares.

    The result is None for an unscored rollout. A score without turns has a single state.
    """
    if score is None or not isinstance(rollout, Rollout):
        return None
    return anchors_of(rollout.steps()) if score.turns else [""]


def turn_spans(
    score: Score | None, rollout: Rollout | RolloutError | None, mask: Sequence[int]
) -> list[Span]:
    """Return the spans of the turns of a rollout: its own, or the runs of the mask.

    Its own are used if every turn has one, and the score has no entries or one for each turn.
    """
    own = rollout.steps() if isinstance(rollout, Rollout) else ()
    spans = [turn.token_span for turn in own if turn.token_span is not None]
    entries = len(score.turns) if score is not None and score.turns else len(own)
    return spans if own and len(spans) == len(own) == entries else runs(mask)


def token_values(turns: Sequence[float] | None, spans: Sequence[Span], length: int) -> list[float]:
    """Return the value of each token of a response, which is that of its turn.

    Tokens outside of the spans have the value 0, and so do those of an unscored rollout (None). One
    value is that of all turns. Raises DataError if the turns are not those of the spans.

    >>> token_values([0.5], [(0, 2), (3, 4)], 4), token_values(None, [(0, 2)], 2)
    ([0.5, 0.5, 0.0, 0.5], [0.0, 0.0])
    """
    if turns is None or not spans:
        return [0.0] * length
    if len(turns) == 1:
        turns = [turns[0]] * len(spans)
    if len(turns) != len(spans):
        raise DataError(
            f"the score has {len(turns)} turns, but the mask of own tokens has {len(spans)} runs",
            "turns",
        )
    return spread(turns, spans, length)


# --- recipes in trainers -------------------------------------------------------------------------


class SingleRecipe:
    """A recipe in a trainer that passes one rollout at a time.

    The other arguments are those of `check_scope` and `TurnSums`; `way_to_turn_credit` is None if
    the rewards of turns are not summed. Raises UsageError for a recipe that needs what the trainer
    does not pass.
    """

    def __init__(
        self,
        scorer: Scorer,
        trainer: str,
        *,
        for_groups: str,
        for_stages: str = "start a run for each stage",
        way_to_turn_credit: str | None = "",
    ) -> None:
        check_scope(scorer.reward, trainer, for_groups=for_groups, for_stages=for_stages)
        self.scorer = scorer
        self._sums = None if way_to_turn_credit is None else TurnSums(way_to_turn_credit)
        self._searches = SearchCheck()

    async def score(self, rollout: Rollout | RolloutError) -> Score:
        """Return the score of a rollout. Raises its RolloutError if it is unscored.

        Rules are scored in a thread, so that the event loop can generate other rollouts.
        """
        self._searches.check(self.scorer.recipes, [rollout])
        if self.scorer.has_models:
            [result] = await self.scorer.score_each_async([rollout])
        else:
            [result] = await asyncio.to_thread(self.scorer.score_each, [rollout])
        score = score_of(result)
        if self._sums is not None:
            self._sums.check([score])
        return score


class GroupRecipe:
    """A recipe in a trainer that passes complete groups, with a credit method.

    The docstrings of the subclasses describe the arguments. Raises UsageError for a curriculum if
    the trainer does not pass the training step.
    """

    trainer = ""
    """Name of the trainer in messages."""
    for_stages = "start a run for each stage"
    """What to do for a curriculum; "" if the trainer passes the training step."""
    way_to_turn_credit = ""
    """What gives turns their own advantages in this trainer, if anything does."""

    def __init__(
        self,
        recipe: RecipeSource | None = None,
        *,
        credit: Credit | str | None = None,
        credit_options: Mapping[str, Any] | None = None,
        std_floor: float | None = None,
        patience: int = 8,
        **options: Any,
    ) -> None:
        self.scorer = load(recipe, options)
        check_scope(self.scorer.reward, self.trainer, for_stages=self.for_stages)
        self.credit = credit_of(credit, credit_options, self.scorer, std_floor)
        self.std_floor = std_floor
        self._unscored = UnscoredHandler(patience)
        self._sums = TurnSums(self.way_to_turn_credit)
        self._searches = SearchCheck()

    @property
    def name(self) -> str:
        """The name of the recipe, which its metrics begin with."""
        return str(self.scorer.reward.name)

    async def scores(
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups
    ) -> list[Score | None]:
        """Return the score of each rollout of complete groups, None for an unscored one.

        Raises the RolloutError that ends the training, see `UnscoredHandler`.
        """
        self._searches.check(self.scorer.recipes, rollouts)
        results = await self.scorer.score_each_async(rollouts, groups)
        scores = self._unscored.handle(results, rollouts)
        if self.credit is None:
            self._sums.check(scores)
        return scores

    def turn_advantages(
        self,
        scores: Sequence[Score | None],
        rollouts: Sequence[Rollout | RolloutError],
        groups: Groups,
    ) -> Advantages:
        """Return the advantages of the turns of each rollout, None for an unscored one.

        Raises UsageError without a credit method.
        """
        if self.credit is None:
            raise UsageError("the recipe has no credit method: pass credit=, such as 'return'")
        return self.credit(scores, groups, list(map(turn_anchors, scores, rollouts)))
