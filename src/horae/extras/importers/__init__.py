"""Taking over the hours that other schedulers keep, and giving ours to them.

A reader turns the text of another scheduler into jobs, each with the times at which that scheduler
would fire. `job.import_job` writes a headline, reads it back and compares the two.
"""
