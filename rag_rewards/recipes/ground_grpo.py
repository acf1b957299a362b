"""Ground-GRPO: hierarchical rewards for grounded statements and refusals, in two stages.

No reward code has been released. Citations are read as in Trust-Score, which is by the same group.
"""

from __future__ import annotations

from typing import Annotated

from rag_rewards.compose import Gate, Sum
from rag_rewards.definition import (
    ChangedDefault,
    ComponentInfo,
    HardenedSetting,
    Loophole,
    Preset,
    Recipe,
    RecipeDefinition,
    TrainingData,
)
from rag_rewards.prompts import LAYOUT, OutputForm, Prompt
from rag_rewards.recipes import shared, trust_align
from rag_rewards.reward import Component, CorrectOf, Reward
from rag_rewards.rewards.format import Format, TagCount
from rag_rewards.rewards.grounding import Aggregate, Counts, EarnedBy, Grounding, JudgeBy
from rag_rewards.rewards.process import Process
from rag_rewards.rewards.refusal import Matcher, RefusalDetector
from rag_rewards.rollout import Rollout
from rag_rewards.settings import Settings, about
from rag_rewards.text.citations import CITATION, OLD_CITATION
from rag_rewards.text.normalize import NormalizerName
from rag_rewards.text.refusal import REFUSAL
from rag_rewards.training.settings import Stated, Training

OUTPUT = OutputForm(
    "<think>…</think> <answer>statements with [n], or the refusal</answer>",
    abstention=REFUSAL,
    cites=True,
)

# Source: Ground-GRPO, section 2; the instructions of ALCE and Trust-Align, the latter's refusal.
_INSTRUCTION = (
    "Answer the question from the documents below alone; some of them may not bear on it. Think "
    "inside <think> and </think> about what they say and whether they answer it. Then, inside "
    "<answer> and </answer>, {rule} If no document holds an answer, write this sentence and "
    "nothing else there: " + REFUSAL
)
_STATEMENTS = (
    "give the answer in precise sentences, without your reasoning. Every statement of fact "
    "cites, by number, the documents that prove it, as few as will do and three at most: [1] "
    "or [1][2]."
)
_LIST = (
    "list all the answers that the documents give, separated by commas, without your "
    "reasoning. Behind each stands the number of one document that proves it: [1]."
)


def instruction(rollout: Rollout) -> str:
    """Return the instruction, which requests a list for a question with several answers."""
    rule = _LIST if rollout.answer_kind == "list" else _STATEMENTS
    return _INSTRUCTION.replace("{rule}", rule)


PROMPT = Prompt(LAYOUT, instruction=instruction)


class FormatSettings(Settings, frozen=True):
    words: Annotated[bool, about("the answer must contain a letter, a digit or an emoji")] = False


class ExactMatchSettings(Settings, frozen=True):
    credit: Annotated[float, about("reward of a statement with a gold answer", "paper, Eq. 1")] = (
        0.5
    )
    normalizer: Annotated[NormalizerName, about("text normalizer", "Trust-Score's code")] = "squad"
    fold_accents: Annotated[bool, about("with the normalizer unicode, read São as Sao")] = False
    numbers: Annotated[bool, about("with the normalizer unicode, read 1 million as 1,000,000")] = (
        False
    )
    dates: Annotated[
        bool, about("with the normalizer unicode, read 5 March 1999 as 1999-03-05")
    ] = False
    counts: Annotated[
        Counts,
        about(
            "gold answers that count; mentioned: all that a statement contains; supported: those "
            "that a statement contains as whole words and its citations support",
            "paper, Eq. 1: mentioned",
        ),
    ] = "mentioned"
    precise: Annotated[
        bool, about("with aggregate=answers, each additional item of a list lowers the reward")
    ] = False


