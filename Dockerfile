# soulsgraph for processors, without CUDA. Target `core` plays, watches and evaluates, `train` trains too:
#
#   docker build --target train --tag soulsgraph .
#   docker run --rm --volume soulsgraph:/data soulsgraph curriculum --run first
#
# docs/installation.md says what of this was tried.
ARG BASE=docker.io/library/python:3.13-slim

FROM ${BASE} AS wheel
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY envs envs
COPY policies policies
COPY clusters clusters
COPY platform platform
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM ${BASE} AS core
COPY constraints.txt /dist/
COPY --from=wheel /dist /dist
RUN pip install --no-cache-dir -c /dist/constraints.txt /dist/*.whl
# Runs, and compiled code, which each kind of processor has of its own: a volume keeps both.
RUN useradd --create-home --home-dir /data player
ENV NUMBA_CACHE_DIR=/data/.compiled
USER player
WORKDIR /data
VOLUME /data
ENTRYPOINT ["soulsgraph"]
CMD ["--help"]

FROM core AS train
# On PyPI it is CUDA's build, several gigabytes.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
USER root
RUN pip install --no-cache-dir --extra-index-url ${TORCH_INDEX} \
        "$(sed -n 's/^torch<=\(.*\)/torch==\1+cpu/p' /dist/constraints.txt)"
RUN pip install --no-cache-dir -c /dist/constraints.txt "$(echo /dist/*.whl)[train]"
USER player
