"""The checks of sampled rollouts before a training, besides those of their totals."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rag_rewards.definition import RecipeDefinition
from rag_rewards.errors import RolloutError, shorten
from rag_rewards.evidence.protocols import Tokenizer
from rag_rewards.recipe_object import Recipe
from rag_rewards.recipes.output_forms import THINKING, parts_of
from rag_rewards.report.facts import Facts, facts_of
from rag_rewards.report.preflight_sample import Sample
from rag_rewards.report.rows import Configurations
from rag_rewards.report.statistics import Statistics, statistics
from rag_rewards.report.turn_statistics import turn_notes
from rag_rewards.rewards.correctness import Correctness
from rag_rewards.rollout import EVIDENCE_FIELDS, Rollout
from rag_rewards.rows import ErrorRecord, Finding, ScoredRow, Totals, findings_of, is_object
from rag_rewards.rows.findings import LEAST_ROWS, MOST, Level, level_of, prepare_command
from rag_rewards.rows.line_groups import NO_KEY
from rag_rewards.scorer import Scorer, missing_part_by

MOST_ABSTENTIONS = 0.8
"""The share of abstentions from which they are a fault."""
MOST_ERRORS = 0.1
"""The share of rows in error above which they are a problem."""
MOST_LENIENT = 0.1
"""The difference of right answers by a lenient and an exact match from which it is a fault."""


@dataclass(frozen=True)
class Lengths:
    """The lengths of prompts or responses, and the limit of the recipe in tokens.

    A word has at least one token, so that a text with more words than the limit is too long.
    """

    name: Literal["prompt", "response"]
    values: Sequence[int]
    unit: Literal["tokens", "words"]
    limit: int

    def quantile(self, share: float) -> int:
        """Return the smallest length that at least this share of the texts do not exceed."""
        return sorted(self.values)[max(0, round(share * len(self.values)) - 1)]


@dataclass
class Sampled:
    """A sample after scoring.

    rows    the rows with a score
    groups  positions of the rows of each group
    totals  totals over all rows of the sample
    errors  the rows that cannot be scored
    """

    scorer: Scorer
    sample: Sample
    rows: list[ScoredRow]
    groups: list[list[int]]
    totals: Totals
    errors: list[ErrorRecord]
    tokenizer: Tokenizer | None = None

    @property
    def recipe(self) -> Recipe:
        """The recipe, of a curriculum that of the last stage."""
        return self.scorer.recipes[-1]

    @property
    def definition(self) -> RecipeDefinition:
        return self.recipe.facts

    @cached_property
    def parts(self) -> dict[str, str]:
        """The parts that a response must have."""
        return parts_of(self.recipe.output_form, self.recipe.name)

    @cached_property
    def missing_part(self) -> Callable[[Rollout], str]:
        """The function that returns the first part that a response lacks, "" if it has all."""
        return missing_part_by(self.scorer.reward)

    @property
    def form(self) -> str:
        """The form of a response, or the only part that it must have."""
        form = self.recipe.output_form
        return form.description if form.required is True else " ".join(self.parts)

    def prepare_command(self, arguments: str = "") -> str:
        """Return the command that writes the prompts of the recipe; "" for one of a user."""
        return prepare_command(self.recipe.identity.parts[-1], arguments)

    @property
    def rows_in_sample(self) -> int:
        return sum(len(group.lines) for group in self.sample.groups)

    @cached_property
    def facts(self) -> list[Facts]:
        configurations = Configurations()
        return [facts_of(row, configurations.of(row)) for row in self.rows]

    @cached_property
    def statistics(self) -> Statistics:
        return statistics(self.rows, self.facts, self.groups)

    @cached_property
    def exact_and_lenient(self) -> tuple[float | None, float | None]:
        """The shares of answers that are right by an exact and by a lenient comparison."""
        exact, lenient = (Correctness(metric) for metric in ("exact", "lenient"))
        pairs = []
        for row in self.rows:
            answer = (row.details or {}).get("answer")
            if isinstance(answer, str) and row.answers is not None:
                pairs.append([each.value_of(row, answer) for each in (exact, lenient)])
        if not pairs:
            return None, None
        first, second = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
        return first, second

    @cached_property
    def duplicate_share(self) -> float | None:
        """The share of the rows of groups that repeat an earlier response of their group."""
        groups = [group for group in self.groups if len(group) > 1]
        distinct = sum(len({_words_of(self.rows[i]) for i in group}) for group in groups)
        count = sum(map(len, groups))
        return (count - distinct) / count if count else None

    @cached_property
    def unanswerable_share(self) -> float | None:
        """The share of unanswerable rows among those with the field `answerable`."""
        values = [row.answerable for row in self.rows if row.answerable is not None]
        return values.count(False) / len(values) if values else None

    @cached_property
    def judge_needs(self) -> list[bool]:
        """Whether each row that needs the judge contains all verdicts."""
        rows = []
        for row in self.sample.decoded:
            with contextlib.suppress(RolloutError):
                needs = self.scorer.reward.needs(row)
                if verdicts := [need for need in needs if need.model_kind == "judge"]:
                    rows.append(all(need.is_met(row) for need in verdicts))
        return rows

    def _lengths(
        self, name: Literal["prompt", "response"], texts: Iterator[str], limit: int
    ) -> Lengths:
        if self.tokenizer is None:
            return Lengths(name, [len(text.split()) for text in texts], "words", limit)
        count = self.tokenizer.encode
        values = [len(count(text, add_special_tokens=False)) for text in texts]
        return Lengths(name, values, "tokens", limit)

    @cached_property
    def prompt_lengths(self) -> Lengths:
        """The lengths of the prompts, each once."""
        firsts = (self.rows[group[0]] for group in self.groups)
        prompts = filter(None, (self.prompt_of(row) for row in firsts))
        return self._lengths("prompt", prompts, self.definition.training.prompt_tokens.value)

    @cached_property
    def response_lengths(self) -> Lengths:
        """The lengths of the responses, of a search agent those of its longest turn."""
        texts = (max(_turns_of(row), key=len) for row in self.rows)
        return self._lengths("response", texts, self.definition.training.response_tokens.value)

    def prompt_of(self, row: ScoredRow) -> str:
        """Return the prompt of a row, or that of the recipe; "" if it cannot be formed."""
        if isinstance(row.prompt, str):
            return row.prompt
        try:
            messages = row.prompt or (self.scorer.prompt.messages(row) if row.question else [])
        except RolloutError:
            return ""
        return "\n".join(str(each.get("content") or "") for each in messages)


def _turns_of(row: ScoredRow) -> list[str]:
    """Return the words of the policy, turn by turn."""
    if row.turns is not None:
        return [turn.text for turn in row.turns]
    if isinstance(row.response, str):
        return [row.response]
    return [each.text for each in row.response if each.role == "assistant"] or [""]


def _words_of(row: ScoredRow) -> str:
    return "\n".join(_turns_of(row)).strip()


# --- findings -------------------------------------------------------------------------------------


def check(sampled: Sampled, *, has_dead_model: bool = False) -> list[Finding]:
    """Return what is wrong with a sample, causes before their consequences.

    Without models that respond, missing evidence is no further finding.
    """
    if not sampled.sample.rows:
        return [Finding("no-rows", "problem", "the file has no rows", "name a file of rollouts")]
    form = findings_of(sampled.totals, sampled.scorer.reward.signature)
    has_form = not any(each.code == "form" and each.level == "problem" for each in form)
    return [
        *_errors(sampled, has_dead_model),
        *_groups(sampled),
        *form,
        *(_form(sampled) if sampled.rows and has_form else _prompts(sampled)),
        *_responses(sampled),
        *_answers(sampled, has_form),
        *_turns(sampled),
        *_lengths(sampled),
    ]


def _errors(sampled: Sampled, has_dead_model: bool) -> Iterator[Finding]:
    """Yield a finding for each field at fault. Errors of other rows of a group have none."""
    errors, total = sampled.errors, sampled.rows_in_sample
    level: Level = "problem" if len(errors) > MOST_ERRORS * total else "warning"
    by_field: dict[tuple[str, str], list[ErrorRecord]] = {}
    for each in errors:
        field = each.error["path"].partition("[")[0].partition(".")[0]
        by_field.setdefault((each.error["type"], field), []).append(each)
    causes = {each.line for each in errors if each.error["type"] != "GroupError"}
    groups = [{number for number, _ in group.lines} for group in sampled.sample.groups]
    explained = set().union(*(lines for lines in groups if lines & causes))
    has_finding = has_dead_model
    for (kind, field), records in by_field.items():
        if kind == "GroupError":
            records = [each for each in records if each.line not in explained]
        if records and (finding := _error(sampled, level, field, records, has_dead_model)):
            yield finding
            has_finding = True
    if errors and not has_finding:
        yield Finding("rows", level, str(errors[0]), "correct this row, and those like it")


def _error(
    sampled: Sampled, level: Level, field: str, records: list[ErrorRecord], has_dead_model: bool
) -> Finding | None:
    """Return the finding for rows with errors of one type at one field."""
    kind, message = records[0].error["type"], records[0].error["message"]
    count, where = f"{len(records):,} of {sampled.rows_in_sample:,} rows", f"line {records[0].line}"
    example = f"such as {where}: {shorten(message, 300)}"
    if kind == "GroupError" and message == NO_KEY:
        fix = "add the field `group` (or `question`) to the rows, or set the option group_size"
        return Finding("group-ids", level, f"{count} have neither `group` nor `question`", fix)
    if kind == "GroupError":
        fix = "correct the groups of these rows"
        return Finding("rows", level, f"the groups of {count} cannot be scored, {example}", fix)
    if kind == "ScoringError":
        fix = "correct the code of the reward"
        return Finding("code", level, f"the reward fails on {count}, {example}", fix)
    if kind == "BackendError":
        fix = "correct what the message names, or leave out the rows at which the model fails"
        return Finding("model", level, f"a model gives no result for {count}, {example}", fix)
    is_missing = message.startswith(("missing", "no entry"))
    if is_missing and field in EVIDENCE_FIELDS:
        return None if has_dead_model else _missing_evidence(sampled, level, records[0], count)
    if is_missing:
        return _missing_field(sampled, level, field, message, count)
    name = f"`{field}`" if field else "the JSON"
    text = f"{name} is invalid in {count}, {example}"
    return Finding("rows", level, text, f"correct {name} of these rows")


def _missing_evidence(sampled: Sampled, level: Level, record: ErrorRecord, count: str) -> Finding:
    missing, _, fix = record.error["message"].rpartition("; ")
    if settings := sampled.definition.model_free:
        pairs = " ".join(f"--set {key}={value}" for key, value in settings.items())
        fix += f"; {sampled.recipe.name} needs no model with {pairs}"
    text = f"evidence is missing in {count}: {record.error['path']}: {missing or 'missing'}"
    return Finding("evidence", level, text, fix)


def _missing_field(sampled: Sampled, level: Level, field: str, message: str, count: str) -> Finding:
    text = f"`{field}` is missing in {count}"
    others, hint, columns = message.removeprefix("missing").partition("; did you mean ")
    fix = f"add the field `{field}` to the rows"
    command = sampled.prepare_command("… ")
    if hint:
        fix = columns.partition("? ")[2]
        fix = fix[:1].lower() + fix[1:]
    elif command and field in ("answers", "supporting", "documents"):
        fix += f", or write them with {command}"
    return Finding("fields", level, text + others, fix)


def _groups(sampled: Sampled) -> Iterator[Finding]:
    groups = [each for each in sampled.sample.groups if each.key or is_object(each.lines[0][1])]
    name = sampled.recipe.name
    compares, count = sampled.scorer.scope == "group", len(groups)
    sizes = [group.rows for group in groups]
    single, keyless = sizes.count(1), sum(not group.key for group in groups)
    divided = sum(group.is_divided for group in groups)
    if keyless and not compares and level_of(keyless, count):
        text = f"{keyless:,} of {count:,} rows have neither `group` nor `question`"
        fix = "add the field `group` to the rows, or set the option group_size"
        yield Finding("group-ids", "warning", text, fix)
    elif single and compares and not keyless:
        text = f"{name} compares the responses of a prompt, and {single:,} of {count:,} prompts "
        fix = "sample several responses to each prompt, and give them the same `group`"
        level = level_of(single, count) or "warning"
        yield Finding("single-responses", level, text + "have only one", fix)
    elif single == count and not keyless:
        text = "each prompt has only one response, so that nothing shows which groups have a signal"
        fix = "sample several responses to each prompt, and give them the same `group`"
        yield Finding("single-responses", "warning", text, fix)
    if divided and compares:
        text = f"the rows of {divided:,} of {count:,} prompts are not adjacent"
        yield Finding("divided-groups", "warning", text, "use the option sort with score")
    members = [[sampled.rows[i] for i in group] for group in sampled.groups]
    mixed = sum(len(set(map(_question_of, group))) > 1 for group in members)
    if mixed:
        text = f"{mixed:,} of {count:,} groups contain rows of different questions or gold answers"
        level = level_of(mixed, count) or "warning"
        fix = "give the rows of each prompt their own `group`, or set the option group_size"
        yield Finding("mixed-groups", level, text, fix)


def _question_of(row: ScoredRow) -> tuple[str | None, str]:
    """Return what the rows of one prompt have in common. The order of the answers is no part."""
    answers = row.answers
    return row.question, repr(sorted(answers, key=repr) if isinstance(answers, list) else answers)


def _prompts(sampled: Sampled) -> Iterator[Finding]:
    """Yield a finding if the prompts of the rows do not request the form that is missing."""
    mark = sampled.recipe.output_form.answer_mark
    own = [sampled.prompt_of(row) for row in sampled.rows if row.prompt]
    missing = sum(mark not in prompt for prompt in own)
    if level := level_of(missing, len(own)):
        text = f"{missing:,} of {len(own):,} prompts do not request {mark}"
        command = sampled.prepare_command("… ")
        fix = f"request the form {sampled.form} in `prompt`"
        fix += f", as {command} does" if command else ""
        yield Finding("prompt", level, text, fix)


def _form(sampled: Sampled) -> Iterator[Finding]:
    """Yield findings about thinking, and about the format of responses with all their parts."""
    rows = len(sampled.rows)
    if THINKING in sampled.recipe.output_form.marks:
        texts = [(row.response_prefix or "") + _words_of(row) for row in sampled.rows]
        unopened = sum("</think>" in text and THINKING not in text for text in texts)
        if level := level_of(unopened, rows):
            text = f"{unopened:,} of {rows:,} responses have </think>, but no {THINKING}"
            fix = f'add "response_prefix": "{THINKING}" to the rows: the chat template began it'
            yield Finding("thinking", level, text, fix)
            return
    wrong = sum(
        (row.components or {}).get("format", 1) == 0 and not sampled.missing_part(row)
        for row in sampled.rows
    )
    if wrong > MOST * rows and rows >= LEAST_ROWS:
        text = (
            f"{wrong:,} of {rows:,} responses have the parts of the form, but a format reward of 0"
        )
        fix = (
            f"request exactly the form {sampled.form} in the prompt, or see "
            " `rag-rewards explain IN --id ID` for one of them"
        )
        yield Finding("format", "warning", text, fix)


def _responses(sampled: Sampled) -> Iterator[Finding]:
    rows = len(sampled.rows)
    empty = sum(not each.words for each in sampled.facts)
    if level := level_of(empty, rows):
        text = f"{empty:,} of {rows:,} responses are empty"
        fix = (
            "check the stop strings and the length limit of the sampling, and the field `response`"
        )
        yield Finding("empty", level, text, fix)
    texts = list(map(_words_of, sampled.rows))
    open_thinking = sum(text.count(THINKING) > text.count("</think>") for text in texts)
    if level := level_of(open_thinking, rows):
        text = f"{open_thinking:,} of {rows:,} responses end inside {THINKING}"
        fix = "increase the number of tokens of a response in the trainer and in the sampling"
        yield Finding("thinking", level, text, fix)
    duplicates = sampled.duplicate_share
    if duplicates is not None and duplicates > MOST and not empty > MOST * rows:
        text = f"{duplicates:.0%} of the responses repeat another one of their group"
        temperature = sampled.definition.training.temperature
        source = f"the recipe: {temperature.value:g}" if temperature.is_stated else "such as 1"
        yield Finding("duplicates", "warning", text, f"sample with a higher temperature ({source})")
    abstentions = sum(each.abstained or each.refused for each in sampled.facts)
    if rows >= LEAST_ROWS and abstentions >= MOST_ABSTENTIONS * rows:
        text = f"{abstentions:,} of {rows:,} responses decline to answer"
        fix = "check that the prompts contain the documents, or use questions with known answers"
        yield Finding("abstentions", "warning", text, fix)


def _answers(sampled: Sampled, has_form: bool) -> Iterator[Finding]:
    totals, definition = sampled.totals, sampled.definition
    is_extreme = totals.judged >= LEAST_ROWS and totals.correct in (0, totals.judged)
    if is_extreme and has_form and "answers" in definition.fields:
        if totals.correct:
            text = f"all {totals.judged:,} responses are right"
            fix = "use harder questions (`rag-rewards select SCORED -o OUT --pass 0.1:0.9`)"
        else:
            text = f"none of {totals.judged:,} responses is right"
            fix = (
                "check that `answers` contains the gold answers of the same rows; then use easier "
                "questions, or a better policy"
            )
        yield Finding("correctness", "warning", text, fix)
    exact, lenient = sampled.exact_and_lenient
    is_strict = exact is not None and lenient is not None and lenient - exact > MOST_LENIENT
    if is_strict and has_form and len(sampled.rows) >= LEAST_ROWS and (key := _exact_key(sampled)):
        text = (
            f"{exact:.0%} of the answers are right by exact match, {lenient:.0%} by lenient match"
        )
        fix = (
            f"request a short answer in the prompt, or let rules and a judge decide (--set "
            f"{key}=cascade with --judge)"
        )
        yield Finding("exact", "warning", text, fix)
    share = sampled.unanswerable_share
    if share is None or "answerable" not in definition.fields:
        return
    if not definition.data.answerable_only and share in (0, 1) and len(sampled.groups) > 1:
        kind = "unanswerable" if share else "answerable"
        text = f"every row is {kind}, so that refusals have no contrast"
        fix = "mix rows with `answerable` true and false, such as half of each"
        yield Finding("unanswerable", "warning", text, fix)


def _exact_key(sampled: Sampled) -> str:
    """Return the setting that compares answers exactly, "" if there is none or rules decide."""
    if sampled.recipe.decides_answers:
        return ""
    settings = sampled.recipe.settings or {}
    keys = (key for key, value in settings.items() if value == "exact")
    return next((key for key in keys if key.endswith(("metric", "verifier"))), "")


def _turns(sampled: Sampled) -> Iterator[Finding]:
    if not sampled.recipe.needs_turns or not sampled.rows:
        return
    if (turns := sampled.statistics.turns) is None:
        if not any(row.documents for row in sampled.rows):
            text = f"no rollout has several turns or a search, which {sampled.recipe.name} reads"
            fix = "record the turns of the agent in the field `turns`, with `text` and `results`"
            yield Finding("turns", "problem", text, fix)
        return
    for note in turn_notes(turns):
        names = ", ".join(each.name for each in turns.malformed)
        fix = (
            f"check the form of the searches ({names})" if names else "check the search tool"
        ) + ", and the prompt of the agent; `rag-rewards explain IN --id ID` shows a rollout"
        yield Finding("turns", "warning", note, fix)


def _lengths(sampled: Sampled) -> Iterator[Finding]:
    fixes: dict[str, str] = {
        "prompt": "use fewer documents (`rag-rewards prepare … --top N`), or increase the limit of "
        "the trainer to the largest length",
        "response": "increase the limit of the trainer, or request shorter responses",
    }
    for lengths in (sampled.prompt_lengths, sampled.response_lengths):
        count = sum(value > lengths.limit for value in lengths.values)
        if level := level_of(count, len(lengths.values)):
            text = (
                f"{count:,} of {len(lengths.values):,} {lengths.name}s have more than "
                f"{lengths.limit:,} {lengths.unit}, and the limit of the recipe is "
                f"{lengths.limit:,} tokens (largest {max(lengths.values):,})"
            )
            yield Finding(f"{lengths.name}-length", level, text, fixes[lengths.name])
