"""Jobs of APScheduler; `horae import` reads this file and never runs it."""

from apscheduler.schedulers.blocking import BlockingScheduler


def poll() -> None:
    """Fetch new orders."""


def report() -> None:
    """Write the daily report."""


if __name__ == "__main__":
    scheduler = BlockingScheduler(timezone="Europe/Berlin")
    scheduler.add_job(poll, "interval", minutes=15, start_date="2026-01-01 00:00:00")
    scheduler.add_job(report, "cron", day_of_week="mon-fri", hour=18, misfire_grace_time=3600)
    scheduler.start()
