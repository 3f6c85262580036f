"""Taking over the hours that other schedulers keep, and giving ours to them.

A reader turns the text of another scheduler into `Job`s and says what it cannot take. It also
knows, by a walk of its own along the clock, when that scheduler would fire. `headline` writes a
job as we would, and `prove` reads that back and compares the two, moment by moment.
"""
