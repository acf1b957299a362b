"""The gatherer: distinct requests, groups, and errors of single rollouts."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter

import pytest
from processes import WAIT_SECONDS

from rag_rewards import decode_row, recipe
from rag_rewards.errors import BackendError, DataError
from rag_rewards.evidence.gather import Gatherer
from rag_rewards.evidence.judge_needs import EntitiesNeed, VerdictNeed
from rag_rewards.evidence.needs import ContradictionNeed, EntailmentNeed
from rag_rewards.evidence.protocols import (
    EntityQuestion,
    GenerateAnswer,
    GenerateRequest,
    JudgeQuestion,
    Models,
    ScoreRequest,
)
from rag_rewards.prompts import Prompt
from rag_rewards.testing import (
    CodePoints,
    TableContradiction,
    TableEntailment,
    TableJudge,
    TablePolicy,
    TableSimilarity,
)

CTRL = recipe("ctrl-rag")
DOCUMENTS = [{"text": "Rome is old."}, {"text": "Paris lies on the Seine."}, {"text": "Oslo."}]


def row(at=0, **fields):
    return decode_row(
        {
            "id": f"r{at}",
            "question": "Where?",
            "documents": DOCUMENTS,
            "supporting": [1, 2],
            "answers": "Paris",
            "response": f"Paris {at}",
        }
        | fields
    )


def by_length(context, response):
    """Return log-probabilities that differ for each context and token."""
    return [-0.01 * (len(context) + 1) - 0.001 * (token % 7) for token in response]


def informed(gatherer, reward, rows):
    results = gatherer.gather_sync(reward, rows)
    assert not any(isinstance(each, Exception) for each in results), results
    return results


# --- likelihoods -------------------------------------------------------------------------------


def test_a_group_is_one_request_with_distinct_responses():
    policy = TablePolicy(by_length)
    rows = [row(0), row(1), row(2, response="Paris 0"), row(3, question="When?")]
    results = informed(Gatherer(Models(policy=policy)), CTRL, rows)
    first, second = policy.requests
    assert (len(first.contexts), len(first.responses)) == (3, 2)
    assert (len(second.contexts), len(second.responses)) == (3, 1)
    assert results[0].logprobs == results[2].logprobs
    assert all(len(r.logprobs.full) == len("Paris 0") for r in results)
    assert [sorted(r.logprobs.without) for r in results] == [["1", "2"]] * 4
    shorter = [len(first.contexts[i]) for i in range(3)]
    assert shorter[0] > max(shorter[1:])
    assert results[0].logprobs.full[0] == pytest.approx(by_length(first.contexts[0], (80,))[0])


class Counting(CodePoints):
    """A tokenizer that counts how often it reads each text."""

    def __init__(self):
        self.counts = Counter()

    def encode(self, text, *, add_special_tokens=False):
        self.counts[text] += 1
        return super().encode(text)


LONG = [{"text": f"Document {i} says that Paris lies on the Seine."} for i in range(9)]


@pytest.mark.parametrize(
    ("name", "settings", "fields", "contexts"),
    [
        ("ctrl-rag", {}, {}, 3),
        ("ctrl-rag", {}, {"documents": LONG, "supporting": [1, 2]}, 3),
        ("lear", {}, {}, 2),
        ("lear", {"mode": "likelihood"}, {}, 3),
    ],
    ids=["documents", "truncated documents", "answers", "likelihoods of answers"],
)
def test_each_text_of_a_batch_is_tokenized_once(name, settings, fields, contexts):
    """Eight responses to one prompt, two of them equal, and another prompt."""
    tokenizer = Counting()
    answer = GenerateAnswer("Paris", (80,))
    policy = TablePolicy(by_length, lambda _: answer, tokenizer=tokenizer, max_length=500)
    answers = [0, 0, *range(1, 7)]
    rows = [row(i, response=f"{PARTS}{answer}", **fields) for i, answer in enumerate(answers)]
    rows.append(row(8, response=f"{PARTS}0", question="When?", **fields))
    gatherer = Gatherer(Models(policy=policy), truncate=True)
    informed(gatherer, recipe(name, settings), rows)
    assert max(tokenizer.counts.values()) == 1
    used = {ids for request in policy.requests for ids in tokens_of(request)}
    assert {tuple(map(ord, text)) for text in tokenizer.counts} >= used
    prompts = {ids for request in policy.requests for ids in contexts_of(request)}
    assert len(prompts) == 2 * contexts


def contexts_of(request):
    return [request.prompt] if isinstance(request, GenerateRequest) else request.contexts


def tokens_of(request):
    return [*contexts_of(request), *getattr(request, "responses", ())]


def test_the_next_batch_is_tokenized_again():
    """No tokens are kept beyond a batch, whose texts bound the memory."""
    tokenizer = Counting()
    gatherer = Gatherer(Models(policy=TablePolicy(by_length, tokenizer=tokenizer)))
    for _ in range(2):
        informed(gatherer, CTRL, [row(0), row(1)])
    assert set(tokenizer.counts.values()) == {2}


def test_gathered_evidence_scores_like_evidence_of_rows():
    gatherer = Gatherer(Models(policy=TablePolicy(by_length)))
    results = informed(gatherer, CTRL, [row(0), row(1)])
    again = [decode_row(decoded(each)) for each in results]
    assert [s.value for s in CTRL(results)] == [s.value for s in CTRL(again)]
    assert CTRL(results)[0].components["evidential_contribution"] < 0


def decoded(rollout):
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(rollout))


def test_existing_evidence_is_not_requested():
    logprobs = {"full": [-1.0], "without": {"1": [-2.0], "2": [-3.0]}}
    rows = [row(0, logprobs=logprobs), row(1)]
    policy = TablePolicy(by_length)
    results = informed(Gatherer(Models(policy=policy)), CTRL, rows)
    assert results[0] is rows[0]
    assert [len(r.responses) for r in policy.requests] == [1]


def test_incomplete_evidence_is_requested_completely():
    rows = [row(0, logprobs={"full": [-1.0], "without": {"1": [-2.0]}})]
    results = informed(Gatherer(Models(policy=TablePolicy(by_length))), CTRL, rows)
    assert results[0].logprobs.full != (-1.0,)  # both terms of a difference from one model
    assert sorted(results[0].logprobs.without) == ["1", "2"]


def test_rows_are_not_changed():
    rows = [row(0)]
    before = decoded(rows[0])
    informed(Gatherer(Models(policy=TablePolicy(by_length))), CTRL, rows)
    assert decoded(rows[0]) == before
    assert rows[0].logprobs is None


def test_an_invalid_row_fails_alone():
    rows = [row(0), row(1, question=None, group="g"), row(2, supporting=[9])]
    results = Gatherer(Models(policy=TablePolicy(by_length))).gather_sync(CTRL, rows)
    assert results[0].logprobs is not None
    assert isinstance(results[1], DataError)
    assert str(results[1]).startswith("row r1: question: missing")
    assert results[2] is rows[2]  # scoring says what is wrong with it
    assert isinstance(CTRL.score_each([results[2]])[0], DataError)


def test_a_failed_request_fails_its_group_only():
    def sometimes(context, response):
        return (
            BackendError("out of luck")
            if "When" in "".join(map(chr, context))
            else [-1.0] * len(response)
        )

    rows = [row(0), row(1, question="When?"), row(2), row(3, question="When?")]
    results = Gatherer(Models(policy=TablePolicy(sometimes))).gather_sync(CTRL, rows)
    assert [type(each).__name__ for each in results] == ["Rollout", "BackendError"] * 2
    assert str(results[3]) == "row r3: out of luck"


def test_a_failed_call_fails_all_rollouts_that_needed_it():
    class Broken(TablePolicy):
        async def score(self, requests):
            raise ConnectionError("no route")

    logprobs = {"full": [-1.0], "without": {"1": [-2.0], "2": [-3.0]}}
    rows = [row(0), row(1, logprobs=logprobs)]
    results = Gatherer(Models(policy=Broken())).gather_sync(CTRL, rows)
    assert str(results[0]) == "row r0: ConnectionError: no route"
    assert results[1] is rows[1]


class Panic(BaseException):
    """A panic like pyo3's PanicException, which is not an Exception."""


