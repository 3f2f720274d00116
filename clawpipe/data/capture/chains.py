"""Group replies into chains. One row of tokens can hold a chain, because each prompt begins with all tokens before it."""

from __future__ import annotations

from collections.abc import Container, Iterator

from clawpipe.data.capture.sessions import Reply, Session


def chains_of(session: Session, stored: Container[str] = ()) -> Iterator[list[Reply]]:
    """Yield the chains of a session; each reply is in exactly one chain.

    The turn that continues a chain's last reply is added to the chain if its prompt begins with the recorded tokens of that reply,
    and policy, temperature and kind of log-probs are the same; without tokens, if its history has that reply's thought. A prompt
    that was tokenized anew, a regeneration, a branch, and an answer that was not continued each begin a new chain.

    Args:
        session: the session.
        stored: ids of turns that are stored already: they are in no chain.
    """
    chains: dict[int, list[Reply]] = {}  # by the last reply
    for turn in session.turns:
        if turn.record.id in stored:
            continue
        for reply in turn.replies:
            before = chains.pop(id(turn.parent), None) if reply is turn.chosen and _goes_on(reply) else None
            chains[id(reply)] = [*(before or ()), reply]
    yield from chains.values()


def _goes_on(reply: Reply) -> bool:
    """Whether a reply belongs to the same row as the reply that its turn continues."""
    before, turn = reply.turn.parent, reply.turn
    if before is None or before.follower is not turn:
        return False
    old, new = before.turn.record, turn.record
    alike = ("policy_version", "model", "temperature", "logprobs_kind")
    if any(getattr(old, name) != getattr(new, name) for name in alike):
        return False
    seen = _tokens(before)
    if seen is None or _tokens(reply) is None:
        return seen is None and _tokens(reply) is None and turn.keeps_thought
    return (new.prompt_token_ids or [])[: len(seen)] == seen


def _tokens(reply: Reply) -> list[int] | None:
    """Return prompt and answer as tokens; None if there are none."""
    prompt, sampled = reply.turn.record.prompt_token_ids, reply.answer.token_ids
    return [*prompt, *sampled] if prompt and sampled else None
