# r2med with BM25, the light encoder and the explorer. Build and run:
#
#   docker build -t r2med .
#   docker run --rm -v "$PWD:/work" r2med eval bm25 --task demo
#
# Dense models on a CPU: docker build --build-arg EXTRAS=light,web,plots,dense \
#   --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu -t r2med:dense .
#
# The Python packages take 616 MB in addition to the base image; dense models with the torch for CPUs
# take about 1,060 MB more.
FROM python:3.12-slim AS build
ARG EXTRAS=light,web,plots
ARG TORCH_INDEX=
WORKDIR /src
COPY pyproject.toml README.md LICENSE constraints.txt ./
COPY src ./src
RUN python -m venv /opt/r2med \
 && if [ -n "$TORCH_INDEX" ]; then \
      /opt/r2med/bin/pip install --no-cache-dir --constraint constraints.txt --index-url "$TORCH_INDEX" torch; \
    fi \
 && /opt/r2med/bin/pip install --no-cache-dir --constraint constraints.txt ".[${EXTRAS}]"

FROM python:3.12-slim
RUN useradd --create-home --uid 10001 r2med \
 && mkdir -p /work /cache && chown r2med:r2med /work /cache
COPY --from=build /opt/r2med /opt/r2med
ENV PATH=/opt/r2med/bin:$PATH R2MED_HOME=/cache PYTHONDONTWRITEBYTECODE=1
USER r2med
WORKDIR /work
VOLUME ["/work", "/cache"]
ENTRYPOINT ["r2med"]
CMD ["--help"]
