r"""LaTeX of a box as plain text, and the exact comparison of such a box."""

from __future__ import annotations

import pytest
from growth import assert_linear, sizes

import rag_rewards as rr
from rag_rewards.text.latex import plain_latex

PLAIN = (
    (r"\text{Oslo}", "Oslo"),
    (r"\textbf{Oslo}", "Oslo"),
    (r"\mathrm{Oslo}", "Oslo"),
    (r"\mathbb{R}", "R"),
    (r"\boldsymbol{x}", "x"),
    (r"\operatorname{Oslo}", "Oslo"),
    (r"\underline{Oslo}", "Oslo"),
    (r"\text{Jane}\ \text{Austen}", "Jane Austen"),
    (r"\text{Jane}~\text{Austen}", "Jane Austen"),
    (r"1{,}000", "1,000"),
    (r"25\,000", "25000"),
    (r"45\%", "45%"),
    (r"\$20", "$20"),
    (r"\text{Johnson \& Johnson}", "Johnson & Johnson"),
    (r"C\#", "C#"),
    (r"\dfrac{1}{2}", "1/2"),
    (r"\tfrac{3}{4}", "3/4"),
    (r"5\frac{1}{2}", "5 1/2"),
    (r"100^\circ\text{C}", "100 °C"),
    (r"45^{\circ}", "45°"),
    (r"5~\mathrm{km}", "5 km"),
    (r"N_{2}O", "N2O"),
    (r"5^{th}", "5th"),
    (r"10^{5}", "10^5"),
    (r"3\times10^8", "3×10^8"),
    (r"Andr\'{e}", "André"),
    (r"G\"odel", "Gödel"),
    (r"Fran\c{c}ois", "François"),
    (r"$Oslo$", "Oslo"),
    (r"\(Oslo\)", "Oslo"),
    # These stay as they are.
    ("Oslo", "Oslo"),
    ("$5 and $6", "$5 and $6"),
    ("$20", "$20"),
    (r"\sqrt{2}", r"\sqrt{2}"),
    ("C:\\users", "C:\\users"),
    (r"\text{Oslo", r"\text{Oslo"),
    ("a}", "a}"),
)


@pytest.mark.parametrize(("text", "expected"), PLAIN)
def test_plain_text(text: str, expected: str) -> None:
    assert plain_latex(text) == expected


def truth(box: str, gold: str, *, hardened: bool) -> float:
    rollout = rr.Rollout(response=rf"\boxed{{{box}}}", answers=gold)
    return rr.recipe("truthrl", {"verifier": "exact"}, hardened=hardened)([rollout])[0].value or 0


@pytest.mark.parametrize("hardened", [False, True])
@pytest.mark.parametrize(
    ("box", "gold"),
    [
        (r"\text{Paris}", "Paris"),
        (r"\text{ Paris }", "Paris"),
        (r"\mathbf{1815}", "1815"),
        (r"1{,}000", "1,000"),
        (r"\$20", "$20"),
        (r"45\%", "45%"),
        (r"\dfrac{1}{2}", "1/2"),
        (r"\frac{1}{2}", r"\frac{1}{2}"),
        (r"\text{New}\ \text{York}", "New York"),
        (r"\text{Andr\'e}", "André"),
    ],
)
def test_an_exact_box(box: str, gold: str, hardened: bool) -> None:
    assert truth(box, gold, hardened=hardened) == 1.0


@pytest.mark.parametrize(
    ("box", "gold"),
    [(r"10^{5}", "105"), (r"\text{Rome}", "Paris"), (r"\frac{1}{2}", "12"), (r"3.14", "314")],
)
def test_another_value_in_the_box(box: str, gold: str) -> None:
    assert truth(box, gold, hardened=True) == -1.0


@pytest.mark.parametrize("unit", ["\\text{", "{", "}", "\\", "\\frac{1}", "^{", "$", "\\'e", "{,}"])
@sizes(500_000)
def test_the_time_is_linear(largest: int, unit: str) -> None:
    assert_linear(lambda size: plain_latex(unit * (size // len(unit))), largest)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (r"10\textsuperscript{6}", "10^6"),
        (r"10\textsubscript {2}", "10_2"),
        ("10_{2}", "10_2"),
        (r"H\textsubscript{2}O", "H2O"),
        ("H_{2}O", "H2O"),
    ],
)
def test_raised_and_lowered_digits_do_not_continue_a_number(text, plain):
    assert plain_latex(text) == plain
