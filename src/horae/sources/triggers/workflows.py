"""Workflows, as requests and files make and change them; what is wrong is said before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from horae.core.ports import SecretError, UnaskedSecretError
from horae.core.secret import WEBHOOK
from horae.sources.triggers.approvals import Doorman
from horae.sources.triggers.errors import TriggerConflictError, TriggerNotFoundError
from horae.sources.triggers.fields import flag, options, whole, without_empty
from horae.sources.triggers.rules import (
    GITHUB,
    MASK,
    POLL,
    Definition,
    Kind,
    SharedSecretError,
    TriggerError,
    check_scheme,
    checked,
    parse_tools,
    secrets_of,
)
from horae.sources.triggers.shapes import page_of, workflow_shape
from horae.sources.triggers.webhook import SECRETS

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRIES: Final = 5  # at a definition that others change at the same time


class Workflows(Doorman):
    """Lists, makes, changes and forgets workflows."""

    async def page(self, *, limit: int | None = None, offset: int | None = None) -> dict[str, Any]:
        """Return some workflows, newest first."""
        size, start = page_of(limit, offset)
        found, total = await self._store.page(limit=size, offset=start)
        items = [workflow_shape(each) for each in found]
        return {"items": items, "total": total, "limit": size, "offset": start}

    async def get(self, word: str) -> dict[str, Any]:
        """Return one workflow, by its id or its name."""
        return workflow_shape(await self.found(word))

    async def history(
        self, word: str, *, limit: int | None = None, offset: int | None = None
    ) -> dict[str, Any]:
        """Return what a workflow has done, newest first."""
        trigger = await self.found(word)
        size, start = page_of(limit, offset)
        found, total = await self._store.dispatches(trigger.id, limit=size, offset=start)
        items = [await self._dispatch(trigger, each) for each in found]
        return {"items": items, "total": total, "limit": size, "offset": start}

    async def create(self, data: Mapping[str, Any], *, file: str = "") -> dict[str, Any]:
        """Take in a workflow and arm it; what is wrong with it is said before anything is kept."""
        definition = await self._sealed(await self.judged(data, file=file))
        made = self._ids()
        if not await self._store.insert(made, definition, now=self._clock.now()):
            await self._drop(secrets_of(definition.config))
            raise TriggerConflictError(f"a workflow named '{definition.name}' already exists")
        self._poke()
        return await self._told(made, definition)

    async def update(
        self, word: str, data: Mapping[str, Any], *, file: str | None = None
    ) -> dict[str, Any]:
        """Change what is said of a workflow; it holds at once. What is null stays as it is."""
        for _ in range(_TRIES):
            was = await self.found(word)
            definition = await self._changed(was.definition, data, file=file)
            if definition == was.definition:
                return workflow_shape(was)
            old, definition = secrets_of(was.definition.config), await self._sealed(definition)
            changed = await self._store.change(was, definition, now=self._clock.now())
            new = secrets_of(definition.config)
            if changed is not None:
                await self._drop(old, but=new)
                await self._refit(changed)
                self._poke()
                return await self._told(changed.id, definition)
            await self._drop(new, but=old)
            taken = await self._store.named(definition.name)
            if taken is not None and taken.id != was.id:
                name = definition.name
                raise TriggerConflictError(f"a workflow named '{name}' already exists")
        raise TriggerConflictError(f"workflow '{word}' is being changed by another request")

    async def rotate(self, word: str, secret: str | None) -> dict[str, Any]:
        """Give a webhook another secret beside the one that it has; None: the older one ends."""
        trigger = await self.found(word)
        if trigger.definition.kind is not Kind.WEBHOOK:
            raise TriggerError(f"'{trigger.definition.name}' is not a webhook")
        config = dict(trigger.definition.config)
        was = config.pop("old_secret", None)
        if secret is not None and was is not None:
            name = trigger.definition.name
            end = f"`horae trigger rotate {name} --end` ends the older one"
            reason = f"'{name}' already has two secrets; {end}"
            raise TriggerConflictError(reason)
        if secret is not None:
            config |= {"secret": secret, "old_secret": config["secret"]}
        return await self.update(trigger.id, {"trigger_config": config})

    async def delete(self, word: str) -> dict[str, Any]:
        """Forget a workflow; nothing of it starts any more, and its receipts stay."""
        trigger = await self.found(word)
        if not await self._store.remove(trigger.id, now=self._clock.now()):
            raise TriggerNotFoundError("workflow", word[:100])
        await self._drop(secrets_of(trigger.definition.config))
        self._poke()
        return workflow_shape(trigger)

    async def judged(self, data: Mapping[str, Any], *, file: str = "") -> Definition:
        """Return the definition that a request makes, or say what is wrong with it."""
        for name in ("name", "prompt_template"):
            if not isinstance(data.get(name), str):
                raise TriggerError(f"missing field `{name}`", field=name)
        config = data.get("trigger_config", data.get("source_config"))
        if not isinstance(config, dict):
            raise TriggerError("missing field `trigger_config`", field="type")
        definition = Definition(
            data["name"],
            await self.agent_named(data),
            config,
            data["prompt_template"],
            whole(data.get("poll_interval_secs"), "poll_interval_secs", POLL),
            flag(data.get("enabled"), "enabled", default=True),
            parse_tools(data.get("tool_policy")),
            without_empty(options(data)),
            file,
            data.get("wanted"),
        )
        return await self.judge(definition)

    async def _changed(
        self, was: Definition, data: Mapping[str, Any], *, file: str | None
    ) -> Definition:
        given = {name: value for name, value in data.items() if value is not None}
        config = given.get("trigger_config", given.get("source_config", was.config))
        if isinstance(config, dict) and config.get("type") == was.kind is Kind.WEBHOOK:
            shown = {name: was.config.get(name) for name in SECRETS if config.get(name) == MASK}
            scheme = config.get("scheme") or was.config["scheme"]
            config = {**config, **shown, "scheme": scheme}
        is_named = any(name in given for name in ("agent", "agent_id", "agent_name"))
        template, name = (given.get(each) for each in ("prompt_template", "name"))
        for each in (template, name):
            if each is not None and not isinstance(each, str):
                raise TriggerError("name and prompt_template must be strings")
        definition = replace(
            was,
            name=was.name if name is None else name,
            agent=await self.agent_named(given) if is_named else was.agent,
            config=config,
            template=was.template if template is None else template,
            poll_interval=whole(
                given.get("poll_interval_secs"), "poll_interval_secs", was.poll_interval
            ),
            is_enabled=flag(given.get("enabled"), "enabled", default=was.is_enabled),
            tools=parse_tools(given["tool_policy"]) if "tool_policy" in given else was.tools,
            options=without_empty({**was.options, **options(given)}),
            file=was.file if file is None else file,
            is_wanted=data.get("wanted", was.is_wanted),
        )
        if definition == was:
            return was
        made = await self.judge(definition, name=was.name)
        check_scheme(was, made)
        return made

    async def judge(self, definition: Definition, *, name: str | None = None) -> Definition:
        """Return a definition that can be kept; *name* is what it is called so far."""
        was = await self._store.named(name or definition.name)
        made = await self._checked(definition, None if was is None else was.definition)
        if not made.agent:
            raise TriggerError("Agent not found", field="agent")
        if made.kind in GITHUB and made.is_enabled and not self._has_gh():
            raise TriggerError(
                "GitHub triggers need the program gh, which is not installed; "
                "install it from https://cli.github.com and run `gh auth login`",
                field="type",
            )
        if made.kind is Kind.DISPATCH_RESULT:
            await self._refuse_loop(made)
        if made.kind is Kind.WEBHOOK:
            old = secrets_of(was.definition.config) if was else frozenset()
            await self._refuse_shared(secrets_of(made.config) - old, name or made.name)
        return made

    async def _checked(self, definition: Definition, was: Definition | None) -> Definition:
        """Return a definition in which everything is as it should be, judged by its values.

        Its secrets stay named; one that is not asked for is judged when it is.
        """
        config = definition.config
        texts = {name: config[name] for name in SECRETS if isinstance(config.get(name), str)}
        if not texts:
            return checked(definition)
        texts = await self._kept(texts, secrets_of(was.config) if was else ())
        values = {}
        for name, text in texts.items():
            try:
                values[name] = await self._value(text)
            except UnaskedSecretError:
                values[name] = text
                if was is not None and was.kind is Kind.WEBHOOK:
                    values.setdefault("scheme", config.get("scheme") or was.config["scheme"])
            except SecretError as error:
                if was is None or text not in secrets_of(was.config):
                    raise TriggerError(str(error), field=name) from None
                values[name] = text
        made = checked(replace(definition, config={**config, **values}))
        named = {name: text for name, text in texts.items() if name in made.config}
        return replace(made, config={**made.config, **named})

    async def _sealed(self, definition: Definition) -> Definition:
        """Return a definition as the ledger may hold it: its secrets are kept elsewhere."""
        config = definition.config
        texts = {name: config[name] for name in SECRETS if name in config}
        kept = await self._keep(texts, prefix=f"{WEBHOOK}{definition.name}")
        return replace(definition, config={**config, **kept}) if kept else definition

    async def _refuse_shared(self, new: frozenset[str], name: str) -> None:
        """Raise an error if a webhook would get a secret that another has."""
        values = await self._values(new)
        for each in await self._store.webhooks() if new else ():
            if each.definition.name == name:
                continue
            if not values.isdisjoint(await self._values(secrets_of(each.definition.config))):
                raise SharedSecretError(each.definition.name)

    async def _refuse_loop(self, definition: Definition) -> None:
        """Raise an error if a workflow would follow what itself follows others."""
        source = definition.config.get("source_workflow_id")
        if source is None:
            return
        trigger = await self._store.get(source)
        if trigger is None:
            reason = f"source_workflow_id '{source[:100]}': there is no such workflow"
            raise TriggerError(reason, field="source_workflow_id")
        if trigger.definition.kind is Kind.DISPATCH_RESULT:
            reason = (
                f"workflow '{trigger.definition.name}' itself follows a workflow; chains of such "
                "workflows are not allowed, as they could form a cycle"
            )
            raise TriggerError(reason, field="source_workflow_id")

    async def _told(self, trigger: str, definition: Definition) -> dict[str, Any]:
        """Return a workflow that was just kept, with what somebody should know of it."""
        kept = await self._store.get(trigger)
        if kept is None:
            raise TriggerNotFoundError("workflow", trigger)
        why = await self.why_unfit(definition, None) if definition.is_enabled else None
        notes = [] if why is None else [f"{why}; until then its runs are held"]
        return {**workflow_shape(kept), "notes": notes}
