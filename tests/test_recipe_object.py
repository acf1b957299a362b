"""Properties of every recipe: components, range, order, purity, pickling, signature, profile."""

from __future__ import annotations

import math
import pickle
import random
from asyncio import CancelledError

import msgspec
import pytest
from varied_evidence import with_varied_evidence

from rag_rewards import (
    RECIPES,
    DataError,
    Document,
    EvidenceError,
    GroupError,
    GroupMinMax,
    Recipe,
    Reward,
    Rollout,
    Score,
    ScoringError,
    Sum,
    UsageError,
    __version__,
    custom,
    decode_row,
    recipe,
    recipe_object,
)
from rag_rewards.audit.rule_evidence import with_group_evidence
from rag_rewards.recipes import build_recipe
from rag_rewards.rollout import (
    Criterion,
    LogProbs,
    Message,
)
from rag_rewards.tiny_world.model import CHECKPOINT

COMPONENTS = {
    "arena": {"format", "accuracy", "relevance", "bonus"},
    "ground-grpo-stage1": {"tag_count", "format", "exact_match", "citation"},
    "ground-grpo": {"tag_count", "format", "exact_match", "citation", "refusal"},
    "lear": {
        "answer",
        "answer_rationale",
        "answer_evidence",
        "answer_full",
        "length",
        "length_rationale",
        "length_evidence",
        "format",
    },
    "truthrl": {"outcome"},
    "ctrl-rag": {"evidential_contribution", "clr", "clr_normalized", "accuracy"},
    "ctrl-rag-clr": {"evidential_contribution", "clr"},
    "naive-grpo": {"format", "accuracy"},
    "rag-total": {"citation_recall", "accuracy", "cost"},
    "search-r1": {"outcome", "format", "retrieval", "searched", "malformed"},
    "igpo": {"outcome", "info_gain", "prior", "posterior", "malformed"},
    "stepsearch": {"answer", "search_keys", "gain", "redundancy", "malformed"},
    "carr": {"outcome", "rubrics", "identified", "supported", "connected", "malformed"},
    "binary-rar": {"consistent", "malformed"},
    "canoe": {"accuracy", "influence", "format", "length"},
    "s3": {"accuracy", "baseline", "malformed"},
    "dr-tulu": {"rubric", "citation", "format", "searches", "malformed"},
    "rubric": {"rubric"},
    "ruler": {"group"},
    "rlcr": {"format", "accuracy", "calibration", "confidence"},
    "autorefine": {"outcome", "refined", "retrieval", "malformed"},
    "ikea": {"outcome", "valid", "searches", "malformed"},
    "rag-env": {"outcome", "hit", "citation", "grounding", "brevity", "malformed"},
    "hiprag": {"outcome", "format", "steps", "malformed"},
}
# Of the default settings, for the rows below (at most 3 statements, E at most 200 nats).
RANGES = {
    "arena": (0, 13),
    "ground-grpo-stage1": (0, 5),
    "ground-grpo": (0, 5.5),
    "lear": (0, 1),
    "truthrl": (-1, 1),
    "ctrl-rag": (0, 1),
    "ctrl-rag-clr": (0, 200),
    "naive-grpo": (0, 2),
    "rag-total": (0, 1),
    "search-r1": (0, 1),
    "stepsearch": (-1, 1.618),
    "igpo": (-2, 1),
    "carr": (0, 1),
    "binary-rar": (0, 1),
    "canoe": (0, 4),
    "s3": (-1, 1),
    "dr-tulu": (0, 1),
    "rubric": (0, 1),
    "ruler": (0, 1),
    "rlcr": (0, 1.5),
    "autorefine": (0, 1),
    "ikea": (-1, 1.6),
    "rag-env": (0, 1.8),
    "hiprag": (0, 1.4),
}


# --- rows with evidence --------------------------------------------------------------------------

