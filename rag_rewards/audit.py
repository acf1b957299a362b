"""Does an attack pay? The known ways to cheat, and one's own, against any recipe or composition.

A response attack pays when it earns more than the same response without it; a degenerate policy
pays when its mean beats that of an honest policy that knows as much.

    from rag_rewards.audit import audit

    assert audit("arena", hardened=True).ok            # one line in your own CI
    found = audit(my_recipe, rows, attacks=[shouting])
    print(found)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

import msgspec

from rag_rewards.attacks import ATTACKS, anywhere, stand_ins
from rag_rewards.attacks.anywhere import Target, target
from rag_rewards.attacks.cases import CASES, Case
from rag_rewards.attacks.policies import CITIES, COUNTRIES, POLICIES, Policy, asked
from rag_rewards.attacks.rows import ROW, SHAPE
from rag_rewards.blueprints import Recipe, custom
from rag_rewards.compose import as_reward
from rag_rewards.errors import DataError, RolloutError, UsageError
from rag_rewards.grading import Grader
from rag_rewards.models import Models
from rag_rewards.recipes import RECIPES, recipe
from rag_rewards.rollout import Rollout, decode_row
from rag_rewards.settings import flatten

SLIGHT = 1e-6
"""Gains up to this are none: scaling within a group leaves 1e-8."""
MOST_ROWS = 100
"""Rows of one's own that are attacked, spread evenly over the file."""

Attack = Callable[[Rollout], "str | Rollout | None"]
"""A response attack: a rollout to its attacked response, or rollout; None where it has no hold."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One attack and what it earned. `excused` says why it may pay, "" where it may not."""

    attack: int | None
    name: str
    kind: str
    row: str
    without: float
    attacked: float
    response: str
    excused: str = ""

    @property
    def gain(self) -> float:
        return self.attacked - self.without

    @property
    def pays(self) -> bool:
        return self.gain > SLIGHT


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What was tried. `elsewhere`: attacks that need other settings; `failed`: not scored."""

    signature: str
    evidence: str
    findings: tuple[Finding, ...]
    elsewhere: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    rows: int = 0

    @property
    def paying(self) -> tuple[Finding, ...]:
        """What pays and has no excuse, the most profitable first."""
        found = (each for each in self.findings if each.pays and not each.excused)
        return tuple(sorted(found, key=lambda each: -each.gain))

    @property
    def excused(self) -> tuple[Finding, ...]:
        """What pays by a paper's own definition."""
        return tuple(each for each in self.findings if each.pays and each.excused)

    @property
    def ok(self) -> bool:
        return not self.paying

    def __str__(self) -> str:
        tried = f"{len(self.findings)} attacks tried, {len(self.paying)} pay"
        lines = [
            f"{told(each)}: +{each.gain:.3g} on {each.row}: {each.response[:80]!r}"
            for each in self.paying
        ]
        return "\n".join([tried, *lines])


def told(finding: Finding) -> str:
    """An attack in words.

    >>> told(Finding(attack=17, name="all", kind="response", row="1", without=0.0, attacked=1.0,
    ...              response=""))
    '17 citing everything (all)'
    """
    if finding.attack is None:
        return finding.name
    return f"{finding.attack} {ATTACKS[finding.attack]} ({finding.name})"


def audit(
    reward: str | Recipe | Any,
    rows: Iterable[Rollout | Mapping[str, Any]] | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    hardened: bool = False,
    attacks: Sequence[Attack] = (),
    models: Models | None = None,
) -> Audit:
    """Try every attack on a recipe (by name or made), or on any reward or function of a rollout.

    Without `rows` a named recipe meets its own table of cases, anything else five capitals in
    the output format in which a right answer earns most. `attacks` are plain functions of one's
    own. Evidence comes from `models`, and from rules over words where there are none: whatever
    rows bring is left aside, since no attacked response has it. UsageError where nothing could
    be attacked, DataError where no row has a gold answer.

    >>> def long(rollout): return min(len(rollout.parsed.text) / 1000, 1)
    >>> audit(long).ok
    False
    """
    made = _recipe(reward, settings, hardened)
    asking = Grader(made, models) if models else None
    bench = _Bench(made, asking)
    listed = made.name in RECIPES and _is_own(made)
    findings: list[Finding] = []
    elsewhere: list[str] = []
    own = [decode_row(row) if isinstance(row, Mapping) else row for row in rows or ()]
    if rows is not None and not own:
        raise UsageError("no row to attack")
    if rows is None and listed:
        findings, elsewhere = _table(made)
        own = _capitals(made)
    elif rows is None:
        own = _capitals(made)
        findings = bench.all(own)
    else:
        own = _spread(own)
        findings = bench.all(own)
    for attack in attacks:
        findings += bench.own(attack, own)
    if not findings:
        why = bench.failed[0] if bench.failed else "no attack has a hold on them"
        raise UsageError(f"nothing could be attacked: {why}")
    excuses = _excuses(made.name) if listed else {}
    return Audit(
        signature=made.signature,
        evidence="rules over words" if asking is None else "models, else rules over words",
        findings=tuple(
            msgspec.structs.replace(each, excused=excuses.get(each.attack, "")) for each in findings
        ),
        elsewhere=tuple(dict.fromkeys(elsewhere)),
        failed=tuple(dict.fromkeys(bench.failed)),
        rows=len(own),
    )


