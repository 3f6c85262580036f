"""The errors of the house, and what the command line returns for each.

    HoraeError              a request we cannot honour
      SettingError          a setting that cannot be used               (config)
      OutputError           a form of output that there is not          (cli.output)
      PlanFileError         a file that cannot be read or written       (workspace.files)
        PlanMissingError    a file that is not there
        EditConflictError   a file that changed under an edit           (workspace.edit)
      SpliceError           an edit that does not fit its text          (workspace.edit)
        HeadlineMissingError, HeadlineAmbiguousError, HeadlineVoidError,
        HeadlineStampError  (workspace.done)
        TaskFileError       a task file                                 (workspace.tasks)
        TaskEditError       an edit of one that would touch other lines
      ReaderError           a reader that fails its self-test           (house)
      YamlError             YAML that the guard refuses                 (kernel.yaml)
      LedgerError           a ledger that cannot do what it was asked   (engine.ports)
        LedgerBusyError     another process keeps it from being written
        LedgerWriteError    the disk does not take it
        LedgerDamagedError  corrupt, cut short, empty or gone
        LedgerWholeError    whole, so it is not left behind
        LedgerNewerError    written by a newer version
        StaleTermError      written by an engine whose term is over
          LeaseOverError    written by a member whose lease is over     (store.leases)
      ClusterError          settings with which machines cannot share   (trees)
      LeaseLostError        a lease that was not renewed in time        (member)
      NoLeaderError         no machine leads, or it cannot be reached   (server.forward)
      NoStoreError          no database that machines could share       (cli.cluster)
      NoNodeError           a machine that never joined
      RunError              a run that cannot be made                   (engine.ports)
        BuildError          a block that its tool does not take         (runner.workshop)
      HeldBackError         a run that somebody has to do something for
        SecretError         a secret whose value cannot be read
          UnaskedSecretError  one that nobody asked for yet
      LiteralSecretError    a secret where only its name can be kept
      LauncherLostError     a run that was not made, and may be asked for again
      OldRunsError          runs of an engine before this one           (runner.processes)
      EntryNotFoundError    a name that no entry goes by                (engine.service)
      AmbiguousEntryError   a name that several go by
      ReceiptNotFoundError  a number that no receipt has
      RunNotFoundError      a run that is not there
      RunStateError         a run that is over, or one of several
      EntryStateError       an entry that is gone, not armed or at rest
      RequestError          a request that makes no sense
      AskedMomentError      a time of `why` that cannot be read         (engine.why)
      NoLedgerError         a data directory without a ledger           (cli.service)
      BackupError           a backup that cannot be made there          (cli.keeping)
      NoBackupError         no backup that could be restored
      EmptyRootError        a directory that is not there               (cli.service)
      OtherRootError        a ledger of the plans of another directory  (house)
      DataFileError         a file of the data directory                (house)
      SourceError           a source that failed as a whole             (engine.source)
      ServiceFileError      a unit or plist that somebody has changed   (cli.service)
      GuardError            a request that is not let in                (server.guard)
      ListenError           an address that cannot be listened at       (server.serve)
      TokenFileError        a token that cannot be read                 (server.keys)
      NotOfferedError       something that this engine does not offer   (server.front)
      ChangedError          something changed since it was read         (server.edits)
      PageError             a page that is not there                    (server.page)
      TaskScheduleError     a schedule that no task can have            (hands)
      HttpRequestError      a request that HTTP itself refuses          (server.api)
      SocketPathError       a path too long for a socket                (server)
      EngineUnreachableError  an engine that does not answer            (cli.far)
      FarError              what an engine refused, as its own error    (cli.far)
      TriggerError          a trigger that cannot be used               (rules.trigger)
      TriggerNotFoundError  a workflow, agent or approval that is not there (engine.triggers)
      TriggerConflictError  a name that is taken, or what does not fit
      AgentUnavailableError an agent that can take nothing now
      ApproverError         an agent that wants to approve or deny a run
      UnsignedError         a message that was not signed
      FilesError            files that cannot be applied
      PollError             a look elsewhere that failed
      EmptyFolderError      a folder that holds nothing to apply        (workspace.agentd)
      AgentCommandError     an `agent` command line that says not enough (cli.agent_words)
      AgentError            an agent definition that cannot be used     (rules.agent)
      GitError              a call of git that failed                   (workspace.git)
        GitTimeoutError     it took too long and was ended
        GitRefusedError     a repository that is not trusted
        GitBusyError        another process is at work in it
      ToolPolicyError       a tool policy that cannot be read           (rules.tools)
      AgentTwiceError       two agents of one name                      (runner.agents)
      AgentNotFoundError    a name that no agent goes by
      MissingExtraError     models cannot be called here                (runner.model)
      TaskMissingError      a number that no task has                   (workspace.tasks)
      BoardMissingError     a board that is not there
      TransitionError       a move that a task may not make             (rules.board)
      DependencyError       a task that would wait for itself
      TaskRequestError      a request about a task that makes no sense  (cli.board)
      ClaimError            a claim that could not be made              (workspace.claims)
        ClaimLostError      somebody else has the task
        ClaimRefusedError   the plan as written does not allow it
        ClaimBusyError      it did not get through; try again
      DataLockedError       a data directory that another engine uses   (store.lock)
      NetworkDiskError      a data directory on a network file system   (store.lock)
      ScheduleError         a time rule that cannot be read
        CronError           a cron expression                           (timing.cron)
        TimestampError      an org timestamp                            (timing.repeater)
          RepeaterError     its repeater
        DurationError       a length of time                            (timing.duration)
        ZoneError           a time zone                                 (timing.zone)
        Rfc3339Error        a moment in RFC 3339                        (timing.rfc3339)
        RangeError          two timestamps as one schedule              (rules.armed)
        PolicyError         a property such as :CATCHUP:                (rules.armed)
        CommandError        :COMMAND:, :POST: or :ENV:                  (rules.command)
        AfterError          :AFTER:                                     (rules.after)

Each lives beside its thing, keeps its facts as fields and builds its own message:
what is wrong, where, and what would be right. `code` is the stable word for
machines, `exit_code` what the command line returns.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, TypedDict


class Exit(IntEnum):
    """What a command returns."""

    OK = 0
    FINDINGS = 1  # errors were found, or a run failed
    USAGE = 2
    UNREACHABLE = 3  # no engine answers
    NOT_FOUND = 4
    VERIFICATION = 5
    CONFLICT = 6  # somebody else was first, or holds the lock
    UNAUTHORISED = 7
    TEMPORARY = 75
    TIMED_OUT = 124
    INTERRUPTED = 130


class ErrorData(TypedDict):
    """The one shape of an error in JSON; `facts` are the fields of its kind."""

    code: str
    message: str
    facts: dict[str, object]


class HoraeError(Exception):
    """A request we cannot honour; its text is meant for the person who asked."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = Exit.FINDINGS

    def data(self) -> ErrorData:
        told = ((name, value) for name, value in vars(self).items() if not name.startswith("_"))
        facts = {name: value for name, value in told if value is not None}
        return {"code": self.code, "message": str(self), "facts": facts}


class ScheduleError(HoraeError):
    """A time rule that cannot be read."""

    code = "schedule"
    exit_code = Exit.USAGE
