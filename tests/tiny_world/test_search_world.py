"""The tiny search world: episodes, searches, the demonstrator, rollouts and the base policy."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter

import pytest
import torch
from tiny_search.base import (
    NEW_WORDS,
    base,
    extended,
    load_search,
    new_search_tokenizer,
    supervised_batch,
)
from tiny_search.demonstrator import GUESSING, NOISY, RIGHT, demonstrate
from tiny_search.episode import Episode, draw_episode, episodes
from tiny_search.likelihoods import BatchPolicy
from tiny_search.measures import measures_of
from tiny_search.rollouts import TURN_TOKENS, Trajectory, trajectories

import rag_rewards as rr
from rag_rewards.errors import UsageError
from rag_rewards.evidence.protocols import ScoreRequest
from rag_rewards.models.transformers import TransformersPolicy
from rag_rewards.tiny_world.model import CHECKPOINT, END, PAD, load
from rag_rewards.tiny_world.world import FLOWERS, PEOPLE

EPISODE = Episode({"Ada": "Ben", "Ben": "rose", "Tom": "ivy", "Eva": "Fay", "Fay": "fern"}, "Ada")


@pytest.fixture(scope="module")
def untrained():
    torch.set_num_threads(1)
    return extended(seed=3)


def play(text, episode=EPISODE, seed=0):
    """Return the rollout of a policy that writes these words."""
    trajectory = Trajectory(episode, random.Random(seed))
    for word in text.split():
        trajectory.advance(word, -1.0)
        while trajectory.is_waiting:
            trajectory.advance(PAD, -1.0)
    return trajectory


def behavior(trajectory):
    """Return which people a rollout searches for, from its turns alone."""
    named = {trajectory.episode.person: "person", trajectory.episode.friend: "friend"}
    queries = [query for turn in trajectory.rollout().steps() for query in turn.queries]
    return tuple(named.get(query, "other") for query in queries)


# --- episodes and searches -----------------------------------------------------------------------


def test_episodes_are_the_same_for_the_same_seed():
    assert episodes(20, "x") == episodes(20, "x") != episodes(20, "y")
    assert episodes(2, 0) == episodes(3, 0)[:2]


def test_an_episode_has_six_chains_and_six_loose_facts():
    for each in episodes(200, 1):
        links = {who: what for who, what in each.facts.items() if what in PEOPLE}
        flowers = [what for what in each.facts.values() if what in FLOWERS]
        assert len(links) == 6
        assert len(flowers) == len(set(flowers)) == 12
        assert all(each.facts[friend] in FLOWERS for friend in links.values())
        assert each.person in links
        assert each.answer == each.facts[each.facts[each.person]]


def test_facts_are_drawn_anew():
    answers = Counter(each.answer for each in episodes(3_000, 2) if each.person == "Ada")
    assert max(answers.values()) < 0.15 * sum(answers.values())


def test_a_search_returns_the_fact_and_one_other_in_random_order():
    rng, others, first = random.Random(0), Counter(), 0
    for _ in range(2_000):
        found = EPISODE.retrieve("Ben", rng)
        assert len(found) == 2
        assert ("Ben", "rose") in found
        others.update(who for who, _ in found if who != "Ben")
        first += found[0][0] == "Ben"
    assert set(others) == set(EPISODE.facts) - {"Ben"}
    assert min(others.values()) > 400
    assert 900 < first < 1_100


@pytest.mark.parametrize("query", ["rose", "Zoe", "Ada Ben", "", "ada", "<search> Ada"])
def test_another_query_finds_nothing(query):
    assert EPISODE.retrieve(query, random.Random(0)) == []


def test_a_weak_search_engine_returns_the_same_documents_to_all_rollouts():
    (each,) = episodes(1, 4, 0.5)
    for query in each.facts:
        results = {tuple(each.retrieve(query, random.Random(seed))) for seed in range(20)}
        assert len(results) == 1
    assert each.retrieve("Zoe Ada", random.Random(0)) == []


@pytest.mark.parametrize("recall", [0.3, 0.7])
def test_a_weak_search_engine_finds_the_fact_with_the_probability_of_its_recall(recall):
    """The two hops of a question hit independently. A miss returns two other facts."""
    drawn, hits, first = episodes(3_000, 5, recall), Counter(), 0
    assert [each.facts for each in drawn[:9]] == [each.facts for each in episodes(9, 5)]
    for each in drawn:
        found = [each.retrieve(query, random.Random(0)) for query in (each.person, each.friend)]
        assert all(len(set(documents)) == 2 for documents in found)
        assert all(each.facts[who] == what for documents in found for who, what in documents)
        hit = [
            (who, each.facts[who]) in found[i] for i, who in enumerate((each.person, each.friend))
        ]
        hits[sum(hit)] += 1
        first += found[0][0][0] == each.person
    assert hits[2] / 3_000 == pytest.approx(recall**2, abs=0.03)
    assert hits[0] / 3_000 == pytest.approx((1 - recall) ** 2, abs=0.03)
    assert first / 3_000 == pytest.approx(recall / 2, abs=0.03)


# --- rollouts ------------------------------------------------------------------------------------


def test_right_play_in_three_turns():
    done = play(
        "<search> Ada </search> <think> Ada Ben </think> <search> Ben </search> "
        "<think> Ben rose </think> <answer> rose </answer> <eos>"
    )
    assert done.ending == "stop"
    row = done.row()
    assert [turn["text"] for turn in row["turns"]] == [
        "<search> Ada </search>",
        "<think> Ada Ben </think> <search> Ben </search>",
        "<think> Ben rose </think> <answer> rose </answer>",
    ]
    steps = rr.decode_row(row).steps()
    assert [turn.queries for turn in steps] == [("Ada",), ("Ben",), ()]
    assert [turn.malformed for turn in steps] == [(), (), ()]
    assert steps[-1].answer == "rose"
    for turn, person in zip(steps, ("Ada", "Ben"), strict=False):
        assert len(turn.results) == 2
        assert person in {result.id for result in turn.results}


def test_spans_contain_the_own_words_and_nothing_else():
    done = play("<search> Ada </search> <search> Ben </search> <answer> rose </answer> <eos>")
    inside = {i for turn in done.turns for i in range(*turn["token_span"])}
    assert inside == {i for i, own in enumerate(done.own) if own}
    assert all(
        (logprob == -1.0) is own for logprob, own in zip(done.logprobs, done.own, strict=True)
    )


@pytest.mark.parametrize(
    ("text", "ending", "turns", "names"),
    [
        ("<search> Ada </search> " * 4, "max_turns", 4, set()),
        ("Ada " * TURN_TOKENS, "length", 1, {"truncated"}),
        ("<search> Ada <eos>", "stop", 1, {"unclosed_query"}),
        ("Ada </search> <answer> rose </answer> <eos>", "stop", 2, {"no_action"}),
        ("<search> </search> <answer> rose </answer> <eos>", "stop", 2, {"empty_query"}),
        ("<information> Ada Ben . <answer> rose </answer> <eos>", "stop", 1, {"forged_results"}),
        ("<eos>", "stop", 1, set()),
    ],
)
def test_malformed_rollouts_end_and_are_named(text, ending, turns, names):
    done = play(text)
    assert (done.ending, len(done.turns)) == (ending, turns)
    assert names <= {name for turn in done.rollout().steps() for name in turn.malformed}
    assert done.advance("rose", 0.0) == PAD


def test_the_same_seed_gives_the_same_rollouts(untrained):
    fixed = episodes(30, "twice")
    first, second, other = (
        [each.words for each in trajectories(*untrained, fixed, seed=seed)] for seed in (1, 1, 2)
    )
    assert first == second != other


def test_log_probabilities_are_those_of_a_forward_pass(untrained):
    model, tokenizer = untrained
    vocabulary = tokenizer.get_vocab()
    for each in trajectories(model, tokenizer, episodes(20, "logprobs"), seed=4):
        prompt = tokenizer(f"? {each.episode.person}")["input_ids"]
        ids = torch.tensor([prompt + [vocabulary[word] for word in each.words]])
        with torch.no_grad():
            whole = torch.log_softmax(model(input_ids=ids).logits[0, :-1], -1)
        expected = whole.gather(1, ids[0, 1:, None])[len(prompt) - 1 :, 0].tolist()
        for own, value, right in zip(each.own, each.logprobs, expected, strict=True):
            assert value == (pytest.approx(right, abs=1e-4) if own else 0.0)


def test_measures_of_rollouts():
    texts = (
        "<search> Ada </search> <search> Ben </search> <answer> rose </answer> <eos>",
        "<search> Ada </search> <search> Tom </search> <answer> ivy </answer> <eos>",
        "<search> Tom </search> <answer> rose </answer> <eos>",
        "<search> </search> <answer> fern </answer> <eos>",
    )
    assert measures_of([play(text) for text in texts]) == {
        "right": 0.5,
        "first query": pytest.approx(2 / 3),
        "second query": 0.5,
        "turns": 2.5,
        "malformed turns": 0.25,
    }
    assert measures_of([play("<answer> ivy </answer> <eos>")])["second query"] is None


# --- the demonstrator ----------------------------------------------------------------------------


@pytest.mark.parametrize("habits", [NOISY, RIGHT], ids=["noisy", "right"])
def test_shares_of_the_demonstrator(habits):
    shares = habits.shares
    assert sum(shares.values()) == pytest.approx(1.0)
    rng, count = random.Random(7), 4_000
    found = Counter(behavior(demonstrate(draw_episode(rng), rng, habits)) for _ in range(count))
    # The person of the other fact is the friend in 1 of 17 cases.
    chance = shares.get("distractor", 0.0) / 17
    expected = {
        (): shares.get("no search", 0.0),
        ("person",): shares.get("one hop", 0.0),
        ("person", "person"): shares.get("repeated query", 0.0),
        ("person", "friend"): shares["both hops"] + chance,
        ("person", "other"): shares.get("distractor", 0.0) - chance,
    }
    assert set(found) <= set(expected)
    for key, share in expected.items():
        assert found[key] / count == pytest.approx(share, abs=0.025)


def test_the_demonstrator_is_right_after_both_hops():
    rng = random.Random(8)
    done = [demonstrate(draw_episode(rng), rng, RIGHT) for _ in range(100)]
    assert measures_of(done) == {
        "right": 1.0,
        "first query": 1.0,
        "second query": 1.0,
        "turns": 3.0,
        "malformed turns": 0.0,
    }


@pytest.mark.parametrize(("habits", "least", "most"), [(NOISY, 0.6, 0.8), (GUESSING, 0.0, 0.1)])
def test_a_guessing_demonstrator_ignores_the_distractor(habits, least, most):
    """Of the facts about the distractor, 12 of 17 contain a flower, which a reader answers."""
    rng, answers = random.Random(10), []
    for _ in range(2_000):
        done = demonstrate(draw_episode(rng), rng, habits)
        if behavior(done) == ("person", "other"):
            *_, last = done.rollout().steps()
            answers.append(f" {last.answer} </think>" in last.text)
    assert least < sum(answers) / len(answers) < most


def test_only_own_words_have_labels():
    tokenizer = new_search_tokenizer()
    rng = random.Random(9)
    drawn = [demonstrate(draw_episode(rng), rng) for _ in range(20)]
    ids, labels = supervised_batch(tokenizer, drawn)
    for each, tokens, targets in zip(drawn, ids.tolist(), labels.tolist(), strict=True):
        own = [word for word, is_own in zip(each.words, each.own, strict=True) if is_own]
        kept = [i for i in targets if i != -100]
        assert tokenizer.convert_ids_to_tokens(kept) == own
        assert own[-1] == END
        assert all(target in (-100, i) for target, i in zip(targets, tokens, strict=True))


# --- the policy ----------------------------------------------------------------------------------


def test_four_words_are_added_and_the_checkpoint_does_not_change(untrained):
    before = {file.name: file.read_bytes() for file in CHECKPOINT.iterdir()}
    old_model, old_tokenizer = load()
    model, tokenizer = extended(seed=3)
    assert tokenizer.get_vocab() == old_tokenizer.get_vocab() | {
        word: len(old_tokenizer) + i for i, word in enumerate(NEW_WORDS)
    }
    table, old_table = (m.get_input_embeddings().weight for m in (model, old_model))
    assert len(table) == len(old_table) + 4
    assert torch.equal(table[:-4], old_table)
    assert torch.equal(table, untrained[0].get_input_embeddings().weight)
    assert not torch.equal(table, extended(seed=4)[0].get_input_embeddings().weight)
    assert {file.name: file.read_bytes() for file in CHECKPOINT.iterdir()} == before


def test_a_checkpoint_of_the_tiny_world_is_no_search_agent():
    with pytest.raises(UsageError, match=r"vocabulary is not that of the tiny world"):
        load_search(CHECKPOINT)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"does not contain a model; docs/tiny-world\.md explains"):
        load_search(tmp_path)


def test_damaged_weights_are_refused(untrained, tmp_path):
    for part in untrained:
        part.save_pretrained(tmp_path)
    load_search(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UsageError, match="cannot load the model"):
        load_search(tmp_path)


def test_the_policy_of_another_seed_is_refused(tmp_path):
    shutil.copy(CHECKPOINT / "made.json", tmp_path)
    (tmp_path / "made.json").write_text('{"seed": 1, "kind": "noisy"}')
    assert base(1, tmp_path) == tmp_path
    for seed, kind in ((2, "noisy"), (1, "guessing")):
        with pytest.raises(UsageError, match="contains another policy"):
            base(seed, tmp_path, kind)


def test_a_batch_has_the_values_of_separate_requests(untrained):
    model, tokenizer = untrained
    requests = [
        ScoreRequest(((1, 4, 9), (1, 4, 9, 20, 31)), ((40,), (41, 42, 43))),
        ScoreRequest(((1, 4, 10),), ((44, 45),), ((0, 0),)),
    ]
    together = asyncio.run(BatchPolicy(model, tokenizer).score(requests))
    apart = asyncio.run(TransformersPolicy(model, tokenizer).score(requests))
    for one, other in zip(together, apart, strict=True):
        assert set(one.logprobs) == set(other.logprobs)
        for pair, values in other.logprobs.items():
            assert list(one.logprobs[pair]) == pytest.approx(list(values), abs=1e-4)
