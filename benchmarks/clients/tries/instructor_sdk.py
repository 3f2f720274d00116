"""instructor: what it is for, structured output, in its modes of tools and of JSON Schemas."""

from typing import Literal

import instructor
import openai
from pydantic import BaseModel
from tried import LIMIT, MODEL, check_sky, run


class Sky(BaseModel):
    """The sky."""

    sky: Literal["dry", "wet"]


def of_mode(mode):
    client = instructor.from_openai(openai.OpenAI(max_retries=0, timeout=120), mode=mode)
    given = {"model": MODEL, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": LIMIT, "max_retries": 0}
    return client, given


def forced():
    client, given = of_mode(instructor.Mode.TOOLS)
    check_sky(client.chat.completions.create(response_model=Sky, **given).model_dump())


def structured():
    client, given = of_mode(instructor.Mode.JSON_SCHEMA)
    check_sky(client.chat.completions.create(response_model=Sky, **given).model_dump())


def stream():
    client, given = of_mode(instructor.Mode.JSON_SCHEMA)
    parts = list(client.chat.completions.create_partial(response_model=Sky, **given))
    check_sky(parts[-1].model_dump())


run({"stream": stream, "forced": forced, "structured": structured})
