"""The model registry in MLflow, whose settings are set here before any module imports MLflow."""

import os

os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"  # its own default is true
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is the night's own
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # its own 7 tries take four minutes a request if the server is gone
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}.items():
    os.environ.setdefault(_name, _value)
