"""IGPO: an agent that searches in several turns, with the information gain of each turn.

Deviations from the authors' code: the end of a turn is known, so that a gain of exactly 0 needs no
substitute. Log-probabilities that do not fit the turns are an error; the code then uses the outcome
alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

from rag_rewards.compose import Ramp, weighted
from rag_rewards.definition import (
    ChangedDefault,
    ComponentInfo,
    HardenedSetting,
    Loophole,
    Recipe,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.evidence.needs import Baseline, before_answer
from rag_rewards.recipes import shared
from rag_rewards.recipes.search_r1 import OUTPUT, PROMPT, SEARCH_PROMPTS
from rag_rewards.recipes.turn_settings import CHANGED, HARDENED, UNICODE, DecidedSettings
from rag_rewards.reward import Component, CorrectOf, Reward
from rag_rewards.rewards.igpo import Alias, Count, IgpoReward, Kind, LikelihoodReader, Tokens
from rag_rewards.settings import Settings, about
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.training.credit.settings import CreditMethod, CreditSettings
from rag_rewards.training.settings import Stated, Training

_CODE = "authors' code at 745078b: info_gain.py"
_TEMPLATE = "authors' code at 745078b: generation.py"
_IG_SEARCH = "IG-Search, authors' code at da299c4: ig_reward.py"


class GainSettings(Settings, frozen=True):
    kind: Annotated[
        Kind,
        about(
            "prob: difference of probabilities; log: difference of log-probabilities, in nats",
            f"{_CODE}: prob; its train.sh: log",
        ),
    ] = "prob"
    baseline: Annotated[
        Baseline,
        about(
            "what the likelihood after a turn is compared with; previous: before the turn; empty: "
            "as if the search had no hits; random: with results of other prompts",
            f"{_CODE}: previous; {_IG_SEARCH}: random",
        ),
    ] = "previous"
    random: Annotated[
        int, about("with baseline=random, number of other prompts", _IG_SEARCH, ge=1)
    ] = 3
    count: Annotated[
        Count,
        about(
            "gains that count; all: falls are negative gains; rises: only what exceeds the "
            "greatest likelihood of the rollout so far",
            f"{_CODE}: all",
        ),
    ] = "all"
    gated: Annotated[
        bool, about("a rollout earns gains only if its outcome is positive", f"{_CODE}: false")
    ] = False
    weight: Annotated[float, about("weight of the gains", _CODE, ge=0)] = 1.0
    curriculum: Annotated[
        int,
        about(
            "number of training steps in which the weight of the outcome rises from 0.5 to 1 and "
            "that of the gains falls from 1 to 0.5; 0: both are 1",
            _CODE,
            ge=0,
        ),
    ] = 0
    alias: Annotated[
        Alias,
        about(
            "alias of a gold answer that counts; first: the first one; best: the most likely one "
            "after the last search",
            f"{_CODE}: first",
        ),
    ] = "first"
    first_tokens: Annotated[
        int, about("number of tokens of an answer with the weight first_weight", _IG_SEARCH, ge=0)
    ] = 0
    first_weight: Annotated[
        float, about("weight of the first tokens of an answer", _IG_SEARCH, gt=0)
    ] = 1.0


class OutcomeSettings(Settings, frozen=True):
    metric: Annotated[
        Literal["f1", "exact"], about("how the answer is compared with the gold answers", _CODE)
    ] = "f1"
    tokens: Annotated[
        Tokens,
        about(
            "with metric=f1, what is compared; multiset: normalized tokens; set: the set of "
            "lower-case words",
            f"paper: word-level F1; {_CODE}: set",
        ),
    ] = "multiset"


class Credit(CreditSettings, frozen=True):
    method: Annotated[
        CreditMethod,
        about(
            "advantages of the turns; group: all turns share the advantage of the reward",
            "authors' code: igpo",
        ),
    ] = "igpo"
    norm: Annotated[
        Literal["joint", "separate"],
        about(
            "with method=igpo, whether process rewards and outcomes are one pool or two",
            "authors' code: joint; its train.sh: separate",
        ),
    ] = "joint"
    gamma: Annotated[
        float, about("discount of the rewards of later turns", "authors' code", ge=0, le=1)
    ] = 1.0


class Igpo(DecidedSettings, frozen=True):
    """Settings of IGPO."""

    gain: GainSettings = GainSettings()
    template: Annotated[
        str,
        about(
            "text between a turn and the answer whose likelihood is measured: igpo, plain, or a "
            "text with one {answer}",
            f"{_TEMPLATE}; {_IG_SEARCH}: plain",
        ),
    ] = "igpo"
    outcome: OutcomeSettings = OutcomeSettings()
    bad_format: Annotated[
        float, about("outcome of a rollout without an answer, or with unbalanced tags", _CODE)
    ] = -2.0
    normalizer: Annotated[NormalizerName, about("text normalizer of the answer", _CODE)] = "squad"
    credit: Credit = Credit()


def igpo(settings: Igpo) -> Recipe:
    """Return the gain of each turn and the outcome. Source: IGPO, authors' code."""
    before_answer(settings.template)
    gain = settings.gain
    parts = IgpoReward(
        kind=gain.kind,
        baseline=gain.baseline,
        draws=gain.random,
        count=gain.count,
        gated=gain.gated,
        likelihood=LikelihoodReader(gain.alias, gain.first_tokens, gain.first_weight),
        template=settings.template,
        answer=settings.decided_match("outcome", settings.outcome.metric),
        tokens=settings.outcome.tokens,
        bad_format=settings.bad_format,
        reading=settings.reading(),
        repeated=settings.repeated_answer,
    )
    outcome: Reward = Component(parts, "outcome")
    gains: Reward = Component(parts, "info_gain", default=0.0)
    if gain.curriculum:
        outcome = Ramp(outcome, 0.5, 1.0, gain.curriculum)
        gains = Ramp(gains, 1.0, 0.5, gain.curriculum)
    malformed = settings.malformed_turns()
    total = weighted((1, outcome), (gain.weight, gains), (1, malformed))
    names = ("outcome", "info_gain", "prior", "posterior")
    components: tuple[Reward, ...] = (*(Component(parts, name) for name in names), malformed)
    return Recipe("igpo", components, total, correct=CorrectOf(parts), settings=settings)