RESPONSES = [
    "<relevance>[1]</relevance><analysis>a</analysis><answer>Paris</answer>",
    "<think>so [1]</think><answer>It is Paris [1]. Or Rome [2][9]. Yes.</answer>",
    "<think>so</think><answer>I apologize, but I couldn't find an answer to your question in the "
    "search results.</answer>",
    "<reason>long reason here</reason><extract>Paris is it</extract><answer>Paris</answer>",
    r"<think>so</think> \boxed{Paris}",
    r"<think>so</think> \boxed{I don't know}",
    r"\boxed{Lyon} <answer>Lyon</answer>",
    "<think>never closed <answer>Paris</answer>",
    "<answer>",
    "</answer><answer></answer>",
    "",
    "\n",
    "\x00\u200b 巴黎 \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "[1] [2] [3]",
    "Paris " * 60,
    "<think>a</think><answer>Paris</answer><analysis>b</analysis><confidence>0.5</confidence>",
]
DOCUMENTS = (
    Document(text="Paris is the capital of France.", title="France", id=1),
    Document(text="Rome is in Italy.", id="wiki-7"),
    Document(text="Nothing."),
)
ROW = {
    "question": "Capital?",
    "documents": DOCUMENTS,
    "supporting": (1, "wiki-7"),
    "answers": ["Paris", "City of Light"],
    "answerable": True,
    "out_of_knowledge": False,
    "search_keys": (("capital of France",),),
    "rubrics": ("<E0> is in France.", "<E0> is a capital."),
    "rubric": (
        Criterion(criterion="Paris is the capital of France."),
        Criterion(contains=("Paris", "Rome"), weight=2),
    ),
    "entities": {"E0": "Paris"},
}


def rows(name: str, scheme: Recipe | None = None, **changes) -> list[Rollout]:
    inputs = [
        Rollout(response=text, id=i, group=f"g{i % 3}", **ROW | changes)
        for i, text in enumerate(RESPONSES)
    ]
    scheme = scheme or recipe(name)
    return with_group_evidence(
        scheme, [with_varied_evidence(scheme, rollout) for rollout in inputs]
    )


def reads_turns(name: str) -> bool:
    """Return whether a recipe reads all turns of a rollout, not only its last response."""
    return "turns" in RECIPES[name].fields


def flat(scores: list[Score]) -> list[tuple]:
    return [(s.value, dict(s.components), s.correct, dict(s.details)) for s in scores]


each_recipe = pytest.mark.parametrize("name", sorted(RECIPES))
each_profile = pytest.mark.parametrize("hardened", [False, True], ids=["plain", "hardened"])


def test_the_published_recipes():
    assert set(COMPONENTS) <= set(RECIPES)
    assert all(RECIPES[name].name == name for name in RECIPES)


@pytest.mark.parametrize("name", sorted(COMPONENTS))
@each_profile
def test_components_are_those_of_the_contract(name, hardened):
    scheme = recipe(name, hardened=hardened)
    assert set(scheme.component_names) == COMPONENTS[name]
    assert len(scheme.component_names) == len(COMPONENTS[name])
    for score in scheme(rows(name, scheme)):
        assert tuple(score.components) == scheme.component_names


def test_components_that_are_switched_on():
    process = recipe("ground-grpo", {"process.weight": 1.0})
    assert set(process.component_names) == COMPONENTS["ground-grpo"] | {"process"}
    reasoning = recipe("truthrl", {"reasoning.combine": "multiplicative"})
    assert set(reasoning.component_names) == {"outcome", "reasoning"}


@each_recipe
@each_profile
def test_rewards_are_finite_and_in_range(name, hardened):
    scheme = recipe(name, hardened=hardened)
    scores = scheme(rows(name, scheme))
    assert len(scores) == len(RESPONSES)
    low, high = RANGES.get(name, (-math.inf, math.inf))
    for score in scores:
        assert isinstance(score.value, float)
        assert math.isfinite(score.value)
        assert low <= score.value <= high
        assert score.correct is None or 0.0 <= score.correct <= 1.0
        assert all(v is None or math.isfinite(v) for v in score.components.values())
    assert len({s.value for s in scores}) > 1  # the rows do tell responses apart


