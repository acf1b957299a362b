"""The page of the trainings on a real language model, from stored results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from language_model import plan
from language_model.forms import FORMS
from language_model.measures import MEANINGS, difference
from language_model.model import NOTE
from language_model.plan import ARMS, Arm
from language_model.questions import DOCUMENTS, WITHHELD, WORDS
from language_model.run import Unit, units

Units = Mapping[str, Any]


def write(stored: Mapping[str, Any], results: Path) -> None:
    """Write the page and the picture beside the file of results."""
    picture = results.with_suffix(".svg")
    has_picture = draw_picture(stored["units"], picture)
    text = page(stored, picture.name if has_picture else None)
    results.with_suffix(".md").write_text(text, "utf-8")


def page(stored: Mapping[str, Any], picture: str | None = None) -> str:
    """Return the results as a Markdown page."""
    finished = stored["units"]
    parts = [
        "# Do the rewards teach a real language model?",
        introduction(stored),
        progress(finished),
        "## Primary measures",
        f"One measure per recipe was fixed before its first run. {SAMPLED}, the mean of the "
        "seeds with its 95 % bootstrap interval over questions. A difference is paired by "
        "question.",
        primary_table(finished),
        verdicts(finished),
        *([f"![Primary measures during the training]({picture})"] if picture else []),
        "## The plan",
        plan_text(),
        plan_table(),
        "## Labels and measures",
        labels_text(stored),
        table(["measure", "meaning"], [list(pair) for pair in MEANINGS.items()]),
    ]
    for form in FORMS:
        if form_units(finished, form):
            tables = [measures_table(finished, form, mode) for mode in ("sampled", "greedy")]
            parts += [f"## All measures of the form `{form}`", *tables]
    if trained_units(finished):
        parts += ["## Trainings", trainings_table(finished)]
    return "\n\n".join(parts) + "\n"


SAMPLED = f"Held-out questions, {plan.SAMPLES} responses each, sampled at temperature 1"


def introduction(stored: Mapping[str, Any]) -> str:
    """Return what was trained, on what, where and how long."""
    finished = stored["units"].values()
    if not finished:
        return f"{NOTE}. No unit is finished."
    count = stored["questions"]
    seconds = sum(
        each.get("training seconds", 0)
        + each["measuring seconds"]
        + each.get("warm-up", {"seconds": 0})["seconds"]
        for each in finished
    )
    machines = ", ".join(sorted({each["machine"] for each in finished}))
    versions = ", ".join(f"{name} {number}" for name, number in stored["versions"].items())
    return (
        f"{NOTE}, trained with TRL's GRPOTrainer and the rewards of rag-rewards. Questions of "
        "HotpotQA, Bamboogle, 2Wiki and MuSiQue with three passages each: "
        f"{count['training']['all']} for training ({count['training']['answerable']} answerable) "
        f"and {count['held-out']['all']} held out ({count['held-out']['answerable']} answerable). "
        "`python benchmarks/language_model/train.py` wrote this page. "
        f"Seeds: {', '.join(map(str, plan.SEEDS))}. Machine: {machines}, shared with other work. "
        f"Versions: {versions}. Warm-ups, trainings and measurements took {seconds / 3600:.1f} "
        "hours."
    )


def progress(finished: Units) -> str:
    """Return how much of the plan is finished, and what is missing."""
    names = [unit.name for unit in units()]
    missing = [name for name in names if name not in finished]
    text = f"Finished: {len(names) - len(missing)} of {len(names)} planned runs."
    return text + (f" Missing: {'; '.join(missing)}." if missing else "")


# --- primary measures ----------------------------------------------------------------------------


def seeds_of(finished: Units, arm: Arm) -> list[Sequence[float | None]]:
    """Return the values of the primary measure per question, one list for each finished seed."""
    runs = [finished.get(Unit("arm", arm.name, seed).name) for seed in plan.SEEDS]
    return [run["primary"][arm.primary] for run in runs if run]


def before_of(finished: Units, arm: Arm) -> list[Sequence[float | None]]:
    run = finished.get(Unit("before", arm.form).name)
    return [run["primary"][arm.primary]] if run else []


def labels_text(stored: Mapping[str, Any]) -> str:
    """Return how the labels of questions are made, with the numbers of questions."""
    text = (
        f"Each question has {DOCUMENTS} passages of at most {WORDS} words. It is answerable if one "
        "of them contains its gold answer as words; dates and names may have another form. A "
        "supporting document is a passage with the answer; where the data set names gold passages, "
        "a further gold passage supports as well. These labels are made by comparing words, not by "
        f"people. One of {WITHHELD} questions loses all passages with its answer, so that it is "
        "unanswerable; for other unanswerable questions, the text of no retrieved passage contains "
        "it."
    )
    for name, each in stored.get("questions", {}).items():
        unanswerable = each["all"] - each["answerable"]
        text += (
            f" Of the {unanswerable} unanswerable {name} questions, {each['withheld']} had their "
            "passages with the answer removed."
        )
    return text


def comparison(finished: Units, arm: Arm) -> dict[str, list[float] | None]:
    """Return the primary measure after the training minus that before it and that of another arm.

    None where a run is missing.
    """
    after, before = seeds_of(finished, arm), before_of(finished, arm)
    others = [other for other in ARMS if other.name == arm.compared]
    other = seeds_of(finished, others[0]) if others else []
    return {
        "before": difference(after, before) if after and before else None,
        "other": difference(after, other) if after and other else None,
    }


def primary_table(finished: Units) -> str:
    rows = []
    for arm in ARMS:
        after, before = seeds_of(finished, arm), before_of(finished, arm)
        zeros = [[0.0] * len(each) for each in (after or before)][:1]
        differences = comparison(finished, arm)
        cells = [
            arm.name,
            f"{arm.primary} ({EXPECTED[arm.expected]})",
            cell(difference(before, zeros) if before else None),
            cell(difference(after, zeros) if after else None),
            str(len(after)),
            cell(differences["before"], signed=True),
            f"{cell(differences['other'], signed=True)} ({arm.compared})" if arm.compared else "–",
        ]
        rows.append(cells)
    heads = ["arm", "primary measure", "before", "after", "seeds", "difference", "against"]
    return table(heads, rows)


EXPECTED = {1: "up", -1: "down", 0: "none expected"}


def verdicts(finished: Units) -> str:
    """Return one sentence for each arm that expects a change, from intervals and seeds."""
    return "\n".join(f"- `{arm.name}`: {verdict(arm, finished)}" for arm in ARMS if arm.expected)


def verdict(arm: Arm, finished: Units) -> str:
    """Return what the intervals state about the primary measure of an arm.

    A difference needs the same sign in all seeds. Each seed is compared with the values before the
    training, and with the mean of the seeds of the other arm.
    """
    differences = comparison(finished, arm)
    if differences["before"] is None:
        return "not finished."
    after, before = seeds_of(finished, arm), before_of(finished, arm)
    text = (
        f"{arm.primary} {change(arm, differences['before'], after, before)} from before to after "
        "the training"
    )
    if arm.compared:
        other = differences["other"]
        others = [seeds_of(finished, each) for each in ARMS if each.name == arm.compared]
        text += (
            f"; its comparison with `{arm.compared}` is not finished"
            if other is None
            else f"; against `{arm.compared}`, it {change(arm, other, after, others[0], 'is')}"
        )
    if len(after) < len(plan.SEEDS):
        text += f"; {len(after)} of {len(plan.SEEDS)} seeds is finished, so this is preliminary"
    return text + "."


def change(
    arm: Arm,
    interval: Sequence[float],
    after: Sequence[Sequence[float | None]],
    before: Sequence[Sequence[float | None]],
    verb: str = "moved",
) -> str:
    _, low, high = interval
    if low <= 0 <= high:
        return "does not differ (the interval contains 0)"
    seeds = [difference([each], before) or [0.0] for each in after]
    if len({(each[0] > 0) - (each[0] < 0) for each in seeds}) > 1:
        return "has no clear change (the seeds disagree)"
    words = ("moved as expected", "moved against the expectation")
    if verb == "is":
        words = ("differs as expected", "differs against the expectation")
    return words[0] if (low > 0) == (arm.expected > 0) else words[1]


# --- the plan, all measures, the picture ---------------------------------------------------------


def plan_text() -> str:
    warm = plan.WARM_UP
    return (
        f"{plan.STEPS} steps of {plan.PROMPTS} questions with {plan.GROUP} responses each; "
        f"constant learning rate {plan.LEARNING_RATE:g}; temperature {plan.TEMPERATURE:g}; "
        f"KL weight {plan.KL_WEIGHT:g}. Weights of 32 bits; the passes of the training are in "
        "bfloat16, the log-probabilities that `ctrl-rag` reads in 32 bits. Each form has a "
        f"supervised warm-up on the training questions: {warm.epochs} epochs with {warm.responses} "
        f"responses to each question, {warm.batch} questions a step, learning rate "
        f"{warm.learning_rate:g}, with mistakes and abstentions. Both seeds of all arms with a "
        "form start from its warm-up (`before training`). The rows `model without warm-up` show "
        "how far the model follows the short instructions by itself. `ctrl-rag` and its baseline "
        "train on answerable questions only."
    )


def plan_table() -> str:
    rows = [
        [
            arm.name,
            f"`{arm.reward}`",
            ", ".join(f"`{k}={v}`" for k, v in arm.settings.items()) or "–",
            arm.form,
            arm.primary,
            EXPECTED[arm.expected],
        ]
        for arm in ARMS
    ]
    return table(["arm", "reward", "settings", "form", "primary measure", "expected"], rows)


def form_units(finished: Units, form: str) -> list[str]:
    every = [Unit("model", form), Unit("before", form)]
    every += [unit for unit in units() if unit.kind == "arm" and unit.form.name == form]
    return [unit.name for unit in every if unit.name in finished]


def measures_table(finished: Units, form: str, mode: str) -> str:
    """Return the measures of all finished units of a form."""
    names = form_units(finished, form)
    columns = list(finished[names[0]][mode])
    rows = [[name, *(cell(finished[name][mode][c]) for c in columns)] for name in names]
    title = "Greedy:" if mode == "greedy" else f"{SAMPLED}:"
    return f"{title}\n\n{table(['run', *columns], rows)}"


def trained_units(finished: Units) -> dict[str, Any]:
    return {name: each for name, each in finished.items() if "points" in each}


def trainings_table(finished: Units) -> str:
    rows = []
    for name, each in trained_units(finished).items():
        rewards = each["rewards"]
        part = max(1, len(rewards) // 5)
        rows.append(
            [
                name,
                f"{sum(rewards[:part]) / part:.3f}",
                f"{sum(rewards[-part:]) / part:.3f}",
                f"{each['groups without signal']:.2f}",
                f"{each['training seconds'] / len(rewards):.0f}",
                f"{(each['training seconds'] + each['measuring seconds']) / 3600:.2f}",
            ]
        )
    heads = ["run", "reward, first fifth", "reward, last fifth", "groups without signal"]
    return table([*heads, "seconds per step", "hours"], rows)


def draw_picture(finished: Units, file: Path) -> bool:
    """Draw the primary measures of the trainings. Return whether there is one."""
    from rag_rewards.tiny_world.learning_curve import draw

    panels: dict[str, dict[str, Any]] = {}
    for arm in ARMS:
        before = finished.get(Unit("before", arm.form).name)
        runs = [finished.get(Unit("arm", arm.name, seed).name) for seed in plan.SEEDS]
        lines = [line(run, before, arm.primary) for run in runs if run and before]
        if lines:
            panels.setdefault(f"{arm.primary} ({arm.form})", {})[arm.name] = lines
    if panels:
        draw(panels, file, f"{NOTE}: held-out questions, sampled")
    return bool(panels)


def line(run: Mapping[str, Any], before: Mapping[str, Any], name: str) -> list[tuple[int, float]]:
    """Return the points of a curve, from the model before the training to that after it."""
    start, end = (0, before["sampled"][name][0]), (plan.STEPS, run["sampled"][name][0])
    return [start, *((step, value) for step, value in run["points"]), end]


def cell(values: Sequence[float] | None, signed: bool = False) -> str:
    """Return a value with its interval.

    >>> cell([0.25, 0.2, 0.3125]), cell([0.1, 0.0, 0.2], signed=True), cell(None)
    ('0.250 [0.200, 0.312]', '+0.100 [+0.000, +0.200]', '–')
    """
    if values is None:
        return "–"
    form = "{:+.3f}" if signed else "{:.3f}"
    value, *ends = (form.format(each) for each in values)
    return f"{value} [{', '.join(ends)}]" if ends else value


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(each)} |" for each in lines)
