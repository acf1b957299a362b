"""The page about the evidence of a language model. All figures and claims come from the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from language_model import model
from language_model.evidence_figures import (
    ALL,
    DRAWS,
    EVIDENCE,
    FEW,
    GATED,
    NO_COPIES,
    OF_ANSWER,
    OTHERS,
    PROMPTS,
    R_CLR,
    RESAMPLING,
    RULE,
    VARIANTS,
    Figure,
)
from language_model.rows import COPIED_ANSWER, FORMS, KINDS, PLAIN, REASONED

GOAL = 0.75
"""AUC of E below which the page says why and what to do."""
LEAST = 5
"""Least number of questions in a row of a table."""


def page(stored: Mapping[str, Any]) -> str:
    """Return the stored figures as a Markdown page."""
    parts = [
        introduction(stored),
        *summary(stored),
        *(section for name in SECTIONS for section in SECTIONS[name](stored) if stored.get(name)),
    ]
    return "\n\n".join(parts) + "\n"


def cell(figure: Figure | None) -> str:
    """Return a value with its interval.

    >>> cell({"value": 0.812, "low": 0.7, "high": 0.9}), cell(None)
    ('.81 (.70 to .90)', '–')
    """
    if not figure or figure["value"] is None:
        return "–"
    if figure["low"] is None:
        return short(figure["value"])
    return f"{short(figure['value'])} ({short(figure['low'])} to {short(figure['high'])})"


def short(value: float) -> str:
    """Return a number with two digits, without a leading zero.

    >>> short(0.5), short(1.0), short(-0.25)
    ('.50', '1.00', '-.25')
    """
    return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 0.995 else f"{value:.2f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def settings_of(stored: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """Return prompt, form and figures of CTRL-RAG."""
    return [
        (prompt, form, stored["contrastive"][prompt][form])
        for form in FORMS
        for prompt in PROMPTS
        if prompt in stored["contrastive"] and stored["contrastive"][prompt][form]["auc"][EVIDENCE]
    ]


# --- introduction and summary --------------------------------------------------------------------


def introduction(stored: Mapping[str, Any]) -> str:
    names = ", ".join(f"{name} {number}" for name, number in stored["versions"].items())
    hours = sum(each["seconds"] for each in stored["spent"].values()) / 3600
    processor = sum(each["processor"] for each in stored["spent"].values()) / 3600
    errors = int(sum(each["errors"] for each in stored["spent"].values()))
    missing = [
        f"{name} ({each['rows']} of {each['all']} rows)"
        for name, each in stored["spent"].items()
        if each["rows"] < each["all"] and "float32" not in name
    ]
    plain = PLAIN.encode("unicode_escape").decode()
    text = f"""\
# Is the evidence of a language model valid?

Model: {model.NOTE}, as policy, in bfloat16.
`python benchmarks/language_model/evidence.py` measured it and wrote this page. Versions: {names}.
Hardware: {stored["machine"]}. The model took {hours:.1f} hours on a machine that other programs
shared, and {processor:.1f} hours of the processor. Rows that could not be scored: {errors}.

The question is whether the evidence that the recipes `ctrl-rag`, `igpo` and `lear` request from a
policy distinguishes the responses that the rewards are meant to distinguish. The policy is not
trained here. The responses are not its own: they come from data sets or from another model. Rows
are made from real questions and paragraphs, by rule (`benchmarks/language_model/rows.py`), and
scored through `rag_rewards.Scorer` and the named recipes.