EQUATIONS = {
    "arena": lambda c: c["format"] + c["accuracy"] + c["relevance"] + c["bonus"],
    "naive-grpo": lambda c: c["format"] + c["accuracy"],
    "ground-grpo-stage1": lambda c: sum(c.values()),
    "ground-grpo": lambda c: sum(c.values()),
    "lear": lambda c: 0.8 * c["answer"] + 0.1 * c["length"] + 0.1 * c["format"],
    "truthrl": lambda c: c["outcome"],
    "ctrl-rag": lambda c: c["clr_normalized"] * c["accuracy"],
    "ctrl-rag-clr": lambda c: c["clr"],
    "rag-total": lambda c: 0.5 * c["citation_recall"] + 0.5 * c["accuracy"],
    "search-r1": lambda c: c["outcome"],
    "igpo": lambda c: c["outcome"] + (c["info_gain"] or 0),
    "binary-rar": lambda c: c["consistent"],
    "canoe": lambda c: sum(c.values()),
    "s3": lambda c: c["accuracy"] - c["baseline"],
    "dr-tulu": lambda c: (
        0.5 * c["rubric"] + 0.2 * c["citation"] + 0.2 * c["format"] + 0.1 * c["searches"]
    ),
    "rubric": lambda c: c["rubric"],
    "ruler": lambda c: c["group"],
    "rlcr": lambda c: (c["format"] * (1 + c["accuracy"]) + c["calibration"]) / 2,
    "rag-env": lambda c: (
        c["outcome"] * (1 + 0.3 * c["citation"] + 0.2 * c["brevity"]) + 0.3 * c["hit"]
    ),
    "hiprag": lambda c: (
        0.8 * c["outcome"]
        + 0.2 * c["format"]
        + 0.4 * c["outcome"] * c["format"] * (c["steps"] or 0)
    ),
    "stepsearch": lambda c: (
        c["answer"]
        + 0.618 * (c["search_keys"] or 0)
        + 0.6 * ((c["gain"] or 0) - (c["redundancy"] or 0))
    ),
}


@pytest.mark.parametrize(
    ("name", "component"),
    [("ctrl-rag", "evidential_contribution"), ("ground-grpo", "citation")],
)
def test_the_rows_reach_negative_values(name, component):
    values = [score.components[component] for score in recipe(name)(rows(name))]
    assert min(values) < 0


@pytest.mark.parametrize("name", sorted(EQUATIONS))
def test_the_reward_is_the_equation_over_the_components(name):
    for score in recipe(name)(rows(name)):
        assert score.value == pytest.approx(EQUATIONS[name](score.components))


@each_recipe
def test_order_does_not_matter(name):
    scheme, inputs = recipe(name), rows(name)
    straight = flat(scheme(inputs))
    for seed in range(6):
        order = random.Random(seed).sample(range(len(inputs)), len(inputs))
        assert [straight[i] for i in order] == flat(scheme([inputs[i] for i in order]))


@each_recipe
@each_profile
def test_scoring_is_pure(name, hardened):
    scheme = recipe(name, hardened=hardened)
    inputs = rows(name, scheme)
    before = msgspec.json.encode(inputs)
    first = flat(scheme(inputs))
    assert flat(scheme(inputs)) == first
    assert msgspec.json.encode(inputs) == before
    again = msgspec.json.decode(before, type=list[Rollout])
    assert flat(recipe(name, hardened=hardened)(again)) == first


@each_recipe
def test_a_rollout_scope_recipe_scores_one_as_it_scores_many(name):
    scheme, inputs = recipe(name), rows(name)
    if scheme.scope == "rollout":
        assert [flat(scheme([r]))[0] for r in inputs] == flat(scheme(inputs))
    else:
        whole = dict(zip([r.id for r in inputs], flat(scheme(inputs)), strict=True))
        for group in {r.group for r in inputs}:
            members = [r for r in inputs if r.group == group]
            assert flat(scheme(members)) == [whole[r.id] for r in members]


def test_the_recipes_with_group_scope():
    assert [n for n in RECIPES if recipe(n).scope == "group"] == ["ctrl-rag", "ruler", "carr"]


