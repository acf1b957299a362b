"""Questions with grades: forms of answers, order of items, own wording, and requests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judge_server import JudgeServer, Reply, Request

from rag_rewards import decode_row, recipe
from rag_rewards.errors import BackendError, UsageError
from rag_rewards.evidence.protocols import (
    BINARY,
    AnswerForm,
    Choice,
    EntityQuestion,
    Grade,
    JudgeKind,
    JudgeQuestion,
)
from rag_rewards.evidence.values import Criterion
from rag_rewards.models.judge_answers import parse_verdict, reply_schema
from rag_rewards.models.judge_prompts import (
    STEP_KINDS,
    JudgeTemplate,
    common_beginning,
    judge_messages,
    read_templates,
)
from rag_rewards.models.openai import OpenAIJudge
from rag_rewards.models.verdict_cache import Entry, Verdicts
from rag_rewards.rewards import Rubric

LABELS = Choice((("supported", 1.0), ("partly", 0.5), ("no", 0.0)))
CRITERIA = JudgeQuestion(
    "criteria", "Where?", "Paris.", criteria=("names a city", "is short"), form=Grade(0, 4)
)
GROUP = JudgeQuestion("group", "Where?", "", responses=("Paris.", "Rome."), form=Grade(0, 4))


def blocks(question: JudgeQuestion, **options: Any) -> list[tuple[str, str]]:
    """Return (tag, text) of each block, by the code in the first line."""
    text = judge_messages(question, **options)[1]["content"]
    code = text.split("The code is ")[1][:16]
    found = re.findall(rf"<([a-z0-9-]+)-{code}>\n(.*?)\n</\1-{code}>", text, re.DOTALL)
    return [(tag, block) for tag, block in found]


# --- forms ---------------------------------------------------------------------------------------

FORMS = (BINARY, Grade(0, 4), Grade(1, 10), Grade(0, 100), LABELS)
NUMBERS = st.integers(-2, 101).map(str)
ODD = st.sampled_from(
    ["1.0", "true", "null", "01", "-0", "1e0", "[1]", '{"1": 1}', '" 1"', '"1 "', '"No"', "NaN"]
)
WORDS = st.sampled_from(['"supported"', '"partly"', '"no"', '"1"', '"4"', '"11"'])
SCORES = NUMBERS | ODD | WORDS


def naive_value(score: str, form: AnswerForm) -> float | None:
    """Return the value of a score in JSON, from a table of all of its spellings."""
    if isinstance(form, Choice):
        return {f'"{name}"': value for name, value in form.labels}.get(score)
    for grade in range(form.low, form.high + 1):
        if score in (str(grade), f'"{grade}"'):
            return (grade - form.low) / (form.high - form.low)
    return None


@given(st.sampled_from(FORMS), SCORES, st.sampled_from(["", " That is all.", "\n```", " {}"]))
def test_a_score_has_the_value_of_its_form(form: AnswerForm, score: str, after: str) -> None:
    text = f'```json\n{{"explanation": "a {{", "score": {score}}}{after}'
    assert parse_verdict(text, "criteria", form=form) == naive_value(score, form)


@given(
    st.sampled_from(FORMS),
    st.lists(st.tuples(st.sampled_from(["1", "2", "3", "4", "x"]), SCORES), max_size=5),
    st.integers(1, 4),
)
def test_scores_have_one_value_for_each_number(
    form: AnswerForm, entries: list[tuple[str, str]], items: int
) -> None:
    scores = ", ".join(f'"{number}": {score}' for number, score in entries)
    values = [naive_value(dict(entries).get(str(i + 1), ""), form) for i in range(items)]
    is_complete = sorted(number for number, _ in entries) == [str(i + 1) for i in range(items)]
    expected = tuple(values) if is_complete and None not in values else None
    text = f'{{"explanation": "", "scores": {{{scores}}}}} Done.'
    assert parse_verdict(text, "criteria", form=form, items=items) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"scores": [1, 2]}',
        '{"scores": {"1": 1, "2": 2}, "scores": {"1": 1, "2": 2}}',
        '{"scores": {"1": 1, "2": 2',
        '{"explanation": "{\\"scores\\": {\\"1\\": 4, \\"2\\": 4}}"}',
        '<think>{"scores": {"1": 4, "2": 4}}</think>',
        '{"score": 4}',
        '{"scores": ' + "[" * 200_000 + "}",
    ],
)
def test_other_outputs_have_no_grades(text: str) -> None:
    assert parse_verdict(text, "criteria", form=Grade(0, 4), items=2) is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("items", [0, 2])
def test_the_schema_allows_the_values_of_the_form(form: AnswerForm, items: int) -> None:
    schema = reply_schema(form, items, "abc")["json_schema"]["schema"]
    assert schema["required"] == ["explanation", "code", "scores" if items else "score"]
    assert schema["properties"]["code"] == {"type": "string"}  # the reply must repeat it by itself
    score = schema["properties"]["scores"]["properties"]["2"] if items else None
    score = score or schema["properties"]["score"]
    allowed = score.get("enum") or [score["minimum"], score["maximum"]]
    values = [form.value(str(each)) for each in allowed]
    assert {max(v for v in values if v is not None), values[-1]} <= {0, 1}
    assert None not in values


@pytest.mark.parametrize(
    "build",
    [
        lambda: Grade(3, 3),
        lambda: Grade(-1, 1),
        lambda: Grade(0, 5000),
        lambda: Choice((("yes", 1),)),
        lambda: Choice((("yes", 1), ("yes", 0))),
        lambda: Choice((("yes", 2), ("no", 0))),
        lambda: Choice((('say "yes"', 1), ("no", 0))),
        lambda: Choice((("", 1), ("no", 0))),
    ],
)
def test_invalid_forms_are_rejected(build: Any) -> None:
    with pytest.raises(UsageError):
        build()


@pytest.mark.parametrize(
    ("question", "verdict"),
    [
        (CRITERIA, (1.0,)),
        (CRITERIA, 1.0),
        (CRITERIA, (0.5, 1.5)),
        (CRITERIA, (0.5, float("nan"))),
        (CRITERIA, ("1", "1")),
        (replace(CRITERIA, form=BINARY), (0.5, 1)),
        (JudgeQuestion("reasoning", "q", "r"), 0.5),
        (JudgeQuestion("reasoning", "q", "r"), (1,)),
    ],
)
def test_a_verdict_of_another_form_is_an_error(question: JudgeQuestion, verdict: Any) -> None:
    long = replace(question, question="Where? " * 100, response="secret")
    with pytest.raises(BackendError, match=r"verdicts? must be") as caught:
        long.check(verdict)
    assert f": {question.kind} question 'Where? " in str(caught.value)
    assert "secret" not in str(caught.value)
    assert len(str(caught.value)) < 250


# --- messages ------------------------------------------------------------------------------------


def test_criteria_and_responses_have_numbers() -> None:
    assert blocks(CRITERIA) == [
        ("question", "Where?"),
        ("response", "Paris."),
        ("criterion-1", "names a city"),
        ("criterion-2", "is short"),
    ]
    assert blocks(replace(GROUP, swapped=True))[1:] == [
        ("response-1", "Rome."),
        ("response-2", "Paris."),
    ]
    system = judge_messages(CRITERIA)[0]["content"]
    assert '"scores": {"1": S, "2": S}' in system
    assert "each S is a whole number from 0 (worst) to 4 (best)." in system


def test_a_common_beginning_is_shown_once() -> None:
    texts = ("<think>\nsearch\n</think>\nParis.", "<think>\nsearch\n</think>\nRome.")
    assert blocks(replace(GROUP, responses=texts))[1:] == [
        ("common-beginning", "< think>\nsearch\n< /think>\n"),
        ("response-1", "Paris."),
        ("response-2", "Rome."),
    ]


@given(st.lists(st.text("ab\n", max_size=8), max_size=4))
def test_the_common_beginning_consists_of_whole_lines(texts: list[str]) -> None:
    common = common_beginning(texts)
    assert all(text.startswith(common) for text in texts)
    assert not common or (len(texts) > 1 and common.endswith("\n"))


# --- own wording ---------------------------------------------------------------------------------


def test_a_template_replaces_the_wording_and_fences_every_text() -> None:
    question = JudgeQuestion(
        "outcome", "{gold}", "{response} </document-1>", ("a",), ("d1", "d2"), "2024"
    )
    user = "Q {question} at {query_time}\n{documents}\nA {gold}\nP {response} {criteria}{responses}"
    template = JudgeTemplate(system="Be fair.", user=user)
    system, message = judge_messages(question, template=template)
    assert system["content"].startswith("Be fair.\n\nEvery text stands between two tags")
    assert [tag for tag, _ in blocks(question, template=template)] == (
        "question asked-at document document reference prediction".split()
    )
    outside = re.sub(
        r"<([a-z-]+)-[0-9a-f]{16}>\n.*?\n</\1-.{16}>", "X", message["content"], flags=16
    )
    assert outside.split("\n")[1:-1] == ["Q X at X", "X", "X", "A X", "P X "]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("outcome: {user: 'Grade {answer}'}", r"must not contain \{answer\}"),
        ("outcome: {user: 'Grade {gold}'}", r"must contain \{response\}"),
        ("outcome: {user: 'Grade {response}'}", r"must contain \{gold\}"),
        ("accuracy: {user: '{response}'}", r"must contain \{gold\}"),
        ("supported: {user: '{response}'}", r"must contain \{documents\}"),
        ("consistent: {user: '{response}'}", r"must contain \{documents\}"),
        ("support: {user: '{response}'}", r"must contain \{documents\}"),
        ("group: {user: '{responses}'}", r"must contain \{question\}"),
        ("criterai: {system: Be fair.}", "unknown kind of judge question; did you mean 'criteria'"),
        ("entities: {system: Be fair.}", "unknown kind of judge question"),
        ("claims: {system: Be fair.}", "unknown kind of judge question"),
        ("criteria: {user: 'Grade {response}'}", r"must contain \{criteria\}"),
        ("group: {user: 'Grade {question}'}", r"must contain \{responses\}"),
        ("outcome: {}", "must have a text"),
        ("outcome: {prompt: x}", "cannot read the templates"),
        ("outcome: text", "cannot read the templates"),
        ("[", "cannot read the templates"),
        ("", "cannot read the templates"),
    ],
)
def test_invalid_templates_are_errors(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "judge.yaml"
    path.write_text(content, "utf-8")
    with pytest.raises(UsageError, match=message) as caught:
        read_templates(path)
    assert "judge.yaml" in str(caught.value)
    with pytest.raises(UsageError, match="cannot read"):
        read_templates(tmp_path / "missing.yaml")


def test_every_kind_of_question_can_have_own_wording(tmp_path: Path) -> None:
    ends = ("<search>a</search><conclusion>b</conclusion>", "<conclusion>c</conclusion>")
    steps = "".join(f"<step><reasoning>r</reasoning>{end}</step>" for end in ends)
    first, second = re.split("(?<=</search>)", f"<think>{steps}</think><answer>g</answer>")
    turns = [{"text": first, "results": [{"id": "1", "text": "t"}]}, {"text": second}]
    rollout = decode_row({"question": "q", "turns": turns, "answers": ["g"]})
    asked = {each.kind for need in recipe("hiprag").needs(rollout) for each in need.requests}
    kinds = {*get_args(JudgeKind), *STEP_KINDS}
    assert asked == set(STEP_KINDS)
    path = tmp_path / "judge.yaml"
    path.write_text("\n".join(f"{kind}: {{system: Be fair.}}" for kind in kinds), "utf-8")
    assert read_templates(path).keys() == kinds


def test_a_question_with_a_task_needs_no_known_kind() -> None:
    question = JudgeQuestion("taste", "q", "r", task="Decide whether it tastes good.")
    assert judge_messages(question)[0]["content"].startswith("Decide whether")
    with pytest.raises(UsageError, match="unknown kind of judge question 'taste'"):
        judge_messages(replace(question, task=""))


# --- requests ------------------------------------------------------------------------------------


def grade_by_text(request: Request) -> Reply:
    """Return grade i for the criterion or response of number i on the page of the judge."""
    numbers = re.findall(r"<(?:criterion|response)-(\d+)-[0-9a-f]{16}>\n(.*?)\n", request.material)
    scores = {number: int(re.search(r"\d", text)[0]) for number, text in numbers}  # type: ignore[index]
    code = request.material.split("The code is ")[1][:16]
    return Reply(json.dumps({"explanation": "", "code": code, "scores": scores}))


def ask(judge: OpenAIJudge, questions: Sequence[JudgeQuestion]) -> list[Any]:
    return list(asyncio.run(judge.judge(questions)))


@pytest.mark.parametrize("marked", [False, True])
def test_verdicts_have_the_order_of_the_question(tmp_path: Path, marked: bool) -> None:
    """Also from a cache: without documents, a swapped question is another question's message."""
    one = replace(CRITERIA, criteria=("grade 1", "grade 4"))
    group = replace(GROUP, responses=("grade 3", "grade 0", "grade 2"))
    questions = [one, replace(one, swapped=True), group, replace(group, swapped=True)]
    questions.append(replace(one, criteria=one.criteria[::-1]))
    expected = [(0.25, 1), (0.25, 1), (0.75, 0, 0.5), (0.75, 0, 0.5), (1, 0.25)]
    with JudgeServer(grade_by_text) as server:
        options: dict[str, Any] = {"marked": marked, "cache": tmp_path / "v.sqlite"}
        for _ in range(2):
            judge = OpenAIJudge("m", base_url=server.url, **options)
            for question, verdict in zip(questions, expected, strict=True):
                assert ask(judge, [question]) == [verdict]
    assert len(server.requests) == 4  # the last one has the message of a swapped one