AUC is the probability that a response of the first kind has the greater value than one of the
second kind; .5 is chance. In parentheses: the 95% bootstrap interval over questions,
{RESAMPLING.resamples:,} resamples, seed {RESAMPLING.seed}. Prompts: `chat` is the prompt of the
recipe in the chat template of the model; `plain` is `{plain}` without a chat template."""
    if missing:
        text += f"\n\nNot complete, since the time did not suffice: {'; '.join(missing)}."
    return text


def summary(stored: Mapping[str, Any]) -> list[str]:
    """Return the answer in a list, of which each sentence follows from the figures."""
    lines = [*contrastive_summary(stored), *search_summary(stored), *lear_summary(stored)]
    return ["## Summary\n\n" + "\n".join(f"- {line}" for line in lines)]


def contrastive_summary(stored: Mapping[str, Any]) -> list[str]:
    """Return the headline of CTRL-RAG, and what E distinguishes."""
    every = settings_of(stored)
    pooled = [figures["auc"][EVIDENCE][ALL] for _, _, figures in every]
    low = sum(figure["value"] < GOAL for figure in pooled)
    names = [f"{form}, {prompt}" for prompt, form, _ in every]
    headline = "; ".join(
        f"{name} {cell(figure)}" for name, figure in zip(names, pooled, strict=True)
    )
    goal = f"It is below {short(GOAL)} in {low} of these {len(pooled)} settings."
    lines = [f"CTRL-RAG, AUC of E, supported responses against all others: {headline}. {goal}"]
    for kind in OTHERS:
        own = [figures["auc"][EVIDENCE][kind] for _, _, figures in every]
        lines.append(f"E, supported against {kind}: {span(own)}. {in_words(own)}")
    gated = [figures["auc"][GATED][ALL] for _, _, figures in every]
    lines.append(
        f"R_CLR multiplied by the accuracy, as `ctrl-rag` does before the scaling: {span(gated)} "
        "against all others."
    )
    return lines


def span(figures: Sequence[Figure]) -> str:
    """Return the least and the greatest value.

    >>> span([{"value": 0.5}, {"value": 0.75}]), span([{"value": 0.5}])
    ('.50 to .75', '.50')
    """
    ends = sorted(
        {short(min(f["value"] for f in figures)), short(max(f["value"] for f in figures))}
    )
    return " to ".join(ends)


def in_words(figures: Sequence[Figure]) -> str:
    """Return in how many settings the interval is above, around and below chance.

    >>> in_words([{"low": 0.6, "high": 0.8}, {"low": 0.4, "high": 0.7}])
    'The interval is above .5 in 1 of 2 settings, and contains it in 1.'
    """
    above = sum(figure["low"] > 0.5 for figure in figures)
    below = sum(figure["high"] < 0.5 for figure in figures)
    around = len(figures) - above - below
    parts = [f"above .5 in {above} of {len(figures)} settings"]
    parts += [f"below it in {below}"] * bool(below) + [f"contains it in {around}"] * bool(around)
    return "The interval is " + ", and ".join(parts) + "."


def search_summary(stored: Mapping[str, Any]) -> list[str]:
    """Return the AUC of the gains of igpo, for each measure the range over kind and baseline."""
    names = {
        "verdict": "the sum of the gains, rollouts that are judged right against wrong ones",
        "hit": "the gain of a turn, hits against other searches",
        "first hit": "the same before which no search was a hit",
    }
    lines = []
    for measure, text in names.items():
        own = {
            f"{name} ({prompt})": figure
            for prompt, figures in stored["search"].items()
            for name, figure in figures[measure].items()
            if "," in name and figure["value"] is not None
        }
        if own:
            best = max(own, key=lambda name: own[name]["value"])
            lines.append(
                f"igpo, AUC of {text}: {span([*own.values()])}, the greatest with {best}. "
                + in_words([*own.values()])
            )
    for figures in [*stored["search"].values()][:1]:  # the prompt has no effect on the rule
        lines.append(
            "igpo, for comparison: the rule that a result contains the gold answer needs no model; "
            f"its AUC for the verdict is {cell(figures['verdict'][RULE])}."
        )
    return lines


def lear_summary(stored: Mapping[str, Any]) -> list[str]:
    """Return how often the answer from the extract is right, with and without evidence in it."""
    return [
        f"LEAR ({prompt}), answers from the extract that are right: "
        + "; ".join(f"{kind} {cell(figures[kind]['evidence']['right'])}" for kind in REASONED)
        + ". Answers from the passages and the reasoning: "
        + "; ".join(f"{kind} {cell(figures[kind]['rationale']['right'])}" for kind in REASONED)
        + "."
        for prompt, figures in stored["lear"].items()
    ]


# --- CTRL-RAG ------------------------------------------------------------------------------------


def contrastive(stored: Mapping[str, Any]) -> list[str]:
    every = settings_of(stored)
    kinds = "\n".join(f"- {name}: {text}." for name, text in KINDS.items())
    forms = "\n".join(f"- {name}: {text}." for name, text in FORMS.items())
    questions = "; ".join(
        f"{prompt}: " + ", ".join(f"{n} of {data}" for data, n in figures["data"].items())
        for prompt, figures in stored["contrastive"].items()
    )
    return [
        f"""\