class Citation(Settings, frozen=True):
    credit: Annotated[float, about("reward of a correct citation", "paper, Eq. 2")] = 0.5
    bad_penalty: Annotated[
        float,
        about(
            "reward of a wrong or missing citation; 0 in an ablation of the paper",
            "paper, Eq. 2, Figure 6",
        ),
    ] = -0.5
    threshold: Annotated[
        float,
        about("minimum entailment probability of a correct citation", ge=0, le=1),
    ] = 0.5
    minimal: Annotated[
        bool,
        about(
            "a citation is correct only if the statement needs each cited document",
            "paper, introduction",
        ),
    ] = False
    judge_by: Annotated[
        JudgeBy,
        about(
            "how a citation is checked; nli: by an entailment model; gold: the cited documents "
            "must be supporting, and one of them must contain the answer",
            "paper, section 2.2: NLI",
        ),
    ] = "nli"
    together: Annotated[
        bool, about("count equal statements as one statement with all their citations")
    ] = False
    every: Annotated[
        bool,
        about(
            "with aggregate=answers, the citation of an answer is correct only if it is correct "
            "in each statement that contains the answer and a citation"
        ),
    ] = False
    pattern: Annotated[
        str, about("regular expression of a citation marker; group 1 contains the numbers")
    ] = CITATION


class Refusal(Settings, frozen=True):
    texts: Annotated[tuple[str, ...], about("gold refusals", "Trust-Align's data")] = (REFUSAL,)
    matcher: Annotated[
        Matcher,
        about(
            "how an answer is compared with the gold refusals",
            "paper: a fuzzy matching algorithm",
        ),
    ] = "ratio"
    threshold: Annotated[
        float,
        about(
            "minimum similarity of a refusal to a gold refusal",
            "paper, Eq. 6, which does not define the case of exactly 0.85",
            ge=0,
            le=1,
        ),
    ] = 0.85
    earned_by: Annotated[
        EarnedBy,
        about(
            "answers to an answerable question that earn the reward `answered`; any: all; "
            "grounded: those with a gold answer whose citations do not cancel its credit",
            "paper, Eq. 6: any",
        ),
    ] = "any"
    answered: Annotated[
        float, about("reward for answering an answerable question", "paper, Eq. 6")
    ] = 0.5
    strict: Annotated[bool, about("a refusal must be a single sentence without other content")] = (
        False
    )


class ProcessSettings(Settings, frozen=True):
    enabled: Annotated[
        bool,
        about(
            "reward reasoning that entails the answer or the refusal",
            "paper, section 4.7: not in the main runs",
        ),
    ] = False
    weight: Annotated[float, about("weight of the component process")] = 1.0


class GroundGrpo(Settings, frozen=True):
    """Settings of Ground-GRPO."""

    sections: shared.Sections = shared.Sections()
    format: FormatSettings = FormatSettings()
    aggregate: Annotated[
        Aggregate,
        about(
            "sum or mean over the statements; answers: each required answer counts once",
            "paper, Eq. 1 and 2, Figure 1",
        ),
    ] = "sum"
    exact_match: ExactMatchSettings = ExactMatchSettings()
    citation: Citation = Citation()
    refusal: Refusal = Refusal()
    process: ProcessSettings = ProcessSettings()


def ground_grpo(settings: GroundGrpo) -> Recipe:
    """Return tag_count + [format](format + refusal + exact_match + citation).

    Source: Ground-GRPO, Algorithm 1.
    """
    return _build("ground-grpo", settings, stage_two=True)


def ground_grpo_stage1(settings: GroundGrpo) -> Recipe:
    """Return the reward of stage 2 without refusals, for answerable rows.

    Source: Ground-GRPO, Eq. 5.
    """
    return _build("ground-grpo-stage1", settings, stage_two=False)