def test_a_panic_of_a_model_is_the_error_of_the_rollouts_that_needed_it():
    class Panicking(TablePolicy):
        async def score(self, requests):
            raise Panic("poisoned lock")

    logprobs = {"full": [-1.0], "without": {"1": [-2.0], "2": [-3.0]}}
    rows = [row(0), row(1, logprobs=logprobs)]
    results = Gatherer(Models(policy=Panicking())).gather_sync(CTRL, rows)
    assert isinstance(results[0], BackendError)
    assert str(results[0]) == "row r0: Panic: poisoned lock"
    assert results[1] is rows[1]


def panics(*_):
    raise Panic("poisoned lock")


CITED = "<think>t</think><answer>Paris lies on the Seine [2].</answer>"


@pytest.mark.parametrize(
    ("models", "name", "response"),
    [
        (Models(entailment=TableEntailment(panics)), "ground-grpo", CITED),
        (Models(similarity=TableSimilarity(panics)), "semantic", CITED),
        (Models(judge=TableJudge(panics)), "truthrl", r"\boxed{Rome}"),
    ],
)
def test_a_panic_of_any_kind_of_model_is_an_error_of_its_rows(models, name, response):
    semantic = recipe("ground-grpo", {"refusal.matcher": "semantic"})
    scheme = semantic if name == "semantic" else recipe(name)
    rows = [row(0, response=response, answerable=True)]
    (results,) = Gatherer(models).gather_sync(scheme, rows)
    assert isinstance(results, BackendError)
    assert "Panic: poisoned lock" in str(results)


