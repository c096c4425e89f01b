# cascader on a CPU, as any user but root:
#   docker build --build-arg TORCH_INDEX=... --tag cascader .
#   docker run --rm --volume "$PWD/runs:/home/cascader/runs" cascader evaluate runs/mine
# The image also serves as head and worker of a Ray cluster: deploy/rayjob.yaml. More: docs/containers.md
FROM python:3.11.14-slim-bookworm AS build
# On Linux, the torch of the default index brings several gigabytes of CUDA. PyTorch's installation page names its index of
# CPU builds: --build-arg TORCH_INDEX=...
ARG TORCH_INDEX=
ARG EXTRAS=onnx,s3,serve
ARG RAY=2.60.0
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN PIP_INDEX_URL="$TORCH_INDEX" pip install torch==2.13.0
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
# ray[default] has what `ray job submit` and KubeRay need. The dot is this package, not one without a version.
# hadolint ignore=DL3013
RUN pip install ".[$EXTRAS]" "ray[default]==$RAY"

FROM python:3.11.14-slim-bookworm
# KubeRay's probes ask with wget. A version would be gone from Debian's servers with the next fix.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends wget \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 cascader
# Into /usr/local, not an environment of its own: login shells, which KubeRay starts Ray with, reset PATH.
COPY --from=build /usr/local /usr/local
USER 1000
WORKDIR /home/cascader
ENV CASCADER_CACHE=/home/cascader/cache PYTHONUNBUFFERED=1
EXPOSE 8000
ENTRYPOINT ["cascader"]
CMD ["--help"]
