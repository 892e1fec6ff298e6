"""People page: the account of whoever looks, their tokens, and for admins everybody's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr
from cachetools import TTLCache

from dashboard.tables.list_page import Listing, ListPage, held, orders_of
from dashboard.ui import components
from dashboard.ui.components import LOOKS, Column, empty_state, heading, notice, section, show, table
from dashboard.ui.templates import Html, joined, render
from dashboard.ui.view import Act, Asked, Updates, Values, View, together
from fsd_core.actions import people
from fsd_core.actions.action import Ask
from fsd_core.errors import FsdError
from fsd_core.roles import LONGEST_PERSON_NAME, ROLES, Person, read_roles, same_name

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import UserRow


_FILE = "people/people.html"
_PEOPLE = {
    "name": Column("Name", "wide", "name"), "role": Column("Role", "", "role"),
    "since": Column("Since", "", "created_at", "newest first"),
    "last": Column("Last sign-in", "", "signed_in_at", "newest first"), "state": Column("State"), "acts": Column(""),
}  # fmt: skip
_NAMED = (Column("Name", "wide"), Column("Role"))
_TOKENS = {
    "token": Column("Token", "wide"), "of": Column("Of"), "role": Column("Role"), "since": Column("Since"),
    "until": Column("Until"), "used": Column("Last used"), "acts": Column(""),
}  # fmt: skip
_LOG = {
    "when": Column("When"), "who": Column("Who"), "did": Column("Did"), "whose": Column("Whose", "wide"),
    "what": Column("What", "wide"),
}  # fmt: skip
TOKENS = Listing("Tokens", _TOKENS, partial(render, _FILE, "token"), render(_FILE, "no_tokens"))
LOG = Listing("What happened to accounts", _LOG, partial(render, _FILE, "event"), render(_FILE, "no_events"))


def own_html(person: Person, settings: Settings) -> Html:
    """Return who somebody is here, and what they can do about it."""
    return render(_FILE, "own", person, settings.access, settings.proxy_header)


def roles_html(settings: Settings) -> Html:
    """Return the roles of people whom a proxy names, for then no accounts are kept here."""
    named = table(_NAMED, read_roles(settings.proxy_roles).items(), "Roles behind the proxy")
    return joined([render(_FILE, "behind_proxy", settings.proxy_header), named])


def everybody(settings: Settings) -> Listing[UserRow]:
    """Return the list of everybody, as far as this installation knows them."""

    def cell(column: str, one: UserRow) -> Html:
        return render(_FILE, "person", column, one, settings.access, same_name(one.name, LOOKS.get().name))

    return Listing("People", _PEOPLE, cell, render(_FILE, "nobody"), orders_of(_PEOPLE), "name")


def secret_html(kind: str, name: str, secret: str) -> Html:
    """Return a new secret, which is shown this once. ``kind`` is ``token`` or ``password``."""
    return render(_FILE, "secret", kind, name, secret)


LOG_ROWS = 100
_LEAD = "Who may sign in, the tokens of programs, and what happened to both."
_ROLE_INFO = "Each may do what those before it may"


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    PeoplePage(repository, settings)


class PeoplePage:
    """The parts of the page as attributes. Secrets are shown once, in the answer to the act that made them."""

    def __init__(self, repository: Repository, settings: Settings) -> None:
        self.settings, self._ask = settings, partial(Ask, settings, repository=repository)
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
        behind_proxy = self.settings.access == "proxy"
        show(joined([section("Everybody"), roles_html(self.settings) if behind_proxy else ""]))
        listing = everybody(self.settings)
        count, rows = held(listing, lambda: people.list_people(self._ask(LOOKS.get())))
        with gr.Column(visible=not behind_proxy):
            self.people = ListPage("people", "account", listing, count, rows, "Name, role or state")
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
        view.deed("revoke-token", people.revoke_token, self._ask, self.token_answer)
        view.act("new-password", self.new_password, self.people_answer)
        view.act("disable-person", self.disable_person, self.people_answer)
        view.deed("enable-person", people.enable_person, self._ask, self.people_answer)
        view.on(self.tokens.click)
        self.people.listen(view)
        outputs: list[Any] = [self.part, self.admin_part, self.own, self.tokens, self.log]
        fields, outputs, _ = together([self.people], outputs=outputs)
        view.listen(self.redraw, fields, outputs, [*token, self.name, self.role])

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the page."""
        person, ask = asked.person, self._ask(asked.person)
        try:
            tokens, log = people.list_tokens(ask), people.account_log(ask, LOG_ROWS)
        except FsdError as error:
            return self._view.only(asked, [self.part], None, empty_state("Nothing to see here", str(error)))
        is_admin = person.may("admin")
        updates = self._view.only(asked, [self.part], self.part)
        if asked.differs("own", person):
            updates |= {
                self.own: own_html(person, self.settings),
                self.admin_part: gr.Column(visible=is_admin),
            }
        if asked.differs("tokens", tokens, person):
            updates |= {self.tokens: TOKENS.html(tokens)}
        if is_admin:
            updates |= self.people.redraw(asked)
        if asked.differs("log", log):
            updates |= {self.log: joined([LOG.html(log), render(_FILE, "most", log, LOG_ROWS)])}
        return updates

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return the page with an error in place of its content."""
        return {self.message: notice(str(error), "bad")}

    def make_token(self, values: Values, asked: Asked) -> Updates:
        """Make a token, and show it once."""
        name, role, days = values[self.token_name] or "", str(values[self.token_role]), values[self.token_days] or None
        secret = self._once(values.key, lambda: people.make_token(self._ask(asked.person), name, role, days=days))
        asked.used(values, self.token_name)
        return {self.token_answer: secret_html("token", name, secret)}

    def _once(self, key: str, make: Callable[[], str]) -> str:
        """Return the secret of an act, which is made at its first call."""
        if (secret := self._made.get(key)) is None:
            secret = self._made[key] = make()
        return secret

    def add_person(self, values: Values, asked: Asked) -> Updates:
        """Add somebody with a one-time password, which is shown once."""
        name, role = values[self.name] or "", str(values[self.role])
        password = self._once(values.key, lambda: people.add_person(self._ask(asked.person), name, role))
        asked.used(values, self.name)
        return {self.people_answer: secret_html("password", name, password)}

    def new_password(self, act: Act, asked: Asked) -> Updates:
        """Give somebody a one-time password, which is shown once."""
        password = self._once(act.key, lambda: people.give_one_time_password(self._ask(asked.person), act["id"]))
        return {self.people_answer: secret_html("password", act["id"], password)}

    def change_role(self, values: Values, asked: Asked) -> Updates:
        """Change somebody's role."""
        name, role = (values[self.name] or "").strip(), str(values[self.role])
        sentence = people.change_role(self._ask(asked.person), name, role)
        asked.used(values, self.name)
        return {self.people_answer: notice(sentence)}

    def disable_person(self, act: Act, asked: Asked) -> Updates:
        """Disable somebody."""
        people.disable_person(self._ask(asked.person), act["id"])
        return {self.people_answer: notice(f"{act['id']} is disabled, signed out everywhere.")}
