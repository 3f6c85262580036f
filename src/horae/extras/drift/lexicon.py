"""The words that decide what a sentence is about."""

from __future__ import annotations

from typing import Final

from horae.extras.drift.phrase import Often, Period


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


STATES: Final = _set("TODO DONE NEXT WAITING WAIT HOLD STARTED CANCELLED COMMENT FIXED IDEA NB")
FILLERS: Final = _set(
    "please always also just simply then now automatically quietly normally usually only and"
)
DETERMINERS: Final = _set("the a an our my your this these that those all any some no")
SELF: Final = _set(
    "it it's job workflow task script agent cron cronjob crontab pipeline routine bot schedule"
    " automation"
)
STRANGERS: Final = _set(
    "i they he she you their his her your someone somebody people users customers everyone nobody"
    " vendor vendors upstream others another other bus buses train trains tram ferry shuttle"
)
LABELS: Final = _set(
    "schedule scheduled frequency cadence when runs run interval timing cron crontab recurrence"
    " repeats repeat trigger rhythm note info important"
)
# Before a phrase they make it something else than a statement of how it is.
BLOCKERS: Final = _set(
    "not no nor never none cannot without instead rather unlike versus vs"
    " was were had been ran used formerly previously originally until till since"
    " if unless whether when whenever while where because although though despite"
    " could might would can may maybe perhaps possibly ideally eventually someday"
    " consider propose suggest wish want prefer hope discuss decide debate"
    " how why what who whom whose which that example eg e.g old upstream"
    " about around roughly approximately approx almost nearly circa least most"
    " like as per due deadline changed moved switched switch says said say claims reads"
)
# After a phrase they leave it open.
HEDGES: Final = _set("or nor if when whenever unless depending ish → >")
# What may follow an adverb of time; another word is a noun that it belongs to.
FOLLOWING: Final = _set(
    "at on in from to into onto by before after during with without via through over across for"
    " until till starting beginning except excluding as so because and but then plus while since"
    " using within between under the a an all our my this these that it we i they you"
    " automatically too also only sharp now again against per once when"
)
NOT_BEFORE_ADVERB: Final = _set(
    "the a an our my your their his her its this that these those each any some all of for from"
    " with in to into by per about than as and & / or more less very too so last next first at"
)
NOT_BEFORE_EVERY: Final = _set(
    "of for from in to into about as with within between over across and & or covers cover has have"
    " list lists show shows count counts sum sums include includes mark track log record contains"
    " contain enumerate highlight total plot print merge split skip skips ignore miss except"
    " excluding not"
)
NOT_BEFORE_TIME: Final = _set(
    "starting beginning opening closing ending departing arriving open opens close closes closed"
    " due ends end leaves leave departs depart arrives arrive expires expire of for from by"
    " staring look looks looking meet meets meeting price priced sold"
)
QUALITIES: Final = _set(
    "valid active open closed available free due late new busy online offline absent ready"
)
# Verbs that say that the thing itself happens.
RUNNING: Final = _set(
    "run runs running fire fires execute executes happen happens occur occurs start starts begin"
    " begins launch launches repeat repeats recur recurs go goes kick kicks"
)
BEGINNING: Final = _set("start starts begin begins happen happens occur occurs go goes")
DONE: Final = _set(
    "run sent executed generated published triggered scheduled fired started posted delivered"
    " produced built created made performed done kicked launched repeated taken mailed emailed"
    " written"
)
PARTICIPLES: Final = _set(
    "sent built made taken held written kept done shown read paid met seen found given known"
    " brought bought sold left born due closed open"
)
AUXILIARIES: Final = _set(
    "is are was were be been has have had do does did will would can could should must may might"
    " gets get needs need counts matters"
)
# Verbs in a form that no order has, so that somebody else does them.
FINITE: Final = AUXILIARIES - {"need", "get"} | _set(
    "runs goes happens occurs opens closes arrives comes changes expires rotates meets lands ships"
    " publishes leaves departs visits fails breaks takes keeps says wants starts ends"
)
REMINDING: Final = _set(
    "remind reminder reminders tell notify warn alert ask nudge ping announce invite heads-up"
)
PLANNING: Final = _set(
    "prepare prep plan book schedule reserve organise organize join attend meet dial watch catch"
    " call see visit look find search track show list tag measure compare"
)
SUMMING: Final = _set(
    "sum summarise summarize count list total compare aggregate plot chart backfill fill average"
    " cover describe show print log record track mark enumerate"
)
LEVELLING: Final = _set("keep set cap limit hold fix leave maintain stop count price start")
SENDING: Final = _set("run send publish post do perform generate trigger start")
VERBS: Final = _set(
    "add aggregate analyse analyze announce append apply approve archive ask assemble assign"
    " audit back backup bake balance bill book brew brush build bump bundle buy calculate call"
    " capture charge chase check clean cleanup clear close collect commit compact compare compile"
    " compress compute confirm connect convert cook copy count crawl create cut deduplicate delete"
    " deliver deploy detect digest disable dispatch display do download draft drain drink drop"
    " dump email empty enable encrypt enforce evaluate exchange execute exercise expire export"
    " extract feed fetch file fill filter find fire fix flush follow force format forward free"
    " freeze fund garden gather generate get give go grab groom group grow harvest hunt import"
    " index ingest inspect install inventory invite invoice issue keep kick launch lint list"
    " listen load lock log look mail maintain make measure meditate merge message migrate mirror"
    " monitor mop move mow nag notify nudge open optimise optimize order organise organize pack"
    " paint parse patch pause pay perform pick ping plan play poke poll post practice practise"
    " prepare print probe process produce prune publish pull purge push put query read rebalance"
    " rebase rebuild recalculate reconcile record recycle reduce refill refresh regenerate reindex"
    " reload remind remove rename renew reorder repair replace replicate reply report reset"
    " resolve restart restore resync retrain retry review rotate run sample save scan schedule"
    " score scrape scrub seed sell send serve set share ship shred shut sign snapshot sort spin"
    " start stop store stretch study submit sum summarise summarize sweep swap sync synchronise"
    " synchronize tag take tally tell test tidy translate trigger trim tune turn update upgrade"
    " upload vacuum validate verify wake walk warm wash watch water weigh wipe work wrap write zip"
)
EVENTS: Final = _set(
    "meeting meetings standup standups stand-up call calls demo demos retro retrospective planning"
    " session class lesson all-hands event launch release review presentation party wedding match"
    " game show lunch dinner breakfast brunch appointment interview webinar workshop conference"
    " training practice 1:1 flight train market deadline"
)
# Things that come out once in a period: a noun after such a word is about them.
PERIODICALS: Final = _set(
    "backup backups report reports digest digests standup standups notes log logs build builds"
    " newsletter newsletters summary summaries snapshot snapshots goal goals target targets budget"
    " budgets menu plan plans okr okrs objectives statement statements invoice invoices bill bills"
    " forecast forecasts schedule calendar meeting meetings ad ads deal deals price prices cost"
    " costs spend usage rate rates wage wages pay limit limits quota quotas active recurring review"
    " reviews release releases subscription leave workers worker job jobs totals stats metrics"
    " numbers counts averages file files folder folders table tables page pages conference"
)
MAKING: Final = _set("run job mailing email mail delivery generation creation task")
# Things that are measured or known by a period, whenever somebody looks at them.
MEASURES: Final = _set(
    "rate rates wage wages pay salary fee fees cost costs price prices spend spending spends usage"
    " budget budgets revenue income active recurring users user visitors workers worker employees"
    " limit limits quota quotas allowance average averages total totals sum sums count counts"
    " stats statistics metrics numbers figures goals goal targets target plan plans calendar"
    " schedule forecast forecasts menu deals ad ads bill bills invoices statement statements"
    " subscription subscriptions pass fare ticket tickets leave driver dose life bread planet mail"
    " telegraph mirror express show beast bugle prophet star herald standard times news channel"
    " toolchain rust compiler specials horoscope temperature temperatures values data rows chart"
    " graph table archive archives folder files logs snapshots reports backups builds double grind"
)
# What is made of, or done to, something that has its own rhythm.
ABOUT_OTHERS: Final = _set(
    "archive archiver archives cleaner calculator template templates reminder reminders watcher"
    " viewer dashboard dashboards rollup prep preparation planning retention pruning purge draft"
    " drafts requests subscription subscriptions check-in checker compression shopping crossword"
    " clippings list lists table map page chart widget overview leaderboard log count index"
)
ACTIVITIES: Final = _set(
    "audit backup check cleanup close digest email export import job mail mailing maintenance"
    " newsletter post rebuild reconciliation refresh reindex report restart restore retro"
    " retrospective review rotation run scan scrum snapshot standup summary sync task test update"
    " upgrade workflow"
)
# A rhythm so slow that a thing is more often named for it than done in it.
RARE: Final = frozenset({Often(3, Period.MONTH), Often(6, Period.MONTH), Often(1, Period.YEAR)})
