"""The code of the drafters, which propose tokens, named by their settings (``fsd_core.config.drafting``)."""

from fsd_core.drafters.base import Drafter, DrafterFactory

__all__ = ["Drafter", "DrafterFactory"]
