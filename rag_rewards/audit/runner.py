"""Run an audit: score each attack and the same response without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import msgspec

from rag_rewards.audit import row_attacks
from rag_rewards.audit.agent_rows import shown
from rag_rewards.audit.capitals import CITIES, COUNTRIES, question_row
from rag_rewards.audit.cases import CASES, Case
from rag_rewards.audit.findings import Audit, Finding
from rag_rewards.audit.policies import POLICIES, DegeneratePolicy
from rag_rewards.audit.row_attacks import (
    ABSTENTION,
    ALWAYS_REFUSES,
    Target,
    target_of,
    with_last_turn,
)
from rag_rewards.audit.rule_evidence import with_evidence, with_group_evidence
from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.evidence.protocols import Models
from rag_rewards.evidence.values import EVIDENCE_FIELDS
from rag_rewards.loading import RecipeSource, load_recipe
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes import RECIPES
from rag_rewards.recipes.sample import ROW
from rag_rewards.rollout import Rollout
from rag_rewards.rows import decode_row
from rag_rewards.scorer import Scorer

MAX_ROWS = 100
"""The largest number of your own rows that are attacked, evenly spaced over the file."""

Attack = Callable[[Rollout], "str | Rollout | None"]
"""A function from a rollout to the attacked response or rollout; None if it does not apply."""


def audit(
    reward: RecipeSource,
    rows: Iterable[Rollout | Mapping[str, Any]] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    hardened: bool = False,
    attacks: Sequence[Attack] = (),
    models: Models | None = None,
) -> Audit:
    """Try every known attack on a recipe, a reward or a function of a rollout.

    reward    a recipe name, a recipe, a reward or a function
    rows      rows to attack; by default the built-in cases of a named recipe, and for any other
              reward four questions about capitals, in the output form with the highest reward
    settings  settings of a named recipe
    hardened  whether a named recipe uses its hardened profile
    attacks   further attacks of your own
    models    models that provide evidence; rules over words replace a missing model

    Evidence in the rows is ignored, because it belongs to the response before the attack. Raises
    UsageError if nothing can be attacked, DataError if no row has a gold answer.

    >>> def long(rollout): return min(len(rollout.parsed.text) / 1000, 1)
    >>> audit(long).ok
    False
    """
    recipe = _recipe_of(reward, settings, hardened)
    bench = _Bench(recipe, Scorer(recipe, models) if models else None)
    rollouts = None if rows is None else list(map(_rollout_of, rows))
    if rollouts is not None and not rollouts:
        raise UsageError("no row to attack: the rows are empty")
    targets = _capitals(recipe) if rollouts is None else _spread(rollouts)
    excuses = excuses_of(recipe)
    findings, elsewhere = _built_in(recipe, excuses) if rollouts is None else ([], [])
    if rollouts is not None or not _has_responses(recipe):
        findings += [
            msgspec.structs.replace(each, excused=excuses.get((each.attack, ""), ""))
            for each in bench.all_attacks(targets)
        ]
    for attack in attacks:
        findings += bench.own_attack(attack, targets)
    if not findings:
        reason = bench.failed[0] if bench.failed else "no attack applies to the rows"
        raise UsageError(f"nothing could be attacked: {reason}")
    return Audit(
        signature=recipe.signature,
        evidence="models, else rules over words" if bench.scorer else "rules over words",
        findings=tuple(findings),
        elsewhere=tuple(dict.fromkeys(elsewhere)),
        failed=tuple(dict.fromkeys(bench.failed)),
        rows=len(targets),
    )


def _recipe_of(source: RecipeSource, settings: Mapping[str, Any] | None, hardened: bool) -> Recipe:
    recipe = load_recipe(source, settings, hardened=hardened)
    if not isinstance(recipe, Recipe):
        raise UsageError("a curriculum cannot be audited as a whole: audit each stage's recipe")
    return recipe


def _rollout_of(row: Rollout | Mapping[str, Any]) -> Rollout:
    return decode_row(row) if isinstance(row, Mapping) else row


def _spread(rows: Sequence[Rollout]) -> list[Rollout]:
    if len(rows) <= MAX_ROWS:
        return list(rows)
    return [rows[i * len(rows) // MAX_ROWS] for i in range(MAX_ROWS)]


# --- published recipes ---------------------------------------------------------------------------


Excuses = Mapping[tuple[int | None, str], str]
"""Why attacks pay by the recipe's own definition, by number and variant."""


