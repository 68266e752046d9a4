"""What axe finds wrong with a page for people who do not see it, or see or use it differently."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page


def find_violations(page: Page) -> list[str]:
    """Check the page as it is now.

    Returns:
        A line for each element that breaks a rule: the rule, the element, what is wrong.
    """
    violations = Axe().run(page).response["violations"]
    return [
        f"{violation['id']}: {node['html']}: {node['failureSummary']}"
        for violation in violations
        for node in violation["nodes"]
    ]
