# Hermes with a home of its own; $HERMES is its program. A terminal of this sandbox does what it likes.
mkdir -p home/.hermes
cat > home/.hermes/config.yaml <<END
model: {provider: custom, base_url: "$OPENAI_BASE_URL", default: "$OPENAI_MODEL", api_key: "$OPENAI_API_KEY"}
END
HERMES_HOME=$PWD/home/.hermes HOME=$PWD/home exec "$HERMES" chat -q "$CLAWPIPE_TASK" --quiet --yolo
