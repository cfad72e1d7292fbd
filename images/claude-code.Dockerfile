# The agent image with Claude Code, one native binary. It is taken from PyPI: the SDK's wheel bundles it.
ARG BASE
FROM ${BASE} AS fetch
# Removed from the engine after the build.
LABEL team.stage=fetch
ARG SDK_VERSION=0.2.189
RUN set -eu; \
    apt-get update -qq; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-pip >/dev/null; \
    pip download --quiet --no-deps --no-cache-dir --only-binary :all: --dest /tmp "claude-agent-sdk==${SDK_VERSION}"; \
    cd /tmp; \
    python3 -c 'import zipfile, glob; zipfile.ZipFile(glob.glob("*.whl")[0]).extract("claude_agent_sdk/_bundled/claude")'; \
    mv claude_agent_sdk/_bundled/claude /claude; \
    chmod 755 /claude

FROM ${BASE}
ARG CLAUDE_VERSION=2.1.332
COPY --from=fetch /claude /usr/local/bin/claude
RUN found=$(HOME=/tmp/home claude --version); rm -rf /tmp/home; \
    [ "${found%% *}" = "${CLAUDE_VERSION}" ] || { echo "this is Claude Code $found, not ${CLAUDE_VERSION}"; exit 1; }
LABEL team.client=claude-code team.client.version=${CLAUDE_VERSION}
