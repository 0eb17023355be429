# The base images are build arguments. A release sets them with their digests, from deploy/release/bases.lock.
ARG BASE=python:3.11-slim
# Python 3.11 without a shell and a package manager.
ARG RUNTIME=gcr.io/distroless/python3-debian12:nonroot

# The first stage puts the packages in a folder, which is all that is copied: no compiler, no sources, no pip. Dependencies
# and build tools are pinned by hash. It runs on the machine of the builder for every architecture, without emulation,
# because wheels of another architecture are only unpacked.
FROM --platform=${BUILDPLATFORM:-linux/amd64} ${BASE} AS packages
ARG TARGETARCH=amd64
WORKDIR /source
COPY requirements.lock deploy/release/tools.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement tools.lock
COPY LICENSE NOTICE pyproject.toml setup.cfg setup.py README.md ./
COPY predicates predicates
COPY rescheduler rescheduler
RUN pip wheel --no-cache-dir --no-deps --no-index --no-build-isolation --wheel-dir /wheels . \
    && pip install --no-cache-dir --no-compile --no-deps --no-index --target /packages /wheels/*.whl \
    && sed -i '1s|^#!.*|#!/usr/bin/python3|' /packages/bin/*
RUN case "$TARGETARCH" in amd64) machine=x86_64 ;; arm64) machine=aarch64 ;; *) exit 1 ;; esac \
    && pip install --no-cache-dir --no-compile --no-deps --require-hashes --only-binary=:all: \
        --implementation cp --python-version 3.11 --platform "manylinux_2_28_$machine" \
        --platform "manylinux_2_17_$machine" --platform "manylinux2014_$machine" \
        --target /packages --requirement requirements.lock
# What nothing uses, a third of the size: the asynchronous half of the Kubernetes client with the packages that only it
# needs, the tests of NumPy, and what botocore knows of AWS' services, apart from those of the providers and credentials.
RUN cd /packages && rm -rf kubernetes/aio aiohttp aiohttp_retry aiosignal aiohappyeyeballs attr attrs frozenlist multidict \
        propcache yarl \
    && rm -rf aiohttp-* aiohttp_retry-* aiosignal-* aiohappyeyeballs-* attrs-* frozenlist-* multidict-* propcache-* yarl-* \
    && find numpy -name tests -type d -prune -exec rm -rf {} + \
    && find botocore/data -mindepth 1 -maxdepth 1 -type d ! -name autoscaling ! -name ec2 ! -name pricing ! -name signin \
        ! -name sso ! -name sso-oidc ! -name sts -exec rm -rf {} +

FROM ${RUNTIME}
COPY --from=packages /packages /packages
# Logs are not buffered, and no bytecode is written, because the root file system is read-only. Two malloc arenas: with
# one for each thread, the C library keeps freed memory in all of them. Fixed thresholds: otherwise, they grow with the
# first large list that is freed, and later lists stay in the heap.
ENV PYTHONPATH=/packages PATH=/packages/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENV MALLOC_ARENA_MAX=2 MALLOC_MMAP_THRESHOLD_=131072 MALLOC_TRIM_THRESHOLD_=131072
USER 65532:65532
EXPOSE 9235
ENTRYPOINT ["rescheduler"]