def excuses_of(recipe: Recipe) -> Excuses:
    """Return why attacks pay by the recipe's own definition.

    The names of variants are those of the built-in rows. The variant "" has the reason for other
    rows, on which every variant of such an attack is excused.
    """
    definition = recipe.definition
    excuses: dict[tuple[int | None, str], str] = {}
    for loophole in definition.loopholes if definition else ():
        for attack, variants in loophole.variants.items():
            excuses |= dict.fromkeys([(attack, each) for each in (*variants, "")], loophole.text)
    return excuses


def _has_responses(recipe: Recipe) -> bool:
    """Return whether the built-in cases of a recipe attack single responses."""
    if recipe.definition is not RECIPES.get(recipe.name):
        return False
    return any(case.recipe == recipe.name and not case.form for case in CASES)


def _built_in(recipe: Recipe, excuses: Excuses) -> tuple[list[Finding], list[str]]:
    """Score the built-in cases and policies of a recipe in the table of recipes.

    Returns the findings, and the settings of the cases that require other settings.
    """
    definition = recipe.definition
    if definition is None or definition is not RECIPES.get(recipe.name):
        return [], []
    current = recipe.settings or {}
    findings: list[Finding] = []
    elsewhere: list[str] = []
    entries: list[Case | DegeneratePolicy] = [*CASES, *POLICIES]
    for each in entries:
        if each.recipe != recipe.name:
            continue
        if any(current.get(key) != value for key, value in each.settings.items()):
            elsewhere.append(", ".join(f"{key}={value}" for key, value in each.settings.items()))
            continue
        without, attacked = each.rewards(recipe)
        is_policy = isinstance(each, DegeneratePolicy)
        row = each.attacked[0] if isinstance(each, DegeneratePolicy) else each.attacked
        findings.append(
            Finding(
                attack=each.attack,
                name=each.name,
                kind="policy" if is_policy else "response",
                row="built-in",
                without=without,
                attacked=attacked,
                response=shown(row),
                excused=excuses.get((each.attack, each.variant), ""),
                is_free=isinstance(each, Case) and each.is_free,
            )
        )
    return findings, elsewhere


def _capitals(recipe: Recipe) -> list[Rollout]:
    """Return four questions with right answers, in the recipe's output form.

    Without a definition, the recipe gets the output form with the highest reward.
    """

    def rows(write: Callable[[str], str], answer: Callable[[int], str]) -> list[Rollout]:
        return [
            decode_row(ROW | question_row(n, write(answer(n)), id=f"capital-{n + 1}"))
            for n in range(len(CITIES))
        ]

    def mean_reward(choice: list[Rollout]) -> float:
        scores = recipe.score_each([with_evidence(recipe, row) for row in choice])
        return mean(0.0 if isinstance(s, RolloutError) else s.value or 0.0 for s in scores)

    if recipe.definition:
        writers: list[Callable[[str], str]] = [recipe.output_form.write]
    else:
        forms = {each.output.template: each.output for each in RECIPES.values()}
        writers = [str, *(form.write for form in forms.values())]
    answers: tuple[Callable[[int], str], ...] = (
        lambda n: CITIES[n],
        lambda n: f"{CITIES[n]} is the capital of {COUNTRIES[n]}",
    )
    return max((rows(write, answer) for write in writers for answer in answers), key=mean_reward)


# --- rows of any kind ----------------------------------------------------------------------------