@each_recipe
@each_profile
def test_recipes_and_rollouts_pickle(name, hardened):
    scheme = recipe(name, hardened=hardened)
    inputs = rows(name, scheme)
    first = flat(scheme(inputs))
    copy, again = pickle.loads(pickle.dumps((scheme, inputs)))  # noqa: S301
    assert flat(copy(again)) == first
    assert flat(copy(inputs)) == first
    assert copy.signature == scheme.signature
    assert again == inputs
    parts = (*scheme.components, scheme.total, *filter(None, [scheme.correct]))
    for part, unpickled in zip(parts, pickle.loads(pickle.dumps(parts)), strict=True):  # noqa: S301
        assert [s.value for s in unpickled(again)] == [s.value for s in part(inputs)]


@each_recipe
def test_recipes_are_rewards(name):
    scheme = recipe(name)
    assert isinstance(scheme, Reward)
    inputs = rows(name)
    halved = Sum(((0.5, scheme),))
    assert halved.scope == scheme.scope
    assert [s.value for s in halved(inputs)] == pytest.approx([s.value / 2 for s in scheme(inputs)])


# --- settings, signature, hardened profile ------------------------------------------------------


# Another value of each setting, which must change the signature.
def other(setting):
    default, choices = setting.default, setting.type.split(" | ")
    particular = {
        "verifier": "f1>=0.5",
        "answers": ["f"],
        "length.tokenizer": str(CHECKPOINT),
        "template": "plain",
        "truncated": "verifier",
        "empty": 0,
        "criteria": [{"criterion": "Names Paris."}],
        "rubric.criteria": [{"criterion": "Names Paris."}],
        **({"reads": "response"} if "response" in choices else {}),
    }
    if setting.key in particular:
        return particular[setting.key]
    if isinstance(default, bool):
        return not default
    if isinstance(default, (int, float)):
        return default + 1 if isinstance(default, int) else default / 2 + 0.125
    if isinstance(default, tuple):
        return [*default, "No idea."]
    return next(v for v in choices if v != default) if len(choices) > 1 else default + "?"


@each_recipe
def test_the_signature_contains_every_changed_setting(name):
    plain = recipe(name).signature
    assert plain == f"rag-rewards {__version__} {name}"
    seen = {plain}
    for setting in RECIPES[name].settings.descriptions:
        changed = recipe(name, {setting.key: other(setting)}).signature
        assert changed.startswith(f'{plain} {{"settings":{{"{setting.key}":')
        assert changed not in seen, setting.key
        assert changed.isprintable()
        seen.add(changed)
    assert recipe(name).signature == plain
    assert recipe(name, hardened=True).signature == f"{plain} hardened"


@each_recipe
def test_every_setting_has_a_description(name):
    settings = RECIPES[name].settings.descriptions
    assert settings
    for setting in settings:
        assert setting.doc, setting.key
        assert setting.source, setting.key
        assert setting.type, setting.key


@each_recipe
def test_the_hardened_profile_changes_only_settings(name):
    definition = RECIPES[name]
    defaults = {s.key: s.default for s in definition.settings.descriptions}
    assert definition.hardened
    for key, change in definition.hardened.items():
        assert key in defaults
        assert change.value != defaults[key]
        assert change.why
    by_hand = recipe(name, definition.hardened_values)
    hardened = recipe(name, hardened=True)
    assert by_hand.signature == hardened.signature
    inputs = rows(name, hardened)
    assert flat(by_hand(inputs)) == flat(hardened(inputs))


@each_recipe
def test_settings_take_precedence_over_the_hardened_profile(name):
    key = next(iter(RECIPES[name].hardened))
    default = next(s.default for s in RECIPES[name].settings.descriptions if s.key == key)
    scored = recipe(name, {key: default}, hardened=True)
    assert scored.signature != recipe(name, hardened=True).signature
    for part in key.split(".")[:-1]:
        assert recipe(name, {part: {key.split(".")[-1]: default}}, hardened=True).signature == (
            scored.signature
        )


@each_recipe
def test_definitions_are_complete(name):
    definition = RECIPES[name]
    assert definition.summary
    assert definition.source
    assert definition.output
    assert definition.loopholes
    assert recipe(name).equation
    assert build_recipe(definition, definition.defaults()).name == name


# --- special rows -------------------------------------------------------------------------------


