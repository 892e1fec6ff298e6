"""What a careful person reads in an answer, form by form, where answers are tricky too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fsd_core.tasks import Example
from fsd_core.tasks.choices import chosen_letter
from fsd_core.tasks.custom.scorers import get_scorer
from fsd_core.tasks.readings import final_number, own_turn, stated_number
from fsd_plugins.code.programs import block

FORMS = [json.loads(line) for line in Path("tests/forms/readings.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("form", FORMS, ids=[f"{form['kind']}-{form['text'][:40]}" for form in FORMS])
def test_an_answer_as_a_careful_person_reads_it(form: dict[str, str]) -> None:
    text = form["text"]
    if form["kind"] in ("choice", "number"):
        read = chosen_letter(text) if form["kind"] == "choice" else final_number(text)
    else:
        scorer = get_scorer(form["kind"])
        read = scorer.judge(text, Example("one", "?", scorer.read(form["reference"])), "eos").outcome
    assert read == form["reading"], form["why"]


@pytest.mark.parametrize(("reference", "read"), [("5", "5"), ("5000", "5000"), ("6", "5000")])
def test_a_sum_of_thousands_is_read_as_its_question_asks(reference: str, read: str) -> None:
    assert stated_number("It costs $5k.", reference) == read


@pytest.mark.parametrize("text", ["#### 28 = 4", "The answer is 28 (4", "Bees fly.\nA", "Bees fly.\n(A) a be"])
def test_a_text_that_was_cut_off_has_no_answer_that_may_go_on(text: str) -> None:
    assert final_number(text, cut=True) is None
    assert chosen_letter(text, cut=True) is None


def test_a_text_ends_before_the_first_turn_that_is_not_its_own() -> None:
    assert own_turn("<|im_start|>assistant\n5<|im_end|>") == ("<|im_start|>assistant\n5", True)
    assert own_turn("\nQuestion: 4 + 4?\n8") == ("\nQuestion: 4 + 4?\n8", False)
    assert own_turn("Ask the Human: 5") == ("Ask the Human: 5", False)


NUMBERS = (
    # as people of several countries write them
    ("The total is 1.234,50 €.", "1234.5"),
    ("#### 1.234.567,89", "1234567.89"),
    ("The answer is 12,50 €.", "12.5"),
    ("It costs €12,50.", "12.5"),
    ("He has 1'234 coins.", "1234"),
    ("#### 1’234’567", "1234567"),
    ("The answer is 1 234.", "1234"),
    ("#### 12\u202f500", "12500"),
    ("#### 1\u00a0234\u00a0567", "1234567"),
    ("They need 1,00,000 rupees.", "100000"),
    ("#### 12,34,567", "1234567"),
    ("The answer is Rs. 500.", "500"),
    ("It is USD 1,200.", "1200"),
    ("The answer is 1.234 kg.", "1.234"),  # as in English
    ("#### 1,234", "1234"),
    # in words
    ("The answer is minus 7.", "-7"),
    ("It is negative 7 degrees", "-7"),
    ("#### minus 7", "-7"),
    ("10 minus 7 is 3.", "3"),
    ("We take 10 minus 7", "7"),
    ("About 3 million people.", "3000000"),
    ("The answer is 2.5 billion.", "2500000000"),
    ("#### 7 hundred", "700"),
    # powers and products of ten
    ("The answer is 2e3.", "2000"),
    ("#### 1.5e-3", "0.0015"),
    ("It is 6 × 10^4 m.", "60000"),
    (r"The answer is $3 \times 10^{5}$.", "300000"),
    ("#### 2·10³", "2000"),
    ("The answer is 2^4 = 16.", "16"),
    ("There are 2^10 of them.", "1024"),
    ("So 10⁵.", "100000"),
    # what stands in a unit is no number
    ("The acceleration is 9.8 m/s^2.", "9.8"),
    ("The acceleration is 9.8 m/s².", "9.8"),
    ("The area is 25 cm2.", "25"),
    ("The volume is 8 m^3", "8"),
    ("It makes 44 grams of CO2.", "44"),
    ("COVID-19", "19"),
    # an equation behind the mark
    ("The answer is 5 apples + 3 apples = 8 apples.", "8"),
    ("The answer is 3 * (4 + 1) = 15", "15"),
    # taken back
    ("The answer is 20. Wait, no, it should be 18.", "18"),
    ("#### 20\nWait, I forgot two.\n#### 18", "18"),
    ("It is 20. Sorry, it should be 18, not 20.", "18"),
    ("#### 20\nOops, it's 18.", "18"),
    ("The answer is 20. Actually, that is 4 less than 24.", "20"),
    ("#### 18\nWait, let me check: 20 - 2 = 18. Good.", "18"),
    ("#### 7\n#### 8", "7"),  # repeated, not taken back
    # as before
    ("The total is 3 hours and 30 minutes, so the answer is 210 minutes", "210"),
    ("He pays 50% of 90, which is 45.", "45"),
    ("He has 3 100 times", "3100"),
    ("1, 2, 3", "3"),
    ("on 12/25/2020", "2020"),
)

CHOICES = (
    # options discussed before the answer
    ("A is wrong because ice floats; C is right.", "C"),
    ("A is incorrect. B is incorrect. C is the best answer.", "C"),
    ("Both A and C are plausible, but B is best.", "B"),
    ("A and B can be ruled out, so it must be D.", "D"),
    ("Option A is wrong and option B too. Option C fits.", "C"),
    ("It is not A but B.", "B"),
    ("Not A, but rather C.", "C"),
    ("A) is too cold, B) is too hot. D makes the most sense.", "D"),
    ("C seems the most likely.", "C"),
    ("D looks right to me.", "D"),
    ("The answer is not A but D.", "D"),
    # said as people say it
    ("I would go with B.", "B"),
    ("I'd go with option D", "D"),
    ("It's B", "B"),
    ("It’s C.", "C"),
    ("My pick is E", "E"),
    ("<answer>B</answer>", "B"),
    ("<answer>\n(C)\n</answer> of A to D", "C"),
    ("I settle on D.", "D"),
    ("That leaves C.", "C"),
    ("The correct option: B", "B"),
    ("A is the right one", "A"),
    ("B is the correct choice", "B"),
    # taken back
    ("The answer is B. Wait, no, the answer is C.", "C"),
    ("B. Actually, it's D.", "D"),
    ("The answer is A. Sorry, I meant C: the answer is C", "C"),
    (r"\boxed{A}. Hold on: \boxed{B}", "B"),
    ("The answer is B. Actually, A dog is also an animal.", "B"),
    # no choice at all
    ("All of them are wrong.", None),
    ("A is wrong.", None),
    ("I am not sure.", None),
    ("It is hard to say", None),
)


@pytest.mark.parametrize(("text", "number"), NUMBERS)
def test_a_number_as_a_person_reads_it(text: str, number: str) -> None:
    assert final_number(text) == number


@pytest.mark.parametrize(("text", "letter"), CHOICES)
def test_a_choice_as_a_person_reads_it(text: str, letter: str | None) -> None:
    assert chosen_letter(text) == letter


@pytest.mark.parametrize(
    ("text", "reference", "number"),
    [
        ("There are 4 million left.", "4", "4"),  # "how many millions?"
        ("There are 4 million left.", "4000000", "4000000"),
        ("There are 4 million left.", "5", "4000000"),
        ("There are 4 million left.", None, "4000000"),
    ],
)
def test_a_number_with_its_scale_is_read_as_its_question_asks(text: str, reference: str | None, number: str) -> None:
    assert stated_number(text, reference) == number


COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"


@pytest.mark.parametrize(
    ("scorer", "reference", "text", "right"),
    [
        ("exact", COMPOSED, DECOMPOSED, True),
        ("exact", DECOMPOSED, COMPOSED, True),
        ("exact", COMPOSED, "cafe", False),
        ("contains", DECOMPOSED, f"in a {COMPOSED.upper()}", True),
        ("contains", COMPOSED, "a cafe", False),
        ("regex", r"(?m)^yes$", "I say\r\nyes\r\nand no", True),
        ("regex", "yes$", "yes\r\n", True),
        ("regex", "a\nb", "a\r\nb", True),
    ],
)
def test_a_text_as_a_person_reads_it(scorer: str, reference: str, text: str, right: bool) -> None:
    judge = get_scorer(scorer)
    score = judge.judge(text, Example("one", "?", judge.read(reference)), "eos")
    assert score.outcome == ("correct" if right else "wrong")


FENCE = "```"
TWICE, USES = "def twice(x):\n    return 2 * x\n", "def f(x):\n    return twice(x)\n"
DOCSTRING = f'''def f(x):
    """Double it.

    {FENCE}
    f(1)
    {FENCE}
    """
    return 2 * x
'''


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        (f"1. So:\n   {FENCE}python\n   def f(x):\n       return 2 * x\n   {FENCE}", True),
        (f"- {FENCE}python\n  def f(x):\n      return 2 * x\n  {FENCE}", True),
        (f"{FENCE}python\n{DOCSTRING}{FENCE}\nIt doubles.", True),
        (f"A helper:\n{FENCE}python\n{TWICE}{FENCE}\nand\n{FENCE}\n{USES}{FENCE}", True),
        (f"{FENCE}\n{USES}{FENCE}\nwith\n{FENCE}\n{TWICE}{FENCE}", True),
        (f"{FENCE}\nfrom operator import mul\n{FENCE}\n{FENCE}\ndef f(x):\n    return mul(2, x)\n{FENCE}", True),
        (f"{FENCE}\ndef f(x):\n    return 2 * x\n{FENCE}\nUse it:\n{FENCE}\nprint(f(1) / 0)\n{FENCE}", True),
        (f"{FENCE}\ndef f(x):\n    return 2 * x\n{FENCE}\nor\n{FENCE}\ndef f(x):\n    return x\n{FENCE}", True),
        (f"{FENCE}\ndef f(x):\n    return x\n{FENCE}", False),
        (f'{FENCE}\ndef f(x):\n    return 2 * x  # """\n{FENCE}\nIt doubles.', True),
    ],
)  # fmt: skip
def test_the_code_of_an_answer_as_a_person_copies_it(text: str, runs: bool) -> None:
    code, names = block(text, ["f"]), {}
    assert code is not None
    exec(code, names)
    assert (names["f"](3) == 6) is runs
