"""Prose–clock drift: where the words of a plan and its rule have come apart.

Words such as "daily", "every weekday at 9" or "on Mondays" are a *claim* only where grammar makes
them one about this very schedule: `every` and `each`, an adverb, the leading adjective of something
done, days in the plural or in a row, a time after `at`. Everything doubtful says nothing: a
negation, the past, a wish, a condition, a question; quotations, code, links; a sentence whose
subject is somebody else; a day that may be meant only once; a time with the name of another zone.
A reading that could be right counts as agreement: "daily" may mean Monday to Friday, "at 9" may
mean 21:00. English only, by word lists; a sentence of more than a hundred words is not read.
"""
