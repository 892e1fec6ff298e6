"""Tables of things that people have named: pairs, engines, tasks, reports and views."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    String,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import Mapped, mapped_column

from fsd_core.storage.database.tables.table_base import Base, now


class OwnPairRow(Base):
    """A version of a pair that somebody has named. Its version is the hash of the models that it is made of."""

    __tablename__ = "own_pairs"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    version: Mapped[str] = mapped_column(String(16), primary_key=True)
    models: Mapped[str] = mapped_column(Text)  # see fsd_core.config.model_names
    added_by: Mapped[str]
    added_at: Mapped[datetime] = mapped_column(default=now)  # most recently; the name refers to the latest version


class ServedEngineRow(Base):
    """A running engine that somebody has named. Its key is in the environment alone."""

    __tablename__ = "served_engines"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    served: Mapped[dict[str, Any]]  # fsd_core.rules.Served as JSON
    key_variable: Mapped[str] = mapped_column(default="", server_default="")  # name of the variable with its key
    hardware: Mapped[str] = mapped_column(default="", server_default="")  # as people say it: no engine tells
    guarded: Mapped[bool] = mapped_column(default=False, server_default=false())  # fsd_core.engines.engine_hosts
    added_by: Mapped[str]
    added_at: Mapped[datetime] = mapped_column(default=now)


class ReportRow(Base):
    """A report. Its content never changes, and its version is the content's hash."""

    __tablename__ = "reports"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    title: Mapped[str]
    version: Mapped[str] = mapped_column(String(16))
    content: Mapped[dict[str, Any]]  # fsd_core.storage.report_content
    who: Mapped[str]
    at: Mapped[datetime] = mapped_column(default=now)


class SavedViewRow(Base):
    """A name for what a page shows. There is one of a name on a page, however it is written."""

    __tablename__ = "saved_views"
    __table_args__ = (UniqueConstraint("page", "folded"),)
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    page: Mapped[str] = mapped_column(String(16))  # its path
    name: Mapped[str]
    folded: Mapped[str]  # the name as it is compared (fsd_core.roles.folded)
    query: Mapped[str] = mapped_column(Text)  # of the page's address
    who: Mapped[str]
    at: Mapped[datetime] = mapped_column(default=now)  # most recently saved


class TaskRow(Base):
    """A version of a custom task. Its content never changes, and its version is the content's hash."""

    __tablename__ = "tasks"
    name: Mapped[str] = mapped_column(String(40), primary_key=True)
    version: Mapped[str] = mapped_column(String(16), primary_key=True)
    title: Mapped[str]
    scorer: Mapped[str] = mapped_column(String(16))
    prompts: Mapped[int]
    content: Mapped[str] = mapped_column(Text)  # JSON Lines, see fsd_core.tasks.custom
    added_by: Mapped[str]
    added_at: Mapped[datetime] = mapped_column(default=now)  # most recently; the name refers to the latest version
