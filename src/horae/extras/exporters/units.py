"""What lets a machine keep the engine: a unit of systemd, and a job of launchd.

Pure texts. The unit is hardened for an engine that runs other people's commands under its own
user: it may reach the network and its own directories, and nothing else of the machine. What
is left out on purpose: `MemoryDenyWriteExecute`, for programs that compile while they run.
"""

from __future__ import annotations

import plistlib
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# The command, the digest of what stands below; earlier versions wrote "horae: made by".
_MARK: Final = re.compile(r"# (?:generated|horae: made) by `[a-z ]+`, sha256 ([0-9a-f]{64})")
# `mixed`, so that a stop reaches the engine alone, which lets runs go on for `run.drain`;
# delegated, so that each run has a cgroup of its own beside the engine's.
_SERVICE: Final = """\
Type=notify
NotifyAccess=main
WatchdogSec=60
Restart=on-failure
RestartSec=5
KillMode=mixed
TimeoutStopSec=60
OOMPolicy=continue
Delegate=yes
DelegateSubgroup=engine
TasksMax=2048
MemoryHigh=75%
MemoryMax=90%
LimitCORE=0
LimitNOFILE=4096
UMask=0077
"""
# What a service manager of one user can do without being root.
_MODEST: Final = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM
"""
_STRICT: Final = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
PrivateTmp=yes
PrivateDevices=yes
PrivateUsers=yes
DevicePolicy=closed
ProtectSystem=strict
ProtectClock=yes
ProtectHostname=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ReadWritePaths=-/sys/fs/cgroup/system.slice/%n
ProtectProc=invisible
ProcSubset=pid
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @obsolete
SystemCallErrorNumber=EPERM
"""


class EngineUnit(NamedTuple):
    """Which engine is kept: the program, the plan root, and under whom."""

    program: str
    root: str
    user: str = ""  # of a unit of the system; without one systemd makes one up
    is_user: bool = False  # the manager of one user keeps it


def systemd_unit(place: EngineUnit) -> str:
    start = f"ExecStart={_word(place.program)} up {_word(place.root)} --log plain"
    lines = [
        "[Unit]",
        "Description=Horae scheduler for " + place.root.replace("%", "%%"),
        "After=network-online.target time-sync.target",
        "Wants=network-online.target",
        "StartLimitIntervalSec=300",
        "StartLimitBurst=5",
        "",
        "[Service]",
    ]
    if place.is_user:
        lines += [start, _SERVICE.rstrip(), "", _MODEST.rstrip()]
    else:
        root, homes = _word(place.root), ["ProtectHome=yes"]
        if place.root.startswith(("/home/", "/root/", "/run/user/")):  # all but the plan is hidden
            kind = "BindPaths" if place.user else "BindReadOnlyPaths"
            homes = ["ProtectHome=tmpfs", f"{kind}={root}"]
        if place.user:
            lines += [start, f"User={place.user}", f"ReadWritePaths={root}"]
        else:
            # A user of its own may read the plan and writes only into /var/lib/horae.
            lines += [f"{start} --data /var/lib/horae", "DynamicUser=yes"]
            lines += ["StateDirectory=horae", "StateDirectoryMode=0700"]
        lines += [_SERVICE.rstrip(), "", *homes, _STRICT.rstrip()]
    target = "default.target" if place.is_user else "multi-user.target"
    lines += ["", "[Install]", f"WantedBy={target}"]
    return marked("\n".join(lines) + "\n", by="horae service")


def launchd_plist(place: EngineUnit, *, label: str, logs: str) -> str:
    job: dict[str, object] = {
        "Label": label,
        "ProgramArguments": [place.program, "up", place.root, "--log", "plain"],
        "WorkingDirectory": place.root,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ThrottleInterval": 5,
        "ExitTimeOut": 60,
        "ProcessType": "Background",
        "Umask": 0o077,
        "StandardOutPath": f"{logs}/horae.log",
        "StandardErrorPath": f"{logs}/horae.log",
    }
    if place.user:
        job["UserName"] = place.user
    return plistlib.dumps(job, sort_keys=False).decode()


def timer_pair(
    title: str, events: Sequence[str], *, words: Sequence[str], is_persistent: bool, delay: int
) -> tuple[str, str]:
    plain = "".join(sign if sign.isprintable() else " " for sign in title).replace("%", "%%")
    timer = [
        "[Unit]",
        f"Description={plain}",
        "",
        "[Timer]",
        *(f"OnCalendar={event}" for event in events),
        f"Persistent={'true' if is_persistent else 'false'}",
        "AccuracySec=1s",
        *([f"RandomizedDelaySec={delay}", "FixedRandomDelay=true"] if delay else []),
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    service = [
        "[Unit]",
        f"Description={plain}",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart={' '.join(_word(word) for word in words)}",
    ]
    by = "horae export systemd"
    return marked("\n".join(timer) + "\n", by=by), marked("\n".join(service) + "\n", by=by)


def marked(text: str, *, by: str) -> str:
    """Return a text below a line that tells whether it was changed since."""
    return f"# generated by `{by}`, sha256 {sha256(text.encode()).hexdigest()}\n{text}"


def is_untouched(text: str) -> bool:
    """Tell whether a text is as `marked` left it.

    >>> unit = marked("[Unit]", by="horae service")
    >>> is_untouched(unit), is_untouched(unit + "#"), is_untouched("")
    (True, False, False)
    """
    first, _, rest = text.partition("\n")
    mark = _MARK.fullmatch(first)
    return mark is not None and mark[1] == sha256(rest.encode()).hexdigest()


def _word(text: str) -> str:
    """Return a word of a unit; systemd fills in what stands behind a % or a $."""
    plain = text.replace("%", "%%").replace("$", "$$")
    if not any(sign in " \"'\\;" for sign in plain):
        return plain
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
