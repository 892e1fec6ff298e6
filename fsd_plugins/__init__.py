"""Features beside the core, which never imports them: each folder has its code, its doors, its README and its tests.

``fsd_core.plugins`` reads the list; ``FSD_PLUGINS`` says which of them are in use. docs/extending.md shows one whole.
"""

from fsd_core.plugins import Plugin

PLUGINS = (
    Plugin(
        "reports",
        commands="fsd_plugins.reports.commands:add_to",
        actions="fsd_plugins.reports.actions",
        page="fsd_plugins.reports.page:PAGE",
        sections={"compare": "fsd_plugins.reports.section:ReportForm"},
        routes="fsd_plugins.reports.page:routes",
    ),
    Plugin("theory", page="fsd_plugins.theory.page:PAGE"),
    Plugin(
        "workspaces",
        commands="fsd_plugins.workspaces.commands:add_to",
        links={"runs": "fsd_plugins.workspaces.download:links"},
        note="fsd_plugins.workspaces.download:note",
        routes="fsd_plugins.workspaces.download:routes",
    ),
    Plugin(
        "results",
        commands="fsd_plugins.results.commands:add_to",
        sections={"runs": "fsd_plugins.results.section:ImportPanel"},
    ),
    Plugin(
        "notices",
        commands="fsd_plugins.notices.commands:add_to",
        service="fsd_plugins.notices.notifier:service",
    ),
    Plugin("training", commands="fsd_plugins.training.commands:add_to"),
    Plugin("code", tasks="fsd_plugins.code.tasks:TASKS"),
)
