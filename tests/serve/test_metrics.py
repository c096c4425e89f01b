"""What a server says about itself."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cascader.serve.metrics import Metrics
from tests.serve.conftest import client_of


def values(text):
    """Every value by name and labels, read as Prometheus does."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_quantiles_are_those_of_the_latest_requests_and_counts_those_of_all():
    metrics = Metrics()
    for hundredths in range(2000):
        metrics.add("/api/answer", 200, hundredths / 100, questions=1, pairs_read=3)
    found, path = values(metrics.text().decode()), ("path", "/api/answer")
    assert found["cascader_request_seconds", path, ("quantile", "0.95")] == pytest.approx(19.49, abs=0.01)
    assert found["cascader_request_seconds", path, ("quantile", "0.5")] == pytest.approx(14.995, abs=0.01)
    assert found["cascader_request_seconds_count", path] == 2000
    assert found["cascader_questions_total",] == 2000
    assert found["cascader_pairs_read_total",] == 6000


def test_requests_are_counted_by_route_and_status(plain_folder):
    with client_of(plain_folder) as client:
        for entity in ("red", "red", "rde"):
            client.post("/api/answer", json={"entity": entity, "relation": "of"})
        for made_up in range(3):
            client.get(f"/made/up/{made_up}")
        response = client.get("/api/metrics")
    found = values(response.text)
    assert response.headers["content-type"].startswith("text/plain")
    assert found["cascader_requests_total", ("path", "/api/answer"), ("status", "200")] == 2
    assert found["cascader_requests_total", ("path", "/api/answer"), ("status", "404")] == 1
    assert found["cascader_requests_total", ("path", "other"), ("status", "404")] == 3
    assert found["cascader_questions_total",] == 2
    assert found["cascader_questions_waiting",] == 0
    assert found["cascader_questions_waiting_limit",] == 1000
    assert found["cascader_request_seconds_count", ("path", "/api/answer")] == 3
    assert found["process_resident_memory_bytes",] > 0


def test_metrics_want_the_token_too(plain_folder):
    with client_of(plain_folder, token="secret") as client:
        assert client.get("/api/metrics").status_code == 401