def test_a_panic_of_a_tokenizer_is_the_error_of_its_rollout():
    class Panicking(CodePoints):
        def encode(self, text, *, add_special_tokens=False):
            if "bad" in text:
                raise Panic("no boundary")
            return super().encode(text)

    rows = [row(0), row(1, response="bad"), row(2, question="bad"), row(3)]
    policy = TablePolicy(by_length, tokenizer=Panicking())
    results = Gatherer(Models(policy=policy)).gather_sync(CTRL, rows)
    assert [type(each).__name__ for each in results] == [
        "Rollout",
        "BackendError",
        "BackendError",
        "Rollout",
    ]
    assert str(results[1]) == "row r1: Panic: no boundary"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError()])
def test_control_flow_exceptions_are_raised(error):
    class Ending(TablePolicy):
        async def score(self, requests):
            raise error

    with pytest.raises(type(error)):
        Gatherer(Models(policy=Ending())).gather_sync(CTRL, [row(0)])


def test_a_wrong_number_of_answers_fails_all_rollouts():
    class Short(TablePolicy):
        async def score(self, requests):
            return (await super().score(requests))[:-1]

    rows = [row(0), row(1, question="When?")]
    results = Gatherer(Models(policy=Short(by_length))).gather_sync(CTRL, rows)
    assert all("1 answers to 2 requests" in str(each) for each in results)


def test_the_self_check_runs_first_and_once():
    class Checked(TablePolicy):
        checks = 0

        async def selfcheck(self):
            assert not self.requests
            self.checks += 1

    policy = Checked(by_length)
    gatherer = Gatherer(Models(policy=policy))
    informed(gatherer, CTRL, [row(0)])
    informed(gatherer, CTRL, [row(1)])
    assert policy.checks == 1


def test_a_failed_self_check_fails_the_call():
    class WrongPolicy(TablePolicy):
        async def selfcheck(self):
            raise BackendError("zeros")

    gatherer = Gatherer(Models(policy=WrongPolicy(by_length)))
    for _ in range(2):
        with pytest.raises(BackendError, match="zeros"):
            gatherer.gather_sync(CTRL, [row(0)])
    assert gatherer.gather_sync(recipe("naive-grpo"), [row(0)]) == [row(0)]


def test_a_panic_in_the_self_check_is_a_backend_error():
    class Panicking(TablePolicy):
        async def selfcheck(self):
            raise Panic("no device")

    with pytest.raises(BackendError, match=r"^Panic: no device$"):
        Gatherer(Models(policy=Panicking(by_length))).gather_sync(CTRL, [row(0)])


def test_concurrent_calls_wait_for_the_self_check():
    class Slow(TablePolicy):
        async def selfcheck(self):
            await asyncio.sleep(0.2)
            raise BackendError("zeros")

    gatherer = Gatherer(Models(policy=Slow(by_length)))

    async def both():
        calls = [gatherer.gather(CTRL, [row(i)]) for i in range(2)]
        return await asyncio.gather(*calls, return_exceptions=True)

    assert [str(each) for each in asyncio.run(both())] == ["zeros", "zeros"]


