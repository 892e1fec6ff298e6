"""Every action, at every door: refused without its role, done once with a key, and told by its help."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
import typer.main

from dashboard.ui.api_call import answer_schema, call_of
from dashboard.web import all_actions
from fsd_core.actions import people
from fsd_core.actions.action import Ask, action, actions_in, do
from fsd_core.cli.action_commands import add_commands
from fsd_core.cli.commands import app
from fsd_core.errors import FsdError, Malformed, NotGiven, Refused, Taken, UnknownChoice
from fsd_core.roles import GUEST, LOCAL, ROLES, Person
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.repository import Repository
from fsd_core.texts import Secret
from tests.tools.plausible import add_finished

ACTIONS = {action.name: action for action in all_actions()}
ON_ACCOUNTS = {action.name: action for action in actions_in(people)}
EVERY = ACTIONS | ON_ACCOUNTS
Call = Callable[..., tuple[int, str, str]]
ANN, EVE = Person("Ann", "admin"), Person("Eve", "viewer")


def asking(repository: Repository, person: Person) -> Ask:
    return Ask(get_settings(), person, repository)


@pytest.mark.parametrize("name", [name for name, it in EVERY.items() if it.doing])
def test_no_action_is_done_without_its_role(repository: Repository, name: str) -> None:
    it = EVERY[name]
    below = ROLES[: ROLES.index(it.role)]
    for person in (*(Person("Eve", role) for role in below), GUEST):
        with pytest.raises(Refused):
            do(it, asking(repository, person), {})
    if it.people:
        with pytest.raises(Refused, match="is for people"):
            do(it, asking(repository, Person("Ann/bot", "admin", owner="Ann")), {})


def test_what_writes_names_its_role_or_is_an_act_of_a_review() -> None:
    free = {name for name, it in EVERY.items() if (it.effects.writes or it.effects.elsewhere) and not it.doing}
    assert free == {
        "make_use", "change_use", "propose", "comment", "ask_reviewers", "choose_evidence", "withdraw",
    }  # fmt: skip


def test_accounts_are_for_people_who_signed_in_and_no_call_is_for_them(repository: Repository) -> None:
    assert len(ON_ACCOUNTS) == 13
    assert not ON_ACCOUNTS.keys() & ACTIONS.keys()
    for it in ON_ACCOUNTS.values():
        assert it.doing
        with pytest.raises(Refused, match="with an account: sign in first"):
            do(it, asking(repository, LOCAL), {})


def keyed(repository: Repository) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Arguments of each action that takes a key, and what else they could say."""
    experiment = repository.experiment(add_finished(repository))
    baseline, *_, run = [run.id for run in experiment.runs]
    ask = asking(repository, ANN)
    do(ACTIONS["make_use"], ask, {"name": "Chat", "requirements": {"margin": None}})
    opened = do(ACTIONS["propose"], ask, {"use": "chat", "runs": [run], "baselines": [baseline]})
    proposal = {"proposal": opened["proposal"]}
    settings = [{"acceptance": "speculative"}]
    return {
        "start_experiment": ({"settings": settings, "limit": 1}, {"limit": 2}),
        "start_calibration": ({"settings": settings}, {"minutes": 3.0}),
        "comment": ({**proposal, "words": "Why?"}, {"words": "So."}),
        "ask_reviewers": ({**proposal, "reviewers": ["Bob"]}, {"reviewers": ["Cleo"]}),
        "choose_evidence": (
            {**proposal, "runs": [run], "baselines": [experiment.runs[1].id], "evidence": opened["evidence_hash"]},
            {"runs": [experiment.runs[2].id]},
        ),
        "make_use": ({"name": "Code"}, {"name": "Prose"}),
        "change_use": ({"use": "chat", "version": 1, "approvals": 2}, {"approvals": 3}),
        "withdraw": ({**proposal, "why": "Old."}, {"why": "Wrong."}),
        "propose": ({"use": "chat", "runs": [run], "baselines": [baseline]}, {"rationale": "Else."}),
    }