_TRAINING = "authors' code at 745078b: train.sh"
TRAINING = Training(
    prompts=Stated(32, _TRAINING),
    group=Stated(16, _TRAINING),
    learning_rate=Stated(1e-6, _TRAINING),
    kl_weight=Stated(0.001, _TRAINING),
    notes=(
        "at most 10 turns",
        "the loss ignores the tokens of the results",
        "without turn credit, the reward is the sum of the turns: the outcome, and the likelihood "
        "of the answer after the last search minus the one before the first turn",
    ),
)

IGPO = RecipeDefinition(
    name="igpo",
    summary="the answer of a search agent, and how much each turn raises its likelihood",
    source="IGPO, authors' code at 745078b",
    output=OUTPUT,
    settings=Igpo,
    build=igpo,
    fields=("answers", "turns", "turn_logprobs"),
    components=(
        ComponentInfo(
            "outcome",
            "token F1 of the answer, or bad_format without an answer or with unbalanced tags",
            -2.0,
        ),
        ComponentInfo(
            "info_gain",
            "sum over the turns of the rise of the likelihood of the gold answer",
            -1.0,
        ),
        ComponentInfo("prior", "likelihood of the gold answer before the first turn, per token"),
        ComponentInfo("posterior", "likelihood of the gold answer after the last search"),
        ComponentInfo("malformed", "sum of the penalties of malformed turns", None, 0.0),
    ),
    prompt=PROMPT,
    baselines=SEARCH_PROMPTS,
    training=TRAINING,
    data=TrainingData(("nq", "hotpotqa"), "authors' code at 745078b"),
    hardened={
        **HARDENED,
        "normalizer": UNICODE,
        "undecided": shared.UNDECIDED,
        "gain.baseline": HardenedSetting(
            "empty",
            (40,),
            "writing a guess, which raises the likelihood without evidence",
        ),
        "gain.count": HardenedSetting(
            "rises", (39,), "lowering the likelihood to regain it, or doubting and searching again"
        ),
        "gain.gated": HardenedSetting(
            True, (39,), "gains without a right answer, such as for a document that is ignored"
        ),
        "credit.method": HardenedSetting(
            "return", (42,), "stopping early, or never, because the number of turns has an effect"
        ),
    },
    rejected={
        "gain.kind": {"log": "has gains without bound, which outweigh the outcome (attack 41)"},
        "outcome.tokens": {"set": "reads the answer as a set of words"},
    },
    loopholes=(
        Loophole(
            (1, 2),
            "the F1 of a list or of a negation of the gold answer is above 0",
            is_closed=True,
        ),
        Loophole((6,), "the normalizer squad treats 3.14 as 314 and C++ as C", is_closed=True),
        Loophole((7,), "the last of many answer sections counts", is_closed=True),
        Loophole(
            (33,),
            "a results block that the policy writes raises the likelihood of the answer; in a "
            "transcript, it also counts as results",
            is_closed=True,
        ),
        Loophole(
            (40,),
            "a guess in the words or in the query raises the likelihood without evidence",
            is_closed=True,
        ),
        Loophole(
            (43,),
            "invalid turns cost nothing, and a guess in them raises the likelihood",
            is_closed=True,
        ),
        Loophole(
            (39,),
            "a turn can lower the likelihood of the answer for the next one to regain it: the sum "
            "of the gains does not change, but the credit method igpo normalizes them",
            is_closed=True,
        ),
        Loophole(
            (41,),
            "with gain.kind=log, the gains have no bound and outweigh the outcome; the hardened "
            "profile rejects this setting",
            is_closed=True,
        ),
        Loophole(
            (42,),
            "with the credit method igpo, the number of turns changes the advantages",
            is_closed=True,
        ),
    ),
    changed_defaults=(
        ChangedDefault("0.8.0", "gain.count", default="all", hardened="all"),
        ChangedDefault("0.8.0", "gain.gated", default=False, hardened=False),
        ChangedDefault("0.8.0", "credit.std_floor", default=0.0, hardened=0.0),
        *CHANGED,
    ),
    deviations=(
        "log-probabilities that do not fit the turns are an error; the authors' code then uses the "
        "outcome alone",
        "the first public release discounts before it normalizes; the authors call it an early "
        "attempt",
    ),
)