## CTRL-RAG: the responses

{kinds}

Each response but a copy has two forms:

{forms}

Questions, {questions}. Those of HotpotQA, MuSiQue and 2Wiki have their gold paragraphs and three
distractors; those of NQ have one gold passage, and the passages of four other questions. In a
training, all responses of a group have one prompt; responses from memory have another prompt
here.""",
        "## AUC of E, supported responses against the others\n\n" + by_kind(every, EVIDENCE),
        "## AUC of R_CLR, supported responses against the others\n\n"
        "Settings of the paper: minimum over the documents, τ = 1, division by √T.\n\n"
        + by_kind(every, R_CLR),
        "## Settings: minimum or mean, threshold, length normalization\n\n"
        "AUC of supported responses against all others together. In `ctrl-rag`, R_CLR is scaled "
        "within the group and multiplied by the accuracy; the row with the accuracy has no "
        "scaling.\n\n" + by_variant(every),
        "## Number of supporting documents\n\nThe numbers belong to different data sets: 1 is NQ, "
        "2 is mostly HotpotQA.\n\n" + by_documents(every),
        "## Values of E\n\nIn nats. τ is 1.\n\n" + distribution(every),
        why(stored, every),
    ]


def by_kind(every: Sequence[tuple[str, str, Mapping[str, Any]]], variant: str) -> str:
    heads = ("form", "prompt", f"all {ALL}", *OTHERS)
    rows = [
        (form, prompt, *(cell(figures["auc"][variant].get(kind)) for kind in (ALL, *OTHERS)))
        for prompt, form, figures in every
    ]
    return table(heads, rows)


def by_variant(every: Sequence[tuple[str, str, Mapping[str, Any]]]) -> str:
    heads = ("value", *(f"{form}, {prompt}" for prompt, form, _ in every))
    rows = [
        (name, *(cell(figures["auc"].get(name, {}).get(ALL)) for _, _, figures in every))
        for name in (*VARIANTS, GATED)
    ]
    return table(heads, rows)


def by_documents(every: Sequence[tuple[str, str, Mapping[str, Any]]]) -> str:
    heads = ("form", "prompt", "documents", "over them", "questions", f"all {ALL}", *FEW)
    rows = [
        (
            *(form, prompt, number, name, figure[ALL]["questions"]),
            *(cell(figure.get(kind)) for kind in (ALL, *FEW)),
        )
        for prompt, form, figures in every
        for number in ("1", "2", "3 or more")
        for name, key in (("minimum", EVIDENCE), ("mean", "E, mean over the documents"))
        if (figure := figures["by documents"][key][number]) and (name == "minimum" or number != "1")
    ]
    return table(heads, rows)


def distribution(every: Sequence[tuple[str, str, Mapping[str, Any]]]) -> str:
    heads = ("form", "prompt", "response", "mean of E", "median of E", "E > τ", "rows")
    rows = [
        (
            form,
            prompt,
            kind,
            f"{each['mean']:+.2f}",
            f"{each['median']:+.2f}",
            f"{each['above threshold']:.0%}",
            each["rows"],
        )
        for prompt, form, figures in every
        for kind, each in figures["E"].items()
        if each
    ]
    return table(heads, rows)


def why(stored: Mapping[str, Any], every: Sequence[tuple[str, str, Mapping[str, Any]]]) -> str:
    heads = ("form", "prompt", *OTHERS)
    within = [
        (form, prompt, *(cell(figures["within"].get(kind)) for kind in OTHERS))
        for prompt, form, figures in every
    ]
    answer = [
        (prompt, *(cell(figures["auc"][OF_ANSWER].get(kind)) for kind in OTHERS[:3]))
        for prompt, form, figures in every
        if form == "short"
    ]
    parts_of = {
        key: [
            (
                form,
                prompt,
                label,
                figure[ALL]["questions"],
                *map(cell, map(figure.get, (ALL, *FEW))),
            )
            for prompt, form, figures in every
            for label, figure in figures[key].items()
            if figure and figure[ALL]["questions"] >= LEAST
        ]
        for key in ("by question", "by data")
    }
    few = ("questions", f"all {ALL}", *FEW)
    parts = [
        f"## Why E is not better, and what to do\n\n{causes(every)}",
        advice(every),
        "Within a question, which is what a group compares: share of questions whose supported "
        "response has the greater E (equal values count one half).",
        table(heads, within),
        "AUC of the part of E that belongs to the tokens of the answer, form `short`:",
        table(("prompt", *OTHERS[:3]), answer),
        f"AUC of E by kind of question, for kinds with {LEAST} questions or more:",
        table(("form", "prompt", "kind", *few), parts_of["by question"]),
        "AUC of E by data set:",
        table(("form", "prompt", "data", *few), parts_of["by data"]),
    ]
    return "\n\n".join(parts)


def causes(every: Sequence[tuple[str, str, Mapping[str, Any]]]) -> str:
    """Return what lowers the AUC of E, with the figures that show it."""
    rest = [figures["auc"][EVIDENCE][NO_COPIES] for _, _, figures in every]
    copies = [figures["E"]["copied gold"]["median"] for _, _, figures in every]
    right = [figures["E"]["supported"]["median"] for _, _, figures in every]
    memory = [figures["E"]["memory"]["above threshold"] for _, _, figures in every]
    mean = [change(figures, "E, mean over the documents", EVIDENCE) for _, _, figures in every]
    others = [
        change(figures, name, R_CLR)
        for _, _, figures in every
        for name in VARIANTS
        if name.startswith("R_CLR")
    ]
    return f"""\
