"""`GET /metrics`, as Prometheus asks for it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.api.server import Api


def test_figures_are_told_to_who_may_read(api: Api) -> None:
    answer = api.ask("GET", "/metrics", scope="read")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["celeriac_scrape_ok"].samples[0].value == 1
    assert "product_resync" in {sample.labels["role"] for sample in families["celeriac_tasks_ready"].samples}
