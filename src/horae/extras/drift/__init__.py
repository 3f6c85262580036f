"""Prose–clock drift: where the words of a plan and its rule have come apart.

A title, a body or a comment says "daily", "every weekday at 9" or "first of the month",
and the rule below it says something else. Such words are a *claim* only where grammar
makes them one about this very schedule:

- `every`, `each`: `every 15 minutes`, `each Monday at 9`, `every other week`;
- an adverb: `runs daily`, `copy the photos once a week`, `(hourly)`;
- the leading adjective of something done: `Nightly build`, but not `Nightly build cleanup`;
- days in the plural or in a row: `on Mondays`, `Mon-Fri`, `weekdays`, `the 1st and 15th`;
- a time after `at`, or one that follows any of these: `at 6pm`, `Mondays 9:30`.

Everything doubtful says nothing: a negation, the past, a wish, a condition, a question or
an alternative; quotations, code, links, tags, drawers, tables and source blocks; a sentence
whose subject is somebody else ("the shop opens at 9"); a day that may be meant only once
("on Monday"); a time with the name of another zone. A reading that could be right counts
as agreement: "daily" may mean Monday to Friday, "hourly" may mean in office hours, "at 9"
may mean 21:00.

Known limits: English only; numbers up to twelve and a few round ones as words; no
holidays; `biweekly` and `bimonthly` mean two things and so claim nothing; a sentence of
more than a hundred words is not read. It is a reading by word lists, not by a grammar of
English: it misses what is said in an unusual way.
"""
