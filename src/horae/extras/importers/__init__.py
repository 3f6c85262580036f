"""Jobs of other schedulers, parsed from text and written as headlines by `job.import_job`."""
