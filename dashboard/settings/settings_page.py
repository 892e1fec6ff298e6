"""Settings page: all measured settings. ``?setting=`` opens one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.settings.measurements import measurements, runs_of
from dashboard.settings.setting_html import (
    apart_html,
    facts_html,
    forms_html,
    header_html,
    history_html,
    runs_html,
    settings_html,
)
from dashboard.tables.run_settings import OPTION_TITLES, value_text
from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import PRIVATE_EVENT, dead_end, heading, on_load, show, tells_errors
from dashboard.ui.pager import Pager
from dashboard.ui.templates import Html, joined
from fsd_core.config import RunConfig
from fsd_core.config.flat import settings_read
from fsd_core.errors import FsdError
from fsd_core.review import history
from fsd_core.review.delivery import FORMS, deliver
from fsd_core.review.measured_weights import by_weights
from fsd_core.storage.database.runs import LONGEST_SEARCH

if TYPE_CHECKING:
    from fsd_core.review.history import Use
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import LoggedEvent

SETTINGS_PER_PAGE = 50
_LEAD = "A setting is a pair and a way to decode. It never changes, and its address is the hash of its content."

Updates = dict[Any, Any]


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    message = show()
    with gr.Column(visible=False) as list_part:
        listed = SettingList(repository)
    with gr.Column(visible=False) as detail_part:
        opened = show()

    def open_page(request: gr.Request) -> Updates:
        """Return the setting that the address names, or the list."""
        setting_id = request.query_params.get("setting")
        try:
            updates = {opened: setting_page(repository, setting_id)} if setting_id else listed.open()
        except FsdError as error:
            return {message: dead_end(str(error), "/settings", "See all settings")}
        return updates | {
            list_part: gr.Column(visible=not setting_id),
            detail_part: gr.Column(visible=bool(setting_id)),
        }

    on_load(open_page, None, [message, list_part, detail_part, opened, listed.search, listed.dropped, *listed.outputs])


class SettingList:
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        show(heading("Settings", _LEAD))
        with gr.Row(elem_classes=["run-filters"]):
            self.search = gr.Textbox(label="Search", placeholder="Rule, pair, task or id", max_length=LONGEST_SEARCH)
            self.dropped = gr.Checkbox(
                False, label="Dropped by calibrations", container=False, min_width=190, elem_classes=["fsd-quiet"]
            )
        self.settings = show(elem_id="settings")
        self.pager = Pager(SETTINGS_PER_PAGE, "setting")
        # Not its input event, which pasting with the mouse does not fire.
        fields = [self.search, self.dropped]
        self.search.change(self.filter, fields, self.outputs, **FOLLOWS)
        on_choice(self.dropped)(self.filter, fields, self.outputs, **FOLLOWS)
        for button, step in self.pager.steps:
            button.click(partial(self.turn, step), [self.pager.page, *fields], self.outputs, **PRIVATE_EVENT)

    @property
    def outputs(self) -> list[Any]:
        """Components that the events may change."""
        return [self.settings, *self.pager.parts]

    def open(self) -> Updates:
        # A field that was never set sends nothing.
        return {self.search: "", self.dropped: False} | self.view(0, "", False)

    @tells_errors("settings")
    def filter(self, search: str, dropped: bool) -> Updates:
        return self.view(0, search, dropped)

    @tells_errors("settings")
    def turn(self, step: int, page: int, search: str, dropped: bool) -> Updates:
        return self.view(page + step, search, dropped)

    def view(self, page: int, search: str, dropped: bool) -> Updates:
        """Return a page of the list. A search also matches settings that calibrations dropped."""
        with_dropped = dropped or bool(search.strip())
        total = self.repository.count_settings(search, dropped=with_dropped)
        page = self.pager.clamp(page, total)
        summaries = self.repository.settings(search, SETTINGS_PER_PAGE, page * SETTINGS_PER_PAGE, dropped=with_dropped)
        approved: dict[str, list[Use]] = {}
        for use in history.uses(self.repository.review_log()):
            if (setting := use.named("approved")) is not None:
                approved.setdefault(setting, []).append(use)
        left_out = not with_dropped and not total and self.repository.count_settings() > 0
        html = settings_html(summaries, approved, filtered=bool(search.strip()), left_out=left_out)
        return {self.settings: html} | self.pager.updates(page, total)


def setting_page(repository: Repository, setting_id: str) -> Html:
    """Return the page of one setting. Raises ``UnknownName``."""
    setting = repository.setting(setting_id)
    runs = runs_of(repository, setting_id)
    uses = history.uses(repository.review_log())
    read = settings_read(RunConfig(setting=setting.config))
    values = {
        OPTION_TITLES.get(key, key): value_text(value) for key, value in read.items() if key.startswith("setting.")
    }
    groups = by_weights(runs)
    parts = [header_html(setting, runs, uses), facts_html(values), apart_html(len(groups))]
    for weights, same_weights in groups:
        parts.append(forms_html({form: deliver(setting.config, form, weights) for form in FORMS}))
        parts.append(runs_html(measurements(repository, same_weights), weights))
    proposed = setting_id if any(run.metrics for run in runs) else ""
    return joined([*parts, history_html(_events(uses, setting_id), proposed)])


def _events(uses: Sequence[Use], setting_id: str) -> list[tuple[Use, LoggedEvent]]:
    """Return the events about a setting: its proposals, their discussion, and aliases that named it."""
    events = []
    for use in uses:
        proposal_ids = {proposal.id for proposal in use.proposals.values() if proposal.setting == setting_id}
        for logged in use.log:
            named = {getattr(logged.act, "setting", None), getattr(logged.act, "former", None)}
            if logged.act.about in proposal_ids or setting_id in named:
                events.append((use, logged))
    return sorted(events, key=lambda pair: pair[1].id, reverse=True)
