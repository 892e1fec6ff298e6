"""The Hugging Face Space that this process runs in, as its environment variables tell."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fsd_core.errors import InvalidSetting
from fsd_core.lock_probe import Probe, is_writable, lack_of

logger = logging.getLogger(__name__)

SPACE_DATA = Path("/data")
"""where a Space has the storage bucket that its owner attaches"""
OAUTH = ("OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "OPENID_PROVIDER_URL")
"""what a Space has in its environment if its README says ``hf_oauth: true``"""


class Space(NamedTuple):
    """A Space, by its names."""

    id: str
    """owner/name"""
    owner: str
    """a person or an organisation"""
    host: str
    """the name of the host that browsers ask"""

    @property
    def url(self) -> str:
        """Where it is when it is not shown in a frame of huggingface.co."""
        return f"https://{self.host}"


class OAuthApp(NamedTuple):
    """The application by which Hugging Face knows this installation."""

    client_id: str
    client_secret: str
    provider: str
    """address of the OpenID provider"""
    scopes: str

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None) -> OAuthApp:
        """As the environment names it. Raises ``InvalidSetting`` where something is missing."""
        known = os.environ if environment is None else environment
        if missing := [name for name in OAUTH if not known.get(name)]:
            raise InvalidSetting(
                f"FSD_ACCESS is huggingface, and the environment has no {' and no '.join(missing)}: on a Space, write "
                "hf_oauth: true into the front matter of README.md; elsewhere, make an OAuth app in the settings of an "
                "account at Hugging Face and set its values."
            )
        scopes = known.get("OAUTH_SCOPES") or "openid profile"
        return cls(known[OAUTH[0]], known[OAUTH[1]], known[OAUTH[2]].rstrip("/"), scopes)


def here(environment: Mapping[str, str] | None = None) -> Space | None:
    """The Space of this process; ``None`` outside of Spaces."""
    known = os.environ if environment is None else environment
    if not (id := known.get("SPACE_ID", "")):
        return None
    usual = re.sub("[^a-z0-9]+", "-", id.lower()) + ".hf.space"
    host = known.get("SPACE_HOST", "").partition(",")[0].strip().rstrip("/")
    return Space(id, known.get("SPACE_AUTHOR_NAME") or id.partition("/")[0], host or usual)


def zero_gpu(environment: Mapping[str, str] | None = None) -> bool:
    """Whether a GPU is lent to this process for single calls; told as the package ``spaces`` tells it."""
    known = os.environ if environment is None else environment
    return known.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def defaults(environment: Mapping[str, str], data: Path = SPACE_DATA, lack: Probe = lack_of) -> dict[str, str]:
    """What a Space sets where its owner has not: who may come, and where things are kept.

    Without settings it is a public demo, in which people sign in where ``hf_oauth`` provides for it. What is kept goes
    to the bucket at ``data`` if there is one: as it is where files can be locked, else as copies. On ZeroGPU the web
    process computes.
    """
    found: dict[str, str] = {}
    if zero_gpu(environment) and not environment.get("FSD_EXECUTOR"):
        found["FSD_EXECUTOR"] = "in-process"
    if not {"FSD_ACCESS", "FSD_UNPROTECTED"}.intersection(filter(environment.get, environment)):
        found["FSD_DEMO"] = "true"
        if all(map(environment.get, OAUTH)):
            found["FSD_ACCESS"] = "huggingface"
    if not any(map(environment.get, ("FSD_HOME", "FSD_SNAPSHOTS"))) and is_writable(data):
        kept = data / "fsd-lab"
        if (lacking := lack(kept)) is None:
            found["FSD_HOME"] = str(kept)
        else:
            logger.warning("%s holds copies of the database every minute, because %s.", kept, lacking)
            found["FSD_SNAPSHOTS"] = str(kept)
    return found
