"""Steps validate, score, curate: from raw trajectories to training data."""

from __future__ import annotations

from clawpipe.core.config.curation import Compress, Near
from clawpipe.core.config.night import Curation, Played, Runtime, ScorerSpec
from clawpipe.core.config.scorers import VERIFIER
from clawpipe.core.contracts.validate import validate as validate_dataset
from clawpipe.core.store.home import Home
from clawpipe.core.store.open import open_store
from clawpipe.core.store.refs import DatasetRef, ModelRef, StepResult
from clawpipe.core.user_code.user_errors import LOG
from clawpipe.data.curation.joined_tables import stored_tables
from clawpipe.data.curation.runner import curate as curate_datasets
from clawpipe.data.curation.stored_pairs import join_pairs
from clawpipe.data.similarity.duplicates import near_duplicates, zip_signed
from clawpipe.data.similarity.heldout import near_heldout
from clawpipe.data.similarity.signatures import sign as sign_dataset
from clawpipe.play.environments.several import open_environments
from clawpipe.play.judging.base import SCORERS, Scorer
from clawpipe.play.judging.gaming.people import signs_against_users
from clawpipe.play.judging.hint_leaks import clear_hints as clear_hints_of
from clawpipe.play.judging.judged_scores import judged_scores
from clawpipe.play.judging.scoring import score_dataset
from clawpipe.play.judging.verifier import VerifierScorer
from clawpipe.record.reviews.edits import edited_rows
from clawpipe.record.reviews.table import NAME as REVIEWS
from tasks.step import step


@step()
def validate(trajectories: DatasetRef) -> StepResult:
    """Keep the rows that meet the contract; the others go to quarantine with their reasons."""
    return validate_dataset(open_store(Home.from_env()), trajectories, "trajectories")


@step()
def validate_scores(scores: DatasetRef) -> StepResult:
    """Keep the stored scores that meet the contract."""
    return validate_dataset(open_store(Home.from_env()), scores, "scores")


@step()
def compress(trajectories: DatasetRef, policy: ModelRef, environment: Played, config: Compress, budget: int) -> StepResult:
    """Shorten conversations that are longer than the budget; what was cut is told in their rows."""
    from clawpipe.play.recorded.compress import compress_rows
    from clawpipe.play.recorded.summaries import summariser

    with summariser(config) as summarise:
        return compress_rows(open_store(Home.from_env()), trajectories, policy, environment, config, budget, summarise)


@step(anywhere=True)
def render(trajectories: DatasetRef, policy: ModelRef, environment: Played) -> StepResult:
    """Render stored conversations that exist only as text into tokens to imitate."""
    from clawpipe.play.recorded.text_rows import render_text  # loads torch, which only such text needs

    return render_text(open_store(Home.from_env()), trajectories, policy, environment)


@step()
def score(trajectories: DatasetRef, items: DatasetRef, environment: Played, scorers: tuple[ScorerSpec, ...] = ()) -> StepResult:
    """Score every trajectory with its environment's verifier, and with the night's own scorers."""
    others = [scorer for scorer in scorers if scorer.name != VERIFIER]
    own: list[Scorer] = [SCORERS.make(scorer.name, scorer.options) for scorer in others]
    weights = {made.name: scorer.weight for made, scorer in zip(own, others, strict=True)}
    verifier = next((scorer.weight for scorer in scorers if scorer.name == VERIFIER), 1.0)
    home, store = Home.from_env(), open_store(Home.from_env())
    with open_environments(environment) as judges:
        all_scorers = [*map(VerifierScorer, judges), *own]
        return score_dataset(store, trajectories, items, all_scorers, home.logs / LOG, weights, verifier_weight=verifier)


@step()
def compare_judges(scores: list[DatasetRef]) -> StepResult:
    """Look whether judges speak against users, whose scores are stored apart from theirs."""
    signs, rows = signs_against_users(judged_scores(open_store(Home.from_env()), scores)), sum(ref.rows for ref in scores)
    return StepResult(rows_in=rows, rows_out=rows, details={"gaming": signs} if signs else {})


@step()
def clear_hints(scores: DatasetRef, items: DatasetRef) -> StepResult:
    """Leave out hints that give away what held-out items ask for."""
    return clear_hints_of(open_store(Home.from_env()), scores, items)


@step(anywhere=True)
def sign(trajectories: DatasetRef) -> StepResult:
    """Compute the MinHash signatures of a dataset's text, once for all nights that use it."""
    return sign_dataset(open_store(Home.from_env()), trajectories)


@step(anywhere=True)
def find_duplicates(
    trajectories: list[DatasetRef],
    signatures: list[DatasetRef],
    history: list[DatasetRef],
    history_signatures: list[DatasetRef],
    threshold: float,
    runtime: Runtime,
) -> StepResult:
    """Find trajectories that nearly repeat an earlier one; datasets in order, the oldest first."""
    new, earlier = zip_signed(trajectories, signatures), zip_signed(history, history_signatures)
    return near_duplicates(open_store(Home.from_env()), new, earlier, threshold, memory=runtime.curation_memory)


@step(anywhere=True)
def find_heldout(trajectories: DatasetRef, items: DatasetRef, config: Near) -> StepResult:
    """Find trajectories or pairs that quote a held-out question or contain a near-copy of one."""
    return near_heldout(open_store(Home.from_env()), trajectories, items, config)


@step()
def edit(trajectories: list[DatasetRef], reviews: DatasetRef) -> StepResult:
    """Make rows and pairs of the answers that people wrote in place of those of some trajectories."""
    return edited_rows(open_store(Home.from_env()), trajectories, reviews)


@step()
def curate(
    trajectories: list[DatasetRef],
    scores: list[DatasetRef],
    items: DatasetRef,
    config: Curation,
    method: str,
    weights: tuple[float, float],
    hint: str,
    versions: list[str],
    near: list[DatasetRef],
    replayed: list[DatasetRef],
    replayed_items: list[DatasetRef],
    normalise: str,
    runtime: Runtime,
) -> StepResult:
    """Select and shape the samples, or preference pairs for dpo, to train on."""
    store = open_store(Home.from_env())
    made = curate_datasets(
        store,
        [*trajectories, *replayed],
        scores,
        items,
        config,
        method,
        earlier=len(replayed),
        earlier_items=replayed_items,
        normalise=normalise,
        memory=runtime.curation_memory,
        weights=weights,
        hint=hint,
        versions=versions,
        near=near,
    )
    return _made_of(made, near)


def _made_of(result: StepResult, tables: list[DatasetRef]) -> StepResult:
    """Name the decisions of people among what the rows were made of, so that a model leads back to who approved what taught it."""
    reviews = [ref.digest for ref in tables if ref.name == REVIEWS]
    output = result.dataset.model_copy(update={"parents": tuple(sorted({*result.dataset.parents, *reviews}))})
    return result.model_copy(update={"output": output})


@step()
def add_stored_pairs(
    made: list[DatasetRef],
    stored: list[DatasetRef],
    items: DatasetRef,
    config: Curation,
    versions: list[str],
    near: list[DatasetRef],
) -> StepResult:
    """Join the night's preference pairs with the stored ones that the settings name, which pass the same filters."""
    store = open_store(Home.from_env())
    joined = join_pairs(store, made, stored, items, config, versions=versions, tables=stored_tables(store, near))
    return _made_of(joined, near)
