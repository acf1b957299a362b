"""The page about the evidence of a language model. All figures and claims come from the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from language_model import model
from language_model.evidence_cells import cell, in_words, short, span, table
from language_model.evidence_figures import (
    ACCURACY,
    ALL,
    DRAWS,
    EVIDENCE,
    FEW,
    GATED,
    MEAN,
    NO_COPIES,
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
Setting = tuple[str, str, Mapping[str, Any]]
"""A prompt, a form and the figures of CTRL-RAG."""


def page(stored: Mapping[str, Any]) -> str:
    """Return the stored figures as a Markdown page."""
    parts = [
        introduction(stored),
        *summary(stored),
        *(section for name in SECTIONS for section in SECTIONS[name](stored) if stored.get(name)),
    ]
    return "\n\n".join(parts) + "\n"


def settings_of(stored: Mapping[str, Any]) -> list[Setting]:
    """Return the settings in which CTRL-RAG is measured."""
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
recipe in the chat template of the model; `plain` is `{plain}` without a chat template (for igpo:
`Question: {{question}}\\nAnswer: `, whose results follow in the turns)."""
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
    pools = [aucs(every, EVIDENCE, pool) for pool in (ALL, NO_COPIES)]
    low, low_rest = (sum(figure["value"] < GOAL for figure in pool) for pool in pools)
    headline = "; ".join(
        f"{form}, {prompt} {cell(pooled)}, and {cell(rest)} without copied gold"
        for (prompt, form, _), pooled, rest in zip(every, *pools, strict=True)
    )
    lines = [
        "CTRL-RAG, AUC of E, supported responses against all others, which include sentences that "
        f"are copied from gold paragraphs, and without these: {headline}. It is below "
        f"{short(GOAL)} in {low} of these {len(every)} settings, and without copied gold in "
        f"{low_rest}."
    ]
    for kind in OTHERS:
        own = aucs(every, EVIDENCE, kind)
        lines.append(f"E, supported against {head(kind)}: {span(own)}. {in_words(own)}")
    return [*lines, product(every)]


def product(every: Sequence[Setting]) -> str:
    """Return whether R_CLR adds to the accuracy."""
    pooled, memory = (
        [f["product minus accuracy"][k] for _, _, f in every] for k in (ALL, "memory")
    )
    each = "; ".join(
        f"{form}, {prompt} {cell(figure)}"
        for (prompt, form, _), figure in zip(every, pooled, strict=True)
    )
    return (
        f"Accuracy alone, supported against all others: {span(aucs(every, ACCURACY, ALL))}. R_CLR "
        f"multiplied by the accuracy: {span(aucs(every, GATED, ALL))}. Paired difference of the "
        f"product from the accuracy: {each}. {in_words(pooled, 0)} Against {head('memory')} alone, "
        f"the difference is {span(memory)}. {in_words(memory, 0)} Support within one "
        "prompt is not measured here."
    )


def aucs(every: Sequence[Setting], value: str, kind: str) -> list[Figure]:
    """Return the AUC of a value against a kind of responses in each setting."""
    return [figures["auc"][value][kind] for _, _, figures in every]


def head(kind: str) -> str:
    """Return the name of a kind of responses, which says if they have another prompt."""
    return "memory (other prompt)" if kind == "memory" else kind


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
training, all responses of a group have one prompt. Responses from memory have the text of the
supported ones and another prompt: no group compares these two.