def _build(name: str, settings: GroundGrpo, *, stage_two: bool) -> Recipe:
    tags = OUTPUT.tags(settings.sections.style())
    tag_count = TagCount(tags)
    format_ = Format(tags, ("answer",), settings.format.words)
    grounding = Grounding(
        format=format_,
        detector=RefusalDetector(
            settings.refusal.texts,
            settings.refusal.matcher,
            settings.refusal.threshold,
            settings.refusal.strict,
        ),
        refusal=stage_two,
        aggregate=settings.aggregate,
        judge_by=settings.citation.judge_by,
        threshold=settings.citation.threshold,
        minimal=settings.citation.minimal,
        match=settings.exact_match.credit,
        good=settings.citation.credit,
        bad_penalty=settings.citation.bad_penalty,
        answered=settings.refusal.answered,
        earned_by=settings.refusal.earned_by,
        normalizer=settings.exact_match.normalizer,
        fold_accents=settings.exact_match.fold_accents,
        numbers=settings.exact_match.numbers,
        dates=settings.exact_match.dates,
        counts=settings.exact_match.counts,
        precise=settings.exact_match.precise,
        together=settings.citation.together,
        every=settings.citation.every,
        pattern=settings.citation.pattern,
    )
    parts: list[Reward] = [format_]
    parts += [Component(grounding, name) for name in ("exact_match", "citation")]
    if stage_two:
        parts.append(Component(grounding, "refusal"))
    terms = [(1.0, part) for part in parts]
    if settings.process.enabled:
        process = Process(format_, settings.citation.pattern)
        parts.append(process)
        terms.append((settings.process.weight, process))
    total = Sum(((1.0, tag_count), (1.0, Gate(format_, Sum(tuple(terms))))))
    return Recipe(name, (tag_count, *parts), total, correct=CorrectOf(grounding), settings=settings)


_HARDENED = {
    "sections.repeated": HardenedSetting(
        "missing", (7, 12), "many answer sections, one of them right"
    ),
    "format.words": HardenedSetting(True, (11, 24), "an answer that contains only '.'"),
    "aggregate": HardenedSetting("answers", (25, 30), "repeating the same right sentence"),
    "exact_match.normalizer": HardenedSetting("unicode", (4, 6, 27, 28), "matching 3.14 with 314"),
    "exact_match.counts": HardenedSetting(
        "supported",
        (1, 2, 3, 30),
        "gold answers in lists, negations and quotations, which no citation supports",
    ),
    "exact_match.precise": HardenedSetting(True, (1, 30), "a list of every candidate answer"),
    "citation.together": HardenedSetting(
        True, (17, 18, 25), "repeating one statement with every document"
    ),
    "citation.every": HardenedSetting(
        True, (17, 18), "citing each document in turn, in other words each time"
    ),
    "citation.minimal": HardenedSetting(True, (16, 17, 18), "citing every document"),
    "refusal.strict": HardenedSetting(True, (15,), "a refusal with an answer, or a quoted refusal"),
    "refusal.earned_by": HardenedSetting(
        "grounded", (), "refusing in any language, or an answer without content or citation"
    ),
}
_REJECTED = {"refusal.matcher": {"semantic": "accepts a refusal together with an answer"}}
_CHANGED = (
    ChangedDefault("0.8.0", "exact_match.counts", default="mentioned", hardened="supported"),
    ChangedDefault("0.4.0", "citation.pattern", OLD_CITATION, OLD_CITATION),
    ChangedDefault("0.4.0", "citation.every", default=False, hardened=False),
    ChangedDefault("0.8.0", "refusal.earned_by", default="any", hardened="any"),
)
_LOOPHOLES = (
    Loophole(
        (1, 2, 3),
        "a gold answer also counts inside a list, a negation or another word",
        is_closed=True,
    ),
    Loophole(
        (2,),
        "a gold answer that a document itself denies counts in the words of this document",
        variants={2: ("entailed",)},
    ),
    Loophole((6,), "the normalizer squad treats 3.14 as 314", is_closed=True),
    Loophole(
        (16, 24),
        "an answer that contains only citation markers or '.' earns the format reward",
        is_closed=True,
    ),
    Loophole(
        (17, 18),
        "citing every document, or one right document among wrong ones, counts as a correct "
        "citation",
        is_closed=True,
    ),
    Loophole((25,), "every repetition of a right sentence is rewarded again", is_closed=True),
    Loophole(
        (11, 13),
        "tags without content earn up to 1 for tag_count and 1 for format, as the paper defines it",
        variants={11: ("empty-sections",), 13: ("no-content",)},
    ),
    Loophole(
        (31,),
        "with process.enabled, reasoning that only contains the answer entails it, as the "
        "paper defines it",
        variants={31: ("answer-in-thinking",)},
    ),
)
_COMPONENTS = (
    ComponentInfo("tag_count", "share of the required tags that occur exactly once"),
    ComponentInfo(
        "format",
        "1 if the response consists of exactly the required sections, in order; otherwise 0",
        values=(0, 1),
    ),
    ComponentInfo("exact_match", "0.5 for each statement that contains a gold answer", 0.0, None),
    ComponentInfo(
        "citation",
        "for each statement with a gold answer: 0.5 if the cited documents entail it, "
        "otherwise −0.5",
        None,
        None,
    ),
)
_PROCESS = ComponentInfo(
    "process",
    "probability that the reasoning entails the answer or the refusal",
    when="process.enabled",
)

