"""The model registry in MLflow, whose settings are set here before any module imports MLflow."""

import os

os.environ["MLFLOW_ALLOW_PICKLE_DESERIALIZATION"] = "false"  # its own default is true
for _name, _value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_CONFIGURE_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # stdout is the night's own
    "DO_NOT_TRACK": "true",
}.items():
    os.environ.setdefault(_name, _value)
