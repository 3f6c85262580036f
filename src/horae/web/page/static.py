"""What pages load: style, modules and pictures of our own."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from horae.web.answer import HEADERS

if TYPE_CHECKING:
    from collections.abc import Mapping

_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class Static:
    """What pages load, held in memory; its address changes when any of it does."""

    version: str
    files: Mapping[str, bytes]

    @classmethod
    def read(cls, directory: Path) -> Static:
        """Return the files of a directory."""
        paths = sorted(path for path in directory.iterdir() if path.suffix in _KINDS)
        files = {path.name: path.read_bytes() for path in paths}
        digest = sha256()
        for name, data in files.items():
            digest.update(f"{name} {len(data)}\n".encode() + data)
        return cls(digest.hexdigest()[:16], files)

    def answer(self, version: str, name: str) -> Response:
        """Return one file; what is asked for by its right version may be kept for ever."""
        data = self.files.get(name)
        if data is None or version != self.version:
            return Response("there is no such file", HTTPStatus.NOT_FOUND, headers=HEADERS)
        kept = {"Cache-Control": "private, max-age=31536000, immutable"}
        kind = _KINDS[Path(name).suffix]
        return Response(data, media_type=kind, headers={**HEADERS, **kept})
