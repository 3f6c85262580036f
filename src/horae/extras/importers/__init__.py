"""Jobs of other schedulers, read from their texts and written as headlines (`job.import_job`)."""