def test_the_same_key_twice_acts_once_and_with_other_content_it_is_refused(repository: Repository) -> None:
    cases, ask = keyed(repository), asking(repository, ANN)
    assert set(cases) == {name for name, it in ACTIONS.items() if "key" in it.parameters}
    for number, (name, (given, other)) in enumerate(cases.items()):
        key = {"key": f"{number:032x}"}
        first = do(ACTIONS[name], ask, given | key)
        before = len(repository.review_log()), len(repository.experiments(1000))
        assert do(ACTIONS[name], ask, given | key) == first, name
        assert (len(repository.review_log()), len(repository.experiments(1000))) == before, name
        with pytest.raises((Taken, FsdError)):
            do(ACTIONS[name], ask, given | other | key)
        assert (len(repository.review_log()), len(repository.experiments(1000))) == before, name


READS = {
    "list_choices": {}, "list_pairs": {}, "read_pair": {"pair": "bundled"}, "list_endpoints": {}, "list_runs": {},
    "list_experiments": {}, "list_uses": {}, "review_log": {}, "list_reports": {}, "list_views": {},
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_an_answer_fits_its_schema_and_a_call_gives_the_same(repository: Repository, name: str) -> None:
    add_finished(repository)
    answer = do(ACTIONS[name], asking(repository, EVE), READS[name])
    written = json.loads(json.dumps(answer))
    jsonschema.validate(written if isinstance(written, dict) else {"result": written}, answer_schema(ACTIONS[name]))
    assert call_of(ACTIONS[name], repository, get_settings())(**READS[name]) == answer


@pytest.mark.parametrize("name", [name for name, it in EVERY.items() if it.command])
def test_help_names_every_parameter_and_says_what_it_is(call: Call, name: str) -> None:
    it = EVERY[name]
    told = " ".join(call(*it.command.split(), "--help")[1].split())
    for parameter, about in it.parameters.items():
        if about.kind == Secret:  # which the command asks for
            assert parameter not in told.partition("Arguments:")[2]
            continue
        option = parameter if parameter in it.arguments else "--" + parameter.replace("_", "-")
        assert option in told
        assert " ".join(about.help[1:].split())[:30] in told
        assert about.help in it.about


def test_a_command_does_what_the_call_does(call: Call, repository: Repository) -> None:
    status, out, err = call("pairs", "--json")
    assert (status, err) == (0, "")
    listed = [json.loads(line) for line in out.splitlines()]
    assert listed == do(ACTIONS["list_pairs"], Ask(Settings(home=get_settings().home)), {})


@pytest.mark.parametrize(
    ("given", "kind", "sentence"),
    [
        ({}, NotGiven, "The argument 'pair' is missing: give it."),
        ({"pair": "bundled", "x": 1}, UnknownChoice, "There is no argument 'x': expected pair."),
        ({"pair": 3}, Malformed, "pair is 3: expected"),
        ({"pair": "a\0b"}, Malformed, "holds NUL"),
        ({"pair": "a\ud800"}, Malformed, "a lone surrogate"),
    ],
)
def test_arguments_are_refused_in_a_sentence(
    repository: Repository, given: dict[str, Any], kind: type[FsdError], sentence: str
) -> None:
    with pytest.raises(kind) as refused:
        do(ACTIONS["read_pair"], asking(repository, EVE), given)
    assert sentence in str(refused.value)


def test_a_new_action_needs_one_function_for_every_door(repository: Repository) -> None:
    @action("greet", role="author", doing="Greeting")
    def greet(ask: Ask, whom: str, loudly: bool = False) -> str:
        """Greet somebody."""
        return f"{ask.person.name} greets {whom}{'!' * loudly}"

    assert greet(asking(repository, ANN), "Bob", loudly=True) == "Ann greets Bob!"
    assert greet.about == "Greet somebody. Needs the role author.\n\nArgs:\n    whom: \n    loudly: "
    with pytest.raises(Refused, match="Greeting needs the role author"):
        call_of(greet, repository, get_settings())("Bob")
    made = typer.Typer()
    made.command("other")(lambda: None)
    add_commands(made, [greet])
    command = typer.main.get_command(made).commands["greet"]  # pyright: ignore[reportAttributeAccessIssue]
    assert [one.name for one in command.params][:2] == ["whom", "loudly"]
    assert [command.name for command in app.registered_commands if command.name == "greet"] == []
