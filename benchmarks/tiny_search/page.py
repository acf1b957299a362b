"""The figures of the comparison of turn credit with the outcome alone, and their page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from textwrap import fill
from typing import Any

from tiny_search.arms import SETTINGS, Setting

LEAST = 0.04
"""Smallest difference of two means of accuracies that counts."""
PRIMARY = "area"
"""The figure that decides whether an arm is better than outcome only."""
QUANTILES = {
    **{2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571},
    **{7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262},
}
"""Standard errors of a 95% interval by the number of seeds n: t with n - 1 degrees of freedom."""
Points = Sequence[tuple[int, Mapping[str, float | None]]]


# --- figures -------------------------------------------------------------------------------------


def figures_of(result: Mapping[str, Any], goal: float) -> dict[str, float | None]:
    """Return the figures of one run."""
    points = result["points"]
    accuracies = [(step, measures["right"] or 0.0) for step, measures in points]
    last = result["final"]
    return {
        "steps to goal": steps_to(accuracies, goal),
        "area": area(accuracies),
        "final": last["right"],
        "dead groups": fmean(result["dead groups"]),
        **{name: last[name] for name in ("first query", "second query", "turns")},
        "malformed turns": last["malformed turns"],
    }


def steps_to(accuracies: Sequence[tuple[int, float]], goal: float) -> float | None:
    """Return the step at which the accuracy reaches the goal, on lines between the points.

    >>> steps_to([(0, 0.1), (10, 0.7), (20, 0.9)], 0.8), steps_to([(0, 0.1)], 0.8)
    (15.0, None)
    """
    before = accuracies[0]
    for step, value in accuracies:
        if value >= goal:
            rise = value - before[1]
            share = (goal - before[1]) / rise if rise else 0.0
            return round(before[0] + share * (step - before[0]), 3)
        before = (step, value)
    return None


def area(accuracies: Sequence[tuple[int, float]]) -> float:
    """Return the mean accuracy over the steps, by trapezoids.

    >>> area([(0, 0.0), (10, 1.0), (20, 1.0)])
    0.75
    """
    pairs = pairwise(accuracies)
    total = sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairs)
    return total / (accuracies[-1][0] - accuracies[0][0])


def mean_and_error(differences: Sequence[float]) -> tuple[float, float]:
    """Return the mean of differences and its standard error.

    >>> mean_and_error([1.0, 2.0, 3.0])
    (2.0, 0.5773502691896258)
    """
    return fmean(differences), stdev(differences) / math.sqrt(len(differences))


def half_width(differences: Sequence[float]) -> float:
    """Return half of the 95% interval of the mean of 2 to 10 differences.

    ValueError for another number of differences.

    >>> round(half_width([1.0, 2.0, 3.0]), 3)
    2.484
    """
    if len(differences) not in QUANTILES:
        raise ValueError(f"{len(differences)} seeds: an interval needs 2 to {max(QUANTILES)}")
    return QUANTILES[len(differences)] * mean_and_error(differences)[1]


def counts(differences: Sequence[float], least: float) -> bool:
    """Return whether 0 is outside the 95% interval, and the mean is more than `least` from 0.

    >>> counts([0.1, 0.1, 0.11], 0.04), counts([0.1, -0.1, 0.13], 0.04), counts([0.01, 0.01], 0.04)
    (True, False, False)
    """
    return abs(fmean(differences)) > max(half_width(differences), least)


def cell(values: Sequence[float | None]) -> str:
    """Return mean ± standard deviation, and how many values there are if some are missing."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return "–"
    digits = 1 if max(map(abs, numbers)) > 10 else 3
    text = f"{fmean(numbers):.{digits}f}"
    if len(numbers) > 1:
        text += f" ± {stdev(numbers):.{digits}f}"
    return text if len(numbers) == len(values) else f"{text} ({len(numbers)} of {len(values)})"


