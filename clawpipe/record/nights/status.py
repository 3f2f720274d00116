"""The progress of a night: its steps, held-out figures, verdict and model, as `clawpipe status` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, computed_field

from clawpipe.core.basics.json_types import JsonObject
from clawpipe.core.config.block import renamed
from clawpipe.core.config.night import Measure
from clawpipe.core.store.files import write_atomic
from clawpipe.core.store.home import Home
from clawpipe.core.store.refs import Ref, StepResult
from clawpipe.errors import ClawpipeError, NotFoundError
from clawpipe.learn.evaluation.rounds import Choice
from clawpipe.record.nights.brought import look_for_nights
from clawpipe.record.nights.files import list_nights, model_of, parsed, run_dir


class StepEntry(BaseModel):
    """A finished step in the journal."""

    name: str
    state: str = Field(description="ran or cached")
    seconds: float = Field(description="of the run that did the work; of work that another night did, the time to look it up")
    accelerator_seconds: float | None = Field(
        default=None, description="for which it occupied accelerators, summed over them; None: none, or not measured"
    )
    rows_in: int
    rows_out: int
    filtered: dict[str, int] = renamed("set_aside", "filtered", description="rows by the reason for which they were left out")
    key: str | None
    digest: str | None
    artifacts: dict[str, Ref] = renamed(
        "artefacts", "artifacts", default_factory=dict, description="what the step made, by role: output, quarantine ..."
    )
    details: JsonObject = Field(default_factory=dict)


class Figures(BaseModel):
    """Held-out success of one model with its Wilson interval."""

    success: float
    low: float
    high: float
    n: int
    log_prob: float | None = Field(default=None, description="of a night that compares likelihoods; see ModelSummary")


class EvidenceLeft(BaseModel):
    """How many more nights can ask about identities that no night has looked at."""

    model_config = ConfigDict(frozen=True)

    available: int | None = Field(description="identities that a verdict may use; None: unlimited")
    looked_at: int = Field(description="identities that some night has looked at")
    a_night: int = Field(description="items that a night asks for")
    environment: str = Field(default="", description="of several environments the one that runs out first; empty: there is one")

    @computed_field
    @property
    def fresh(self) -> int | None:
        return None if self.available is None else max(self.available - self.looked_at, 0)

    @computed_field
    @property
    def nights(self) -> float | None:
        return None if self.fresh is None else self.fresh / self.a_night

    def sentence(self) -> str:
        """Return the evidence left as one sentence."""
        if self.fresh is None or self.nights is None:
            return "as many fresh held-out items as a night asks for, every night"
        of = f" of {self.environment}" if self.environment else ""
        if not self.fresh:
            return f"all {self.available} held-out identities{of} have been asked about: the next night needs new ones"
        rest = (
            f"enough for {int(self.nights)} nights of {self.a_night} items"
            if self.nights >= 1
            else f"a night asks for {self.a_night}"
        )
        return f"{self.fresh} of {self.available} held-out identities{of} are fresh, {rest}"


class RegisteredModel(BaseModel):
    name: str
    version: str
    digest: str
    aliases: list[str]


class JudgeCounts(BaseModel):
    """What a judge said of a night's turns; of one that ranks, of rollouts."""

    turns: int = 0
    praised: int = 0
    blamed: int = 0
    neutral: int = 0
    unread: int = Field(default=0, description="turns of which no vote could be read")
    abstained: int = Field(default=0, description="turns of which it says nothing")
    rules: dict[str, int] = Field(default_factory=dict, description="turns by the rule that decided them")
    models: dict[str, dict[str, int]] = Field(default_factory=dict, description="votes by model, and by what they say")
    rollouts: int = 0
    ranked: int = 0
    pairs: int = Field(default=0, description="pairs of an item's rollouts that both the judge and the verifier tell apart")
    agreeing_pairs: int = Field(default=0, description="of these, those whose better one is the same")


class NightJudges(BaseModel):
    """What the judges of a night said and spent."""

    said: dict[str, JudgeCounts] = Field(default_factory=dict)
    agreement: list[JsonObject] = Field(default_factory=list, description="with verifiers, users and other judges, beyond chance")
    spent: list[JsonObject] = Field(default_factory=list, description="requests, tokens, money and seconds by judge")


