"""The base class of reward functions that a trainer calls with batches of completions.

A subclass (those of TRL and ms-swift) adds the trainer's calling convention: how a batch is passed,
which completions form a group, and where components are logged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from rag_rewards.errors import RolloutError
from rag_rewards.evidence.needs import ModelKind
from rag_rewards.groups import Groups
from rag_rewards.models.model_options import missing_model
from rag_rewards.rollout import Rollout, Score, ScoreOrError
from rag_rewards.rows.column_map import ColumnMap
from rag_rewards.rows.columns import DATASET_FIELDS
from rag_rewards.scorer import Scorer, required_models
from rag_rewards.training.advantages import advantages_of_groups
from rag_rewards.training.turn_sums import TurnSums
from rag_rewards_adapters.scoring import (
    SearchCheck,
    UnscoredHandler,
    batch_metrics,
    component_columns,
)

T = TypeVar("T")


class TrainerBatch(Protocol):
    """What a trainer passes in one call."""

    @property
    def columns(self) -> Mapping[str, Sequence[Any]]:
        """The columns of the data set, with one value per completion."""

    @property
    def positions(self) -> Sequence[int]:
        """The positions of the completions that are scored."""

    @property
    def updates(self) -> int | None:
        """The number of optimizer steps that the trainer has finished."""


B = TypeVar("B", bound=TrainerBatch)


class TrainerReward(ABC, Generic[B]):
    """A recipe as a reward function over batches.

    name             name of the reward in the trainer's logs
    columns          row field → column of the data set, where names differ
    std_floor        return (R − mean)/max(std, floor) within the group, the advantage of LEAR
    patience         number of consecutive batches before the error is raised: those in which a
                     model failed and a tenth of the completions is unscored, or all are
    """

    _way_to_policy = "set"
    """The words before the option that provides a policy, in the error of a missing one."""
    _way_to_turn_credit = ""
    """What gives turns their own advantages in this trainer, if anything does."""

    has_turn_credit = False
    """Whether the trainer reads the rewards of turns from `last_scores`."""

    def __init__(
        self,
        name: str,
        *,
        columns: Mapping[str, str] | None,
        std_floor: float | None,
        patience: int,
    ) -> None:
        self.__name__ = name
        self._columns = ColumnMap.of(columns, DATASET_FIELDS)
        self._std_floor = std_floor
        self._unscored = UnscoredHandler(patience)
        self._sums = TurnSums(self._way_to_turn_credit)
        self._searches = SearchCheck()
        self.last_scores: list[Score | None] = []
        """The scores of the last batch, None for an unscored completion."""

    @property
    @abstractmethod
    def scorer(self) -> Scorer:
        """The recipe and its models."""

    @property
    def signature(self) -> str:
        """A string that identifies everything that affects a reward, with the models."""
        return self.scorer.signature

    @property
    def not_scored(self) -> int:
        """The number of unscored completions so far."""
        return self._unscored.count

    @property
    def std_floor(self) -> float | None:
        """The floor of the standard deviation of an advantage in place of the reward."""
        return self._std_floor

    @property
    def _compares_groups(self) -> bool:
        """Whether all completions of a prompt must be scored together."""
        return self.scorer.scope == "group" or self._std_floor is not None

    # --- the calling convention ----------------------------------------------------------------

    @abstractmethod
    def _groups(self, batch: B) -> Groups | None:
        """Return the groups of a batch, None if they are unknown and the reward compares none.

        A group contains indices into `batch.positions`. Raises GroupError for incomplete groups.
        """

    @abstractmethod
    def _rollout(self, batch: B, position: int, fields: dict[str, Any]) -> Rollout | RolloutError:
        """Return one completion as a rollout. `fields` are those of its row in the data set."""

    @abstractmethod
    def _write_log(
        self,
        batch: B,
        columns: Mapping[str, Sequence[float | None]],
        means: Mapping[str, float],
    ) -> None:
        """Log the values of each completion and their means, by name."""

    # --- scoring -------------------------------------------------------------------------------

    def _score(self, batch: B) -> list[Any]:
        """Return the reward of each completion."""
        groups, rollouts = self._groups(batch), self._rollouts(batch)
        results = self.scorer.score_each(rollouts, groups)
        return self._rewards(batch, rollouts, results, groups)

    async def _score_async(self, batch: B) -> list[Any]:
        """Return the reward of each completion, for callers with an event loop."""
        groups, rollouts = self._groups(batch), self._rollouts(batch)
        results = await self.scorer.score_each_async(rollouts, groups)
        return self._rewards(batch, rollouts, results, groups)

    def _rollouts(self, batch: B) -> list[Rollout | RolloutError]:
        columns = self._fields(batch.columns)
        rollouts = [
            self._rollout(batch, i, {field: values[i] for field, values in columns.items()})
            for i in batch.positions
        ]
        decoded = [rollout for rollout in rollouts if isinstance(rollout, Rollout)]
        self._require_models(required_models(self.scorer.reward, decoded))
        return rollouts

    def _fields(self, columns: Mapping[str, T]) -> dict[str, T]:
        """Return the columns of a data set by the field of a row that each of them contains."""
        names = self._columns.columns_in(columns)
        return {field: columns[column] for field, column in names.items()}

    def _require_models(self, kinds: Collection[ModelKind]) -> None:
        """Raise UsageError if a model of one of these kinds is not set."""
        missing = {kind for kind in kinds if self.scorer.models.of_kind(kind) is None}
        if missing:
            kind = min(missing)
            way = self._way_to_policy if kind in ("policy", "generator") else "set"
            raise missing_model(self.__name__, kind, way)

    def _rewards(
        self,
        batch: B,
        rollouts: Sequence[Rollout | RolloutError],
        results: Sequence[ScoreOrError],
        groups: Groups | None,
    ) -> list[Any]:
        """Return the values that the trainer gets. None marks an unscored completion."""
        self._searches.check(self.scorer.recipes, rollouts)
        scores = self._unscored.handle(results, rollouts, batch.positions)
        self.last_scores = scores
        if not self.has_turn_credit:
            self._sums.check(scores)
        values = [score.value if score else None for score in scores]
        self._log(batch, scores, values)
        if self._std_floor is None:
            return values
        return advantages_of_groups(values, groups or (), std_floor=self._std_floor)

    # --- logging -------------------------------------------------------------------------------

    def _log(
        self, batch: B, scores: Sequence[Score | None], values: Sequence[float | None]
    ) -> None:
        columns = self._logged_columns(scores, values)
        self._write_log(batch, columns, batch_metrics(self.__name__, columns, scores))

    def _logged_columns(
        self, scores: Sequence[Score | None], values: Sequence[float | None]
    ) -> dict[str, list[float | None]]:
        """Return one value per completion for each component; None where there is none."""
        return component_columns(self.__name__, self.scorer.reward.component_names, scores)
