"""Gradio's pages, without what costs most in opening a page and in an event of many components."""

from __future__ import annotations

from copy import copy
from typing import Any

import gradio as gr
from gradio.block_function import BlockFunction
from gradio.state_holder import SessionState


class Pages(gr.Blocks):
    """Pages that build only the parts that they show or change.

    Gradio would also rebuild unchanged parts, and have the browser build a component for each parameter of the
    endpoints. And after each page it would describe all that are there so far, twice, and when they are mounted again.
    """

    _is_built = False
    """whether all pages are there"""

    def end(self) -> None:
        """Say that all pages are there. Gradio describes them when they are queued and mounted."""
        self._is_built = True

    def get_config_file(self) -> Any:
        """Return the configuration of the pages for browsers and programs. No page has the endpoints for programs."""
        if not self._is_built:
            return {}
        config: Any = super().get_config_file()
        parameters = {one["id"] for one in config["components"] if one["type"] == "api"}
        endpoints = {one["id"] for one in config["dependencies"] if not one["targets"]}
        for page in config["page"].values():
            page["components"] = [id for id in page["components"] if id not in parameters]
            page["dependencies"] = [id for id in page["dependencies"] if id not in endpoints]
            layout = page["layout"]
            layout["children"] = [child for child in layout["children"] if child["id"] not in parameters]
        return config

    async def postprocess_data(
        self, block_fn: BlockFunction, predictions: list[Any] | dict[Any, Any], state: SessionState | None
    ) -> list[Any]:
        """Return an event's answer for the browser, one value for each of its outputs."""
        if (
            not isinstance(predictions, dict)
            or not predictions
            or any(key not in block_fn.outputs for key in predictions)
        ):
            return await super().postprocess_data(block_fn, predictions, state)
        changed = copy(block_fn)
        changed.outputs = [block for block in block_fn.outputs if block in predictions]
        values = predictions if len(predictions) > 1 else next(iter(predictions.values()))
        data = await super().postprocess_data(changed, values, state)
        answers = dict(zip((block._id for block in changed.outputs), data, strict=True))
        return [answers.get(block._id, gr.skip()) for block in block_fn.outputs]