E is the sum over the tokens of how much a supporting document raises them. It measures whether a
response needs the documents, and not whether it answers the question. The median of E is
{min(copies):.1f} to {max(copies):.1f} nats for sentences that are copied from a gold paragraph, and
{min(right):.1f} to {max(right):.1f} nats for supported responses. Without these copies, the AUC of
supported responses against all others is {span(rest)}. A wrong answer in the gold paragraphs
(misread) is raised by them as well. In a reasoned response with a wrong answer, the documents
support most of the other tokens. With unrelated paragraphs in place of the gold ones,
{min(memory):.0%} to {max(memory):.0%} of the responses exceed τ: E sums over all tokens, and the
minimum over the documents selects the greatest difference. The mean over the documents changes the
AUC of E by at most {short(max(mean))}. Threshold, length normalization and mean change that of
R_CLR by at most {short(max(others))}."""


def change(figures: Mapping[str, Any], name: str, reference: str) -> float:
    """Return by how much the AUC of two values differs."""
    return float(abs(figures["auc"][name][ALL]["value"] - figures["auc"][reference][ALL]["value"]))


def advice(every: Sequence[tuple[str, str, Mapping[str, Any]]]) -> str:
    """Return what a user can do, with the figures of the alternative."""
    gated = [figures["auc"][GATED][ALL] for _, _, figures in every]
    memory = [figures["auc"][R_CLR]["memory"] for _, _, figures in every]
    copies = [figures[COPIED_ANSWER][GATED] for _, _, figures in every if figures[COPIED_ANSWER]]
    passes = "passes the accuracy too"
    if copies:
        passes += (
            ": for supported responses against gold sentences that contain the answer, the AUC of "
            f"the product is {span(copies)}"
        )
    return f"""\