# --- the page ------------------------------------------------------------------------------------

Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""The results of each arm, in the order of the seeds."""
Figures = Mapping[int, Mapping[str, float | None]]
"""The figures of the runs of an arm by seed."""


def table(figures: Mapping[str, Figures]) -> str:
    """Return one row per arm: mean ± standard deviation over the seeds."""
    columns = list(next(iter(next(iter(figures.values())).values())))
    lines = [f"| arm | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for name, seeds in figures.items():
        cells = [cell([each[column] for each in seeds.values()]) for column in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def comparisons(figures: Mapping[str, Figures]) -> str:
    """Return one row per arm: its differences from outcome only, in bold if they count."""
    reference, *others = figures
    if not others:
        return "No other arm has runs."
    lines = ["| arm | steps to goal | area | final |", "| --- | --- | --- | --- |"]
    for name in others:
        cells = [
            difference(figures[name], figures[reference], column, least)
            for column, least in COMPARED
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


COMPARED = (("steps to goal", 0.0), ("area", LEAST), ("final", LEAST))
"""The compared figures, each with the smallest difference that counts."""


def figures_by_seed(setting: Setting, runs: Runs) -> dict[str, Figures]:
    """Return the figures of the arms, each by seed, and first those of the reference.

    ValueError if the reference has no run.
    """
    reference = setting.arms[0]
    if not runs.get(reference):
        raise ValueError(f"{setting.title}: no run of the reference {reference!r}: run it first")
    return {
        name: {each["seed"]: figures_of(each, setting.goal) for each in runs[name]}
        for name in sorted(runs, key=lambda name: name != reference)
    }


def difference(figures: Figures, reference: Figures, column: str, least: float) -> str:
    """Return the mean difference and half of its interval over the seeds with both values.

    It is bold if it counts and all common seeds have both values.
    """
    gaps, count = differences(figures, reference, column)
    if len(gaps) < 2:
        return "–"
    digits = 1 if column == "steps to goal" else 3
    text = f"{fmean(gaps):+.{digits}f} ± {half_width(gaps):.{digits}f}"
    if len(gaps) < count:
        return f"{text} ({len(gaps)} of {count} seeds)"
    return f"**{text}**" if counts(gaps, least) else text


def differences(figures: Figures, reference: Figures, column: str) -> tuple[list[float], int]:
    """Return the differences of the seeds with both values, and the number of common seeds."""
    pairs = [
        (figures[seed][column], reference[seed][column]) for seed in figures if seed in reference
    ]
    gaps = [one - other for one, other in pairs if one is not None and other is not None]
    return gaps, len(pairs)


KINDS = ("Larger", "Smaller", "No gain of more than .04", "Undecided")
"""What a 95% interval says about the difference of an arm from outcome only."""


def outcomes(figures: Mapping[str, Figures], column: str) -> dict[str, list[str]]:
    """Return the arms of each of `KINDS`, with the mean differences and their 95% intervals."""
    reference, *others = figures
    result: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for name in others:
        gaps, _ = differences(figures[name], figures[reference], column)
        if len(gaps) < 2:
            result[KINDS[3]].append(f"`{name}` (–)")
            continue
        mean, half = fmean(gaps), half_width(gaps)
        if counts(gaps, LEAST):
            kind = KINDS[0] if mean > 0 else KINDS[1]
        else:
            kind = KINDS[2] if mean + half <= LEAST else KINDS[3]
        result[kind].append(f"`{name}` ({mean:+.3f} ± {half:.3f})")
    return result


def verdict(figures: Mapping[str, Figures]) -> str:
    """Return the arms that the accuracies, and the steps to the goal, tell from the first."""
    reference, *others = figures
    lines = [
        f"- `{column}`. {sentences(outcomes(figures, column))}" for column in (PRIMARY, "final")
    ]
    for kind, begin in {"Fewer": "**-", "More": "**+"}.items():
        names = [
            f"`{name}`"
            for name in others
            if difference(figures[name], figures[reference], "steps to goal", 0.0).startswith(begin)
        ]
        lines.append(f"- {kind} steps to the goal, in bold above: {', '.join(names) or 'no arm'}")
    lines.append(f"- Runs that ended with fewer than two turns: {stopped(figures)}")
    return "\n".join(fill(line, 100, subsequent_indent="  ") for line in lines)


def stopped(figures: Mapping[str, Figures]) -> str:
    """Return how many runs of each arm stopped searching: fewer than two turns at the end."""
    short = {
        name: sum((each["turns"] or 0.0) < 2.0 for each in seeds.values())
        for name, seeds in figures.items()
    }
    runs = [f"{n} of {len(figures[name])} of `{name}`" for name, n in short.items() if n]
    return ", ".join(runs) or "none"


def sentences(arms: Mapping[str, Sequence[str]]) -> str:
    """Return a sentence for each kind with an arm, and always one for larger figures."""
    return " ".join(
        f"{kind}: {', '.join(names) or 'no arm'}."
        for kind, names in arms.items()
        if names or kind == KINDS[0]
    )


def advice(stored: Mapping[str, Any]) -> str:
    """Return when to use turn credit, as far as the stored figures say it."""
    lines, winners = [], False
    for name, runs in stored["runs"].items():
        figures = figures_by_seed(SETTINGS[name], runs)
        _, *others = figures
        reference = next(iter(figures.values())).values()
        dead, final = (
            fmean(each[column] or 0.0 for each in reference) for column in ("dead groups", "final")
        )
        arms = outcomes(figures, PRIMARY)
        winners = winners or bool(arms[KINDS[0]])
        open_arms = len(arms[KINDS[3]])
        unknown = ""
        if others and open_arms == len(others):
            where = "when outcomes are rare" if SETTINGS[name].recall < 1 else "here"
            unknown = (
                f"These runs do not show whether turn credit helps {where}: all arms are undecided "
                f"({open_arms} of {len(others)}). "
            )
        lines.append(
            f"- With {SETTINGS[name].short}. The outcome alone leaves {dead:.0%} of the groups "
            f"without signal, and its final accuracy is {final:.2f}. {unknown}{sentences(arms)} "
            f"Runs that stopped searching: {stopped(figures)}."
        )
    texts = [SOME_ARM if winners else NO_ARM, ADVICE]
    return "\n".join(
        [
            fill(" ".join(texts), 100),
            "",
            *(fill(line, 100, subsequent_indent="  ") for line in lines),
        ]
    )


NO_ARM = """\
The outcome alone is the default, because no gain of turn credit is shown in the tiny search world.
For the undecided methods, the runs do not show whether they are better."""
SOME_ARM = """\
The outcome alone is the default: in the tiny search world, a gain is shown only for the methods
that are listed as larger."""
ADVICE = """\
Begin with the outcome alone, and add turn credit if a comparison in your own environment, with
several seeds, shows a gain. The lists contain the mean accuracy over the training, as difference
from the outcome alone with its 95% interval over the seeds. Undecided: neither larger nor smaller,
and the interval contains gains of more than .04, or fewer than two seeds are common. A run stopped
searching if its rollouts have fewer than two turns at the end, on average."""


def page(stored: Mapping[str, Any]) -> str:
    """Return the stored results as a Markdown page."""
    sections = [
        section(name, runs, stored["versions"][name]) for name, runs in stored["runs"].items()
    ]
    return "\n\n".join([INTRODUCTION, *sections, NOTES.strip()]) + "\n"


def section(name: str, runs: Runs, versions: Mapping[str, str]) -> str:
    """Return the tables of one setting."""
    setting, figures = SETTINGS[name], figures_by_seed(SETTINGS[name], runs)
    seconds = [each["seconds"] for results in runs.values() for each in results]
    machines = {each["machine"] for arm in runs.values() for each in arm if "machine" in each}
    first = runs[setting.arms[0]]
    return SECTION.format(
        title=setting.title,
        versions=", ".join(
            [*sorted(machines), *(f"{each} {number}" for each, number in versions.items())]
        ),
        runs=len(seconds),
        least=min(seconds),
        most=max(seconds),
        minutes=sum(seconds) / 60,
        world=WEAK.format(recall=setting.recall, both=setting.recall**2)
        if setting.recall < 1
        else STRONG,
        size=setting.group_size,
        goal=setting.goal,
        questions=setting.questions,
        steps=first[0]["steps"],
        interval=first[0]["steps"] // setting.points,
        seeds=", ".join(map(str, sorted({seed for each in figures.values() for seed in each}))),
        before=cell([each["points"][0][1]["right"] for each in first]),
        quantiles=", ".join(
            f"{n} seeds: {QUANTILES[n]} standard errors"
            for n in sorted({len(each) for each in figures.values()} & QUANTILES.keys())
        )
        or "fewer than two seeds: none",
        table=table(figures),
        comparisons=comparisons(figures),
        verdict=verdict(figures),
        file=f"search_agents_{name}.svg",
    )


INTRODUCTION = """\
# Turn credit in the tiny search world

