"""Named tokens: who may ask, and what for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from horae.core.scope import Scope, parse_scopes
from horae.web.front import offered
from horae.web.keys import add_token, all_tokens, revoke_token
from horae.web.shapes import TEXT, TOKEN, and_also, listed, named, shape
from horae.web.table import Operation, asks, does, needed, text

if TYPE_CHECKING:
    from starlette.requests import Request

    from horae.core.access import Tokens
    from horae.web.front import Front
    from horae.web.request import RequestFields

_WHAT: Final = "tokens"


async def tokens(front: Front, _: Request, __: RequestFields) -> dict[str, Any]:
    """List the tokens by name, without their secrets."""
    keys = offered(front.keys, _WHAT)
    found = await all_tokens(keys.directory, _tokens(front))
    return {"tokens": [each.data() for each in found]}


async def new_named(front: Front, _: Request, asked: RequestFields) -> dict[str, Any]:
    """Create a token; only this response contains its secret."""
    scopes, now = parse_scopes([asked.text("scopes")]), front.clock.now()
    token, said = await add_token(_tokens(front), asked.text("name"), scopes, now=now)
    return {**token.data(), "token": said}


async def revoke(front: Front, request: Request, _: RequestFields) -> dict[str, Any]:
    """Revoke a token and end its open connections."""
    name = request.path_params["name"]
    await revoke_token(_tokens(front), name, now=front.clock.now())
    offered(front.keys, _WHAT).end(name)
    return {"revoked": name}


def _tokens(front: Front) -> Tokens:
    return offered(offered(front.keys, _WHAT).tokens, _WHAT)


OPERATIONS: Final[tuple[Operation, ...]] = (
    asks("/api/v1/tokens", Scope.ADMIN, tokens, shape(tokens=listed(named("Token")))),
    does(
        "/api/v1/tokens",
        Scope.ADMIN,
        new_named,
        and_also(TOKEN, token=TEXT),
        needed(text("name", "name of the token")),
        needed(text("scopes", "scopes, separated by commas: read, run, edit, admin")),
        also=(409,),
    ),
    does("/api/v1/tokens/{name}/revoke", Scope.ADMIN, revoke, shape(revoked=TEXT), also=(404,)),
)
