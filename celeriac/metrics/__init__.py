"""Figures for Prometheus: what SQL knows, told by the API server, and what a process knows, told on a port of its own.

catalogue    every figure: its name, labels and meaning; the page, the rules and the dashboard are held to it
read         the statements, at a cost that does not follow backlog or history
exporter     one reading for all who scrape, as text
process      what a worker's parent or a beat knows, on a port
prometheus   `deploy/prometheus/celeriac.rules.yml`, made of the rules of alerts
grafana      `deploy/grafana/celeriac.json`
"""
