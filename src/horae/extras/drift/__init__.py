"""Drift: where the words of a plan and its rule have come apart.

`claims` finds the phrases of time that speak of the entry itself, by where they stand and by the
small words around them; `check` compares what they say with the days and times of the rule.
"""
