"""Settings page: all measured settings. ``?setting=`` opens one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

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
from dashboard.ui.components import dead_end, heading, notice, show
from dashboard.ui.pager import Pager
from dashboard.ui.question import Asked, Updates, digest
from dashboard.ui.templates import Html, joined
from dashboard.ui.view import View
from fsd_core.config import RunConfig
from fsd_core.config.flat import settings_read
from fsd_core.errors import FsdError, NoEquivalent, UnknownName
from fsd_core.review import history
from fsd_core.review.delivery import FORMS, deliver
from fsd_core.review.measured_weights import by_weights
from fsd_core.storage.database.run_queries import LONGEST_SEARCH

if TYPE_CHECKING:
    from fsd_core.config import SettingConfig
    from fsd_core.review.history import Use
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import LoggedEvent

SETTINGS_PER_PAGE = 50
_LEAD = "A setting is a pair and a way to decode. It never changes, and its address is the hash of its content."


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    SettingsPage(repository)


class SettingsPage:
    """The list of settings, or the one that the address names."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.message = show()
        with gr.Column(visible=False) as self.list_part:
            show(heading("Settings", _LEAD))
            with gr.Row(elem_classes=["run-filters"]):
                self.search = gr.Textbox(
                    label="Search", placeholder="Rule, pair, task or id", max_length=LONGEST_SEARCH
                )
                self.dropped = gr.Checkbox(
                    False, label="Dropped by calibrations", container=False, min_width=190, elem_classes=["fsd-quiet"]
                )
            self.settings = show(elem_id="settings")
            self.pager = Pager(SETTINGS_PER_PAGE, "setting")
        self.opened = show()
        view = View(self.message, self.fail)
        view.turns(self.pager.name, self.pager.steps)
        outputs = [self.message, self.list_part, self.settings, self.opened, *self.pager.parts]
        view.listen(self.redraw, [self.search, self.dropped], outputs)

    def redraw(self, asked: Asked) -> Updates:
        """Return the setting that the address names, or what differs of the list."""
        setting_id = asked.address.get("setting")
        if not setting_id:
            return self._list(asked) | ({self.list_part: gr.Column(visible=True)} if asked.opening else {})
        try:
            page = setting_page(self.repository, setting_id)
        except UnknownName as error:
            return {self.message: dead_end(str(error), "settings", "See all settings")}
        return {self.opened: page} if asked.differs("setting", page) else {}

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return the page with an error in place of its content."""
        if asked.opening:
            return {self.message: dead_end(str(error), "settings", "See all settings")}
        return {self.settings: notice(str(error), "bad")}

    def _list(self, asked: Asked) -> Updates:
        """Return a page of the list, if it differs. A search also matches settings that calibrations dropped."""
        search, dropped = asked[self.search] or "", bool(asked[self.dropped])
        with_dropped, of = dropped or bool(search.strip()), digest(search, dropped)
        total = self.repository.count_settings(search, dropped=with_dropped)
        page = self.pager.clamp(asked.page(self.pager.name, of), total)
        summaries = self.repository.settings(search, SETTINGS_PER_PAGE, page * SETTINGS_PER_PAGE, dropped=with_dropped)
        approved: dict[str, list[Use]] = {}
        for use in history.uses(self.repository.review_log()):
            if (setting := use.named("approved")) is not None:
                approved.setdefault(setting, []).append(use)
        left_out = not with_dropped and not total and self.repository.count_settings() > 0
        html = settings_html(summaries, approved, filtered=bool(search.strip()), left_out=left_out)
        if not asked.differs("list", of, page, total, html):
            return {}
        return {self.settings: html} | self.pager.updates(page, total, of)


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
        parts.append(forms_html({form: _delivered(setting.config, form, weights) for form in FORMS}))
        parts.append(runs_html(measurements(repository, same_weights), weights))
    proposed = setting_id if any(run.metrics and not run.measured_elsewhere for run in runs) else ""
    return joined([*parts, history_html(_events(uses, setting_id), proposed)])


def _delivered(setting: SettingConfig, form: str, weights: Mapping[str, str]) -> str | NoEquivalent:
    """Return the setting in a form, or why an engine cannot run it."""
    try:
        return deliver(setting, form, weights)
    except NoEquivalent as error:
        return error


def _events(uses: Sequence[Use], setting_id: str) -> list[tuple[Use, LoggedEvent]]:
    """Return the events about a setting: its proposals, their discussion, and aliases that named it."""
    events = []
    for use in uses:
        proposal_ids = {proposal.id for proposal in use.proposals.values() if proposal.setting == setting_id}
        for logged in use.log:
            named = {getattr(logged.event, "setting", None), getattr(logged.event, "former", None)}
            if logged.event.about in proposal_ids or setting_id in named:
                events.append((use, logged))
    return sorted(events, key=lambda pair: pair[1].id, reverse=True)