@dataclass
class _Bench:
    """Scores attacks on rows with a recipe.

    scorer  gathers evidence from models; None without models
    failed  rows that could not be scored, with the reason
    """

    recipe: Recipe
    scorer: Scorer | None
    failed: list[str] = field(default_factory=list)

    def all_attacks(self, rows: Sequence[Rollout]) -> list[Finding]:
        """Try every known attack and degenerate policy on rows."""
        targets = list(self._targets(rows))
        if not targets:
            raise DataError("no row has gold answers to attack with", "answers")
        findings = [each for target in targets for each in self._response_attacks(target)]
        return findings + self._policy_attacks(targets)

    def own_attack(self, attack: Attack, rows: Sequence[Rollout]) -> list[Finding]:
        """Try a user's attack on every row to which it applies."""
        name = getattr(attack, "__name__", repr(attack))
        findings = []
        for row in rows:
            attacked = attack(row)
            if attacked is None:
                continue
            if isinstance(attacked, str):
                attacked = _with_response(row, attacked)
            if not isinstance(attacked, Rollout):
                raise UsageError(
                    f"attack {name} returned {attacked!r}: return a response, a rollout or None"
                )
            findings += self._compare(None, name, row, (_with_response(row, None), attacked))
        return findings

    def _targets(self, rows: Sequence[Rollout]) -> Iterator[Target]:
        golds = []
        for row in rows:
            try:
                golds.append(row.gold[0][0])
            except RolloutError as error:
                self.failed.append(f"{_name(row)}: {error}")
        for row in rows:
            try:
                yield target_of(row, tuple(dict.fromkeys(golds)))
            except RolloutError:
                continue

    def _response_attacks(self, target: Target) -> list[Finding]:
        findings = []
        row = target.rollout
        for pair in row_attacks.pairs(target):
            sides = (_with_response(row, pair.honest), _with_response(row, pair.attacked))
            findings += self._compare(pair.attack, pair.name, row, sides, target)
        return findings

    def _policy_attacks(self, targets: Sequence[Target]) -> list[Finding]:
        """Compare each degenerate policy with the honest one over all rows.

        The honest policy gives the row's own response, refuses or abstains, whichever has the
        highest reward. A policy that needs documents is compared on the rows that have some.
        """
        habits = [row_attacks.habits(target) for target in targets]
        honest = [
            self._best(
                (target.response, answers[ALWAYS_REFUSES], target.with_answer(ABSTENTION)), target
            )
            for target, answers in zip(targets, habits, strict=True)
        ]
        findings = []
        for attack, name in dict.fromkeys(habit for answers in habits for habit in answers):
            compared = []
            for target, answers, best in zip(targets, habits, honest, strict=True):
                if (text := answers.get((attack, name))) is None:
                    continue
                reward = self._reward(_with_response(target.rollout, text), target)
                if reward is not None and best is not None:
                    compared.append((reward, best, text))
            if compared:
                findings.append(
                    Finding(
                        attack=attack,
                        name=name,
                        kind="policy",
                        row=f"{len(compared)} rows",
                        without=mean(best for _, best, _ in compared),
                        attacked=mean(reward for reward, _, _ in compared),
                        response=compared[0][2],
                    )
                )
        return findings

    def _best(self, texts: Sequence[str], target: Target) -> float | None:
        """Return the highest reward of several responses, or None if none has a score."""
        rewards = [self._reward(_with_response(target.rollout, text), target) for text in texts]
        return max((each for each in rewards if each is not None), default=None)

    def _compare(
        self,
        attack: int | None,
        name: str,
        row: Rollout,
        sides: tuple[Rollout, Rollout],
        target: Target | None = None,
    ) -> list[Finding]:
        """Score a row without and with an attack; return no finding if one has no score."""
        without, attacked = (self._reward(side, target) for side in sides)
        if without is None or attacked is None:
            return []
        return [
            Finding(
                attack=attack,
                name=name,
                kind="response",
                row=_name(row),
                without=without,
                attacked=attacked,
                response=sides[1].parsed.text,
            )
        ]

    def _reward(self, row: Rollout, target: Target | None) -> float | None:
        """Return the reward of a row, or None if it has no score.

        A right and a wrong response are in its group if the recipe compares.
        """
        group = [row]
        if self.recipe.scope == "group":
            target = target or target_of(row)
            for answer in (target.gold, target.wrong[0]):
                group.append(_with_response(row, target.with_answer(answer)))
        group = [msgspec.structs.replace(each, group="g") for each in group]
        gathered: Sequence[Rollout | RolloutError] = group
        if self.scorer is not None:
            gathered = self.scorer.gather(group)
        complete = []
        for each in gathered:
            if isinstance(each, RolloutError):
                self.failed.append(f"{_name(row)}: {each.message}")
                return None
            complete.append(with_evidence(self.recipe, each))
        score = self.recipe.score_each(with_group_evidence(self.recipe, complete))[0]
        if isinstance(score, RolloutError):
            self.failed.append(f"{_name(row)}: {score.message}")
            return None
        return score.value


_RESPONSE_FIELDS = (*EVIDENCE_FIELDS, "response_token_ids", "prompt_token_ids")
"""Fields that belong to the response of a row."""


def _with_response(row: Rollout, text: str | None) -> Rollout:
    """Return a row with another response (None: the same) and without evidence."""
    response = row.parsed.text if text is None else text
    return with_last_turn(row, response, **dict.fromkeys(_RESPONSE_FIELDS))


def _name(row: Rollout) -> str:
    return str(row.id) if row.id is not None else "a row"