_PAPER = "Ground-GRPO, section 3.1"
TRAINING = Training(
    prompts=Stated(48, f"{_PAPER}: batch of 384 rollouts, 8 per prompt"),
    group=Stated(8, _PAPER),
    learning_rate=Stated(1e-5, _PAPER),
    schedule=Stated("cosine", _PAPER),
    warmup=Stated(0.1, _PAPER),
    epochs=Stated(4, _PAPER),
    sft=trust_align.SFT,
    dpo=trust_align.DPO,
)
_DATASETS = ("asqa", "qampari", "eli5")
_DATA_SOURCE = "Ground-GRPO, section 3"
_GOLD = {"citation.judge_by": "gold"}

GROUND_GRPO = RecipeDefinition(
    name="ground-grpo",
    summary="rewards for statements with gold answers, for their citations, and for refusals "
    "(stage 2)",
    source="Ground-GRPO, section 2.2, Algorithm 1",
    output=OUTPUT,
    settings=GroundGrpo,
    build=ground_grpo,
    fields=("documents", "answers", "answerable", "nli"),
    components=(
        *_COMPONENTS,
        ComponentInfo(
            "refusal",
            "for an answerable question: 0.5 for an answer; for an unanswerable question: the "
            "similarity of a refusal to the gold refusal; otherwise 0",
        ),
        _PROCESS,
    ),
    prompt=PROMPT,
    baselines=trust_align.PROMPTS,
    training=TRAINING,
    data=TrainingData(
        _DATASETS,
        _DATA_SOURCE,
        {"ground-grpo-stage2": Preset(dict.fromkeys(_DATASETS, 1_000), "train", 0.5)},
    ),
    model_free=_GOLD,
    hardened=_HARDENED,
    rejected=_REJECTED,
    changed_defaults=_CHANGED,
    loopholes=(
        *_LOOPHOLES,
        Loophole(
            (15,), "a negated or slightly changed refusal counts as a refusal", is_closed=True
        ),
    ),
)

GROUND_GRPO_STAGE1 = RecipeDefinition(
    name="ground-grpo-stage1",
    summary="rewards for statements with gold answers and for their citations (stage 1)",
    source="Ground-GRPO, Eq. 1 to 5",
    output=OUTPUT,
    settings=GroundGrpo,
    build=ground_grpo_stage1,
    fields=("documents", "answers", "answerable", "nli"),
    components=(*_COMPONENTS, _PROCESS),
    prompt=PROMPT,
    baselines=trust_align.PROMPTS,
    training=TRAINING,
    data=TrainingData(
        _DATASETS,
        _DATA_SOURCE,
        {"ground-grpo-stage1": Preset(dict.fromkeys(_DATASETS, 100), "train")},
        answerable_only=True,
    ),
    model_free=_GOLD,
    hardened=_HARDENED,
    rejected=_REJECTED,
    changed_defaults=_CHANGED,
    loopholes=_LOOPHOLES,
)
