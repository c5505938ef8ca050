"""What a person does at the hub's pages, in a real browser: Debian's Chromium, driven by Playwright. HUB_SCREENSHOTS=folder keeps pictures."""

import asyncio
import contextlib
import os
import pathlib
import shutil
import time

from local_hub import Server, wait
from notebook import assert_same, open_notebook, pod, real
from playwright import async_api as playwright

TURNS = int(os.environ.get("HUB_TURNS", 1))  # more: to measure


@contextlib.asynccontextmanager
async def browser():
    """A fresh one, as on another morning: no cookie, no cache."""
    async with playwright.async_playwright() as driver:
        chromium = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        page = await chromium.new_page(viewport={"width": 1100, "height": 620})
        page.set_default_timeout(60_000)
        try:
            yield page
        finally:
            await chromium.close()


async def log_in(page, h, user):
    await page.goto(f"{h.url}/hub/login")
    await page.fill("#username_input", user)
    await page.fill("#password_input", "whatever the dummy takes")
    await page.click("#login_submit")


async def picture(page, name):
    if folder := os.environ.get("HUB_SCREENSHOTS"):
        await page.screenshot(path=str(pathlib.Path(folder) / f"{name}.png"))


async def home(page, h):
    await page.goto(f"{h.url}/hub/home")
    await page.wait_for_function("window._holdfast_page_loaded")


@real
async def test_500_mb_suspended_from_the_page_are_resumed_from_it_by_a_fresh_browser(hub):
    async with hub() as h:
        server = Server(h, "alice")
        async with browser() as page:
            await log_in(page, h, "alice")
            await home(page, h)
            assert await page.inner_text("#start") == "Start My Server"
            await page.click("#start")
            await page.wait_for_url("**/user/alice/**", timeout=180_000)
            state = await open_notebook(server, 500)
        suspends, resumes = [], []
        for turn in range(TURNS):
            async with browser() as page:
                await log_in(page, h, "alice")
                await home(page, h)
                assert await page.inner_text("#stop") == "Suspend My Server"
                await picture(page, "running")
                at = time.monotonic()
                await page.click("#stop")
                await page.wait_for_function("document.querySelector('#holdfast-progress').textContent.startsWith('Suspending')")
                assert await page.inner_text("#stop") == "Suspending…"
                await picture(page, "suspending")
                await page.wait_for_selector("#holdfast-asleep")
                suspends.append(time.monotonic() - at)
                assert "Asleep since" in await page.inner_text("#holdfast-asleep")
                await picture(page, "asleep")
                assert await asyncio.to_thread(pod) is None
            async with browser() as page:
                await log_in(page, h, "alice")
                await home(page, h)
                assert await page.inner_text("#start") == "Resume My Server"
                answer = asyncio.ensure_future(answered(server, state[0]))
                at = time.monotonic()
                await page.click("#start")
                resumes.append(await answer - at)
                await page.wait_for_url("**/user/alice/**", timeout=180_000)
                await assert_same(server, *state)
                await home(page, h)
                assert await page.query_selector("#holdfast-asleep") is None
            print(f"turn {turn}: suspended in {suspends[-1]:.1f} s, resumed in {resumes[-1]:.1f} s")


async def answered(server, kernel):
    """When the kernel has run a cell again."""
    await wait("the kernel answers", lambda: server.run(kernel, "print(len(big))", limit=5), every=0.1)
    return time.monotonic()


@real
async def test_the_page_says_why_a_server_could_not_be_suspended(hub):
    async with hub("suspend_timeout=1") as h:
        server = Server(h, "alice")
        await open_notebook(server, 200)
        async with browser() as page:
            await log_in(page, h, "alice")
            await page.goto(f"{h.url}/hub/home")
            await page.wait_for_function("window._holdfast_page_loaded")
            await page.click("#stop")
            await page.wait_for_selector("#holdfast-failure")
            text = await page.inner_text("#holdfast-failure")
            assert "could not be suspended, and runs on" in text
            await picture(page, "not-suspended")
