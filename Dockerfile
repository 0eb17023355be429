# The base is a build argument: a release names it by its digest, python:3.11-slim@sha256:… (release.yaml).
ARG BASE=python:3.11-slim

# The wheels are made in one stage, and only they reach the other: no compiler, no sources, no pip cache. What they
# depend on is pinned by hash, the tools that build ours too.
FROM ${BASE} AS wheels
WORKDIR /source
COPY requirements.lock deploy/release/tools.lock ./
RUN pip wheel --no-cache-dir --require-hashes --requirement requirements.lock --wheel-dir /wheels \
    && pip install --no-cache-dir --require-hashes --requirement tools.lock
COPY pyproject.toml setup.cfg README.md ./
COPY predicates predicates
COPY rescheduler rescheduler
RUN pip wheel --no-cache-dir --no-deps --no-index --no-build-isolation --wheel-dir /wheels .

FROM ${BASE}
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'spot-rescheduler[grpc]' \
    && pip uninstall --yes setuptools wheel pip
# logs come out at once, and nothing is written: the root file system is read-only
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 9235
ENTRYPOINT ["rescheduler"]
