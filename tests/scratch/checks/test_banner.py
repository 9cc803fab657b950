"""Banners, read by means of their own."""

from __future__ import annotations

import pytest

from provision.contracts.check import NotDeclared, Site
from tests.scratch.domain import BannerResource


def test_banner_is_there(site: Site, node: str) -> None:
    """The banner has its declared text."""
    texts = [
        item.text for item in site.inventory.nodes[node].host_resources if isinstance(item, BannerResource)
    ]
    if not texts:
        raise NotDeclared("no banner")
    text = texts[0].replace("{{ site }}", site.inventory.name)
    if text not in site.host(f"{node}/ssh").check_output("cat /etc/banner"):
        pytest.fail("another text")