{left_out(stored)}""",
        "## AUC of E, supported responses against the others\n\n" + by_kind(every, EVIDENCE),
        "## AUC of R_CLR, supported responses against the others\n\n"
        "Settings of the paper: minimum over the documents, τ = 1, division by √T.\n\n"
        + by_kind(every, R_CLR),
        "## Settings: minimum or mean, threshold, length normalization\n\n"
        "AUC of supported responses against all others together. In `ctrl-rag`, R_CLR is scaled "
        "within the group and multiplied by the accuracy; the row of the product has no scaling. "
        "The accuracy is that of `ctrl-rag`, and of `rag-total` with `alpha=0 beta=1`. The last "
        "row is paired: both values have the same resamples.\n\n" + by_variant(every),
        "## Number of supporting documents\n\nThe numbers belong to different data sets: 1 is NQ, "
        "2 is mostly HotpotQA. E has the minimum over the documents unless the head names the "
        "mean.\n\n" + by_documents(every),
        "## Values of E\n\nIn nats. τ is 1.\n\n" + distribution(every),
        why(stored, every),
    ]


def left_out(stored: Mapping[str, Any]) -> str:
    """Return the numbers of wrong responses with accuracy 1, and of copies with it."""
    figures = next(iter(stored["contrastive"].values()))  # the prompt has no effect on the accuracy
    own, copies = (
        ", ".join(f"{n} {name.replace(', ', ' (')})" for name, n in figures[key].items()) or "none"
        for key in ("left out", "right copies")
    )
    return (
        "Responses of the kinds wrong and misread whose accuracy is 1 are left out of all figures "
        "about CTRL-RAG, because they still contain the right answer; with each prompt, these are "
        f"{sum(figures['left out'].values())}: {own}. Copies with accuracy 1 are not left out: "
        f"{copies}."
    )


def by_kind(every: Sequence[Setting], variant: str) -> str:
    heads = ("form", "prompt", f"all {ALL}", *map(head, OTHERS))
    rows = [
        (form, prompt, *(cell(figures["auc"][variant].get(kind)) for kind in (ALL, *OTHERS)))
        for prompt, form, figures in every
    ]
    return table(heads, rows)


def by_variant(every: Sequence[Setting]) -> str:
    heads = ("value", *(f"{form}, {prompt}" for prompt, form, _ in every))
    rows = [
        (name, *(cell(figures["auc"].get(name, {}).get(ALL)) for _, _, figures in every))
        for name in (*VARIANTS, ACCURACY, GATED)
    ]
    pairs = (cell(figures["product minus accuracy"][ALL]) for _, _, figures in every)
    rows.append(("the product minus accuracy alone", *pairs))
    return table(heads, rows)


def by_documents(every: Sequence[Setting]) -> str:
    few = map(head, FEW)
    heads = ("form", "prompt", "documents", "questions", f"all {ALL}", f"all {ALL}, mean", *few)
    rows = [
        (
            *(form, prompt, number, figure[ALL]["questions"]),
            *(cell(figure[ALL]), cell(figures["by documents"][MEAN][number][ALL])),
            *(cell(figure.get(kind)) for kind in FEW),
        )
        for prompt, form, figures in every
        for number, figure in figures["by documents"][EVIDENCE].items()
        if figure
    ]
    return table(heads, rows)


def distribution(every: Sequence[Setting]) -> str:
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


def why(stored: Mapping[str, Any], every: Sequence[Setting]) -> str:
    same_prompt = [kind for kind in OTHERS if kind != "memory"]
    within = [
        (form, prompt, *(cell(figures["within"].get(kind)) for kind in same_prompt))
        for prompt, form, figures in every
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
    few = ("questions", f"all {ALL}", *map(head, FEW))
    parts = [
        f"## Why E is not better, and what to do\n\n{causes(every)}",
        advice(every),
        "Within a question and one prompt, which is what a group compares: share of questions "
        "whose supported response has the greater E (equal values count one half).",
        table(("form", "prompt", *same_prompt), within),
        f"AUC of E by kind of question, for kinds with {LEAST} questions or more:",
        table(("form", "prompt", "kind", *few), parts_of["by question"]),
        "AUC of E by data set:",
        table(("form", "prompt", "data", *few), parts_of["by data"]),
    ]
    return "\n\n".join(parts)


def causes(every: Sequence[Setting]) -> str:
    """Return what lowers the AUC of E, with the figures that show it."""
    rest = [figures["auc"][EVIDENCE][NO_COPIES] for _, _, figures in every]
    copies = [figures["E"]["copied gold"]["median"] for _, _, figures in every]
    right = [figures["E"]["supported"]["median"] for _, _, figures in every]
    memory = [figures["E"]["memory"]["above threshold"] for _, _, figures in every]
    mean = [change(figures, MEAN, EVIDENCE) for _, _, figures in every]
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


def advice(every: Sequence[Setting]) -> str:
    """Return what a user can do, with the figures of the alternatives."""
    below = [1 - figures["E"]["supported"]["above threshold"] for _, _, figures in every]
    kinds = [
        f"{name} {span(aucs(every, value, 'memory'))}"
        for name, value in (("R_CLR", R_CLR), ("the product", GATED), ("accuracy alone", ACCURACY))
    ]
    copied = [figures[COPIED_ANSWER] for _, _, figures in every if figures[COPIED_ANSWER]]
    copies = ""
    if copied:
        both = (span([each[value] for each in copied]) for value in (GATED, ACCURACY))
        copies = (
            " A gold sentence that contains the answer is right: supported responses against such "
            "copies have the AUC {} with the product, and {} with accuracy alone."
        ).format(*both)
    return f"""\
What to do: do not train with R_CLR alone (`ctrl-rag-clr`) unless copies and wrong answers from the
documents are acceptable. Accuracy alone needs no model, and has {span(aucs(every, ACCURACY, ALL))}
against all others; R_CLR multiplied by it has {span(aucs(every, GATED, ALL))}. Both are high by
construction: wrong answers and all copies but a few have the accuracy 0. R_CLR can add to the
accuracy only where both responses are right, which here is against memory: {"; ".join(kinds)}.
R_CLR is 0 for {min(below):.0%} to {max(below):.0%} of the supported responses, whose E is not
above τ, so that the product equals that of a wrong response.{copies}

Nothing here measures support within one prompt. The text of a memory response is that of the
supported one, so that both have the same E after the same prompt. A group has one prompt; whether
R_CLR distinguishes a right response with support from one without it there is not known from these
figures. Measure E of your own policy on rows of this kind before a training."""


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
