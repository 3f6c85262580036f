"""Where the values of secrets are, as the settings say: one reader for all who need them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from horae.process.secrets import NamedSecrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from horae.config import Config


def secrets_of(
    config: Config, *, may_call: bool = True, environ: Mapping[str, str] | None = None
) -> NamedSecrets:
    """Return who knows the values of secrets; beside a shared ledger nobody keeps new ones."""
    data = Path(os.path.abspath(config.data))
    is_shared = config.store is not None
    return NamedSecrets(
        config.secrets,
        os.environ if environ is None else environ,
        root=Path(config.root).absolute(),
        data=data,
        store=config.store,
        may_call=may_call,
        keep=None if is_shared else partial(_keep, data),
        forget=None if is_shared else partial(_forget, data),
    )


def known_names(config: Config) -> dict[str, str]:
    """Return the names that a file may name a secret by: variables, and those of the settings."""
    return {**os.environ, **dict.fromkeys(config.secrets, "")}


def _keep(data: Path, name: str, text: str) -> str:
    from horae.store import vault  # most commands keep nothing, and need not load it

    return vault.keep(data, name, text)


def _forget(data: Path, texts: Iterable[str]) -> None:
    from horae.store import vault

    vault.forget(data, texts)
