"""Dutchie's stand-in answers GraphQL over HTTP, and tells what is wrong with a query."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import sandbox

PRODUCTS = """
query FilteredProducts($filter: productsFilterInput!, $page: Int) {
  filteredProducts(filter: $filter, page: $page, perPage: 2) { products { Name } queryInfo { totalCount totalPages } }
}
"""


def ask(outside: sandbox.Sandbox, name: str, query: str, **variables: Any) -> httpx.Response:
    body = {"operationName": name, "query": query, "variables": variables}
    return httpx.post(outside.environ()["DUTCHIE_BASE_URL"], json=body, trust_env=False)


def test_a_stores_products_come_in_pages(outside: sandbox.Sandbox) -> None:
    store = outside.menus.open_store("a-store", products=5)
    pages = [ask(outside, "FilteredProducts", PRODUCTS, filter={"dispensaryId": store}, page=n) for n in range(4)]
    answers = [page.json()["data"]["filteredProducts"] for page in pages]
    assert [len(answer["products"]) for answer in answers] == [2, 2, 1, 0]
    assert answers[0]["queryInfo"] == {"totalCount": 5, "totalPages": 3}


@pytest.mark.parametrize(
    ("query", "complaint"),
    [("query Broken {", "Syntax Error"), ("query Broken { nothing }", "Cannot query field"), ("", "Syntax Error")],
)
def test_a_query_that_does_not_fit_the_schema_is_refused(outside: sandbox.Sandbox, query: str, complaint: str) -> None:
    answer = ask(outside, "Broken", query)
    assert answer.status_code == 400
    assert complaint in answer.json()["errors"][0]["message"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"operationName": "X", "query": "{a}", "variables": 5}'])
def test_what_is_no_graphql_is_refused(outside: sandbox.Sandbox, body: bytes) -> None:
    assert httpx.post(outside.environ()["DUTCHIE_BASE_URL"], content=body, trust_env=False).status_code == 400


def test_faults_come_by_the_operations_name(outside: sandbox.Sandbox) -> None:
    outside.faults.order("server_error", "FilteredProducts")
    stores = "query S($filter: dispensaryFilterInput!) { filteredDispensaries(filter: $filter) { cName } }"
    outside.menus.open_stores(2, state="NV")
    outside.menus.open_stores(1, state="AZ")
    found = ask(outside, "S", stores, filter={"state": "NV"}).json()["data"]["filteredDispensaries"]
    assert found == [{"cName": "nv-1"}, {"cName": "nv-2"}]
    assert ask(outside, "FilteredProducts", PRODUCTS, filter={"dispensaryId": "x"}).status_code in (500, 502, 503)


def test_all_is_forgotten_when_the_sandbox_is_cleared(outside: sandbox.Sandbox) -> None:
    outside.menus.open_stores(2)
    assert outside.describe()["menus"] == {"az-1": 5, "az-2": 5}
    outside.clear()
    assert outside.describe()["menus"] == {}
