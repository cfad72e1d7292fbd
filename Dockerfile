# The default agent image: git, Python 3.11+, socat, and a place to work for any uid. No network is needed on a base
# that has these already (images/debian.sh makes one). Extend it through `image.dockerfile` in team.toml.
ARG BASE=debian:bookworm-slim
FROM ${BASE}

RUN set -eu; \
    missing=""; \
    for pair in git:git python3:python3 socat:socat ps:procps update-ca-certificates:ca-certificates; do \
        command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"; \
    done; \
    if [ -n "$missing" ]; then \
        export DEBIAN_FRONTEND=noninteractive; \
        apt-get update; \
        apt-get install -y --no-install-recommends $missing; \
        rm -rf /var/lib/apt/lists/*; \
    fi; \
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "the base image needs Python 3.11+"; exit 1; }

# A corporate proxy's certificates: empty unless `image.ca` is set. After apt, which brings update-ca-certificates.
COPY images/ca.crt /usr/local/share/ca-certificates/team.crt
RUN if [ -s /usr/local/share/ca-certificates/team.crt ]; then update-ca-certificates; \
    else rm /usr/local/share/ca-certificates/team.crt; fi
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    REQUESTS_CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt \
    NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt \
    LANG=C.UTF-8

# Open directories: sessions run as the uid of whoever runs `team`, and a new volume takes its mode from here.
RUN (getent passwd 1000 >/dev/null || useradd --uid 1000 --home-dir /home/agent --shell /bin/bash agent) \
    && mkdir -p /workspace /home/agent \
    && chmod 1777 /workspace /home/agent \
    && git config --system safe.directory '*'
WORKDIR /workspace
