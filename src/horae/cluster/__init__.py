"""Several nodes on one ledger: leases, queue and forwarding."""
