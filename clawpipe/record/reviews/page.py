"""The queue as a page on this machine: rows with their scores, and forms to decide about them. It needs no script."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import parse_qs, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from clawpipe.core.services.secret import home_secret
from clawpipe.core.services.web import THIS_MACHINE, Locked, SameOrigin
from clawpipe.core.store.home import Home
from clawpipe.errors import ClawpipeError, ConfigError, DataError
from clawpipe.record.reporting.html import templates
from clawpipe.record.reviews.deciding import decide, edit, editable
from clawpipe.record.reviews.decisions import DecidedError, Decision, Verdict, told
from clawpipe.record.reviews.queue import Entry, Queue, parts_of

_AT_ONCE = 20  # rows on a page
_MOST = 1_000_000  # bytes of a form
_VERDICTS: Mapping[str, Verdict] = {"approve": "approved", "reject": "rejected", "reopen": "open"}


@dataclass
class _Page:
    """The page of a queue.

    Args:
        open_queue: makes the queue anew, with the rows that are there now.
        by: who decides unless a form says otherwise.
    """

    home: Home
    open_queue: Callable[[], Queue]
    by: str
    queue: Queue = field(init=False)

    def __post_init__(self) -> None:
        self.queue = self.open_queue()

    async def show(self, request: Request) -> Response:
        query = request.query_params
        if "anew" in query:
            self.queue = await run_in_threadpool(self.open_queue)
        by = query.get("by") or self.by
        return await run_in_threadpool(self._rendered, query.get("show", ""), query.get("done", ""), "", 200, by)

    async def decide(self, request: Request) -> Response:
        """Record what a form says, and lead back to the list."""
        form = await _form(request)
        if form is None:
            return Response("the form is too large", 413)
        return await run_in_threadpool(self._decided, form)

    def _decided(self, form: Mapping[str, str]) -> Response:
        by = form.get("by", "").strip() or self.by
        try:
            made = self._record(form, by)
        except DecidedError as error:
            wrong = f"Nothing was recorded: {error.where} is decided already, {error.what}."
            return self._rendered(form.get("show", ""), "", wrong, 409, by)
        except ClawpipeError as error:
            return self._rendered(form.get("show", ""), "", f"Nothing was recorded: {error.what}.", 400, by)
        done = f"{made.row_id[:12]}: {told(made)}"
        return RedirectResponse("/?" + urlencode({"show": form.get("show", ""), "done": done, "by": by}), 303)

    def _record(self, form: Mapping[str, str], by: str) -> Decision:
        """Raises ClawpipeError: the form names no row, no decision, or an older state of the row."""
        entry, action = self._entry(form.get("row", "")), form.get("decision", "")
        seen, turn, reason = _number(form.get("seen")), form.get("turn"), form.get("reason", "")
        if seen is None or (action != "edit" and action not in _VERDICTS):
            raise ConfigError("the form says neither what was seen nor what is decided")
        if action == "edit":
            return edit(self.home, self.queue, entry, form.get("text", ""), by, seen=seen, turn=_number(turn), reason=reason)
        return decide(self.home, self.queue, entry, _VERDICTS[action], by, seen=seen, reason=reason)

    def _entry(self, row: str) -> Entry:
        """Return a row that may have been forgotten since the page was shown."""
        entry = self.queue.entry(row)
        if not self.queue.is_there(entry):
            self.queue = self.open_queue()
            entry = self.queue.entry(row)
        return entry

    def _rendered(self, show: str, done: str, wrong: str, status: int, by: str) -> Response:
        try:
            return self._page(show, done, wrong, status, by)
        except DataError:  # rows were forgotten meanwhile: their datasets have others in their place
            self.queue = self.open_queue()
            return self._page(show, done, wrong, status, by)

    def _page(self, show: str, done: str, wrong: str, status: int, by: str) -> Response:
        entries = self.queue.entries()
        wanted = [one for one in entries if one.decided == (show == "decided")]
        text = (
            templates()
            .get_template("review.html.jinja")
            .render(
                rows=[self._row(one) for one in wanted[:_AT_ONCE]],
                left=max(len(wanted) - _AT_ONCE, 0),
                waiting=sum(not one.decided for one in entries),
                decided=sum(one.decided for one in entries),
                show="decided" if show == "decided" else "",
                done=done,
                wrong=wrong,
                by=by,
            )
        )
        return HTMLResponse(text, status, {"cache-control": "no-store"})

    def _row(self, entry: Entry) -> dict[str, object]:
        turns, row = (editable(self.queue, entry) if entry.kind == "conversation" else {}), self.queue.text(entry)
        return {
            "entry": entry,
            "parts": parts_of(entry, row),
            "turn": max(turns) if turns else None,
            "answer": turns[max(turns)] if turns else "",
            "said": told(entry.decision) if entry.decided and entry.decision else "",
            "written": entry.decision.text if entry.decision else None,
        }


def review_app(home: Home, open_queue: Callable[[], Queue], by: str) -> ASGIApp:
    """Return the page for browsers that know the home's secret (basic authentication); requests of other sites' pages are
    refused."""
    page = _Page(home, open_queue, by)
    app = Starlette(routes=[Route("/", page.show), Route("/decide", page.decide, methods=["POST"])])
    return SameOrigin(Locked(cast(ASGIApp, app), home_secret(home), open_path=""), THIS_MACHINE)


def serve_page(app: ASGIApp, listener: socket.socket) -> None:
    """Answer browsers on a bound socket until SIGINT or SIGTERM."""
    settings = uvicorn.Config(app, ws="none", lifespan="off", server_header=False, log_level="warning")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # uvicorn re-raises the signal: a stop is no crash
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(settings).run([listener])


async def _form(request: Request) -> dict[str, str] | None:
    """Return the fields of a form; None if it is too large."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST:
            return None
    fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return {name: values[-1] for name, values in fields.items()}


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 10 else None