@each_recipe
def test_the_prefix_is_part_of_the_response(name):
    scheme = recipe(name)
    for text in RESPONSES:
        if text.startswith("<think>"):
            whole = with_varied_evidence(scheme, Rollout(response=text, **ROW))
            opened = msgspec.structs.replace(
                whole, response=text.removeprefix("<think>"), response_prefix="<think>"
            )
            assert flat(scheme([opened])) == flat(scheme([whole]))


@each_recipe
@pytest.mark.parametrize(
    "end",
    [
        "<|im_end|>",
        "</s>",
        "<|eot_id|>\n",
        "<eos><eos>",
        "<|im_end|>\n<|endoftext|>",
    ],
)
def test_end_of_sequence_text_changes_nothing(name, end):
    scheme = recipe(name)
    inputs = rows(name)
    ended = [msgspec.structs.replace(r, response=r.response + end) for r in inputs]
    assert flat(scheme(ended)) == flat(scheme(inputs))


@each_recipe
def test_tool_turns_never_count(name):
    settings = {"reads": "visible"} if name == "ruler" else None
    scheme = recipe(name, {"dialect": "search-r1"} if reads_turns(name) else settings)
    tool = RESPONSES[0] + RESPONSES[1] + RESPONSES[3] + RESPONSES[4]
    for plain in rows(name, scheme):
        chat = [
            Message("user", "Capital?"),
            Message("assistant", tool),
            Message("tool", tool),
            Message("assistant", plain.response),
            Message("tool", tool),
            Message("user", tool),
        ]
        plain = with_varied_evidence(scheme, plain)
        talked = msgspec.structs.replace(plain, response=chat)
        if reads_turns(name):
            (score,) = scheme([with_varied_evidence(scheme, talked)])
            (alone,) = scheme([plain])
            # The information gain of IGPO is that of all turns.
            assert score.components.get("outcome") == alone.components.get("outcome")
            info_gain = score.components.get("info_gain") or 0.0
            if name != "ikea":  # an earlier turn can contain the thinking
                assert score.value == pytest.approx(alone.value + info_gain)
            assert score.details["searches"] == 0
        else:
            assert flat(scheme([talked])) == flat(scheme([plain]))


