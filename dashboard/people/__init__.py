"""People page: the account of whoever looks, their tokens, and for admins everybody's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr
from cachetools import TTLCache

from dashboard.ui import components
from dashboard.ui.components import Column, button, empty_state, heading, notice, pill, section, show, table
from dashboard.ui.templates import Html, joined, moment, render
from dashboard.ui.view import Act, Asked, Updates, Values, View
from fsd_core.accounts import AccountService
from fsd_core.errors import FsdError
from fsd_core.roles import LONGEST_PERSON_NAME, ROLES, Person, read_roles, same_name
from fsd_core.texts import DASH

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import AccountEventRow, ApiTokenRow, UserRow


_PEOPLE = (Column("Name", "wide"), Column("Role"), Column("Since"), Column("Last sign-in"), Column("State"), Column(""))
_NAMED = (Column("Name", "wide"), Column("Role"))
_TOKENS = (
    Column("Token", "wide"), Column("Of"), Column("Role"), Column("Since"), Column("Until"), Column("Last used"),
    Column(""),
)  # fmt: skip
_LOG = (Column("When"), Column("Who"), Column("Did"), Column("Whose", "wide"), Column("What", "wide"))


def refused(sentence: str) -> Html:
    """Return the page for a program, or somebody who has not signed in."""
    return empty_state("Nothing to see here", sentence)


def own_html(person: Person, settings: Settings) -> Html:
    """Return who somebody is here, and what they can do about it."""
    return render("people/people.html", "own", person, settings.access, settings.proxy_header)


def tokens_html(tokens: Sequence[ApiTokenRow], person: Person) -> Html:
    """Return tokens, or what they are for."""
    if not tokens:
        return empty_state(
            "No tokens yet",
            "A program shows a token instead of a password, and may do what its role may. Verdicts, votes, roll-backs "
            "and deletions stay with people. Make one below.",
        )
    rows = [
        (
            token.name, token.owner or DASH, token.role, moment(token.created_at), moment(token.expires_at),
            moment(token.used_at),
            button("revoke-token", "token", token.name, "Revoke", f"Revoke “{token.name}”? Whatever uses it stops."),
        )
        for token in tokens
    ]  # fmt: skip
    return table(_TOKENS, rows, "Tokens")


def people_html(people: Sequence[UserRow], person: Person, settings: Settings) -> Html:
    """Return everybody, as far as this installation knows them."""
    if settings.access == "proxy":
        named = table(_NAMED, read_roles(settings.proxy_roles).items(), "Roles behind the proxy")
        return joined([render("people/people.html", "behind_proxy", settings.proxy_header), named])
    rows = [_person(one, person, settings) for one in people]
    if not rows:
        return empty_state("Nobody has signed in yet", "Whoever signs in at Hugging Face is listed here.")
    return table(_PEOPLE, rows, "People")


def _person(one: UserRow, person: Person, settings: Settings) -> tuple[str, ...]:
    state = "disabled" if one.disabled else "one-time password" if one.one_time else "active"
    buttons = [] if same_name(one.name, person.name) else _buttons(one, settings)
    signed_in = moment(one.signed_in_at)
    return one.name, one.role, moment(one.created_at), signed_in, pill(state), joined(buttons)


def _buttons(one: UserRow, settings: Settings) -> list[Html]:
    buttons = []
    if settings.access == "password":
        question = f"Give “{one.name}” a one-time password? Their own ends, and they are signed out everywhere."
        buttons.append(button("new-password", "person", one.name, "New password", question))
    if one.disabled:
        return [*buttons, button("enable-person", "person", one.name, "Enable")]
    question = f"Disable “{one.name}”? They are signed out everywhere, and their tokens are worth nothing."
    return [*buttons, button("disable-person", "person", one.name, "Disable", question)]


def secret_html(kind: str, name: str, secret: str) -> Html:
    """Return a new secret, which is shown this once. ``kind`` is ``token`` or ``password``."""
    return render("people/people.html", "secret", kind, name, secret)


def log_html(events: Sequence[AccountEventRow], most: int) -> Html:
    """Return the log of accounts, the latest event first."""
    if not events:
        return empty_state(
            "Nothing happened yet", "Sign-ins, and changes of people, roles and tokens, are listed here."
        )
    rows = [(moment(event.at), event.who, event.act, event.subject, event.detail or DASH) for event in events]
    return joined([table(_LOG, rows, "What happened to accounts"), render("people/people.html", "most", most)])


LOG_ROWS = 100
_LEAD = "Who may sign in, the tokens of programs, and what happened to both."
_ROLE_INFO = "Each may do what those before it may"


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    PeoplePage(repository, settings)


class PeoplePage:
    """The parts of the page as attributes. Secrets are shown once, in the answer to the act that made them."""

    def __init__(self, repository: Repository, settings: Settings) -> None:
        self.settings, self.service = settings, AccountService(repository, settings)
        self._made: TTLCache[str, str] = TTLCache(100, 120)  # by key: an act may be sent twice, a secret is made once
        self.message = show()
        with gr.Column(visible=False) as self.part:
            show(heading("People", _LEAD))
            show(section("Your account"))
            self.own = show()
            self._add_tokens()
            with gr.Column(visible=False) as self.admin_part:
                self._add_people()
            show(section("Log"))
            self.log = show()
        view = self._view = View(self.message, self.fail)
        self._listen(view)

    def _add_tokens(self) -> None:
        show(section("Tokens"))
        self.tokens = show(js_on_load=components.CLICKS, elem_id="tokens")
        with gr.Row(elem_classes=["people-forms"]):
            self.token_name = gr.Textbox(
                label="Name of the token", max_length=LONGEST_PERSON_NAME, placeholder="nightly"
            )
            self.token_role = gr.Dropdown(list(ROLES), value=ROLES[0], label="Role of the token", info=_ROLE_INFO)
            self.token_days = gr.Number(90, label="Lasts", info="Days; 0: until it is revoked")
            self.make = gr.Button("Make a token", variant="primary")
        self.token_answer = show()

    def _add_people(self) -> None:
        show(section("Everybody"))
        self.people = show(js_on_load=components.CLICKS, elem_id="people")
        with gr.Row(elem_classes=["people-forms"], visible=self.settings.access == "password"):
            self.name = gr.Textbox(label="Name of the person", max_length=LONGEST_PERSON_NAME)
            self.role = gr.Dropdown(list(ROLES), value=ROLES[0], label="Role of the person", info=_ROLE_INFO)
            self.add = gr.Button("Add the person")
            self.change = gr.Button("Change the role")
        self.people_answer = show()

    def _listen(self, view: View) -> None:
        token = [self.token_name, self.token_role, self.token_days]
        view.button(self.make, "make a token", token, self.make_token, self.token_answer)
        view.button(self.add, "add a person", [self.name, self.role], self.add_person, self.people_answer)
        view.button(self.change, "change a role", [self.name, self.role], self.change_role, self.people_answer)
        view.act("revoke-token", self.revoke_token, self.token_answer)
        view.act("new-password", self.new_password, self.people_answer)
        for name, disabled in (("disable-person", True), ("enable-person", False)):
            view.act(name, self._set_disabled(disabled), self.people_answer)
        view.on(self.tokens.click, self.people.click)
        outputs: list[Any] = [self.part, self.admin_part, self.own, self.tokens, self.people, self.log]
        view.listen(self.redraw, [], outputs, [*token, self.name, self.role])

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the page."""
        person, service = asked.person, self.service
        try:
            tokens, log = service.tokens(person), service.log(person, LOG_ROWS)
        except FsdError as error:
            return self._view.only(asked, [self.part], None, refused(str(error)))
        is_admin = person.may("admin")
        updates = self._view.only(asked, [self.part], self.part)
        if asked.differs("own", person):
            updates |= {
                self.own: own_html(person, self.settings),
                self.admin_part: gr.Column(visible=is_admin),
            }
        if asked.differs("tokens", tokens, person):
            updates |= {self.tokens: tokens_html(tokens, person)}
        if is_admin and asked.differs("people", people := service.people(person), person):
            updates |= {self.people: people_html(people, person, self.settings)}
        if asked.differs("log", log):
            updates |= {self.log: log_html(log, LOG_ROWS)}
        return updates

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return the page with an error in place of its content."""
        return {self.message: notice(str(error), "bad")}

    def make_token(self, values: Values, asked: Asked) -> Updates:
        """Make a token, and show it once."""
        name, role, days = values[self.token_name] or "", str(values[self.token_role]), values[self.token_days] or None
        secret = self._once(values.key, lambda: self.service.make_token(asked.person, name, role, days))
        asked.used(values, self.token_name)
        return {self.token_answer: secret_html("token", name, secret)}

    def _once(self, key: str, make: Callable[[], str]) -> str:
        """Return the secret of an act, which is made at its first call."""
        if (secret := self._made.get(key)) is None:
            secret = self._made[key] = make()
        return secret

    def revoke_token(self, act: Act, asked: Asked) -> Updates:
        """Revoke a token."""
        self.service.revoke_token(asked.person, act["id"])
        return {self.token_answer: notice(f"The token {act['id']} is worth nothing any more.")}

    def add_person(self, values: Values, asked: Asked) -> Updates:
        """Add somebody with a one-time password, which is shown once."""
        name, role = values[self.name] or "", str(values[self.role])
        password = self._once(values.key, lambda: self.service.add_person(asked.person, name, role))
        asked.used(values, self.name)
        return {self.people_answer: secret_html("password", name, password)}

    def new_password(self, act: Act, asked: Asked) -> Updates:
        """Give somebody a one-time password, which is shown once."""
        password = self._once(act.key, lambda: self.service.new_password(asked.person, act["id"]))
        return {self.people_answer: secret_html("password", act["id"], password)}

    def change_role(self, values: Values, asked: Asked) -> Updates:
        """Change somebody's role."""
        name, role = (values[self.name] or "").strip(), str(values[self.role])
        self.service.change_role(asked.person, name, role)
        asked.used(values, self.name)
        return {self.people_answer: notice(f"{name} is {role} now.")}

    def _set_disabled(self, disabled: bool) -> Any:
        def set_disabled(act: Act, asked: Asked) -> Updates:
            self.service.set_disabled(asked.person, act["id"], disabled)
            sentence = "is disabled, signed out everywhere" if disabled else "may sign in again"
            return {self.people_answer: notice(f"{act['id']} {sentence}.")}

        return set_disabled
