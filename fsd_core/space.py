"""The Hugging Face Space that this process runs in, from its environment variables."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fsd_core.errors import Misconfigured
from fsd_core.lock_probe import Probe, is_writable, lack_of

logger = logging.getLogger(__name__)

SPACE_DATA = Path("/data")
"""mount point of the storage bucket that a Space's owner attaches"""
OAUTH = ("OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "OPENID_PROVIDER_URL")
"""environment variables of a Space whose README says ``hf_oauth: true``"""


class Space(NamedTuple):
    """Names of a Space."""

    id: str
    """owner/name"""
    owner: str
    """a person or an organisation"""
    host: str
    """host name that browsers request"""

    @property
    def url(self) -> str:
        """Address outside of the frame on huggingface.co."""
        return f"https://{self.host}"


class OAuthApp(NamedTuple):
    """This installation as an OAuth app of Hugging Face."""

    client_id: str
    client_secret: str
    provider: str
    """address of the OpenID provider"""
    scopes: str

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None) -> OAuthApp:
        """Read the app from the environment. Raises ``InvalidSetting`` if a variable is missing."""
        variables = os.environ if environment is None else environment
        if missing := [name for name in OAUTH if not variables.get(name)]:
            raise Misconfigured(
                f"FSD_ACCESS is huggingface, and the environment has no {' and no '.join(missing)}: on a Space, write "
                "hf_oauth: true into the front matter of README.md; elsewhere, make an OAuth app in the settings of an "
                "account at Hugging Face and set its values."
            )
        scopes = variables.get("OAUTH_SCOPES") or "openid profile"
        return cls(variables[OAUTH[0]], variables[OAUTH[1]], variables[OAUTH[2]].rstrip("/"), scopes)


def here(environment: Mapping[str, str] | None = None) -> Space | None:
    """Return the Space of this process, or ``None`` outside of Spaces."""
    variables = os.environ if environment is None else environment
    if not (id := variables.get("SPACE_ID", "")):
        return None
    default_host = re.sub("[^a-z0-9]+", "-", id.lower()) + ".hf.space"
    host = variables.get("SPACE_HOST", "").partition(",")[0].strip().rstrip("/")
    return Space(id, variables.get("SPACE_AUTHOR_NAME") or id.partition("/")[0], host or default_host)


def zero_gpu(environment: Mapping[str, str] | None = None) -> bool:
    """Whether ZeroGPU lends this process a GPU for single calls, read as the package ``spaces`` reads it."""
    variables = os.environ if environment is None else environment
    return variables.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def defaults(environment: Mapping[str, str], data: Path = SPACE_DATA, lack: Probe = lack_of) -> dict[str, str]:
    """Return the settings that a Space adds to its owner's: access and storage.

    Without settings it is a public demo, with sign-in if ``hf_oauth`` provides it. Data is stored in the bucket at
    ``data``, if there is one: directly if files can be locked there, else as copies. On ZeroGPU the web process
    computes.
    """
    added: dict[str, str] = {}
    if zero_gpu(environment) and not environment.get("FSD_EXECUTOR"):
        added["FSD_EXECUTOR"] = "in-process"
    if not {"FSD_ACCESS", "FSD_UNPROTECTED"}.intersection(filter(environment.get, environment)):
        added["FSD_DEMO"] = "true"
        if all(map(environment.get, OAUTH)):
            added["FSD_ACCESS"] = "huggingface"
    if not any(map(environment.get, ("FSD_HOME", "FSD_SNAPSHOTS"))) and is_writable(data):
        folder = data / "fsd-lab"
        if (problem := lack(folder)) is None:
            added["FSD_HOME"] = str(folder)
        else:
            logger.warning("%s holds copies of the database every minute, because %s.", folder, problem)
            added["FSD_SNAPSHOTS"] = str(folder)
    return added
