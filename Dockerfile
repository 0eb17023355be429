# The base image is a build argument. A release sets it with its digest: python:3.11-slim@sha256:… (release.yaml).
ARG BASE=python:3.11-slim

# The first stage builds the wheels, and only these are copied to the second: no compiler, no sources, no pip cache.
# Dependencies and build tools are pinned by hash.
FROM ${BASE} AS wheels
WORKDIR /source
COPY requirements.lock deploy/release/tools.lock ./
RUN pip wheel --no-cache-dir --require-hashes --requirement requirements.lock --wheel-dir /wheels \
    && pip install --no-cache-dir --require-hashes --requirement tools.lock
COPY LICENSE NOTICE pyproject.toml setup.cfg setup.py README.md ./
COPY predicates predicates
COPY rescheduler rescheduler
RUN pip wheel --no-cache-dir --no-deps --no-index --no-build-isolation --wheel-dir /wheels .

FROM ${BASE}
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'spot-rescheduler[grpc]' \
    && pip uninstall --yes setuptools wheel pip
# Logs are not buffered, and no bytecode is written, because the root file system is read-only.
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 9235
ENTRYPOINT ["rescheduler"]