def test_errors_of_rows_have_public_types():
    class Finer(BackendError):
        pass

    policy = TablePolicy(lambda context, response: Finer("503", "x"))
    (results,) = Gatherer(Models(policy=policy)).gather_sync(CTRL, [row(0)])
    assert type(results) is BackendError
    assert results.__cause__.__traceback__ is None


def test_a_response_without_assistant_message_fails_its_row():
    messages = [{"role": "user", "content": "x"}]
    rows = [row(0), row(1, response=messages, response_token_ids=[5, 6])]
    results = Gatherer(Models(policy=TablePolicy(by_length))).gather_sync(CTRL, rows)
    assert results[0].logprobs is not None
    assert "no assistant message" in str(results[1])


def test_a_group_is_truncated_for_its_longest_response():
    policy = TablePolicy(by_length, max_length=10_000)
    rows = [row(0, response="Paris"), row(1, response="Paris " * 20)]
    informed(Gatherer(Models(policy=policy)), CTRL, rows)
    (whole,) = policy.requests
    needs = len(whole.contexts[0]) + len("Paris " * 20)
    tight = TablePolicy(by_length, max_length=needs - 1)
    informed(Gatherer(Models(policy=tight), truncate=True), CTRL, rows)
    (group,) = tight.requests  # one request still: all members lost the same document
    assert len(group.contexts[0]) < len(whole.contexts[0])


def test_other_groups_of_a_question_do_not_affect_a_group():
    policy = TablePolicy(by_length, max_length=10_000)
    rows = [row(0, response="Paris"), row(1, response="Paris " * 20)]
    informed(Gatherer(Models(policy=policy)), CTRL, rows)
    needs = len(policy.requests[0].contexts[0]) + len("Paris " * 20)
    shown = {}
    for groups in ([[0], [1]], [[0, 1]]):
        tight = TablePolicy(by_length, max_length=needs - 1)
        Gatherer(Models(policy=tight), truncate=True).gather_sync(CTRL, rows, groups)
        shown[len(groups)] = max(len(group.contexts[0]) for group in tight.requests)
    alone = TablePolicy(by_length, max_length=needs - 1)
    informed(Gatherer(Models(policy=alone), truncate=True), CTRL, rows[:1])
    assert shown[2] == len(alone.requests[0].contexts[0]) > shown[1]


def test_the_signature_depends_on_prompt_settings():
    def prompt_digest(**options):
        return Gatherer(Models(policy=TablePolicy(by_length)), **options).fingerprints["prompt"]

    others = [
        prompt_digest(),
        prompt_digest(truncate=True),
        prompt_digest(prompt=Prompt("{question}")),
        prompt_digest(template={"enable_thinking": False}),
    ]
    assert len(set(others)) == 4
    assert prompt_digest() == prompt_digest()
    assert "prompt" not in Gatherer(Models(judge=TableJudge({}))).fingerprints


def test_usage_counts_tokens():
    gatherer = Gatherer(Models(policy=TablePolicy(by_length)))
    informed(gatherer, CTRL, [row(0), row(1)])
    assert (gatherer.usage.groups, gatherer.usage.path) == (1, "table")
    assert gatherer.usage.computed > 0
    assert 0.0 <= gatherer.usage.reuse <= 1.0


# --- LEAR --------------------------------------------------------------------------------------

PARTS = "<reason>It lies on the Seine.</reason><extract>Seine</extract><answer>Paris</answer>"


def test_masked_answers_are_generated_from_their_contexts():
    policy = TablePolicy(
        texts=lambda prompt: "Lyon</answer>" if "<reason>" in text(prompt)[-60:] else "Paris"
    )
    lear = recipe("lear", {"decode.max_tokens": 7})
    results = informed(Gatherer(Models(policy=policy)), lear, [row(0, response=PARTS)])
    assert results[0].masked_answers.rationale == "Lyon"
    assert results[0].masked_answers.evidence == "Paris"
    assert all(isinstance(a, GenerateRequest) for a in policy.requests)
    assert {(a.max_tokens, a.temperature, a.stop) for a in policy.requests} == {
        (7, 0.0, ("</answer>",))
    }
    evidence = next(text(a.prompt) for a in policy.requests if "<extract>" in text(a.prompt)[-60:])
    assert "on the Seine" not in evidence
    assert lear(results)[0].components["answer_evidence"] == 1.0


