"""What proposes tokens: the code of the drafters, which their settings name (``fsd_core.config.drafting``)."""

from fsd_core.drafters.base import Drafter, DrafterFactory

__all__ = ["Drafter", "DrafterFactory"]