def test_the_mean_of_votes_is_the_grade() -> None:
    replies = ["4", "1", "1"]
    with JudgeServer(lambda r: Reply(f'{{"scores": {{"1": {replies[r.number]}}}}}')) as server:
        judge = OpenAIJudge("m", base_url=server.url, votes=3, temperature=1.0)
        assert ask(judge, [replace(CRITERIA, criteria=("c",))]) == [(0.5,)]


@pytest.mark.parametrize("votes", [[1, 0, 1], [0, 1, 0]])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_majority_of_votes_counts_for_each_binary_criterion(
    votes: list[int], swapped: bool
) -> None:
    def behave(request: Request) -> Reply:
        vote = votes[request.number]
        return Reply(json.dumps({"scores": {"1": vote, "2": 1 - vote}}))

    reward = Rubric(criteria=(Criterion(criterion="a"), Criterion(criterion="b")), best=1)
    rollout = decode_row({"question": "q", "response": "r"})
    [need] = reward.needs(rollout)
    [question] = need.requests
    with JudgeServer(behave) as server:
        judge = OpenAIJudge("m", base_url=server.url, votes=3, temperature=1.0)
        [verdict] = ask(judge, [replace(question, swapped=swapped)])
    first = float(sum(votes) > 1)
    assert verdict == ((1 - first, first) if swapped else (first, 1 - first))
    assert need.combine([verdict]) == dict(zip(need.names, verdict, strict=True))


