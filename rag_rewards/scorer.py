"""`Scorer`, the engine that scores rollouts and rows with a recipe and its models.

    scorer = Scorer.load("arena", {"bonus.value": 5}, hardened=True)
    scorer.score_each(rollouts)             # or: await scorer.score_each_async(rollouts)
    scorer.score_rows(chunk)                # lines of a file

The models provide evidence first. Then scoring is a pure function of the rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rag_rewards.backends.model_options import ModelOptions
from rag_rewards.definition import Recipe
from rag_rewards.errors import GroupError, RolloutError, UsageError
from rag_rewards.evidence.needs import ModelKind
from rag_rewards.evidence.protocols import Models
from rag_rewards.groups import (
    Groups,
    check_groups,
    fail_groups,
    fail_groups_of_models,
    group_by_key,
    renumber,
)
from rag_rewards.loading import (
    RECIPE_KEYS,
    RecipeSource,
    RecipeSpec,
    is_hardened,
    load_recipe,
    recipes_of,
    spec_of,
)
from rag_rewards.output_form import ANY_FORM
from rag_rewards.prompt_template import PromptTemplate, adjusted
from rag_rewards.prompts import Prompt
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.rows import SCORE_FIELDS, Chunk, RowEncoder, ScoredChunk, ScoredRow, decode_line
from rag_rewards.rows.decisions import UndecidedCheck
from rag_rewards.rows.parquet import column_fault
from rag_rewards.scoring.rollout_dump import RolloutDump, split_dump
from rag_rewards.settings import did_you_mean
from rag_rewards.signature import signature_of
from rag_rewards.training.curriculum import Curriculum

if TYPE_CHECKING:
    from rag_rewards.evidence.gather import Gatherer
    from rag_rewards.evidence.usage import EvidenceUsage

R = TypeVar("R", bound=Rollout)
T = TypeVar("T")

_ROW = msgspec.json.Decoder(ScoredRow)


class Scorer:
    """Scores rollouts and rows with one recipe. Its models provide missing evidence.

    reward         a recipe or a curriculum; `Scorer.load` accepts every other form
    models         models that provide evidence; without models, rollouts must contain it
    prompt         prompt of the policy; default: the prompt of the recipe
    template       arguments of the policy's chat template
    truncate       drop non-supporting documents when a prompt exceeds the context length
    response_limit  parameter of a trainer that limits the length of a response, for errors
    prompt_template  message of the prompt, instead of its own
    document_form, document_separator
                   form of a document in the prompt, and the text between two documents
    keep_evidence  write gathered evidence on scored rows
    for_parquet    reject rows with values that no Parquet column can contain
    dump           file to which `score_each` writes every rollout with its score

    Close a scorer after use if its models have connections: `with Scorer.load(…) as scorer`.
    """

    def __init__(
        self,
        reward: Recipe | Curriculum,
        models: Models | None = None,
        *,
        prompt: Prompt | None = None,
        template: Mapping[str, Any] | None = None,
        truncate: bool = False,
        response_limit: str = "",
        prompt_template: PromptTemplate | None = None,
        document_form: str | None = None,
        document_separator: str | None = None,
        keep_evidence: bool = False,
        for_parquet: bool = False,
        dump: RolloutDump | None = None,
    ) -> None:
        self.reward = reward
        self.models = models or Models()
        self.prompt = adjusted(
            prompt or self._recipe_prompt(),
            self.recipes[0].output_form,
            prompt_template,
            document_form,
            document_separator,
        )
        self.template = dict(template or {})
        self.truncate = truncate
        self.response_limit = response_limit
        self.keep_evidence = keep_evidence
        self.for_parquet = for_parquet
        self.dump = dump
        self._undecided = UndecidedCheck()
        self.spec: RecipeSpec | None = None
        """The recipe as plain data for other processes; None if it was loaded from an object."""

    @classmethod
    def load(
        cls,
        recipe: RecipeSource,
        settings: Mapping[str, Any] | None = None,
        *,
        hardened: bool = False,
        models: Models | ModelOptions | None = None,
        prompt: Prompt | None = None,
        template: Mapping[str, Any] | None = None,
        response_limit: str = "",
        keep_evidence: bool = False,
        for_parquet: bool = False,
        dump: RolloutDump | None = None,
    ) -> Scorer:
        """Load a recipe in any form, and then its models.

        `recipe` has a form of `load_recipe`: a name, `module:name`, a recipe, a reward, a
        function, or a mapping. A mapping can also contain the options of `ModelOptions` and
        `DumpOptions`. Raises UsageError or SettingError for an invalid recipe, before a model is
        loaded.

        >>> Scorer.load({"recipe": "arena", "settings": {"bonus.value": 5}}).reward.name
        'arena'
        """
        if isinstance(recipe, Mapping):
            recipe, own_dump = split_dump(recipe)
            dump = dump or own_dump
            recipe, options = split_options(recipe)
            if options != ModelOptions():
                if models not in (None, ModelOptions()):
                    raise UsageError("models are given twice: in the mapping and as `models`")
                models = options
        reward = load_recipe(recipe, settings, hardened=hardened)
        prompting: dict[str, Any] = {}
        if isinstance(models, ModelOptions):
            prompting = models.prompt_options
            cls(reward, prompt=prompt, **prompting)  # raises before a model is loaded
            models = models.for_profile(hardened=is_hardened(recipe, hardened=hardened)).load()
        scorer = cls(
            reward,
            models,
            prompt=prompt,
            template=template,
            response_limit=response_limit,
            keep_evidence=keep_evidence,
            for_parquet=for_parquet,
            dump=dump,
            **prompting,
        )
        scorer.spec = spec_of(recipe, settings, hardened=hardened)
        return scorer

    def _recipe_prompt(self) -> Prompt:
        prompts = list(dict.fromkeys(each.prompt for each in self.recipes))
        if self.models.policy is not None and len(prompts) > 1:
            raise UsageError("the stages have different prompts: score each stage by itself")
        return prompts[0]

    # --- properties ----------------------------------------------------------------------------

    @property
    def recipes(self) -> list[Recipe]:
        """The recipe, or those of all stages of a curriculum."""
        return recipes_of(self.reward)

    @property
    def scope(self) -> str:
        """`group` if the reward compares the rollouts of a group, else `rollout`."""
        return str(self.reward.scope)

    @cached_property
    def decides_answers(self) -> bool:
        """Whether a recipe decides on answers as right, wrong or undecided."""
        return any(recipe.decides_answers for recipe in self.recipes)

    @property
    def has_models(self) -> bool:
        """Whether any model is set."""
        return self.models != Models()

    @cached_property
    def gatherer(self) -> Gatherer:
        """The gatherer, which requests evidence from the models."""
        from rag_rewards.evidence.gather import Gatherer

        return Gatherer(
            self.models,
            self.prompt,
            truncate=self.truncate,
            template=self.template,
            response_limit=self.response_limit,
        )

    @property
    def usage(self) -> EvidenceUsage:
        """The work of the models so far."""
        return self.gatherer.usage

    @property
    def fingerprints(self) -> dict[str, str]:
        """The models and their prompt, as parts of the signature.

        Information gains of a policy that does not generate the rollouts are marked `off-policy`.
        """
        if not self.has_models:
            return {}
        fingerprints, policy = self.gatherer.fingerprints, self.models.policy
        reads_likelihoods = any(recipe.reads_turn_likelihoods for recipe in self.recipes)
        if reads_likelihoods and policy is not None and not policy.capabilities.is_live:
            fingerprints["policy"] += " off-policy"
        return fingerprints

    @property
    def signature(self) -> str:
        """A string that identifies everything that affects a score."""
        return signature_of(self.reward, self.fingerprints)

    def missing(self, rollouts: Sequence[Rollout]) -> set[ModelKind]:
        """Return the kinds of model that these rollouts require and that are not set."""
        return {
            kind
            for kind in required_models(self.reward, rollouts)
            if getattr(self.models, kind) is None
        }

    # --- scoring -------------------------------------------------------------------------------

    def score_each(
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups | None = None
    ) -> list[ScoreOrError]:
        """Return a score or an error for each rollout.

        An error among the rollouts stays in its place, and fails its group if the recipe compares
        rollouts. The failure of a model (BackendError) fails its group for every recipe, because
        the rollouts that need no model would be compared without the others. `groups` contains the
        positions of the members of each group; by default, rollouts with equal keys form a group.
        """
        groups = self._groups(rollouts, groups)
        rows = self.gather(self._whole(list(rollouts), groups, rollouts), groups)
        results = self._score(rows, groups, rollouts)
        self._undecided.check(results)
        if self.dump is not None:
            self.dump.add(self, rollouts, rows, groups, results)
        return results

    async def score_each_async(
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups | None = None
    ) -> list[ScoreOrError]:
        """The same for callers with an event loop."""
        groups = self._groups(rollouts, groups)
        rows = await self.gather_async(self._whole(list(rollouts), groups, rollouts), groups)
        results = self._score(rows, groups, rollouts)
        self._undecided.check(results)
        if self.dump is not None:
            self.dump.add(self, rollouts, rows, groups, results)
        return results

    def score_rows(self, chunk: Chunk) -> ScoredChunk:
        """Return each line of a chunk with its score, or its error record."""
        decoded, checked, groups = self._decode(chunk)
        rows = self.gather(checked, groups)
        return self._encoder.encode(chunk, decoded, rows, self._score(rows, groups, decoded))

    async def score_rows_async(self, chunk: Chunk) -> ScoredChunk:
        """The same for callers with an event loop."""
        decoded, checked, groups = self._decode(chunk)
        rows = await self.gather_async(checked, groups)
        return self._encoder.encode(chunk, decoded, rows, self._score(rows, groups, decoded))

    def gather(
        self, rollouts: Sequence[R | RolloutError], groups: Groups | None = None
    ) -> list[R | RolloutError]:
        """Return the rollouts with the evidence that they lacked, or their errors."""
        if not self.has_models:
            return list(rollouts)
        good, within = _without_errors(rollouts, groups)
        informed = iter(self.gatherer.gather_sync(self.reward, good, within))
        return [row if isinstance(row, RolloutError) else next(informed) for row in rollouts]

    async def gather_async(
        self, rollouts: Sequence[R | RolloutError], groups: Groups | None = None
    ) -> list[R | RolloutError]:
        """The same for callers with an event loop."""
        if not self.has_models:
            return list(rollouts)
        good, within = _without_errors(rollouts, groups)
        informed = iter(await self.gatherer.gather(self.reward, good, within))
        return [row if isinstance(row, RolloutError) else next(informed) for row in rollouts]

    # --- steps ---------------------------------------------------------------------------------

    def _decode(
        self, chunk: Chunk
    ) -> tuple[list[ScoredRow | RolloutError], list[ScoredRow | RolloutError], Groups | None]:
        """Return the decoded lines of a chunk, those that can be scored, and their groups."""
        decoded = [decode_line(line, _ROW) for line in chunk.lines]
        if self.for_parquet:
            decoded = list(map(_for_parquet, decoded, chunk.lines))
        groups = self._groups(decoded, chunk.groups)
        checked = self._whole(_without_torn_groups(decoded, chunk), groups, decoded)
        return decoded, checked, groups

    def _groups(
        self, rows: Sequence[Rollout | RolloutError], groups: Groups | None
    ) -> Groups | None:
        """Return the groups; by key if the recipe compares rollouts and no groups are given."""
        if groups is None:
            return group_by_key(rows) if self.scope == "group" else None
        check_groups(groups, len(rows))
        return groups

    def _whole(
        self, results: list[T | RolloutError], groups: Groups | None, rows: Sequence[Any]
    ) -> list[T | RolloutError]:
        """Return the results, with the errors of groups.

        An error fails its group if the recipe compares rollouts. Otherwise, only the failure of a
        model does.
        """
        if self.scope != "group":
            return fail_groups_of_models(results, groups, rows)
        return results if groups is None else fail_groups(results, groups, rows)

    def _score(
        self,
        rows: list[R | RolloutError],
        groups: Groups | None,
        rollouts: Sequence[Rollout | RolloutError],
    ) -> list[ScoreOrError]:
        """Score rows after their evidence was gathered.

        `rollouts` are the same rows before: a row in error has no key any more.
        """
        whole = self._whole(rows, groups, rollouts)
        good, within = _without_errors(whole, groups if self.scope == "group" else None)
        scores = iter(self.reward.score_each(good, within))
        results = [row if isinstance(row, RolloutError) else next(scores) for row in whole]
        return self._whole(results, groups, rollouts)

    @cached_property
    def read_fields(self) -> frozenset[str]:
        """The fields of a row that the definitions of the recipes name."""
        definitions = [recipe.definition for recipe in self.recipes if recipe.definition]
        return frozenset(name for definition in definitions for name in definition.fields)

    @cached_property
    def _encoder(self) -> RowEncoder:
        form = getattr(self.reward, "output_form", ANY_FORM)
        return RowEncoder(
            self.signature,
            keep_evidence=self.keep_evidence,
            answer_mark=form.answer_mark,
            answer_part=form.answer_part(self.reward.name),
            read=self.read_fields,
        )

    # --- closing -------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the models, with or without a running event loop."""
        if self.has_models or self.dump is not None:
            # Imported here because runs without models do not need it.
            from rag_rewards.evidence.gather import run_coroutine

            run_coroutine(self.aclose())

    async def aclose(self) -> None:
        """The same for callers with an event loop."""
        if self.dump is not None:
            self.dump.flush()
        await self.models.close()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def required_models(reward: Recipe | Curriculum, rollouts: Sequence[Rollout]) -> set[ModelKind]:
    """Return the kinds of model that these rollouts require.

    A rollout whose needs cannot be computed is skipped. Scoring it raises the reason.
    """
    kinds: set[ModelKind] = set()
    for rollout in rollouts:
        try:
            kinds |= {need.model_kind for need in reward.needs(rollout) if not need.is_met(rollout)}
        except RolloutError:
            continue
    return kinds


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], ModelOptions]:
    """Divide a flat mapping into the options of a recipe and those of its models.

    Raises UsageError for an unknown option.

    >>> split_options({"recipe": "truthrl", "judge": "http://host/v1", "judge_model": "x"})[0]
    {'recipe': 'truthrl'}
    """
    recipe, models = _split(options)
    if isinstance(recipe.get("recipe"), Mapping):  # a mapping for the parameter `recipe`
        recipe["recipe"], defaults = _split(recipe["recipe"])
        models = defaults | models
    return recipe, ModelOptions.of(models).for_profile(hardened=is_hardened(recipe))


