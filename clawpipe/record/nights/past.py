"""What a night takes from earlier ones: their rounds, for pass rates of items and for replay, and evidence that adds up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.engine import EngineSpec
from clawpipe.core.config.night import NightConfig
from clawpipe.core.store.artifacts import Store
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import DatasetRef, ModelRef
from clawpipe.core.store.replaced import current_digest
from clawpipe.errors import ClawpipeError
from clawpipe.learn.evaluation.verdict.verdict import Decision, Tally, Verdict
from clawpipe.record.nights.files import has_verdict, list_nights, model_of, night_id, run_dir
from clawpipe.record.nights.record import Incumbent, PastRound, read_record
from clawpipe.record.nights.status import NightStatus, read_status

_NIGHTS = 30  # whose rounds say how hard an item is; policies from before then were others


def past_rounds(home: Home, store: Store, config: NightConfig) -> tuple[PastRound, ...]:
    """Return the rounds of earlier nights, newest first, if the settings look back.

    Other nights with a verdict count whose base and tool-call format are the same, and which had one of tonight's environments with
    the same options, whatever its weight: what is asked less tonight, or no more, is what would be forgotten. Rounds of which the
    store has lost anything are left out; of what was forgotten in part, the rest counts.
    """
    drawn = bool(config.rollouts and config.rollouts.difficulty)
    nights = max(_NIGHTS if drawn else 0, config.curation.sampling.replay_nights)
    if not nights:
        return ()
    asked, tonight = night_id(config), _played(config.model_dump(mode="json"))
    names = [name for name in reversed(list_nights(home)) if name != asked and has_verdict(home, name)]
    found = [name for name in names if any(one in tonight for one in _played_in(home, name))][:nights]
    rounds = [one for name in found for one in reversed(list(_rounds(home, name)))]
    return tuple(one for one in rounds if _is_there(store, one))


def earlier_evidence(home: Home, config: NightConfig, champion: Incumbent | None) -> tuple[Tally, ...]:
    """Return the evidence of this model's nights since its last promotion, the oldest first, where evidence adds up.

    Those count that had to beat the same model at the same: in the same environments, by the same measure. Nights of one draw
    answered the same items: the first of them counts, which no result could have chosen, and none of tonight's draw.

    Args:
        champion: the model that tonight's candidate has to beat; None: the base.
    """
    if not config.gate.adds_up:
        return ()
    asked, found = night_id(config), dict[str, Tally]()
    tonight = _contest(champion, config.model_dump(mode="json"))
    for name in reversed(list_nights(home)):
        if name == asked or not has_verdict(home, name) or model_of(home, name) != config.registry.model_name:
            continue
        night = _ended(home, name)
        if night is None or night.verdict.decision == Decision.PROMOTE:
            break
        if night.verdict.tally and night.contest == tonight:
            found[night.draw] = night.verdict.tally
    found.pop(config.draw or asked, None)
    return tuple(reversed(found.values()))


class _Ended(NamedTuple):
    """A night with its verdict, what its candidate had to be better at, and its draw of held-out items."""

    verdict: Verdict
    contest: JsonObject
    draw: str


def _ended(home: Home, night: str) -> _Ended | None:
    """Return how a night ended; None for one that cannot be read, after which no evidence can be counted."""
    try:
        details = next(step.details for step in read_status(home, night).steps if step.name == "gate")
        record, settings = read_record(home, night), _settings(home, night)
        contest = _contest(record and record.champion, settings)
        return _Ended(Verdict.model_validate(details), contest, settings.get("draw") or night)
    except (StopIteration, OSError, ValueError, KeyError, TypeError, ClawpipeError):
        return None


def _contest(champion: Incumbent | None, settings: JsonObject) -> JsonObject:
    """Return what decides what a win is: the model to beat, the environments, and the settings that choose the measure."""
    return {
        "rival": champion.policy.policy_version if champion else settings["model"]["base"],
        "played": sorted(_played(settings), key=json.dumps),
        "judge": settings["evaluation"].get("judge"),
        "calls": settings["evaluation"].get("replay_calls", False),
        "likelihood": settings["gate"].get("promote_on_likelihood", False),
    }


def _settings(home: Home, night: str) -> JsonObject:
    return json.loads((run_dir(home, night) / "config.json").read_bytes())


def _played(settings: JsonObject) -> list[JsonObject]:
    """Return what a night played: each environment with its options, and the model."""
    model = {name: settings["model"][name] for name in ("base", "tool_call_format")}
    played = settings.get("environments") or [settings["environment"]]
    return [model | {name: one[name] for name in ("name", "options")} for one in played]


def _played_in(home: Home, night: str) -> list[JsonObject]:
    """Return what an earlier night played; nothing for settings of another version that cannot be read."""
    try:
        return _played(_settings(home, night))
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _rounds(home: Home, night: str) -> Iterator[PastRound]:
    try:
        status = read_status(home, night)
    except ClawpipeError:  # a damaged record
        return
    is_own = _sampled_its_own(home, night)
    for part in dict.fromkeys(step.name.split("/")[0] for step in status.steps if step.name.startswith("round-")):
        rollouts, scores = _made(status, f"{part}/generate_rollouts"), _made(status, f"{part}/score")
        if rollouts and scores:
            trained, items = _trained(status, f"{part}/train"), _made(status, f"{part}/draw_items") or _made(status, "make_items")
            yield PastRound(
                night=night,
                trajectories=rollouts,
                scores=scores,
                trained=trained and trained.policy_version,
                items=items,
                sampled=trained.base if trained and is_own else None,
            )


def _sampled_its_own(home: Home, night: str) -> bool:
    """Whether a night's policies sampled its rollouts, and no model at an endpoint; False where its settings cannot be read."""
    try:
        return not EngineSpec.model_validate(_settings(home, night)["rollouts"]["engine"]).is_endpoint
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _made(status: NightStatus, name: str) -> str | None:
    """Return the digest that the last step of a name made: stored datasets come before a round's own rollouts."""
    return next((step.digest for step in reversed(status.steps) if step.name == name), None)


def _trained(status: NightStatus, name: str) -> ModelRef | None:
    made = next((step.artifacts.get("output") for step in status.steps if step.name == name), None)
    return made if isinstance(made, ModelRef) else None


def _is_there(store: Store, one: PastRound) -> bool:
    named = {"trajectories": one.trajectories, "scores": one.scores}.items()
    return all(store.has(DatasetRef(name=name, digest=current_digest(store, digest), rows=0)) for name, digest in named)