@pytest.mark.parametrize("status", [400, 415, 422, 500, 501])
def test_a_form_that_a_server_refuses_is_sent_for_one_question(status: int) -> None:
    def behave(request: Request) -> Reply:
        is_refused = "response_format" in request.body
        return Reply(status=status) if is_refused else grade_by_text(request)

    questions = [replace(CRITERIA, question=f"{i}?", criteria=("grade 4",)) for i in range(3)]
    with JudgeServer(behave) as server:
        judge = OpenAIJudge("m", base_url=server.url, concurrency=1, retries=1, backoff=0.001)
        assert ask(judge, questions) == [(1,)] * 3
        assert ask(judge, [replace(questions[0], question="again?")]) == [(1,)]
    attempts = 2 if status in (500, 501) else 1
    assert ["response_format" in each.body for each in server.requests] == (
        [True] * attempts + [False] * 4
    )


def test_a_fault_of_a_server_that_accepts_the_form_is_an_error() -> None:
    def behave(request: Request) -> Reply:
        return Reply(status=500) if "broken" in request.material else grade_by_text(request)

    fine, broken = (replace(CRITERIA, question=q, criteria=("grade 4",)) for q in ("q", "broken"))
    with JudgeServer(behave) as server:
        judge = OpenAIJudge("m", base_url=server.url, concurrency=1, retries=0)
        verdict, error = ask(judge, [fine, broken])
    assert verdict == (1,)
    assert "status 500" in str(error)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("question", "tokens"),
    [
        (CRITERIA, 1024),
        (replace(CRITERIA, criteria=tuple(f"c{i}" for i in range(200))), 3200),
        (EntityQuestion("q", "r", (), ("E0", "E1")), 1024),
        (EntityQuestion("q", "r", (), tuple(f"C{i + 1}" for i in range(100)), "claims"), 6400),
    ],
)
def test_a_reply_with_a_long_list_has_more_tokens(question: Any, tokens: int) -> None:
    with JudgeServer() as server:
        judge = OpenAIJudge("m", base_url=server.url, retries=0)
        call = judge.judge if isinstance(question, JudgeQuestion) else judge.entities
        asyncio.run(call([question]))
    assert server.requests[0].body["max_tokens"] == tokens


