"""Settings of the installation, read from its environment.

Types of settings: texts and paths that are checked one by one, each with its sentence for a value that cannot be
used.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Mapping
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from fsd_core.errors import Misconfigured, Unwritable
from fsd_core.frozen import sentence, text_hash
from fsd_core.roles import ROLES, check_organisations, read_roles, same_name
from fsd_core.system import Probe, is_writable, lack_of
from fsd_core.texts import LOOPBACK, without_secrets

_OF_EVERYBODY = frozenset(
    ("accept", "accept-encoding", "accept-language", "authorization", "connection", "content-length", "content-type",
     "cookie", "forwarded", "host", "origin", "referer", "user-agent", "x-forwarded-for", "x-forwarded-host",
     "x-forwarded-proto")
)  # fmt: skip
"""headers that say nothing of who is signed in at a proxy"""


def _checked_addresses(value: str) -> str:
    for address in filter(None, map(str.strip, value.split(","))):
        try:
            ip_address(address)
        except ValueError:
            raise Misconfigured(
                f"The proxy's address {address[:60]!r} is none: expected addresses such as 10.0.0.7, with commas "
                "between them."
            ) from None
    return value


def _checked_header(value: str) -> str:
    if value.lower() in _OF_EVERYBODY:
        raise Misconfigured(
            f"The header {value} is of every request, so it names nobody: expected one that the proxy sets, such "
            "as X-Forwarded-User."
        )
    return value


def _checked_roles(value: str) -> str:
    read_roles(value)
    return value


def _checked_hub_roles(value: str) -> str:
    check_organisations(read_roles(value))
    return value


def _absolute(value: Path) -> Path:
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise Misconfigured("The path is not valid UTF-8: expected one that is.") from None
    return value.expanduser().absolute()


def _without_last_slash(value: str) -> str:
    path = value.rstrip("/")
    if re.fullmatch(r"(/[\w~-][\w.~-]*)*", path, re.ASCII):
        return path
    raise Misconfigured(f"The path {value!r} cannot be used: expected one such as /lab, or /tools/fsd-lab.")


def _checked_host_names(value: str) -> str:
    if all(re.fullmatch(r"\*|(\*\.)?[\w.:\[\]-]*", name.strip()) for name in value.split(",")):
        return value
    raise Misconfigured(
        f"The host names {value!r} cannot be read: expected names such as lab.example.org, or *.example.org, "
        "with commas between them."
    )


def _checked_endpoint_hosts(value: str) -> str:
    names = filter(None, map(str.strip, value.split(",")))
    if all(re.fullmatch(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?", name, re.ASCII) for name in names):
        return value
    raise Misconfigured(
        f"FSD_ENDPOINT_HOSTS is {value[:60]!r}: expected hosts such as engine.internal or 10.0.0.7:8000, with "
        "commas between them."
    )


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
"""a path of the machine; ``~`` and what is relative are resolved"""
BasePath = Annotated[str, AfterValidator(_without_last_slash)]
"""a path of URLs, below which a proxy serves the app"""
HostNames = Annotated[str, AfterValidator(_checked_host_names)]
"""names, such as ``*.example.org``, with commas between them"""
EndpointHosts = Annotated[str, AfterValidator(_checked_endpoint_hosts)]
"""hosts of engines, such as ``10.0.0.7:8000``, with commas between them"""
ProxyHeader = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$"), AfterValidator(_checked_header)]
"""name of a header that only a proxy sets"""
ProxyAddresses = Annotated[str, AfterValidator(_checked_addresses)]
"""addresses with commas between them"""
ProxyRoles = Annotated[str, AfterValidator(_checked_roles)]
"""roles by name, such as ``ann=admin,*=viewer``"""
HubRoles = Annotated[str, AfterValidator(_checked_hub_roles)]
"""the same, where a name may also be an organisation of Hugging Face"""

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


Executor = Literal["worker", "in-process", "ray"]
"""which process computes"""

HIGHEST_PRICE = 1_000_000
"""per hour, of a machine, in any currency"""
MLFLOW_PATH = "/mlflow"
"""below the app's own address"""


