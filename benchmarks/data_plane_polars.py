"""The benchmark's job in polars: lazy frames and the streaming engine; narrow columns first, the payload of the pairs last."""

from __future__ import annotations

import polars as pl
from data_plane_job import ENDINGS, LENGTH_RATIO, MARGIN, MAX_TOKENS, MAX_TURNS, PAYLOAD, RESULT, Done, Job, pairs_in

_NARROW = ["trajectory_id", "item_id", "group_id", "rollout_index", "temperature", "length", "trained"]
_ME = pl.element()


def polars_job(job: Job) -> Done:
    questions, heldout = _heldout(pl.scan_parquet(job.files["items"]))
    rows = _measured(pl.scan_parquet(job.files["trajectories"]), questions, heldout)
    verdicts = (
        pl.scan_parquet(job.files["scores"])
        .filter(pl.col("turn").is_null() & (pl.col("origin") == "verifier"))
        .sort("scorer", "value", "success")
        .unique("trajectory_id", keep="first", maintain_order=True)
        .select("trajectory_id", "value", "success")
    )
    pairs = _choose(rows.join(verdicts, on="trajectory_id").collect(engine="streaming"))
    output = job.work / "pairs.parquet"
    _with_payload(pairs, pl.scan_parquet(job.files["trajectories"])).select(RESULT.names).write_parquet(
        output, compression="zstd", compression_level=3
    )
    return Done(lambda: pairs_in([output]))


def _plain(text: pl.Expr) -> pl.Expr:
    return text.str.normalize("NFC").str.to_lowercase().str.replace_all(r"\s+", " ").str.strip_chars()


def _field(name: str) -> pl.Expr:
    return _ME.struct.field(name)


def _calls(arguments: pl.Expr) -> pl.Expr:
    made = pl.concat_str(_field("name"), arguments, separator="\x1f")
    return _field("tool_calls").list.eval(made).list.join("\x1e")


def _heldout(items: pl.LazyFrame) -> tuple[pl.Series, pl.Series]:
    """Return the questions of held-out items, and the ids of all items with their identities."""
    held = items.filter(pl.col("split") == "heldout")
    asked = pl.col("messages").list.filter(_field("role") == "user").list.last().struct.field("content")
    ids = items.join(held.select("identity"), on="identity", how="semi").select("item_id")
    return held.select(_plain(asked).alias("question")).collect()["question"], ids.collect()["item_id"]


def _measured(rows: pl.LazyFrame, questions: pl.Series, heldout: pl.Series) -> pl.LazyFrame:
    main = pl.col("turns").list.filter(_field("kind") == "main")
    ending = pl.coalesce(
        "status", pl.when(pl.col("finish_reason") == "stop").then(pl.lit("completed")).otherwise(pl.lit("truncated"))
    )
    content, messages = _field("content"), pl.col("messages")
    body = messages.list.eval(pl.concat_str(_field("role"), content, _calls(_field("arguments")), separator="\x1d")).list.join(
        "\x1c"
    )
    replies = messages.list.filter(_field("role") == "assistant")
    reply = replies.list.eval(pl.concat_str(_plain(content), _calls(_plain(_field("arguments"))), separator="\x1d")).list.join(
        "\x1c"
    )
    asked = messages.list.filter(_field("role") == "user").list.eval(_plain(content).is_in(questions.implode())).list.any()
    prompt = pl.col("token_ids").list.head(pl.col("prompt_tokens"))
    fine = (pl.col("tokens") == "recorded") & (pl.col("temperature") > 0) & ending.is_in(ENDINGS) & (pl.col("split") != "heldout")
    return (
        rows.filter(fine & ~pl.col("item_id").is_in(heldout.implode()))
        .with_columns(
            length=pl.col("token_ids").list.len(),
            trained=main.list.eval(_field("end") - _field("start")).list.sum(),
            main_turns=main.list.len(),
            finite=pl.col("logprobs").list.sum().is_finite(),
        )
        .filter((pl.col("length") <= MAX_TOKENS) & (pl.col("trained") > 0) & pl.col("finite") & (pl.col("main_turns") <= MAX_TURNS))
        .select(*_NARROW, *_digests("body", body), *_digests("reply", reply), *_digests("prompt", prompt), asked.alias("asked"))
        .filter(~pl.col("asked"))
    )


def _digests(name: str, text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Return 128 bits: polars has no digest, but two of its hashes with different seeds collide as rarely."""
    return text.hash(0).alias(f"{name}_0"), text.hash(1).alias(f"{name}_1")


def _choose(rows: pl.DataFrame) -> pl.DataFrame:
    rows = rows.sort(["success", "value", "trajectory_id"], descending=[True, True, False])
    rows = rows.unique(["group_id", "body_0", "body_1"], keep="first", maintain_order=True)
    pairs = rows.filter("success").join(rows.filter(~pl.col("success")), on="group_id", suffix="_r")
    ratio = pl.max_horizontal("trained", "trained_r") / pl.min_horizontal("trained", "trained_r")
    same_prompt = (pl.col("prompt_0") == pl.col("prompt_0_r")) & (pl.col("prompt_1") == pl.col("prompt_1_r"))
    same_reply = (pl.col("reply_0") == pl.col("reply_0_r")) & (pl.col("reply_1") == pl.col("reply_1_r"))
    c, r = (pl.col(name).rank("dense").over("group_id").cast(pl.Int64) for name in ("rollout_index", "rollout_index_r"))
    longest = pl.max_horizontal(pl.col("c").max().over("group_id"), pl.col("r").max().over("group_id"))
    return (
        pairs.with_columns(margin=pl.col("value") - pl.col("value_r"))
        .filter(same_prompt & ~same_reply & (pl.col("temperature") == pl.col("temperature_r")))
        .filter((pl.col("margin").round(9) >= MARGIN) & (ratio.round(9) <= LENGTH_RATIO))
        .with_columns(c=c, r=r)
        .with_columns(diagonal=(pl.col("r") - pl.col("c") + longest) % longest)
        .sort(["margin", "diagonal", "c", "r"], descending=[True, False, False, False])
        .unique("group_id", keep="first", maintain_order=True)
        .sort("group_id")
        .select(pl.col("trajectory_id").alias("chosen_id"), pl.col("trajectory_id_r").alias("rejected_id"), "margin")
    )


def _with_payload(pairs: pl.DataFrame, rows: pl.LazyFrame) -> pl.DataFrame:
    wanted = pl.concat([pairs["chosen_id"], pairs["rejected_id"]]).alias("trajectory_id").to_frame().unique().lazy()
    payload = rows.select(PAYLOAD).join(wanted, on="trajectory_id", how="semi").collect(engine="streaming")
    for side in ("chosen", "rejected"):
        columns = {name: side if name == "messages" else f"{side}_{name}" for name in PAYLOAD[1:]}
        pairs = pairs.join(payload.rename(columns | {"trajectory_id": f"{side}_id"}), on=f"{side}_id", how="left")
    first = pl.col("chosen").list.eval(_field("role") == "assistant").list.arg_max()
    return pairs.with_columns(
        prompt=pl.col("chosen").list.head(first),
        chosen=pl.col("chosen").list.slice(first),
        rejected=pl.col("rejected").list.slice(first),
    )