@each_recipe
def test_truncated_responses_are_scored(name):
    scheme = recipe(name, {"truncated": "verifier"} if name == "binary-rar" else None)
    for text in RESPONSES[:4]:
        torn = Rollout(response=text[: len(text) // 2], finish_reason="length", **ROW)
        whole = msgspec.structs.replace(torn, finish_reason=None)
        (cut,), (stopped,) = (
            scheme([with_varied_evidence(scheme, torn)]),
            scheme([with_varied_evidence(scheme, whole)]),
        )
        if reads_turns(name):  # the details name the turn that was truncated
            assert (cut.value, cut.components) == (stopped.value, stopped.components)
        else:
            assert flat([cut]) == flat([stopped])


@each_recipe
def test_rows_with_explicit_nulls(name):
    scheme = recipe(name)
    for inputs in (with_varied_evidence(scheme, each) for each in rows(name)):
        narrow = {k: v for k, v in msgspec.to_builtins(inputs).items() if v is not None}
        wide = {field: narrow.get(field) for field in Rollout.__struct_fields__}
        wide["documents"] = [
            {"id": None, "title": None, "text": None, "supports": None} | d
            for d in narrow["documents"]
        ]
        if wide["logprobs"]:
            others = {"3": None} | wide["logprobs"]["without"]
            wide["logprobs"] = wide["logprobs"] | {"without": others}
        wide["verdicts"] = {"unasked": None} | (wide["verdicts"] or {})
        assert flat(scheme([decode_row(wide)])) == flat(scheme([inputs]))
        assert flat(scheme([decode_row(msgspec.json.encode(wide))])) == flat(scheme([inputs]))


@each_recipe
def test_a_row_with_only_a_response_is_an_error(name):
    with pytest.raises(DataError) as caught:
        recipe(name)([Rollout(response="x", id=7)])
    assert caught.value.row == "7"
    fields = {"answers", "supporting", "answerable", "documents", "rubrics", "rubric"}
    assert caught.value.path in fields | {"verdicts.group"}
    assert str(caught.value).startswith(f"row 7: {caught.value.path}: missing")


# --- errors of single rows ----------------------------------------------------------------------


def test_a_row_in_error_does_not_affect_other_rows():
    scheme = recipe("naive-grpo")
    good = Rollout(response="<answer>x</answer>", answers="x", id="a")
    bad = Rollout(response="x", id="b")
    results = scheme.score_each([good, bad, good])
    assert [type(r) for r in results] == [Score, DataError, Score]
    assert str(results[1]) == "row b: answers: missing"
    with pytest.raises(DataError, match="row b: answers: missing"):
        scheme([good, bad])


def test_a_row_in_error_fails_its_group_in_group_scope():
    scheme = recipe("ctrl-rag")
    inputs = rows("ctrl-rag")
    broken = msgspec.structs.replace(inputs[4], logprobs=LogProbs(full=(0.5,), without={}))
    results = scheme.score_each([*inputs[:4], broken, *inputs[5:]])
    whole = flat(scheme(inputs))
    for i, result in enumerate(results):
        if i == 4:
            assert isinstance(result, EvidenceError)
            assert str(result).startswith("row 4: logprobs.full[0]: a log-probability is at most 0")
        elif i % 3 == 1:
            assert isinstance(result, GroupError)
            assert str(result).startswith(f"row {i}: the group contains a row in error (row 4: log")
        else:
            assert flat([result]) == [whole[i]]


def test_two_members_in_error_keep_their_own_errors():
    scheme = recipe("ctrl-rag")
    inputs = rows("ctrl-rag")[:6:3]
    broken = [msgspec.structs.replace(r, logprobs=None) for r in inputs]
    assert [type(r) for r in scheme.score_each(broken)] == [DataError, DataError]


class Panic(BaseException):
    """As pyo3's PanicException: not an Exception."""


def panics_on(text, error):
    def reward(rollout):
        if text in rollout.parsed.text:
            raise error
        return 1.0

    return reward


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Panic("byte index 10\nis no boundary"), "Panic: byte index 10 is no boundary"),
        (Panic(), "Panic"),
        (TypeError("no number"), "TypeError: no number"),
        (RecursionError("too deep"), "RecursionError: too deep"),
    ],
    ids=repr,
)
def test_an_exception_while_scoring_is_the_error_of_its_rollout(error, message):
    own = custom("own", panics_on("bad", error))
    inputs = [Rollout(response=text, id=i) for i, text in enumerate(["good", "bad", "good"])]
    results = own.score_each(inputs)
    assert [type(result) for result in results] == [Score, ScoringError, Score]
    assert str(results[1]) == f"row 1: {message}"
    assert results[1].__cause__ is error
    with pytest.raises(ScoringError, match=r"^row 1: "):
        own(inputs)


def test_an_exception_while_scoring_fails_only_its_group():
    own = custom("own", GroupMinMax(panics_on("bad", Panic("no boundary"))))
    inputs = [Rollout(response=text, group=text[-1]) for text in ("good 1", "bad 1", "good 2")]
    results = own.score_each(inputs)
    assert [type(result) for result in results] == [GroupError, ScoringError, Score]
    assert str(results[0]) == "the group contains a row in error (Panic: no boundary)"


def test_an_exception_of_a_whole_group_is_the_error_of_each_member():
    class Fussy:
        name, scope = "fussy", "group"

        def needs(self, rollout):
            return []

        def __call__(self, rollouts):
            if len(rollouts) > 1:
                raise Panic("too many")
            return [Score(1.0)]

    own = custom("fussy-recipe", Fussy())
    inputs = [Rollout(response="", group=group, id=group) for group in "aab"]
    results = own.score_each(inputs)
    assert [type(result) for result in results] == [ScoringError, ScoringError, Score]
    assert [str(result) for result in results[:2]] == ["row a: Panic: too many"] * 2