def _recipe(reward: Any, settings: Mapping[str, Any] | None, hardened: bool) -> Recipe:
    if isinstance(reward, str):
        return recipe(reward, settings, hardened=hardened)
    if settings or hardened:
        raise UsageError("settings and hardened are for recipes by name; this one is made already")
    if isinstance(reward, Recipe):
        return reward
    name = getattr(reward, "__name__", None) or as_reward(reward).name
    return custom(str(name), reward)


def _is_own(made: Recipe) -> bool:
    """Whether it is the published recipe of its name, whatever its settings."""
    return isinstance(made.settings, RECIPES[made.name].settings)


def _excuses(name: str) -> dict[int | None, str]:
    """Attack numbers that pay by the recipe's own definition, and why."""
    found: dict[int | None, str] = {}
    for text in RECIPES[name].loopholes:
        head = re.match(r"[\d, ]+:", text)
        if head and "hardened" not in text:
            why = text[head.end() :].strip()
            found |= {int(number): why for number in re.findall(r"\d+", head[0])}
    return found


def _table(made: Recipe) -> tuple[list[Finding], list[str]]:
    """The recipe's own cases and policies, those that its settings let be seen."""
    known = flatten(made.settings) if made.settings else {}
    found: list[Finding] = []
    elsewhere: list[str] = []
    entries: list[Case | Policy] = [*CASES, *POLICIES]
    for each in entries:
        if each.recipe != made.name:
            continue
        if any(known.get(key) != value for key, value in each.settings.items()):
            elsewhere.append(", ".join(f"{key}={value}" for key, value in each.settings.items()))
            continue
        without, attacked = each.earned(made)
        rows = each.attacked if isinstance(each, Policy) else (each.attacked,)
        found.append(
            Finding(
                attack=each.attack,
                name=each.name,
                kind="policy" if isinstance(each, Policy) else "response",
                row="built-in",
                without=without,
                attacked=attacked,
                response=str(rows[0]["response"]),
            )
        )
    return found, elsewhere


def _capitals(made: Recipe) -> list[Rollout]:
    """Four questions, answered rightly in the format in which that earns most."""

    def rows(shape: Callable[[str], str], says: Callable[[int], str]) -> list[Rollout]:
        return [
            decode_row(ROW | asked(n, shape(says(n)), id=f"capital-{n + 1}"))
            for n in range(len(CITIES))
        ]

    def worth(choice: list[Rollout]) -> float:
        scores = made.score_each([stand_ins.informed(made, row) for row in choice])
        return mean(0.0 if isinstance(s, RolloutError) else s.value or 0.0 for s in scores)

    formats: list[Callable[[str], str]] = [str, *dict.fromkeys(SHAPE.values())]
    said: tuple[Callable[[int], str], ...] = (
        lambda n: CITIES[n],
        lambda n: f"{CITIES[n]} is the capital of {COUNTRIES[n]}",
    )
    return max((rows(shape, says) for shape in formats for says in said), key=worth)


