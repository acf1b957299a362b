"""Gold answers that statements and documents contain as whole words."""

from __future__ import annotations

import pytest

from rag_rewards.matching.mentions import agrees, mentioned_answers, stated_answers


@pytest.mark.parametrize("gold", [["Paris"], ["東京"], [["Paris"], ["東京"]]])
def test_private_characters_of_a_document_are_no_gold_answer(gold: list[str]) -> None:
    document = "The capital \ue000 is \ue001 large."
    assert not any(mentioned_answers(document, gold))
    assert not agrees("The capital is Paris 東京.", gold, "", [document])


def test_an_alias_without_spaces_is_found_beside_private_characters() -> None:
    assert mentioned_answers("日本の首都は\ue001東京です", [["東京"], ["京都"]]) == [True, False]
    assert stated_answers("日本の首都は東京です", [["東京"], ["京都"]]) == [True, False]
