"""People page: the account of whoever looks, their tokens, and for admins everybody's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gradio as gr
from cachetools import TTLCache

from dashboard.people import people_html
from dashboard.ui import actions
from dashboard.ui.components import heading, notice, section, show
from dashboard.ui.question import Act, Asked, Updates, Values
from dashboard.ui.view import View
from fsd_core.auth.account_service import AccountService
from fsd_core.errors import FsdError
from fsd_core.roles import LONGEST_PERSON_NAME, ROLES

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

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
        self.tokens = show(js_on_load=actions.CLICKS, elem_id="tokens")
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
        self.people = show(js_on_load=actions.CLICKS, elem_id="people")
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
            return self._view.only(asked, [self.part], None, people_html.refused(str(error)))
        is_admin = person.may("admin")
        updates = self._view.only(asked, [self.part], self.part)
        if asked.differs("own", person):
            updates |= {
                self.own: people_html.own_html(person, self.settings),
                self.admin_part: gr.Column(visible=is_admin),
            }
        if asked.differs("tokens", tokens, person):
            updates |= {self.tokens: people_html.tokens_html(tokens, person)}
        if is_admin and asked.differs("people", people := service.people(person), person):
            updates |= {self.people: people_html.people_html(people, person, self.settings)}
        if asked.differs("log", log):
            updates |= {self.log: people_html.log_html(log, LOG_ROWS)}
        return updates

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return the page with an error in place of its content."""
        return {self.message: notice(str(error), "bad")}

    def make_token(self, values: Values, asked: Asked) -> Updates:
        """Make a token, and show it once."""
        name, role, days = values[self.token_name] or "", str(values[self.token_role]), values[self.token_days] or None
        secret = self._once(values.key, lambda: self.service.make_token(asked.person, name, role, days))
        asked.used(values, self.token_name)
        return {self.token_answer: people_html.secret_html("token", name, secret)}

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
        return {self.people_answer: people_html.secret_html("password", name, password)}

    def new_password(self, act: Act, asked: Asked) -> Updates:
        """Give somebody a one-time password, which is shown once."""
        password = self._once(act.key, lambda: self.service.new_password(asked.person, act["id"]))
        return {self.people_answer: people_html.secret_html("password", act["id"], password)}

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