def text(ids):
    return "".join(map(chr, ids))


def test_equal_masked_contexts_are_generated_once():
    policy = TablePolicy(texts=lambda prompt: "Paris")
    rows = [row(0, response=PARTS), row(1, response=PARTS), row(2, response="Paris")]
    results = informed(Gatherer(Models(policy=policy)), recipe("lear"), rows)
    assert policy.generated == 2
    assert results[2] is rows[2]


def test_equal_contexts_have_separate_samples():
    policy = TablePolicy(texts=lambda prompt: "Paris")
    lear = recipe("lear", {"decode.temperature": 1.0})
    rows = [row(0, response=PARTS), row(1, response=PARTS)]
    informed(Gatherer(Models(policy=policy)), lear, rows)
    assert sorted(a.seed for a in policy.requests) == [0, 0, 1, 1]


def test_likelihood_mode_scores_each_alias():
    policy = TablePolicy(by_length)
    lear = recipe("lear", {"mode": "likelihood"})
    rows = [row(0, response=PARTS, answers=["Paris", "Lutetia"])]
    results = informed(Gatherer(Models(policy=policy)), lear, rows)
    assert all(isinstance(a, ScoreRequest) for a in policy.requests)
    evidence = results[0].masked_logprobs
    lengths = [
        [len(values) for values in getattr(evidence, part)] for part in evidence.__struct_fields__
    ]
    assert lengths == [[5, 7]] * 3
    assert 0 < lear(results)[0].components["answer_full"] < 1


def test_a_failed_generation_names_its_field():
    policy = TablePolicy(texts=lambda prompt: BackendError("cut off"))
    results = Gatherer(Models(policy=policy)).gather_sync(recipe("lear"), [row(0, response=PARTS)])
    assert str(results[0]) in {
        f"row r0: masked_answers.{p}: cut off" for p in ("rationale", "evidence")
    }


# --- entailment, similarity, judges ------------------------------------------------------------


def test_entailment_pairs_are_distinct_in_a_batch():
    nli = TableEntailment(lambda premise, hypothesis: 0.9)
    ground = recipe("ground-grpo")
    rows = [
        row(
            i,
            response="<think>t</think><answer>Paris lies on the Seine [2].</answer>",
            answerable=True,
        )
        for i in range(3)
    ]
    results = informed(Gatherer(Models(entailment=nli)), ground, rows)
    assert len(nli.requests) == len(set(nli.requests)) > 0
    assert all(r.nli == results[0].nli for r in results)
    assert ground(results)[0].value is not None


def test_questions_are_distinct_and_any_yes_counts():
    judge = TableJudge(lambda q: int(q.gold == ("Lutetia",)))
    truth = recipe("truthrl")
    rows = [
        row(i, response="\\boxed{The city of light}", answers=["Paris", "Lutetia"])
        for i in range(2)
    ]
    results = informed(Gatherer(Models(judge=judge)), truth, rows)
    assert [q.gold for q in judge.requests] == [("Paris",), ("Lutetia",)]
    assert [r.verdicts for r in results] == [{"outcome": 1}] * 2
    assert truth(results)[0].value == 1.0


def test_a_missing_verdict_is_an_error_unless_another_is_yes():
    def judge_of(q):
        return BackendError("down") if q.gold == ("Paris",) else int(q.gold == ("Lutetia",))

    truth = recipe("truthrl")
    rows = [
        row(0, response="\\boxed{x}", answers=["Paris", "Lutetia"]),
        row(1, response="\\boxed{x}", answers=["Paris", "Rome"]),
        row(2, response="\\boxed{Paris}"),
    ]
    results = Gatherer(Models(judge=TableJudge(judge_of))).gather_sync(truth, rows)
    assert results[0].verdicts == {"outcome": 1}
    assert str(results[1]) == "row r1: verdicts.outcome: down"
    assert results[2] is rows[2]  # an exact match asks no judge


def test_similarity_for_refusals_in_other_words():
    similar = TableSimilarity(lambda text, reference: 0.95)
    ground = recipe("ground-grpo", {"refusal.matcher": "semantic", "citation.judge_by": "gold"})
    rows = [row(0, response="<think>t</think><answer>No idea at all.</answer>", answerable=False)]
    results = informed(Gatherer(Models(similarity=similar)), ground, rows)
    assert similar.requests
    assert results[0].similarity is not None


