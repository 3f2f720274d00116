"""What programs that watch models write: LangSmith, Helicone, Braintrust, Phoenix, Weave, LiteLLM's logs, MLflow, Bedrock."""