def test_an_exception_while_a_recipe_lists_its_needs_is_a_rollout_error():
    class Needy:
        name, scope = "needy", "rollout"

        def needs(self, rollout):
            raise Panic("no boundary")

        def __call__(self, rollouts):
            return [Score(1.0) for _ in rollouts]

    with pytest.raises(ScoringError, match=r"^Panic: no boundary$"):
        custom("needy", Needy()).needs(Rollout(response=""))


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), SystemExit(2), GeneratorExit(), CancelledError(), UsageError("x")],
)
def test_exceptions_that_end_a_run_pass_through(error):
    with pytest.raises(type(error)) as caught:
        custom("own", panics_on("", error)).score_each([Rollout(response="")])
    assert caught.value is error


def test_errors_survive_pickling():
    error = recipe("arena").score_each([Rollout(response="x", id=3)])[0]
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (str(copy), copy.path, copy.row) == (str(error), error.path, "3")


# --- custom recipes -----------------------------------------------------------------------------


def brief(rollout):
    return 1.0 / (1 + len(rollout.parsed.text))


def test_a_function_is_a_recipe():
    own = custom("brief", brief)
    score = own([Rollout(response="abc")])[0]
    assert (score.value, score.components, score.correct) == (0.25, {"brief": 0.25}, None)
    assert own.identity.settings.keys() == {"code_digest", "formula", "parts"}
    assert pickle.loads(pickle.dumps(own))([Rollout(response="abc")]) == [score]  # noqa: S301


def test_a_composition_of_recipes_and_functions_is_a_recipe():
    naive = recipe("naive-grpo")
    own = custom("mine", Sum(((1.0, naive), (-2.0, brief))), correct=naive.correct)
    row = Rollout(response="<think>t</think><answer>Paris</answer>", answers="Paris")
    score = own([row])[0]
    # 38 characters: 2 − 2/39
    assert score.value == pytest.approx(2 - 2 / 39)
    parts = {"naive-grpo": 2.0, "brief": 1 / 39}
    inner = {"naive-grpo/format": 1.0, "naive-grpo/accuracy": 1.0, "naive-grpo/correct": 1.0}
    assert score.components == pytest.approx(parts | inner)
    assert score.correct == 1.0
    assert own.equation == "naive-grpo − 2·brief"
    assert own.name == "mine"
    assert " mine " in own.signature


def test_facts_of_nested_compositions_are_read_once(monkeypatch):
    calls, facts_of = [], recipe_object._facts_of
    monkeypatch.setattr(
        recipe_object, "_facts_of", lambda each: (calls.append(each), facts_of(each))[1]
    )
    nested = recipe("naive-grpo")
    for _ in range(8):
        nested = custom("mine", nested)
    assert nested.output_form == recipe("naive-grpo").output_form
    assert nested.prompt == recipe("naive-grpo").prompt
    assert len(calls) == 2


def test_custom_group_rewards():
    own = custom("scaled", GroupMinMax(brief), components=[brief])
    assert own.scope == "group"
    inputs = [Rollout(response="a" * n, group="g") for n in (1, 3)]
    assert [s.value for s in own(inputs)] == [pytest.approx(1.0), 0.0]
    assert [s.components for s in own(inputs)] == [{"brief": 0.5}, {"brief": 0.25}]


def test_a_component_that_compares_rollouts_gets_the_groups_of_the_caller():
    def length(rollout):
        return float(len(rollout.parsed.text))

    own = custom("own", length, components=[GroupMinMax(length, label="scaled")])
    assert own.scope == "rollout"
    inputs = [Rollout(response="a" * n) for n in (1, 2, 3)]
    scores = own.score_each(inputs, [[0, 1, 2]])
    assert [s.components["scaled"] for s in scores] == pytest.approx([0.0, 0.5, 1.0])


def test_a_reward_that_fails_only_on_groups():
    class Fussy:
        name, scope = "fussy", "group"

        def needs(self, rollout):
            return []

        def __call__(self, rollouts):
            if len(rollouts) > 1:
                raise DataError("too many", "x")
            return [Score(1.0)]

    own = custom("fussy-recipe", Fussy())
    with pytest.raises(UsageError, match="recipe fussy-recipe fails on a group"):
        own([Rollout(response="", group="g")] * 2)


def test_unscored_is_null_and_not_zero():
    own = custom("silent", lambda rollout: None)
    assert own([Rollout(response="")])[0] == Score(None, {"<lambda>": None})
