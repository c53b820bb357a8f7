"""What people do with it: keys, notes, live runs, a server that dies, content that means harm."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from training_gym.records.recorder import Recorder
from training_gym.records.run_directory import RunDirectory
from training_gym.spec.episodes import Counters

pytestmark = pytest.mark.slow
LAG_MS = 3000
"""How late a page may hear of a record."""


def record_step(home: Path, step: int, reward: float) -> None:
    run = RunDirectory(home / "runs" / "demo-healthy")
    with Recorder(run, writer=f"later{step}", attempt=1) as recorder:
        counters = Counters(batch=step, optimizer_step=step, policy_version=step)
        recorder.metrics({"reward_mean": reward, "entropy": 0.5}, counters)


def text_of(page: Any, selector: str = "main") -> str:
    return str(page.inner_text(selector))


def test_a_stranger_sees_only_how_to_sign_in(dashboard: Any, visit: Any) -> None:
    seen = visit(dashboard, url=dashboard.address("/runs/demo-healthy/overview"))
    assert "Runs are private" in text_of(seen.page)
    assert "demo" not in text_of(seen.page)


def test_the_key_leaves_the_address(dashboard: Any, visit: Any) -> None:
    seen = visit(dashboard)
    seen.settle()
    assert "token" not in seen.page.url
    assert seen.page.evaluate("document.cookie") == ""


def test_a_password_lets_a_viewer_in(own_dashboard: Any, visit: Any) -> None:
    server = own_dashboard("--password", "correct horse")
    seen = visit(server, url=server.address("/runs/demo-healthy/overview"))
    seen.page.fill("#password", "wrong horse")
    seen.page.click("button:has-text('Sign in')")
    seen.page.wait_for_selector("text=that is not the password")
    seen.page.fill("#password", "correct horse")
    seen.page.click("button:has-text('Sign in')")
    seen.page.wait_for_selector("text=read only")
    seen.settle()
    assert seen.page.locator("textarea").count() == 0


def test_keys_lead_from_the_list_to_a_token(dashboard: Any, visit: Any) -> None:
    seen = visit(dashboard)
    seen.open(dashboard.address("/runs?q=healthy"))
    page = seen.page
    page.keyboard.press("j")
    page.wait_for_selector("tr.current")
    page.keyboard.press("Enter")
    page.wait_for_url("**/demo-healthy/overview")
    page.keyboard.press("2")
    page.wait_for_url("**/trajectories")
    seen.settle()
    page.keyboard.press("[")
    page.wait_for_url("**step=23*")
    seen.settle()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**group=*")
    seen.settle()
    page.click("article a")
    page.wait_for_url("**episode=*")
    page.keyboard.press("t")
    page.wait_for_selector(".tokens .at")
    before = page.get_attribute(".tokens .at", "data-at")
    page.keyboard.press("ArrowRight")
    assert int(page.get_attribute(".tokens .at", "data-at")) == int(before) + 1
    page.keyboard.press("?")
    assert "next token" in text_of(page, "dialog")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    assert seen.problems == []


def test_a_view_can_be_shared_by_its_address(dashboard: Any, visit: Any) -> None:
    seen = visit(dashboard)
    seen.open(dashboard.address("/runs/demo-healthy/trajectories?tab=episodes"))
    seen.page.select_option("[aria-label='How it ended']", "truncated")
    seen.page.wait_for_url("**status=truncated*")
    seen.settle()
    shown = text_of(seen.page, "tbody")
    other = visit(dashboard)
    other.open(seen.page.url)
    assert text_of(other.page, "tbody") == shown


def test_a_point_of_a_curve_leads_to_what_was_played(dashboard: Any, visit: Any) -> None:
    seen = visit(dashboard)
    seen.open(dashboard.address("/runs/demo-healthy/overview"))
    box = seen.page.locator(".u-over").first.bounding_box()
    seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    seen.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    seen.page.wait_for_url(re.compile(r"trajectories\?step=1[0-4]"))


def test_a_chart_is_a_table_as_well(dashboard: Any, visit: Any) -> None:
    seen = visit(dashboard)
    seen.open(dashboard.address("/runs/demo-healthy/overview"))
    seen.page.click("[aria-label='Reward as a table']")
    assert seen.page.locator("figure[aria-label=Reward] tbody tr").count() == 24


def test_notes_and_tags_are_kept(own_dashboard: Any, visit: Any) -> None:
    server = own_dashboard()
    seen = visit(server)
    seen.open(server.address("/runs/demo-healthy/overview"))
    seen.page.fill("textarea", "look at step 3 <b>first</b>")
    seen.page.click("text=Add note")
    seen.page.wait_for_selector("article:has-text('look at step 3 <b>first</b>')")
    seen.page.fill("[aria-label='New tag']", "paper")
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_selector(".tag:has-text('paper')")
    seen.open(server.address("/runs?q=paper"))
    assert seen.page.locator("tbody tr").count() == 1


def test_an_alert_is_acknowledged(own_dashboard: Any, visit: Any) -> None:
    server = own_dashboard()
    run = RunDirectory(server.home / "runs" / "demo-healthy")
    with Recorder(run, writer="engine2", attempt=1) as recorder:
        recorder.alert("grad_norm", "gradient norm 9 times its median", severity="critical")
    seen = visit(server)
    seen.open(server.address("/runs/demo-healthy/alerts"))
    seen.page.click(".message:has-text('gradient norm 9 times')")
    seen.page.fill("[aria-label=Note]", "a known spike")
    seen.page.click("article button.primary")
    seen.page.wait_for_selector("text=seen by")
    assert "a known spike" in text_of(seen.page)


def test_a_view_is_kept_by_name(own_dashboard: Any, visit: Any) -> None:
    server = own_dashboard()
    seen = visit(server)
    seen.open(server.address("/runs?status=completed"))
    seen.page.click("text=save view")
    seen.page.fill("[aria-label='Name of this view']", "finished ones")
    seen.page.click("button:has-text('Save')")
    seen.page.wait_for_selector("text=forget view")
    seen.open(server.address("/runs"))
    seen.page.select_option("#saved-runs", "finished ones")
    seen.page.wait_for_url("**status=completed*")


def test_a_page_hears_of_a_step_in_time(own_dashboard: Any, visit: Any) -> None:
    server = own_dashboard()
    seen = visit(server)
    seen.open(server.address("/runs/demo-healthy/overview"))
    seen.page.wait_for_selector("text=live")
    for step in (25, 26):
        record_step(server.home, step, 0.125 * step)
        shown = f"{0.125 * step:.4g}"
        seen.page.wait_for_selector(
            f"figure[aria-label=Reward] .legend b:has-text('{shown}')", timeout=LAG_MS
        )
    other = visit(server)
    other.open(server.address("/runs?q=healthy"))
    record_step(server.home, 27, 0.777)
    other.page.wait_for_selector("tbody:has-text('0.777')", timeout=LAG_MS)


def test_a_page_outlives_its_server(own_dashboard: Any, visit: Any) -> None:
    server = own_dashboard()
    seen = visit(server)
    seen.open(server.address("/runs/demo-healthy/overview"))
    seen.page.wait_for_selector("text=live")
    seen.page.evaluate("window.same = true")
    server.kill()
    seen.page.wait_for_selector("text=reconnecting", timeout=20_000)
    record_step(server.home, 25, 0.625)
    server.start()
    seen.page.wait_for_selector("header :text('live')", timeout=30_000)
    seen.page.wait_for_selector("figure[aria-label=Reward] .legend b:has-text('0.625')")
    assert seen.page.evaluate("window.same") is True


def test_harmful_content_is_text(own_dashboard: Any, visit: Any) -> None:
    server = own_dashboard()
    run = RunDirectory(server.home / "runs" / "demo-hostile")
    with Recorder(run, writer="later", attempt=1) as recorder:
        recorder.log('<img src=x onerror="window.hacked=1"> \x1b[31mred\x1b]0;title\x07')
        recorder.log("x" * 10_000_000)
    segment = run.streams / "logs" / "raw-1-0.jsonl"
    segment.write_bytes(b'{"schema":1,"text":"\xff\xfe broken"}\n')
    seen = visit(server)
    for path in ("overview", "trajectories", "trajectories?tab=episodes", "logs?repeats=1",
                 "alerts", "evaluations", "configuration", "timeline"):  # fmt: skip
        seen.open(server.address(f"/runs/demo-hostile/{path}"))
        assert seen.page.evaluate("window.hacked") is None
        assert seen.page.locator("main img, main script, main iframe, main b b").count() == 0
    seen.open(server.address("/runs/demo-hostile/logs?repeats=1"))
    shown = text_of(seen.page)
    assert "<img src=x onerror=" in shown
    assert "\\x1b[31mred" in shown
    assert "\x1b" not in shown
    for row in range(6):
        seen.open(server.address("/runs/demo-hostile/trajectories?tab=episodes"))
        links = seen.page.locator("tbody a")
        if row >= links.count():
            break
        links.nth(row).click()
        seen.page.wait_for_url("**episode=*")
        seen.settle()
        seen.page.click("role=tab[name=Tokens]")
        seen.settle()
        assert seen.page.evaluate("window.hacked") is None
    assert [problem for problem in seen.problems if "dialog" in problem] == []


def test_many_lines_stay_quick(own_dashboard: Any, visit: Any) -> None:
    server = own_dashboard()
    run = RunDirectory(server.home / "runs" / "demo-healthy")
    with Recorder(run, writer="later", attempt=1, max_records=100_000) as recorder:
        for number in range(20_000):
            recorder.log(f"line {number} of many")
    seen = visit(server)
    seen.open(server.address("/runs/demo-healthy/logs?repeats=1&q=of many"))
    assert seen.page.locator(".log").count() < 100
    assert "line 19999" in text_of(seen.page)
    first = "Number(document.querySelector('.log .text').innerText.split(' ')[1])"
    seen.page.evaluate("document.querySelector('[role=log]').scrollTop = 0")
    seen.page.wait_for_timeout(200)
    oldest = seen.page.evaluate(first)
    seen.until(f"{first} < {oldest}")
