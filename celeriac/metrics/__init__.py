"""Figures for Prometheus: those in SQL are exported by the API server, a process' own on a port of its own.

catalogue    every figure: its name, labels and meaning; the page, the rules and the dashboard are checked against it
read         the statements, at a cost that does not depend on backlog or history
exporter     one reading for all who scrape, as text
process      the figures of a worker's parent or a beat, on a port
prometheus   `deploy/prometheus/celeriac.rules.yml`, made of the rules of alerts
grafana      `deploy/grafana/celeriac.json`
"""
