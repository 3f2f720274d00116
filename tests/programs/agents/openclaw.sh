# OpenClaw with a state of its own; $OPENCLAW is the folder with its Node and its packages.
mkdir -p state
cat > state/openclaw.json <<END
{
  "models": {"providers": {"clawpipe": {
    "baseUrl": "$OPENAI_BASE_URL", "apiKey": "$OPENAI_API_KEY", "api": "openai-completions",
    "models": [{"id": "$OPENAI_MODEL", "name": "policy", "reasoning": false, "input": ["text"], "contextWindow": 65536,
                "maxTokens": 400, "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}]}}},
  "agents": {"defaults": {"model": {"primary": "clawpipe/$OPENAI_MODEL"}}}
}
END
export OPENCLAW_STATE_DIR=$PWD/state HOME=$PWD PATH=$OPENCLAW/bin:$PATH
exec "$OPENCLAW/bin/node" "$OPENCLAW/node_modules/openclaw/openclaw.mjs" agent --local --agent main --session-id episode --message "$CLAWPIPE_TASK"