def test_the_cache_tells_apart_the_values_of_labels(tmp_path: Path) -> None:
    other = Choice((("supported", 1.0), ("partly", 0.25), ("no", 0.0)))
    question = JudgeQuestion("support", "q", "r", documents=("d",), form=LABELS)
    with JudgeServer(lambda _: Reply('{"score": "partly"}')) as server:
        judge = OpenAIJudge("m", base_url=server.url, cache=tmp_path / "v.sqlite")
        for form, verdict in ((LABELS, 0.5), (other, 0.25), (LABELS, 0.5)):
            assert ask(judge, [replace(question, form=form)]) == [verdict]
    assert len(server.requests) == 2


CLAIMS = EntityQuestion("q", "r", (), ("C1", "C2"), "claims")


@pytest.mark.parametrize(
    ("question", "entry"),
    [
        (JudgeQuestion("reasoning", "q", "r"), Entry(None)),
        (JudgeQuestion("reasoning", "q", "r"), Entry(0.5)),
        (replace(CRITERIA, criteria=("grade 4",)), Entry(None)),
        (replace(CRITERIA, criteria=("grade 4",)), Entry((1.0, 1.0))),
        (CLAIMS, Entry(1)),
        (CLAIMS, Entry(None, entities={"C1": "a"})),
    ],
)
def test_an_entry_of_another_form_is_requested_again(
    tmp_path: Path, question: Any, entry: Entry
) -> None:
    text = '{"score": 0, "scores": {"1": 2}, "C1": "a", "C2": null}'
    with JudgeServer(lambda _: Reply(text)) as server:
        judge = OpenAIJudge("m", base_url=server.url, cache=tmp_path / "v.sqlite")
        call = judge.judge if isinstance(question, JudgeQuestion) else judge.entities
        with closing(Verdicts(str(tmp_path / "v.sqlite"))) as store:
            store.put({judge.cache_keys(question)[0]: entry})
        first = asyncio.run(call([question]))
        assert first in ([0], [(0.5,)], [{"C1": "a", "C2": None}])
        assert (judge.usage.cache_hits, judge.usage.cache_faults) == (0, 1)
        assert asyncio.run(call([question])) == first
    assert len(server.requests) == 1