def _split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = (*RECIPE_KEYS, *(field.name for field in fields(ModelOptions)))
    for key in options:
        if key not in names:
            raise UsageError(f"unknown option {key!r}{did_you_mean(str(key), names)}")
    recipe = {key: value for key, value in options.items() if key in RECIPE_KEYS}
    return recipe, {key: value for key, value in options.items() if key not in RECIPE_KEYS}


def _without_errors(
    rows: Sequence[R | RolloutError], groups: Groups | None
) -> tuple[list[R], Groups | None]:
    """Return the rollouts among the rows, and their groups by new positions."""
    good = [row for row in rows if not isinstance(row, RolloutError)]
    if groups is None or len(good) == len(rows):
        return good, groups
    positions = [i for i, row in enumerate(rows) if not isinstance(row, RolloutError)]
    return good, renumber(groups, positions)


def _without_torn_groups(
    rows: list[ScoredRow | RolloutError], chunk: Chunk
) -> list[ScoredRow | RolloutError]:
    """Return the rows of a chunk, with errors in place of rows whose group cannot be scored."""
    if not any(chunk.problems):
        return rows
    checked = list(rows)
    for group, problem in zip(chunk.groups or (), chunk.problems, strict=True):
        for i in group if problem else ():
            if not isinstance(rows[i], RolloutError):
                checked[i] = GroupError(problem)
    return checked


def _for_parquet(row: ScoredRow | RolloutError, line: bytes) -> ScoredRow | RolloutError:
    """Return the row, or the reason why a Parquet file cannot contain it."""
    if isinstance(row, RolloutError):
        return row
    return column_fault(line, SCORE_FIELDS) or row