`python benchmarks/search_agents.py` wrote this page. [The world](../../docs/tiny-world.md#search)
asks two hops of a search agent. Each run trains with GRPO, 16 questions a step, learning rate 5e-4,
temperature 1, and no KL penalty. All arms of a setting have the same outcome, the same settings and
the same questions; they differ in the rewards of the searches and in the credit method. The policy
is measured on new questions during the training, and at the end on 1,000 others, sampled at
temperature 1. The tables show the mean ± the standard deviation over the seeds.

- `steps to goal`: step at which the accuracy reaches the goal, on lines between the measurements.
- `area`: mean accuracy over the training. `final`: accuracy at its end.
- `dead groups`: share of groups in which all advantages are 0, over the training.
- `first query`: share of first queries that are the person of the question. `second query`: share
  of second queries that are the friend of this person. These and the following columns are measured
  at the end."""
SECTION = """\
## {title}

{world} Groups of {size}; goal: an accuracy of {goal}. {steps} steps, measured every {interval}
steps on {questions} questions; seeds: {seeds}. Right before the training: {before}. A training took
{least:.0f} to {most:.0f} s with one thread on a shared machine, and all {runs} trainings
{minutes:.0f} minutes ({versions}).

{table}

Differences from outcome only, by seed: mean ± half of its 95% interval, from the t distribution for
the number of seeds ({quantiles}). Runs of one seed have the same policy before the
training and the same questions. –: fewer than two seeds have both values. Bold: all common seeds
have both values, the interval does not contain 0, and accuracies differ by more than .04.

{comparisons}

The primary figure is the area. Larger or smaller: the interval does not contain 0, and the mean
differs by more than .04. No gain of more than .04: any other interval whose upper end is at most
.04. Undecided: all others, and arms with fewer than two common seeds.

{verdict}

![Learning curves]({file})"""
STRONG = "A search for a person always finds the fact about this person, and one random other fact."
WEAK = """\
A search for a person finds the fact about this person with probability {recall}, and otherwise two
other facts. The results of a query are the same for all rollouts of a question, so that both hops
find their facts for {both:.0%} of the questions, and the rest can only be guessed. The policy
before the training learned with a search engine that finds all facts. The setting was chosen after
one run of outcome only with another seed, in which the policy stopped searching; steps, goal and
primary figure were fixed before all other runs."""
NOTES = """
## What the toy shows, and what it does not

- The expectation was that turn credit learns in fewer steps than the outcome alone, and that the
  control with permuted rewards does not. The lists above say which arms did.
- Only the rewards of the searches and the credit method differ between the arms. No arm was tuned.
  The setting `bad_end` of `igpo` and of `stepsearch` is 0, so that all arms have the
  outcome of `search-r1`. The weights of the process rewards are the defaults of the recipes, and
  `gigpo` has the outcome alone and the anchors of its observations.
- After the first search, the flower is still unknown, so that the information gain of this search
  is close to 0 by construction, and all of the gain belongs to the second search. `igpo` rewards
  the first search only through the accumulated return. The coverage rewards both searches.
- The likelihood of the gold answer is measured right after the results, after the words `<answer>`.
  The demonstrator writes a thought before its answer, so the policy before the training gives the
  documented answer a probability of about .2 there, and not of 1.
- A thought repeats a fact before each action. Without thoughts, a model of this size does not learn
  to read the results within 700 steps of supervised training.
- With a search engine that finds all facts, a policy that finds the right document almost always
  answers right. Therefore the outcome alone says which searches were good, and a reward of the
  searches adds little but noise. A policy that searched worse was tried and dropped before.
- The vocabulary has 99 words. The figures say nothing about the size of an effect in a language
  model.
"""
