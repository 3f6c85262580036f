"""Several nodes on one ledger: the queue of receipts."""
