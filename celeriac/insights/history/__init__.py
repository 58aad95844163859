"""History: sums over minutes, what ran, instants of schedules, the audit trail, alerts."""
