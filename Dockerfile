# The wheels are built in one stage, and only they reach the other: no compiler, no sources, no pip cache.
FROM python:3.11-slim AS wheels
WORKDIR /source
COPY pyproject.toml setup.cfg README.md ./
COPY predicates predicates
COPY rescheduler rescheduler
RUN pip wheel --no-cache-dir --wheel-dir /wheels '.[grpc]'

FROM python:3.11-slim
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir --no-index --find-links /wheels 'spot-rescheduler[grpc]' \
    && pip uninstall --yes setuptools wheel pip
# logs come out at once, and nothing is written: the root file system is read-only
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
EXPOSE 9235
ENTRYPOINT ["rescheduler"]