def test_a_failed_kind_of_model_does_not_affect_others():
    class Down(TableEntailment):
        async def entail(self, pairs):
            raise BackendError("no memory")

    both = recipe("ground-grpo", {"refusal.matcher": "semantic"})
    rows = [
        row(
            0,
            response="<think>t</think><answer>Paris lies on the Seine [2].</answer>",
            answerable=True,
        ),
        row(1, response="<think>t</think><answer>Nobody knows.</answer>", answerable=False),
    ]
    models = Models(entailment=Down({}), similarity=TableSimilarity(lambda t, r: 0.1))
    results = Gatherer(models).gather_sync(both, rows)
    assert "no memory" in str(results[0])
    assert isinstance(results[0], BackendError)


# --- loops and threads -------------------------------------------------------------------------


def test_gather_sync_works_in_a_running_event_loop():
    gatherer = Gatherer(Models(policy=TablePolicy(by_length)))

    async def trainer():
        return gatherer.gather_sync(CTRL, [row(0)]), await gatherer.gather(CTRL, [row(0)])

    one, other = asyncio.run(trainer())
    assert one == other


def test_kinds_of_models_are_called_at_the_same_time():
    here: dict[str, asyncio.Event] = {}

    class MeetingNli(TableEntailment):
        async def entail(self, pairs):
            here["nli"].set()
            await asyncio.wait_for(here["similarity"].wait(), WAIT_SECONDS)
            return await super().entail(pairs)

    class MeetingSimilarity(TableSimilarity):
        async def similarity(self, pairs):
            here["similarity"].set()
            await asyncio.wait_for(here["nli"].wait(), WAIT_SECONDS)
            return await super().similarity(pairs)

    async def both():
        here.update(nli=asyncio.Event(), similarity=asyncio.Event())
        models = Models(
            entailment=MeetingNli(lambda p, h: 0.9), similarity=MeetingSimilarity(lambda t, r: 0.1)
        )
        asks = recipe("ground-grpo", {"refusal.matcher": "semantic"})
        messages = row(
            0,
            response="<think>t</think><answer>Paris lies on the Seine [2].</answer>",
            answerable=True,
        )
        return await Gatherer(models).gather(asks, [messages])

    (results,) = asyncio.run(both())
    assert results.nli
    assert results.similarity


