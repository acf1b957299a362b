"""`Scorer`, the engine that scores rollouts and rows with a recipe and its models.

    scorer = Scorer.load("arena", {"bonus.value": 5}, hardened=True)
    scorer.score_each(rollouts)             # or: await scorer.score_each_async(rollouts)
    scorer.score_rows(chunk)                # lines of a file

The models provide evidence first. Then scoring is a pure function of the rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rag_rewards.errors import GroupError, RolloutError, UsageError
from rag_rewards.evidence.needs import ModelKind
from rag_rewards.evidence.protocols import Models
from rag_rewards.groups import Groups, Scope, groups_of, scorable, with_results
from rag_rewards.loading import (
    RECIPE_KEYS,
    RecipeSource,
    RecipeSpec,
    load_recipe,
)
from rag_rewards.models.model_options import ModelOptions, unknown_option
from rag_rewards.prompts import OutputForm, Prompt, PromptTemplate, adjusted
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes.output_forms import missing_part, parts_of, recipe_of_form
from rag_rewards.rollout import Rollout, ScoreOrError
from rag_rewards.rows import SCORE_FIELDS, Chunk, RowEncoder, ScoredChunk, ScoredRow, decode_line
from rag_rewards.rows.decisions import UndecidedCheck
from rag_rewards.settings import did_you_mean
from rag_rewards.signature import signature_of

if TYPE_CHECKING:
    from rag_rewards.evidence.exchange import EvidenceUsage
    from rag_rewards.evidence.gather import Gatherer
    from rag_rewards.scoring.rollout_dump import RolloutDump
    from rag_rewards.training.curriculum import Curriculum

R = TypeVar("R", bound=Rollout)
T = TypeVar("T")

_ROW = msgspec.json.Decoder(ScoredRow)
_KEYWORDS = ("models", "prompt", "keep_evidence", "for_parquet", "dump")


@dataclass(frozen=True)
class PromptOptions:
    """How a scorer forms the prompts of its policy.

    prompt           prompt of rows without one; default: the prompt of the recipe
    prompt_template  message of the prompt, instead of its own
    document_form, document_separator
                     form of a document in the prompt, and the text between two documents
    template         arguments of the policy's chat template
    truncate         drop non-supporting documents when a prompt exceeds the context length
    response_limit   parameter of a trainer that limits the length of a response, for errors
    """

    prompt: Prompt | None = None
    prompt_template: PromptTemplate | None = None
    document_form: str | None = None
    document_separator: str | None = None
    template: Mapping[str, Any] = field(default_factory=dict)
    truncate: bool = False
    response_limit: str = ""

    @classmethod
    def of(cls, models: ModelOptions, **further: Any) -> PromptOptions:
        """Return the prompt options among those of models, with further ones."""
        own: dict[str, Any] = {
            "prompt_template": models.template,
            "document_form": models.document_form,
            "document_separator": models.document_separator,
            "truncate": models.truncate,
        }
        return cls(**own | further)

    def adjusted(self, prompt: Prompt, form: OutputForm) -> Prompt:
        """Return a prompt with the message and the form of documents of these options."""
        parts = (self.prompt_template, self.document_form, self.document_separator)
        return adjusted(prompt, form, *parts)


class Scorer:
    """Scores rollouts and rows with one recipe. Its models provide missing evidence.

    reward         a recipe or a curriculum; `Scorer.load` accepts every other form
    models         models that provide evidence; without models, rollouts must contain it
    prompt         prompt of the policy, also as `PromptOptions`; default: the prompt of the recipe
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
        prompt: Prompt | PromptOptions | None = None,
        keep_evidence: bool = False,
        for_parquet: bool = False,
        dump: RolloutDump | None = None,
        **moved: Any,
    ) -> None:
        if moved:
            _refuse_moved(moved)
        self.reward = reward
        self.models = models or Models()
        options = prompt if isinstance(prompt, PromptOptions) else PromptOptions(prompt)
        self.prompt_options = options
        self.prompt = options.adjusted(
            options.prompt or self._recipe_prompt(), self.recipes[0].output_form
        )
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
        prompt: Prompt | PromptOptions | None = None,
        keep_evidence: bool = False,
        for_parquet: bool = False,
        dump: RolloutDump | None = None,
        **moved: Any,
    ) -> Scorer:
        """Load a recipe in any form, and then its models.

        `recipe` has a form of `load_recipe`: a name, `module:name`, a recipe, a reward, a
        function, or a mapping. A mapping can also contain the options of `ModelOptions` and
        `DumpOptions`. Raises UsageError or SettingError for an invalid recipe, before a model is
        loaded.

        >>> Scorer.load({"recipe": "arena", "settings": {"bonus.value": 5}}).reward.name
        'arena'
        """
        if moved:
            _refuse_moved(moved)
        if isinstance(recipe, Mapping):
            recipe, options, own_dump = split_options(recipe)
            dump = dump or own_dump
            if options != ModelOptions():
                if models not in (None, ModelOptions()):
                    raise UsageError("models are given twice: in the mapping and as `models`")
                models = options
        spec = RecipeSpec.of(recipe, settings, hardened=hardened)
        reward = load_recipe(spec)
        if isinstance(models, ModelOptions):
            prompt = PromptOptions.of(models, **_set_fields(prompt))
            cls(reward, prompt=prompt)  # raises before a model is loaded
            models = models.for_profile(hardened=spec.hardened).load()
        files: dict[str, Any] = {"keep_evidence": keep_evidence, "for_parquet": for_parquet}
        scorer = cls(reward, models, prompt=prompt, dump=dump, **files)
        scorer.spec = spec if spec.is_data else None
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
        return list(self.reward.recipes)

    @property
    def scope(self) -> Scope:
        """`group` if the reward compares the rollouts of a group, else `rollout`."""
        return self.reward.scope

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
            truncate=self.prompt_options.truncate,
            template=dict(self.prompt_options.template),
            response_limit=self.prompt_options.response_limit,
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
            if self.models.of_kind(kind) is None
        }

    # --- scoring -------------------------------------------------------------------------------

    def score_each(
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups | None = None
    ) -> list[ScoreOrError]:
        """Return a score or an error for each rollout.

        An error among the rollouts stays in its place. It fails its group if the recipe compares
        rollouts, and the failure of a model (BackendError) does for every recipe, see
        `fail_groups`. `groups` contains the positions of the members of each group; by default,
        rollouts with equal keys form a group.
        """
        groups = groups_of(rollouts, groups)
        return self._score(rollouts, groups, self.gather(rollouts, groups))

    async def score_each_async(
        self, rollouts: Sequence[Rollout | RolloutError], groups: Groups | None = None
    ) -> list[ScoreOrError]:
        """The same for callers with an event loop."""
        groups = groups_of(rollouts, groups)
        return self._score(rollouts, groups, await self.gather_async(rollouts, groups))

    def score_rows(self, chunk: Chunk) -> ScoredChunk:
        """Return each line of a chunk with its score, or its error record."""
        decoded, rows, groups = self._decode(chunk)
        return self._encode(chunk, decoded, groups, self.gather(rows, groups))

    async def score_rows_async(self, chunk: Chunk) -> ScoredChunk:
        """The same for callers with an event loop."""
        decoded, rows, groups = self._decode(chunk)
        return self._encode(chunk, decoded, groups, await self.gather_async(rows, groups))

    def gather(
        self, rollouts: Sequence[R | RolloutError], groups: Groups | None = None
    ) -> list[R | RolloutError]:
        """Return the rollouts with the evidence that they lacked, or their errors.

        No evidence is requested for a group that cannot be scored.
        """
        if not self.has_models:
            return list(rollouts)
        rows, good, within = scorable(rollouts, groups_of(rollouts, groups), self.scope)
        return with_results(rows, self.gatherer.gather_sync(self.reward, good, within))

    async def gather_async(
        self, rollouts: Sequence[R | RolloutError], groups: Groups | None = None
    ) -> list[R | RolloutError]:
        """The same for callers with an event loop."""
        if not self.has_models:
            return list(rollouts)
        rows, good, within = scorable(rollouts, groups_of(rollouts, groups), self.scope)
        return with_results(rows, await self.gatherer.gather(self.reward, good, within))

    # --- steps ---------------------------------------------------------------------------------

    def _score(
        self,
        rollouts: Sequence[Rollout | RolloutError],
        groups: Groups,
        rows: Sequence[Rollout | RolloutError],
    ) -> list[ScoreOrError]:
        """Score rollouts after their evidence was gathered. `rows` have this evidence."""
        results = self.reward.score_each(rows, groups)
        self._undecided.check(results)
        if self.dump is not None:
            self.dump.add(self, rollouts, rows, groups, results)
        return results

    def _decode(
        self, chunk: Chunk
    ) -> tuple[list[ScoredRow | RolloutError], list[ScoredRow | RolloutError], Groups]:
        """Return the decoded lines of a chunk, the same without torn groups, and the groups."""
        decoded = [decode_line(line, _ROW) for line in chunk.lines]
        if self.for_parquet:
            decoded = list(map(_for_parquet, decoded, chunk.lines))
        return decoded, _without_torn_groups(decoded, chunk), groups_of(decoded, chunk.groups)

    def _encode(
        self,
        chunk: Chunk,
        decoded: Sequence[ScoredRow | RolloutError],
        groups: Groups,
        rows: Sequence[ScoredRow | RolloutError],
    ) -> ScoredChunk:
        """Score decoded lines after their evidence was gathered, and return them as lines."""
        return self._encoder.encode(chunk, decoded, rows, self.reward.score_each(rows, groups))

    @cached_property
    def read_fields(self) -> frozenset[str]:
        """The fields of a row that the definitions of the recipes name."""
        definitions = [recipe.definition for recipe in self.recipes if recipe.definition]
        return frozenset(name for definition in definitions for name in definition.fields)

    @cached_property
    def _encoder(self) -> RowEncoder:
        return RowEncoder(
            self.signature,
            keep_evidence=self.keep_evidence,
            missing_part=missing_part_by(self.reward),
            other_form=recipe_of_form,
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


def missing_part_by(reward: Recipe | Curriculum) -> Callable[[Rollout], str]:
    """Return the function from a rollout to the first part that its response lacks, "" if none.

    The parts are those that the recipe requires, of a curriculum that of the rollout's step.
    """
    parts = {id(each): parts_of(each.output_form, each.name) for each in reward.recipes}

    def missing(rollout: Rollout) -> str:
        recipe = reward if isinstance(reward, Recipe) else reward.at(rollout.step or 0)
        return missing_part(rollout, parts[id(recipe)])

    return missing


def split_options(
    options: Mapping[str, Any],
) -> tuple[RecipeSpec, ModelOptions, RolloutDump | None]:
    """Divide a flat mapping into the options of a recipe, of its models and of its dump.

    Raises UsageError for an unknown option.

    >>> split_options({"recipe": "truthrl", "judge": "http://host/v1", "judge_model": "x"})[0]
    RecipeSpec(recipe='truthrl', settings={}, hardened=False, stages=[])
    """
    from rag_rewards.scoring.rollout_dump import split_dump  # few runs write a dump

    options, dump = split_dump(options)
    recipe, models = _split(options)
    if isinstance(recipe.get("recipe"), Mapping):  # a mapping for the parameter `recipe`
        recipe["recipe"], defaults = _split(recipe["recipe"])
        models = defaults | models
    spec = RecipeSpec.of(recipe)
    return spec, ModelOptions.of(models).for_profile(hardened=spec.hardened), dump


def _split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = (*RECIPE_KEYS, *(each.name for each in fields(ModelOptions)))
    for key in options:
        if key not in names:
            raise unknown_option(str(key), names)
    recipe = {key: value for key, value in options.items() if key in RECIPE_KEYS}
    return recipe, {key: value for key, value in options.items() if key not in RECIPE_KEYS}


def _refuse_moved(keywords: Mapping[str, Any]) -> None:
    """Raise UsageError for a keyword of a scorer that is now a field of `PromptOptions`."""
    moved = {each.name: f"prompt=PromptOptions({each.name}=…)" for each in fields(PromptOptions)}
    for name in keywords:
        hint = f": use {moved[name]}" if name in moved else did_you_mean(name, _KEYWORDS)
        raise UsageError(f"a Scorer has no parameter {name!r}{hint}")


def _set_fields(prompt: Prompt | PromptOptions | None) -> dict[str, Any]:
    """Return the fields of prompt options that differ from their defaults."""
    if not isinstance(prompt, PromptOptions):
        return {"prompt": prompt}
    default = PromptOptions()
    return {name: value for name, value in vars(prompt).items() if value != getattr(default, name)}


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
    from rag_rewards.files.parquet_columns import column_fault  # few runs write Parquet files

    if isinstance(row, RolloutError):
        return row
    return column_fault(line, SCORE_FIELDS) or row