class Settings(BaseSettings):
    """Settings of the installation, not of an experiment. Only the device changes what a run computes."""

    model_config = SettingsConfigDict(env_prefix="FSD_", env_ignore_empty=True, frozen=True)

    home: AbsolutePath = Field(
        default=Path.home() / ".fsd-lab", description="Folder of the database, MLflow's files and logs."
    )
    database_url: str | None = Field(default=None, description="SQLAlchemy URL; default: SQLite under home.")
    mlflow_uri: str | None = Field(default=None, description="MLflow tracking URI; default: SQLite under home.")
    mlflow_ui: bool = Field(default=True, description="Whether `python app.py` also serves MLflow's pages.")
    plugins: str = Field(
        default="all", description="Features beside the core: all, none, or names with commas, such as theory,notices."
    )
    data_dir: AbsolutePath | None = Field(
        default=None, description="Folder of benchmark files, as their authors publish them; default: data under home."
    )
    tasks: AbsolutePath | None = Field(
        default=None, description="Folder of task files of your own, NAME.jsonl; default: tasks under home."
    )
    device: str = Field(default="auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto, cpu, cuda or cuda:N.")
    threads: int | None = Field(default=None, ge=1, description="Number of CPU threads; default: as many as help.")
    executor: Executor = Field(
        default="worker",
        description="worker (a process of its own computes), in-process (the web process does, as on ZeroGPU), or ray "
        "(the worker leaves the runs of experiments to tasks of a Ray cluster).",
    )
    ray_gpus: float = Field(
        default=1.0, ge=0, le=1024, description="GPUs of a Ray task that measures a run, 0 or more."
    )
    gpu_seconds: int = Field(
        default=60, ge=10, le=300, description="Seconds for which a call asks ZeroGPU for a GPU, 10 to 300."
    )
    price_per_hour: float | None = Field(
        default=None, gt=0, le=HIGHEST_PRICE, allow_inf_nan=False,
        description="Price of this machine per hour, in any currency, for the costs of runs; default: no costs.",
    )  # fmt: skip
    host: str = Field(default="127.0.0.1", description="Address the app listens on.")
    port: int = Field(default=7860, ge=1, le=65535, description="Port the app listens on, 1 to 65535.")
    keep_playground_days: float = Field(
        default=1.0, ge=0, description="Days that ended playground jobs and what they wrote are kept, 0 or more."
    )
    keep_traces_days: float | None = Field(
        default=None, ge=0, description="Days that the rounds of ended runs are kept, 0 or more; default: no limit."
    )
    root_path: BasePath = Field(
        default="", description="Path below which a proxy serves the app, such as /lab; it removes the path itself."
    )
    allowed_hosts: HostNames = Field(
        default="", description="Host names, besides this machine's own, that the app is reached under; * for any."
    )

    access: Literal["none", "password", "proxy", "huggingface"] = Field(
        default="none", description="none (whoever reaches the port), password, proxy, or huggingface."
    )
    unprotected: bool = Field(
        default=False, description="Whether access 'none' may listen on an address that others reach."
    )
    admin_password_file: AbsolutePath | None = Field(
        default=None,
        description="File with the first admin's password, where people sign in with one; default: a random password.",
    )
    demo: bool = Field(
        default=False,
        description="Whether everybody may look, and use the Playground within limits, unnamed.",
    )
    snapshots: AbsolutePath | None = Field(
        default=None, description="Folder that cannot hold a database, to which the databases are copied every minute."
    )
    model_roots: str = Field(
        default="",
        description="Folders below which the pages take models, with commas between; default: own-models under home, "
        "and any without access.",
    )
    endpoint_hosts: EndpointHosts = Field(
        default="",
        description="Hosts of engines, such as 10.0.0.7:8000, that people who sign in may name beside public ones.",
    )
    proxy_header: ProxyHeader = Field(default="X-Forwarded-User", description="Header in which a proxy names the user.")
    proxy_addresses: ProxyAddresses = Field(
        default="127.0.0.1", description="Addresses of the proxy, with commas between them; nobody else is believed."
    )
    proxy_roles: ProxyRoles = Field(
        default="*=viewer", description="Roles behind a proxy, such as ann=admin,bob=reviewer,*=viewer."
    )
    hf_roles: HubRoles = Field(
        default="*=viewer",
        description="Roles of people of Hugging Face, such as ann=admin,org:team=author,org:team/admin=admin,*=viewer.",
    )

    public_url: str = Field(
        default="", description="Address of the app as people reach it, for links in messages; default: a path alone."
    )
    webhook_url: str = Field(default="", description="Address to which what happens in reviews is posted.")
    webhook_secret: SecretStr | None = Field(default=None, description="Secret that signs what is posted.")
    webhook_secret_file: AbsolutePath | None = Field(default=None, description="File with that secret.")
    webhook_private: bool = Field(
        default=False, description="Whether the webhook may be at a private or loopback address, and without TLS."
    )
    smtp_host: str = Field(default="", description="Host name of the mail server.")
    smtp_port: int = Field(default=587, ge=1, le=65535, description="Port of the mail server, 1 to 65535.")
    smtp_security: Literal["starttls", "tls", "none"] = Field(default="starttls", description="starttls, tls or none.")
    smtp_user: str = Field(default="", description="Name to sign in with at the mail server; default: none.")
    smtp_password: SecretStr | None = Field(default=None, description="Password for that name.")
    smtp_password_file: AbsolutePath | None = Field(default=None, description="File with that password.")
    mail_from: str = Field(default="", description="Address that mail is sent from.")
    mail_to: str = Field(
        default="", description="Addresses of people, such as ann=ann@example.org,*=team@example.org; * gets all mail."
    )

    @property
    def hosts(self) -> list[str]:
        """Host names that requests may carry. Under any other name, a page could reach the app through DNS
        rebinding."""
        bound = [] if self.host in ("0.0.0.0", "::") else [f"[{self.host}]" if ":" in self.host else self.host]
        extra = (name.strip() for name in self.allowed_hosts.split(","))
        return list(dict.fromkeys(["localhost", "127.0.0.1", "[::1]", *bound, *filter(None, extra)]))

    @property
    def proxies(self) -> frozenset[str]:
        """Addresses from which the proxy's header is trusted."""
        named = filter(None, map(str.strip, self.proxy_addresses.split(",")))
        return frozenset(str(ip_address(address)) for address in named)

    def role_behind_proxy(self, name: str) -> str:
        """Return the role of a user named by the proxy; ``*`` is everybody else."""
        roles = read_roles(self.proxy_roles)
        return next((role for who, role in roles.items() if same_name(who, name)), roles.get("*", ROLES[0]))

    def check_access(self) -> None:
        """Raise ``InvalidSetting`` if nobody could sign in as asked, or if others could do everything and
        FSD_UNPROTECTED is not set."""
        if self.access == "huggingface":
            OAuthApp.of()
        if self.access == "proxy" and not self.proxies:
            raise Misconfigured(
                "FSD_ACCESS is proxy, and FSD_PROXY_ADDRESSES names no proxy, so nobody could sign in: name its "
                "addresses."
            )
        if self.admin_password_file is not None and self.access != "password":
            raise Misconfigured(
                f"FSD_ADMIN_PASSWORD_FILE is set, and FSD_ACCESS is {self.access}, so nobody signs in with a password: "
                "set FSD_ACCESS=password, or leave the file out."
            )
        if self.access == "none" and not (self.unprotected or self.demo) and self.host not in LOOPBACK:
            raise Misconfigured(
                f"FSD_HOST is {self.host}, so others reach this port, and FSD_ACCESS is none, so each of them could do "
                "everything: set FSD_ACCESS=password, proxy or huggingface, or FSD_UNPROTECTED=true where others are "
                "kept out."
            )

    def make_folders(self) -> None:
        """Create the folders of the installation. Raises ``InvalidSetting`` if that fails."""
        try:
            for folder in (self.home, self.home / "logs", self.mlflow_folder / "artifacts"):
                folder.mkdir(parents=True, exist_ok=True)
                if not os.access(folder, os.W_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise Unwritable(
                f"The folder {self.home} cannot be written to ({error.strerror}): set FSD_HOME to one that can."
            ) from None

    @property
    def without_secrets(self) -> dict[str, Any]:
        """The values that are set, but for secrets: what other processes may be given."""
        return {
            name: value
            for name, value in self.model_dump().items()
            if value is not None and not isinstance(value, SecretStr)
        }

    @property
    def access_is_on(self) -> bool:
        """Whether others than the machine's own user reach the application."""
        return self.access != "none" or self.demo or self.unprotected

    @property
    def roots(self) -> tuple[Path, ...]:
        """Folders below which models may be named where access is on."""
        named = tuple(Path(root.strip()).expanduser() for root in self.model_roots.split(",") if root.strip())
        return named or (self.home / "own-models",)  # apart from fetched ones, whose names say where they came from

    @property
    def is_ephemeral(self) -> bool:
        """Whether stored data is lost with the Space that this process runs in."""
        persistent = self.snapshots is not None or self.home.is_relative_to(SPACE_DATA) or self.database_url is not None
        return here() is not None and not persistent

    @property
    def resolved_database_url(self) -> str:
        return self.database_url or sqlite_url(self.default_database)

    @property
    def session_cookie(self) -> str:
        """Name of a signed-in browser's cookie, the installation's own: a browser sends cookies to all of a host's
        ports."""
        return f"fsd_session_{self.installation[:8]}"

    @property
    def installation(self) -> str:
        """What stands for the installation in browsers, which know it by no other name: 16 hex digits."""
        return text_hash(without_secrets(self.resolved_database_url))

    @property
    def default_database(self) -> Path:
        """The SQLite file that is taken where no database is named."""
        return self.home / "fsd.db"

    @property
    def data_folder(self) -> Path:
        return self.data_dir or self.home / "data"

    @property
    def tasks_folder(self) -> Path:
        return self.tasks or self.home / "tasks"

    @property
    def mlflow_folder(self) -> Path:
        return self.home / "mlflow"

    @property
    def resolved_mlflow_uri(self) -> str:
        # Names the driver: MLflow would take the quoted text of "sqlite:///…" for a path, and create that folder too.
        return self.mlflow_uri or sqlite_url(self.mlflow_folder / "mlflow.db", "sqlite+pysqlite")

    @property
    def mlflow_is_server(self) -> bool:
        """Whether runs are mirrored to an MLflow server, which has pages of its own."""
        return self.resolved_mlflow_uri.startswith(("http://", "https://"))

    @property
    def serves_mlflow(self) -> bool:
        """Whether the app also serves MLflow's pages, over its own store."""
        return self.mlflow_ui and not self.mlflow_is_server

    @property
    def mlflow_url(self) -> str | None:
        """Address of MLflow's pages for a browser: a server's URL or a path of the app; ``None`` if there are none."""
        if self.mlflow_is_server:
            return without_secrets(self.resolved_mlflow_uri).rstrip("/")
        return f"{self.root_path}{MLFLOW_PATH}" if self.mlflow_ui else None


def sqlite_url(path: Path, driver: str = "sqlite") -> str:
    """Return the URL of a SQLite file. Its path is quoted."""
    return f"{driver}:///{quote(str(path))}"


@cache
def get_settings() -> Settings:
    """Return the process's settings, read once. Raises ``InvalidSetting`` for a variable that cannot be used."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        if first["type"] == "value_error":  # already a sentence
            reason = sentence(error)
        else:
            description = str(Settings.model_fields[field].description)
            reason = f"it is {first['input']!r}. Expected: {description[0].lower()}{description[1:]}"
        raise Misconfigured(f"The environment variable FSD_{field.upper()} cannot be used: {reason}") from None