def test_threads_can_share_a_gatherer():
    gatherer = Gatherer(Models(policy=TablePolicy(by_length)))
    results = []
    threads = [
        threading.Thread(target=lambda i=i: results.append(gatherer.gather_sync(CTRL, [row(i)])))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(math.isfinite(sum(r[0].logprobs.full)) for r in results)


def test_models_are_closed_together():
    policy, judge = TablePolicy(), TableJudge({})
    models = Models(policy=policy, judge=judge)
    assert models.fingerprints == {"policy": "table", "judge": "table"}
    asyncio.run(models.close())
    assert policy.closed
    assert judge.closed


# --- further needs of new evidence ---------------------------------------------------------------


class Completed:
    """A reward that asks for a name, and then whether the claim with this name is supported."""

    name, scope = "completed", "rollout"

    def needs(self, rollout):
        question = EntityQuestion("Where?", "In Oslo.", ("E0 is a city.",), ("E0",))
        needs = [EntitiesNeed(("E0",), question)]
        if rollout.entities and (name := rollout.entities["E0"]):
            claim = JudgeQuestion("supported", "Where?", f"{name} is a city.")
            needs.append(VerdictNeed("supported:1", (claim,)))
        return needs


def test_new_evidence_raises_further_needs():
    judge = TableJudge(lambda question: 1, entities=lambda question: {"E0": "Oslo"})
    gatherer = Gatherer(Models(judge=judge))
    first, second = informed(gatherer, Completed(), [row(0), row(1)])
    assert first.entities == second.entities == {"E0": "Oslo"}
    assert first.verdicts == {"supported:1": 1}
    assert [type(each).__name__ for each in judge.requests] == ["EntityQuestion", "JudgeQuestion"]
    assert gatherer.usage.verdicts == 2


def test_a_failure_in_a_later_round_is_the_error_of_its_rollout():
    judge = TableJudge(
        lambda question: BackendError("busy"), entities=lambda question: {"E0": "Oslo"}
    )
    rows = [row(0), row(1, entities={"E0": None})]
    failed, fine = Gatherer(Models(judge=judge)).gather_sync(Completed(), rows)
    assert isinstance(failed, BackendError)
    assert (failed.path, failed.row) == ("verdicts.supported:1", "r0")
    assert fine.entities == {"E0": None}


def test_a_judge_without_names_is_an_error():
    class Plain:
        fingerprint = "plain"

        async def judge(self, questions):
            return [1] * len(questions)

        async def close(self):
            pass

    (result,) = Gatherer(Models(judge=Plain())).gather_sync(Completed(), [row(0)])
    assert isinstance(result, BackendError)
    assert "the judge cannot read names" in str(result)


class Contradicted:
    name, scope = "contradicted", "rollout"

    def needs(self, rollout):
        return [ContradictionNeed("Rome is old.", "Rome is new."), EntailmentNeed("a", "b")]


def test_contradictions_and_entailments_of_one_rollout():
    model = TableContradiction({("Rome is old.", "Rome is new."): 0.75, ("a", "b"): 0.5})
    (result,) = informed(Gatherer(Models(entailment=model)), Contradicted(), [row(0)])
    assert result.contradiction("Rome is old.", "Rome is new.") == 0.75
    assert result.entailment("Rome is old.", "Rome is new.") == 0.25
    assert result.entailment("a", "b") == 0.5
    assert result.contradiction("a", "b") is None
    again = decode_row(decoded(result))
    assert again.nli == result.nli


def test_a_model_without_contradictions_is_an_error():
    model = TableEntailment(lambda premise, hypothesis: 0.5)
    (result,) = Gatherer(Models(entailment=model)).gather_sync(Contradicted(), [row(0)])
    assert isinstance(result, BackendError)
    assert "no label for contradiction" in str(result)


class SamePair:
    """A reward that needs the entailment and the contradiction of one pair, in this order."""

    name, scope = "same", "rollout"

    def needs(self, rollout):
        return [ContradictionNeed("a", "b"), EntailmentNeed("a", "b")]


def test_the_contradiction_of_a_pair_stays_when_its_entailment_is_added():
    """Both are entries of the same field, and an entry without a contradiction must not win."""
    model = TableContradiction({("a", "b"): 0.75})
    (result,) = informed(Gatherer(Models(entailment=model)), SamePair(), [row(0)])
    assert result.contradiction("a", "b") == 0.75
    assert result.entailment("a", "b") == 0.25
    assert len(result.nli) == 1


class TwoNames:
    name, scope = "names", "rollout"

    def needs(self, rollout):
        return [
            EntitiesNeed((name,), EntityQuestion("Where?", "In Oslo.", (f"{name} is.",), (name,)))
            for name in ("E0", "E1")
        ]


def test_names_of_two_needs_are_evidence_of_one_rollout():
    judge = TableJudge({}, entities=lambda question: {question.placeholders[0]: "Oslo"})
    (result,) = informed(Gatherer(Models(judge=judge)), TwoNames(), [row(0, entities={"E2": "x"})])
    assert result.entities == {"E2": "x", "E0": "Oslo", "E1": "Oslo"}


def test_all_log_probabilities_are_one_call_of_the_policy():
    calls = []

    class Counting(TablePolicy):
        async def score(self, requests):
            calls.append(len(requests))
            return await super().score(requests)

    class Both:
        name, scope = "both", "rollout"

        def needs(self, rollout):
            return [*CTRL.needs(rollout), *recipe("lear", {"mode": "likelihood"}).needs(rollout)]

    rows = [row(0, response=PARTS), row(1, response=PARTS)]
    results = informed(Gatherer(Models(policy=Counting(by_length))), Both(), rows)
    assert calls == [4]  # one group with documents left out, and three masked contexts
    assert all(each.logprobs and each.masked_logprobs.full for each in results)


@pytest.mark.parametrize(
    ("need", "path"),
    [
        (VerdictNeed("supported:1"), "verdicts.supported:1"),
        (EntitiesNeed(("E0",)), "entities"),
        (ContradictionNeed("a", "b"), "nli"),
    ],
)
def test_the_error_of_an_unmet_need_names_the_field(need, path):
    assert need.unmet().path == need.path == path
    assert isinstance(need.unmet(), DataError)
