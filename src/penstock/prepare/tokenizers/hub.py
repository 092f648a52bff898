"""Hub: a tokenizer's files from the local cache of the Hugging Face hub, or downloaded into it. Used by file.py.

The hub's library tries five times, for 23 seconds, where there is no network. So a connection is tried first.
"""

import os
import re
import socket
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
_PORTS = {"http": 80, "https": 443}
_SECONDS = 5.0  # for an answer: a name server that is not there is waited for much longer


@dataclass(frozen=True)
class Looked:
    """The file, or where it was looked for and why it is not to be had."""

    location: str | None = None
    places: tuple[str, ...] = ()
    unreachable: str = ""  # why there is no connection to the hub


def find_on_hub(name: str, file: str) -> Looked:
    """From the local cache if it is there, else downloaded into it."""
    if not _HUB_ID.fullmatch(name) or name.endswith(".json"):
        return Looked(places=(f"not on the hub, because {name!r} is no hub id",))
    try:
        import huggingface_hub
    except ImportError:
        return Looked(
            places=("not on the hub, because huggingface_hub is not installed (pip install 'penstock[text]')",)
        )
    cached = huggingface_hub.try_to_load_from_cache(name, file)
    if isinstance(cached, str):
        return Looked(cached)
    cache = f"the hub's cache, {huggingface_hub.constants.HF_HUB_CACHE}"
    if reason := _unreachable(huggingface_hub.constants):
        return Looked(places=(cache,), unreachable=reason)
    try:
        return Looked(str(huggingface_hub.hf_hub_download(name, file)))
    except Exception as error:  # of the hub, of the network, of its libraries: all mean that it is not to be had
        return Looked(places=(cache, f"the hub ({_reason(error)})"))


def fetch_beside(hub_id: str, location: str, file: str) -> str:
    """Have a file beside the tokenizer, of the same commit, if there is one. The answer: why that is not known."""
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    commit = os.path.basename(os.path.dirname(location))
    if huggingface_hub.try_to_load_from_cache(hub_id, file, revision=commit) is not None:
        return ""  # it is there, or known not to be
    if reason := _unreachable(huggingface_hub.constants):
        return reason
    try:
        huggingface_hub.hf_hub_download(hub_id, file, revision=commit)
    except LocalEntryNotFoundError as error:  # not here, and the hub was not asked
        return _reason(error.__cause__ or error)
    except EntryNotFoundError:  # most tokenizers have only some of them
        return ""
    except Exception as error:  # of the hub, of the network, of its libraries
        return _reason(error)
    return ""


def _unreachable(constants: Any) -> str:
    """Why there is no connection to the hub, or to the proxy that leads there; nothing if there is one."""
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    host, port = _address(constants.ENDPOINT)
    answers: list[str] = []
    asking = threading.Thread(target=lambda: answers.append(_refusal(host, port)), daemon=True)
    asking.start()
    asking.join(_SECONDS)
    return answers[0] if answers else f"{host} did not answer within {_SECONDS:g} seconds"


def _address(endpoint: str) -> tuple[str, int]:
    """Host and port that a request would connect to first."""
    import urllib.request  # here: a tokenizer on this machine needs none of it

    hub, proxies = urlsplit(endpoint), urllib.request.getproxies()
    proxy = proxies.get(hub.scheme) or proxies.get("all") or ""
    used = urlsplit(proxy) if proxy and not urllib.request.proxy_bypass(hub.hostname or "") else hub
    used = used if used.hostname else hub
    return used.hostname or "", used.port or _PORTS.get(used.scheme, 443)


def _refusal(host: str, port: int) -> str:
    try:
        with socket.create_connection((host, port), timeout=_SECONDS):
            return ""
    except OSError as error:
        return f"{host}: {_reason(error)}"


def _reason(error: BaseException) -> str:
    return next((line.strip()[:200] for line in str(error).splitlines() if line.strip()), type(error).__name__)
