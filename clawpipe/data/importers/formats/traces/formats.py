"""The formats of programs that watch models."""

from __future__ import annotations

from clawpipe.data.importers.formats.format import Format
from clawpipe.data.importers.formats.traces.bedrock import is_bedrock, read_bedrock
from clawpipe.data.importers.formats.traces.braintrust import is_braintrust, read_braintrust
from clawpipe.data.importers.formats.traces.helicone import is_helicone, read_helicone
from clawpipe.data.importers.formats.traces.langfuse import is_langfuse, read_langfuse
from clawpipe.data.importers.formats.traces.langsmith import is_langsmith, read_langsmith
from clawpipe.data.importers.formats.traces.litellm import is_litellm, read_litellm
from clawpipe.data.importers.formats.traces.mlflow import is_mlflow, read_mlflow
from clawpipe.data.importers.formats.traces.phoenix import is_phoenix, read_phoenix
from clawpipe.data.importers.formats.traces.weave import is_weave, read_weave

TRACES = (
    Format(
        "litellm",
        is_litellm,
        read_litellm,
        has_sessions=True,
        about="LiteLLM's `StandardLoggingPayload` and rows of its `LiteLLM_SpendLogs`, with user and session",
        marks=("call_type", "messages", "response", "model_parameters"),
        tried="its schema",
    ),
    Format(
        "langsmith",
        is_langsmith,
        read_langsmith,
        has_sessions=True,
        about="runs of LangSmith: of the kind `llm`, and those whose output holds messages",
        marks=("run_type", "inputs", "outputs"),
        tried="its schema",
    ),
    Format(
        "helicone",
        is_helicone,
        read_helicone,
        has_sessions=True,
        about="logs of Helicone, with user, session and thumb",
        marks=("request_body", "response_body"),
        tried="its schema",
    ),
    Format(
        "braintrust",
        is_braintrust,
        read_braintrust,
        has_sessions=True,
        about="spans of Braintrust, with the mean of their scores",
        marks=("span_id", "root_span_id", "input", "output"),
        tried="its schema",
    ),
    Format(
        "weave",
        is_weave,
        read_weave,
        has_sessions=True,
        about="calls of W&B Weave",
        marks=("op_name", "inputs", "output"),
        tried="its schema",
    ),
    Format(
        "phoenix",
        is_phoenix,
        read_phoenix,
        has_sessions=True,
        about="spans of Arize Phoenix and others after OpenInference, nested, as columns, or as OpenTelemetry writes them",
        marks=("attributes", "context"),
        tried="its schema",
    ),
    Format(
        "langfuse",
        is_langfuse,
        read_langfuse,
        has_sessions=True,
        about="traces and generations of Langfuse with messages, or texts, in `input` and `output`, also exported to a storage",
        marks=("traceId", "type", "input", "output"),
        tried="its library",
    ),
    Format(
        "mlflow",
        is_mlflow,
        read_mlflow,
        has_sessions=True,
        about="traces of MLflow, one by one or rows of `search_traces`: the calls of models in them, feedback",
        marks=("trace_id", "spans"),
        tried="its library",
    ),
    Format(
        "bedrock",
        is_bedrock,
        read_bedrock,
        has_sessions=True,
        about="Amazon Bedrock's log of model invocations, from S3 or CloudWatch: Converse, Anthropic's messages, prompts",
        marks=("schemaType", "modelId"),
        tried="its schema",
    ),
)
