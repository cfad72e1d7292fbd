# The agent image with what the built-in client needs: the anthropic SDK, at a place of its own, without pip and Node.
ARG BASE
FROM ${BASE} AS fetch
# Removed from the engine after the build.
LABEL team.stage=fetch
RUN set -eu; \
    apt-get update -qq; \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-pip >/dev/null
ARG SDK_VERSION=2.14.0
# What it depends on is pinned too. Compiled here: sessions cannot write there.
RUN set -eu; \
    pip install --quiet --no-cache-dir --break-system-packages --only-binary :all: --no-compile --target /builtin \
        "anthropic==${SDK_VERSION}" annotated-types==0.8.0 anyio==4.16.0 certifi==2026.10.19.post1 \
        docstring-parser==0.18.0 h11==0.16.0 httpcore2==2.16.2 httpx2==2.16.2 idna==3.20 jiter==0.19.0 \
        opentelemetry-api==1.45.2 pydantic==2.14.4 pydantic-core==2.50.5 sniffio==1.3.1 truststore==0.10.5 \
        typing-extensions==4.16.0 typing-inspection==0.4.5; \
    rm -rf /builtin/bin; \
    python3 -m compileall -q --invalidation-mode unchecked-hash -s /builtin -p /opt/builtin /builtin

FROM ${BASE}
ARG SDK_VERSION=2.14.0
COPY --from=fetch /builtin /opt/builtin
RUN found=$(PYTHONPATH=/opt/builtin python3 -c 'import anthropic; print(anthropic.__version__)'); \
    [ "${found}" = "${SDK_VERSION}" ] || { echo "this is the SDK $found, not ${SDK_VERSION}"; exit 1; }
LABEL team.client=builtin team.client.version=${SDK_VERSION}