def _spread(rows: Sequence[Rollout], most: int = MOST_ROWS) -> list[Rollout]:
    if len(rows) <= most:
        return list(rows)
    return [rows[i * len(rows) // most] for i in range(most)]


@dataclass
class _Bench:
    """Where responses are attacked: a recipe, and who answers its needs."""

    recipe: Recipe
    asking: Grader | None
    failed: list[str] = field(default_factory=list)

    def all(self, rows: Sequence[Rollout]) -> list[Finding]:
        targets = list(self._targets(rows))
        if not targets:
            raise DataError("no row has gold answers to attack with", "answers")
        found = [each for of in targets for each in self._responses(of)]
        return found + self._policies(targets)

    def own(self, attack: Attack, rows: Sequence[Rollout]) -> list[Finding]:
        """One's own attack, on every row that it has a hold on."""
        name = getattr(attack, "__name__", repr(attack))
        found = []
        for row in rows:
            made = attack(row)
            if made is None:
                continue
            if not isinstance(made, (str, Rollout)):
                raise UsageError(f"attack {name} gave {made!r}; a response or rollout is expected")
            changed = made if isinstance(made, Rollout) else _saying(row, made)
            found += self._compared(None, name, row, (_saying(row, None), changed))
        return found

    def _targets(self, rows: Sequence[Rollout]) -> Iterator[Target]:
        golds = []
        for row in rows:
            try:
                golds.append(row.gold[0][0])
            except RolloutError as error:
                self.failed.append(f"{_name(row)}: {error}")
        for row in rows:
            try:
                yield target(row, tuple(dict.fromkeys(golds)))
            except RolloutError:
                continue

    def _responses(self, of: Target) -> list[Finding]:
        found = []
        for made in anywhere.pairs(of):
            both = (_saying(of.rollout, made.honest), _saying(of.rollout, made.attacked))
            found += self._compared(made.attack, made.name, of.rollout, both, of)
        return found

    def _policies(self, targets: Sequence[Target]) -> list[Finding]:
        """Each habit on all rows. The honest policy answers where it is right, and else does
        what earns more: what it said, or admitting that it does not know."""
        honest = []
        for of in targets:
            own, refusing, unsure = self._values(
                [of.response, anywhere.habits(of)[22, "always refuses"], of.put(anywhere.UNSURE)],
                of,
            )
            known = [each for each in (own, refusing, unsure) if each is not None]
            honest.append(max(known, default=None))
        found = []
        for attack, name in anywhere.habits(targets[0]):
            said = [anywhere.habits(of).get((attack, name)) for of in targets]
            pairs = [
                (self._values([text], of)[0], best, text)
                for text, of, best in zip(said, targets, honest, strict=True)
                if text is not None
            ]
            kept = [(a, b, text) for a, b, text in pairs if a is not None and b is not None]
            if kept:
                found.append(
                    Finding(
                        attack=attack,
                        name=name,
                        kind="policy",
                        row=f"{len(kept)} rows",
                        without=mean(b for _, b, _ in kept),
                        attacked=mean(a for a, _, _ in kept),
                        response=kept[0][2],
                    )
                )
        return found

    def _values(self, texts: Sequence[str], of: Target) -> list[float | None]:
        return [self._earned(_saying(of.rollout, text), of) for text in texts]

    def _compared(
        self,
        attack: int | None,
        name: str,
        row: Rollout,
        both: tuple[Rollout, Rollout],
        of: Target | None = None,
    ) -> list[Finding]:
        """What the second earns beside the first; nothing where one of them has no score."""
        without, earned = (self._earned(each, of) for each in both)
        if without is None or earned is None:
            return []
        return [
            Finding(
                attack=attack,
                name=name,
                kind="response",
                row=_name(row),
                without=without,
                attacked=earned,
                response=both[1].parsed.text,
            )
        ]

    def _earned(self, row: Rollout, of: Target | None) -> float | None:
        """The reward of a row; where the recipe compares, beside a right and a wrong one."""
        group = [row]
        if self.recipe.scope == "group":
            of = of or target(row)
            group += [_saying(row, of.put(of.gold)), _saying(row, of.put(of.wrong[0]))]
        group = [msgspec.structs.replace(each, group="g") for each in group]
        asked: Sequence[Rollout | RolloutError] = group
        if self.asking is not None:
            asked = self.asking.gather(group)
        for each in asked:
            if isinstance(each, RolloutError):
                self.failed.append(f"{_name(row)}: {each.message}")
                return None
        known = [
            stand_ins.informed(self.recipe, each) for each in asked if isinstance(each, Rollout)
        ]
        score = self.recipe.score_each(known)[0]
        if isinstance(score, RolloutError):
            self.failed.append(f"{_name(row)}: {score.message}")
            return None
        return score.value


_UNKNOWN: dict[str, Any] = dict.fromkeys(
    ("logprobs", "masked_answers", "masked_logprobs", "verdicts", "nli", "similarity")
) | {"response_token_ids": None, "prompt_token_ids": None, "response_prefix": None}


def _saying(row: Rollout, text: str | None) -> Rollout:
    """A row with another response, and nothing that models said about the first one."""
    said = row.parsed.text if text is None else text
    return msgspec.structs.replace(row, response=said, **_UNKNOWN)


def _name(row: Rollout) -> str:
    return str(row.id) if row.id is not None else "a row"
