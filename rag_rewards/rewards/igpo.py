"""IGPO: the answer, and how much each turn raises the likelihood of the gold answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Annotated, ClassVar, Literal

from rag_rewards.errors import EvidenceError
from rag_rewards.evidence.needs import Baseline, Need, TurnLogProbsNeed, before_answer
from rag_rewards.reward import PartScore, RolloutReward
from rag_rewards.rewards.answer import AnswerMatch
from rag_rewards.rewards.contrastive import checked_logprobs
from rag_rewards.rewards.search import (
    REPEATED_ANSWER,
    RepeatedAnswer,
    answer_of,
    compared,
    details_of,
    sum_of,
)
from rag_rewards.rollout import AliasLogProbs, Rollout, Score, TurnEntries, TurnLogProbs
from rag_rewards.settings import about, check_choices
from rag_rewards.text.citations import compiled, strip_markers
from rag_rewards.turns.order import is_balanced
from rag_rewards.turns.trajectory import READING, Reading, Trajectory

CODE = "IGPO, authors' code at 745078b: info_gain.py"
IG_SEARCH = "IG-Search, authors' code at da299c4: ig_reward.py"
Kind = Literal["prob", "log"]
Alias = Literal["first", "best"]
Tokens = Literal["multiset", "set"]
Count = Literal["all", "rises"]


def answer_likelihood(
    logprobs: Sequence[float], first_tokens: int = 0, first_weight: float = 1.0
) -> float:
    """Return the mean log-probability, in nats, of the tokens of an answer.

    The first tokens can have another weight. The weights are scaled to a mean of 1. Raises
    EvidenceError for no token, and for a value that is no log-probability. Sources: IGPO; IG-Search
    at da299c4, ig_reward.py (weights).

    >>> answer_likelihood([-1.0, -3.0]), answer_likelihood([-1.0, -3.0], 1, 3.0)
    (-2.0, -1.5)
    """
    if not logprobs:
        raise EvidenceError("an answer without tokens has no likelihood")
    for value in logprobs:
        if not value <= 1e-6 or value == -math.inf:
            raise EvidenceError(f"a log-probability must be finite and at most 0, found {value}")
    weights = [first_weight if i < first_tokens else 1.0 for i in range(len(logprobs))]
    return math.fsum(w * v for w, v in zip(weights, logprobs, strict=True)) / math.fsum(weights)


def information_gains(likelihoods: Sequence[float], kind: Kind = "prob") -> list[float]:
    """Return the gain of each turn but the last one: g_t = p_t − p_{t−1} with p = exp V, or V.

    likelihoods  V_0 of the prompt, and V_t after each turn but the last one
    kind         `prob`: gains of p; `log`: gains of V

    The sum of the gains is p_{T−1} − p_0. A negative gain is not clipped, because a policy could
    lower the likelihood first and regain it. Source: IGPO, released code at 745078b, info_gain.py.

    >>> [round(g, 6) for g in information_gains([-2.0, -1.2, -0.1])]
    [0.165859, 0.603643]
    """
    values = [_value(likelihood, kind) for likelihood in likelihoods]
    return [now - before for before, now in pairwise(values)]


def gain_over(likelihood: float, baselines: Sequence[float], kind: Kind = "log") -> float:
    """Return the gain of a turn over the same turn with other results.

    likelihood  V after the turn
    baselines   V after the turn with other results: of other questions (IG-Search), or none

    Source: IG-Search, MaYufei-NPU/IG-Search@da299c4 ig_reward.py.

    >>> round(gain_over(-0.1, [-0.9, -1.1, -1.3]), 6)
    1.0
    """
    if not baselines:
        raise EvidenceError("no likelihood with other results: give at least one")
    others = [_value(baseline, kind) for baseline in baselines]
    return _value(likelihood, kind) - math.fsum(others) / len(others)


def rises(
    likelihoods: Sequence[float],
    gains: Sequence[float | None],
    kind: Kind = "prob",
) -> list[float | None]:
    """Return the gain of each turn as far as it exceeds the greatest likelihood so far.

    likelihoods  V_0 of the prompt, and V_t after each turn but the last one
    gains        gain of each of these turns, None for a turn without a gain

    A rise counts once: the sum is at most the greatest likelihood minus that of the prompt. Without
    this, a policy earns gains again by doubting what it found and repeating the search.

    >>> V = [math.log(p) for p in (0.1, 0.9, 0.2, 0.9, 1.0)]
    >>> [round(g, 6) for g in rises(V, [0.8, -0.7, 0.7, 0.1])]
    [0.8, 0.0, 0.0, 0.1]
    """
    values = [_value(likelihood, kind) for likelihood in likelihoods]
    best = accumulate(values, max)
    over = [max(0.0, now - before) for now, before in zip(values[1:], best, strict=False)]
    return [
        None if gain is None else max(0.0, min(gain, rise))
        for gain, rise in zip(gains, over, strict=True)
    ]


def _value(likelihood: float, kind: Kind) -> float:
    return math.exp(likelihood) if kind == "prob" else likelihood


# --- likelihoods from evidence -----------------------------------------------------------------


@dataclass(frozen=True)
class TurnLikelihoods:
    """V of the gold answer in each context: the mean log-probability of its tokens, in nats.

    With several required answers, V is their mean.

    previous  after the prompt, and after each turn but the last one
    other     with other results of each turn but the last one: one V for each draw, or one without
              hits; None for a turn without results; empty for the baseline `previous`
    """

    previous: list[float]
    other: list[list[float] | None]


@dataclass(frozen=True)
@check_choices
class LikelihoodReader:
    """Reads the likelihoods of a rollout from its evidence.

    Raises DataError for missing evidence, and EvidenceError for evidence that contradicts the turns
    or the gold answers, or that contains values that are no log-probabilities.
    """

    alias: Annotated[
        Alias,
        about(
            "alias of a gold answer that counts; first: the first one; best: the most likely one "
            "after the last search",
            f"{CODE}: first",
        ),
    ] = "first"
    first_tokens: Annotated[
        int, about("number of tokens of an answer with the weight first_weight", IG_SEARCH, ge=0)
    ] = 0
    first_weight: Annotated[
        float, about("weight of the first tokens of an answer", IG_SEARCH, gt=0)
    ] = 1.0

    def __call__(
        self, rollout: Rollout, run: Trajectory, need: TurnLogProbsNeed
    ) -> TurnLikelihoods:
        """Return the likelihoods that a need describes."""
        evidence: TurnLogProbs = need.read(rollout)
        _check_count(len(evidence.after), run, "after")
        lengths = [None if values is None else len(values) for values in evidence.prior]
        lists: list[Named] = [("prior", evidence.prior)]
        lists += [(f"after[{t}]", values) for t, values in enumerate(evidence.after)]
        previous = [self._per_alias(rollout, lengths, *named) for named in lists]
        chosen = self._chosen(rollout, previous[-1])
        other = [
            None
            if draws is None
            else [self._per_alias(rollout, lengths, *named) for named in draws]
            for draws in _other(evidence, run, need)
        ]
        return TurnLikelihoods(
            [_mean(values, chosen) for values in previous],
            [
                None if draws is None else [_mean(values, chosen) for values in draws]
                for draws in other
            ],
        )

    def _per_alias(
        self,
        rollout: Rollout,
        lengths: Sequence[int | None],
        path: str,
        aliases: AliasLogProbs | None,
    ) -> list[float | None]:
        """Return V of each alias, None for one that is not required and that the evidence lacks."""
        path = f"turn_logprobs.{path}"
        count = sum(map(len, rollout.gold))
        if aliases is None:
            raise EvidenceError("missing: add one list per gold alias", path)
        if len(aliases) != count:
            raise EvidenceError(
                f"one list per gold alias: expected {count}, found {len(aliases)}", path
            )
        required = range(count) if self.alias == "best" else _first(rollout)
        likelihoods: list[float | None] = []
        for m, (values, length) in enumerate(zip(aliases, lengths, strict=True)):
            if values is None and m not in required:
                likelihoods.append(None)
                continue
            if not values:
                raise EvidenceError("missing: add one value per token", f"{path}[{m}]")
            if length is not None and len(values) != length:
                raise EvidenceError(
                    f"as many values as turn_logprobs.prior[{m}]: expected {length}, found "
                    f"{len(values)}",
                    f"{path}[{m}]",
                )
            checked = checked_logprobs(values, f"{path}[{m}]")
            likelihoods.append(answer_likelihood(checked, self.first_tokens, self.first_weight))
        return likelihoods

    def _chosen(self, rollout: Rollout, last: Sequence[float | None]) -> list[int]:
        """Return the position of the alias of each required answer that counts."""
        starts = _first(rollout)
        if self.alias == "first":
            return starts
        ends = [*starts[1:], len(last)]
        return [
            max(range(start, end), key=lambda m: -math.inf if (v := last[m]) is None else v)
            for start, end in zip(starts, ends, strict=True)
        ]


Named = tuple[str, AliasLogProbs | None]
"""Log-probabilities with their path in the evidence."""


def _other(
    evidence: TurnLogProbs, run: Trajectory, need: TurnLogProbsNeed
) -> list[list[Named] | None]:
    """Return the log-probabilities with other results of each turn, None without results."""
    draws: list[list[Named]]
    if need.baseline == "empty":
        draws = [[(f"empty[{t}]", values)] for t, values in enumerate(evidence.empty or ())]
    elif need.baseline == "random":
        draws = [
            [(f"random[{t}][{n}]", values) for n, values in enumerate(entry or ())]
            for t, entry in enumerate(evidence.random or ())
        ]
    else:
        return []
    _check_count(len(draws), run, need.baseline)
    for t, (turn, entry) in enumerate(zip(run.turns, draws, strict=False)):
        if turn.results is not None and not entry:
            raise EvidenceError("missing: add at least one draw", f"turn_logprobs.random[{t}]")
    pairs = zip(run.turns, draws, strict=False)
    return [None if turn.results is None else entry for turn, entry in pairs]


def _first(rollout: Rollout) -> list[int]:
    """Return the position of the first alias of each required answer."""
    return list(accumulate(map(len, rollout.gold[:-1]), initial=0))


def _mean(likelihoods: Sequence[float | None], chosen: Sequence[int]) -> float:
    values = [value for m in chosen if (value := likelihoods[m]) is not None]
    return math.fsum(values) / len(values)


def _check_count(count: int, run: Trajectory, name: str) -> None:
    expected = len(run.turns) - 1
    if count != expected:
        raise EvidenceError(
            f"one entry for each turn but the last one: expected {expected}, found {count}",
            f"turn_logprobs.{name}",
        )


# --- the reward ----------------------------------------------------------------------------------


def set_f1(prediction: str, aliases: Sequence[str]) -> float:
    """Return F1 of the sets of words of two lower-case texts, for the best alias, 0 to 1.

    Words are separated by white space, and keep their punctuation. Source: IGPO, released code at
    745078b, info_gain.py.

    >>> set_f1("Paris Paris, France", ["paris"])
    0.5
    """
    words = set(prediction.lower().split())
    return max((_f1_of_sets(words, set(alias.lower().split())) for alias in aliases), default=0.0)


def _f1_of_sets(prediction: set[str], gold: set[str]) -> float:
    return 2 * len(prediction & gold) / (len(prediction) + len(gold)) if prediction else 0.0


def _has_words(text: str | None) -> bool:
    """Return whether a text has a letter or a digit outside of citation markers."""
    return any(map(str.isalnum, strip_markers(text or "", compiled())))


@dataclass(frozen=True)
@check_choices
class IgpoReward(RolloutReward):
    """The components of IGPO's reward. The value is the outcome.

    outcome    F1 of the answer with the gold answers, or `bad_end`
    info_gain  gain of each turn but the last one
    prior, posterior  likelihood of the gold answer before the first turn, and after the last search

    likelihood  how V is computed from log-probabilities
    answer      comparison of the answer with the gold answers
    reading     how the turns are read

    A rollout with one turn has only an outcome and needs no likelihoods. Raises DataError and
    EvidenceError for missing and impossible log-probabilities. Source: IGPO, released code at
    745078b, scrl/llm_agent/generation.py and info_gain.py.
    """

    kind: Annotated[
        Kind,
        about(
            "prob: difference of probabilities; log: difference of log-probabilities, in nats",
            f"{CODE}: prob; its train.sh: log",
            key="gain.kind",
        ),
    ] = "prob"
    baseline: Annotated[
        Baseline,
        about(
            "what the likelihood after a turn is compared with; previous: before the turn; empty: "
            "as if the search had no hits; random: with results of other prompts",
            f"{CODE}: previous; {IG_SEARCH}: random",
            key="gain.baseline",
        ),
    ] = "previous"
    draws: Annotated[
        int,
        about("with baseline=random, number of other prompts", IG_SEARCH, key="gain.random", ge=1),
    ] = 3
    count: Annotated[
        Count,
        about(
            "gains that count; all: falls are negative gains; rises: only what exceeds the "
            "greatest likelihood of the rollout so far",
            f"{CODE}: all",
            key="gain.count",
        ),
    ] = "all"
    gated: Annotated[
        bool,
        about(
            "a rollout earns gains only if its outcome is positive",
            f"{CODE}: false",
            key="gain.gated",
        ),
    ] = False
    likelihood: LikelihoodReader = LikelihoodReader()
    template: Annotated[
        str,
        about(
            "text between a turn and the answer whose likelihood is measured: igpo, plain, or a "
            "text with one {answer}",
            f"IGPO, authors' code at 745078b: generation.py; {IG_SEARCH}: plain",
        ),
    ] = "igpo"
    answer: AnswerMatch = AnswerMatch("outcome", metric="f1")
    tokens: Annotated[
        Tokens,
        about(
            "with metric=f1, what is compared; multiset: normalized tokens; set: the set of "
            "lower-case words",
            f"IGPO: word-level F1; {CODE}: set",
            key="outcome.tokens",
        ),
    ] = "multiset"
    bad_end: Annotated[
        float,
        about("outcome of a rollout without an answer, or with unbalanced tags", CODE),
    ] = -2.0
    reading: Reading = READING
    repeated: Annotated[RepeatedAnswer, about(*REPEATED_ANSWER, key="repeated_answer")] = "last"
    name: str = "igpo_parts"
    scope: Literal["rollout"] = "rollout"
    reads_turn_likelihoods: ClassVar[bool] = True
    """Whether the reward compares likelihoods of the gold answer after different turns."""

    def __post_init__(self) -> None:
        before_answer(self.template)  # raises for a text without {answer}

    def needs(self, rollout: Rollout) -> list[Need]:
        run = rollout.trajectory(self.reading)
        needs = self.answer.correctness.needs(rollout, answer_of(run, self.repeated))
        return [*needs, self._need(run)] if len(run.turns) > 1 and rollout.gold else needs

    def _need(self, run: Trajectory) -> TurnLogProbsNeed:
        return TurnLogProbsNeed(
            len(run.turns),
            self.baseline,
            self.draws if self.baseline == "random" else 0,
            self.template,
            "first" if self.likelihood.alias == "first" else "all",
            self.reading,
        )

    def score(self, rollout: Rollout) -> Score:
        run = rollout.trajectory(self.reading)
        text = answer_of(run, self.repeated)
        value, correct, decision = compared(self.answer, rollout, text)
        outcome = self._outcome(rollout, run, text, value)
        likelihoods = self._likelihoods(rollout, run)
        gains = self._counted(likelihoods, outcome) if likelihoods else []
        logs = likelihoods.previous if likelihoods else []
        turns = len(run.turns)
        per_turn = {
            "info_gain": _padded(gains, turns),
            "likelihood": _padded(map(math.exp, logs[1:]), turns),
        }
        components = {
            "outcome": outcome,
            "info_gain": sum_of(gains),
            "prior": math.exp(logs[0]) if logs else None,
            "posterior": math.exp(logs[-1]) if logs else None,
        }
        details = details_of(run, text, per_turn) | decision
        entries = {"info_gain": per_turn["info_gain"]}
        return PartScore(outcome, components, correct, details, entries=entries)

    def _outcome(self, rollout: Rollout, run: Trajectory, text: str | None, value: float) -> float:
        """Return the value of the answer, or `bad_end`."""
        if self.tokens == "set" and self.answer.metric == "f1" and not self.answer.is_decided:
            of_answers = [set_f1(text or "", aliases) for aliases in rollout.gold]
            value = math.fsum(of_answers) / len(of_answers)
        is_valid = is_balanced(run) and (value or _has_words(text))
        return value if is_valid else self.bad_end

    def _likelihoods(self, rollout: Rollout, run: Trajectory) -> TurnLikelihoods | None:
        """Return the likelihoods; None for one turn without evidence, which needs none."""
        if len(run.turns) == 1 and rollout.turn_logprobs is None:
            return None
        need = self._need(run)
        if len(run.turns) == 1:
            need = replace(need, baseline="previous")
        return self.likelihood(rollout, run, need)

    def _counted(self, likelihoods: TurnLikelihoods, outcome: float) -> list[float | None]:
        """Return the gain of each turn but the last one, as far as it counts."""
        gains = self._gains(likelihoods)
        if self.count == "rises":
            gains = rises(likelihoods.previous, gains, self.kind)
        if self.gated and outcome <= 0:
            return [None if gain is None else min(gain, 0.0) for gain in gains]
        return gains

    def _gains(self, likelihoods: TurnLikelihoods) -> list[float | None]:
        if self.baseline == "previous":
            return [*information_gains(likelihoods.previous, self.kind)]
        pairs = zip(likelihoods.previous[1:], likelihoods.other, strict=False)
        return [None if draws is None else gain_over(v, draws, self.kind) for v, draws in pairs]


def _padded(values: Iterable[float | None], turns: int) -> TurnEntries:
    """Return the values of the first turns, and None for the others."""
    first = tuple(values)
    return (*first, *(None,) * (turns - len(first)))
