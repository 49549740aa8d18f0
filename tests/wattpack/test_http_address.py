"""Which addresses of servers are taken, before anybody is asked."""

from __future__ import annotations

import pytest

from wattpack.http_address import http_address


@pytest.mark.parametrize(
    "text",
    [
        "http://prometheus:9090",
        "https://thanos.example.com/tenant/",
        "http://[::1]:9090",
        "HTTP://10.0.0.7",
        "http://reader:word@mimir",
    ],
)
def test_an_address_with_a_host_is_taken_as_it_is(text: str) -> None:
    assert http_address(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "prometheus:9090",
        "//prometheus",
        "ftp://prometheus",
        "http:prometheus",
        "http://",
        "http:///prometheus",
        "http://:9090",
        "http://prometheus:port",
        "http://prometheus:99999",
        "http://prometheus:0",
        "http://[::1",
        "http://prome theus",
        "http://prometheus\n",
        "http://prometheus?tenant=1",
        "http://prometheus#top",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"an http:// or https:// address with a host"):
        http_address(text)