class ReviewedRows(BaseModel):
    """How many of a night's rows a person decided about in one way."""

    verdict: str = Field(description="approved, rejected or edited")
    by: str
    rows: int
    first: str = Field(description="when the first of them was decided, in UTC")
    last: str


class NightStatus(BaseModel):
    """The output of `status --json`, and of `run --json` after the id of the run."""

    night: str
    compared: str = Field(default="", description="method, data, models and held-out items, in one sentence")
    measure: Measure = Field(default="success", description="what the held-out figures count")
    verdict: str | None = None
    reasons: list[str] = Field(default_factory=list)
    steps: list[StepEntry] = Field(default_factory=list)
    heldout: dict[str, Figures | None] = Field(default_factory=lambda: dict.fromkeys(("base", "champion", "candidate")))
    benchmark: dict[str, Figures] = Field(default_factory=dict, description="by role, on the benchmark items, the same every night")
    evidence_left: EvidenceLeft | None = Field(default=None, description="None: the environment does not say how many items it has")
    choice: Choice | None = Field(default=None, description="the round whose policy is the candidate; None: no choice was made")
    model: RegisteredModel | None = None
    policy_version: str | None = None
    judges: NightJudges | None = Field(default=None, description="None: the night has no judges")
    reviews: list[ReviewedRows] = Field(default_factory=list, description="what people decided about the night's rows")
    warnings: list[str] = Field(default_factory=list, description="problems that did not stop the night")
    error: str | None = Field(default=None, description="the error that ended the night before its verdict, and what helps")
    exit_code: int | None = Field(default=None, description="of that error; None in records of earlier versions")
    seconds: float = Field(default=0.0, description="total of the runs that did the work")
    rerun_seconds: float | None = Field(default=None, description="of the last run, if all work was done before")
    trace_id: str | None = Field(default=None, description="of the last run's OpenTelemetry trace; None: tracking.otel is off")
    run_dir: str = ""

    @property
    def lineage_page(self) -> str | None:
        """Prefect's page with the lineage: an address, or a path on this home's server. None: the night ran without Prefect."""
        return next((step.details.get("page") for step in self.steps if step.name == "publish_lineage"), None)


def read_status(home: Home, night: str) -> NightStatus:
    """Read the status of a night.

    Raises:
        NotFoundError: the night never ran here.
        DataError: the file is damaged.
    """
    look_for_nights(home)
    path = run_dir(home, night) / "status.json"
    if not path.exists():
        raise NotFoundError(f"no night {night!r}", str(home.runs), "`clawpipe status` lists the nights of this home")
    status = parsed(NightStatus, path, "run the night again: it writes the file anew")
    status.run_dir = str(path.parent)  # the home may have been moved since
    return status


def verdicts(home: Home, model: str) -> Iterator[NightStatus]:
    """Yield the nights of a model that have a verdict, the latest first; damaged ones are left out."""
    for night in reversed(list_nights(home)):
        if model_of(home, night) != model:
            continue
        try:
            status = read_status(home, night)
        except ClawpipeError:
            continue
        if status.verdict:
            yield status


def write_status(status: NightStatus) -> None:
    write_atomic(Path(status.run_dir) / "status.json", status.model_dump_json(indent=2).encode())


def nothing_learnt(step: StepEntry) -> str | None:
    """Return why a training step taught the policy nothing; None if it taught something, or is no training."""
    why = step.details.get("nothing_learnt")
    return f"{step.name}: {why}" if why else None


def entry(
    name: str, cached: bool, seconds: float, key: str | None, result: StepResult, accelerator_seconds: float = 0.0
) -> StepEntry:
    return StepEntry(
        name=name,
        state="cached" if cached else "ran",
        seconds=round(seconds, 3),
        accelerator_seconds=round(accelerator_seconds, 3) or None,
        rows_in=result.rows_in,
        rows_out=result.rows_out,
        filtered=result.filtered,
        key=key,
        digest=result.output.digest if result.output else None,
        artifacts=({"output": result.output} if result.output else {}) | result.extras,
        details=result.details,
    )