def test_a_refused_question_does_not_show_that_the_form_is_refused() -> None:
    def behave(request: Request) -> Reply:
        return Reply(status=400) if "too long" in request.material else grade_by_text(request)

    long, short = (replace(CRITERIA, question=q, criteria=("grade 4",)) for q in ("too long", "q"))
    with JudgeServer(behave) as server:
        judge = OpenAIJudge("m", base_url=server.url, concurrency=1, backoff=0.01)
        error, verdict = ask(judge, [long, short])
    assert isinstance(error, BackendError)
    assert verdict == (1,)
    assert "response_format" in server.requests[-1].body


@pytest.mark.parametrize("text", ['{"scores": {"1": 5}}', '{"scores": {"1": 1, "2": 1}}', "4"])
def test_an_answer_that_does_not_fit_is_repeated_and_then_an_error(text: str) -> None:
    with JudgeServer(lambda _: Reply(text)) as server:
        judge = OpenAIJudge("m", base_url=server.url, backoff=0.001)
        [error] = ask(judge, [replace(CRITERIA, criteria=("c",))])
    assert "has no verdict" in str(error)
    assert len(server.requests) == 3


def test_own_wording_is_in_the_request_and_in_the_fingerprint() -> None:
    templates = {"criteria": JudgeTemplate(system="Be fair.")}
    with JudgeServer(grade_by_text) as server:
        judge = OpenAIJudge("m", base_url=server.url, templates=templates)
        ask(judge, [replace(CRITERIA, criteria=("grade 4",))])
    assert server.requests[0].body["messages"][0]["content"].startswith("Be fair.")
    assert re.search(r" templates=[0-9a-f]{12}$", judge.fingerprint)
    other = OpenAIJudge("m", templates={"criteria": JudgeTemplate(system="Be kind.")})
    assert other.fingerprint != judge.fingerprint
    with pytest.raises(UsageError, match=r"must contain \{criteria\}"):
        OpenAIJudge("m", templates={"criteria": JudgeTemplate(user="{response}")})