What to do: do not train with R_CLR alone (`ctrl-rag-clr`) unless copies and wrong answers from the
documents are acceptable. `ctrl-rag` multiplies R_CLR by the accuracy. R_CLR then has to distinguish
right responses with support from right responses without it, for which its AUC is {span(memory)};
the product has {span(gated)} against all others. A copy that contains the answer {passes}. The
hardened profile reads the answer section alone. Measure E of your own policy on rows of this kind
before a training."""


# --- igpo ----------------------------------------------------------------------------------------


def search(stored: Mapping[str, Any]) -> list[str]:
    every = stored["search"]
    if not every:
        return []
    one = next(iter(every.values()))
    prompts = list(every)
    heads = ("value", *(f"{p} ({every[p]['rollouts']} rollouts)" for p in prompts))
    counts = (
        f"With the prompt {prompts[0]}: {one['rollouts']} rollouts of R1-Searcher (Qwen and Llama, "
        "questions of HotpotQA and "
        "Bamboogle) with at least one search, chosen with the seed 0. A model judged "
        f"{one['right']} of them right. They have {one['searches']} searches, of which "
        f"{one['hits']} are hits: a result contains the gold answer as whole words. The rollouts "
        "name no gold documents, so that this takes their place. Baselines: `previous` is the "
        "turn before; `empty` and `random` replace the results of the turn by none, and by those "
        f"of another question ({DRAWS} draw; the default of the recipe is 3)."
    )

    def rows(measure: str) -> list[Sequence[object]]:
        names = one[measure]
        return [(name, *(cell(every[p][measure].get(name)) for p in prompts)) for name in names]

    return [
        f"## igpo: the gain against the verdict\n\n{counts}\n\nAUC of the sum of the gains of a "
        "rollout, rollouts that are judged right against wrong ones:\n\n"
        + table(heads, rows("verdict")),
        "## igpo: the gain against the hit of a search\n\nAUC of the gain of a turn, turns with a "
        "hit against turns without one:\n\n"
        + table(heads, rows("hit"))
        + "\n\nThe same for turns before which no search was a hit, so that the answer is new:\n\n"
        + table(heads, rows("first hit")),
    ]


# --- LEAR and precision --------------------------------------------------------------------------


ANSWERS = {"rationale": "o_r", "evidence": "o_e", "full": "o_f"}
"""The names of the answers in the paper."""


def lear(stored: Mapping[str, Any]) -> list[str]:
    every = stored["lear"]
    if not every:
        return []
    kinds = "\n".join(f"- {name}: {text}." for name, text in REASONED.items())
    data = "; ".join(
        f"{prompt}: " + ", ".join(f"{n} of {name}" for name, n in figures["data"].items())
        for prompt, figures in every.items()
    )
    cells = [(part, measure) for measure in ("right", "f1") for part in ANSWERS]
    rows = [
        (prompt, kind, *(cell(figures[kind][part][measure]) for part, measure in cells))
        for prompt, figures in every.items()
        for kind in REASONED
        if kind in figures
    ]
    heads = ("prompt", "rollouts", *(f"{ANSWERS[part]}, {measure}" for part, measure in cells))
    sentences = ""
    for prompt, figures in every.items():
        words, f1, right = (
            figures["supported"]["rationale"][name]["value"] for name in ("words", "f1", "right")
        )
        sentences += (
            f" With the prompt `{prompt}`, o_r of `supported` rollouts has {words:.0f} words on "
            f"average: its F1 is {short(f1)}, and its share of right answers {short(right)}."
        )
    return [
        "## LEAR: the masked answers\n\nThe model answers from the question, the passages and the "
        "reasoning (o_r), and from the question and the extract (o_e), at temperature 0. The third "
        "answer, o_f, is that of the rollout itself, which the construction sets. An answer is "
        "right if it contains the gold answer as whole words; the reward is its F1. Kinds of "
        f"rollouts:\n\n{kinds}\n\nQuestions, {data}.{sentences}\n\n" + table(heads, rows)
    ]


def precision(stored: Mapping[str, Any]) -> list[str]:
    each = stored["precision"]
    if not each:
        return []
    return [
        "## Precision\n\n"
        f"On {each['rows']} rows of HotpotQA, E in bfloat16 differs from E in float32 by "
        f"{each['mean difference']:.2f} nats on average and by {each['largest difference']:.2f} at "
        f"most. {each['threshold flips']} of the {each['rows']} rows are on another side of τ = 1."
    ]


SECTIONS = {
    "contrastive": contrastive,
    "search": search,
    "lear": lear,
    "precision": precision,
}
