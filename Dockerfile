# The application on port 7860, for people who sign in. Mount a volume at /data to keep what it learns.
#
#   docker run -p 127.0.0.1:7860:7860 -v fsd-lab:/data fsd-lab      prints the first admin's password, once
#   … -v ./password:/run/secrets/admin:ro -e FSD_ADMIN_PASSWORD_FILE=/run/secrets/admin      takes that password
#   … -e FSD_ACCESS=none -e FSD_UNPROTECTED=true      whoever reaches the port is admin
FROM python:3.12-slim

RUN useradd --create-home --uid 1000 user && install --directory --owner=user /data
USER user
WORKDIR /home/user/app

COPY --chown=user requirements.txt .
RUN python -m venv /home/user/venv && /home/user/venv/bin/pip install --no-cache-dir -r requirements.txt
COPY --chown=user . .

ENV PATH=/home/user/venv/bin:$PATH FSD_HOME=/data HF_HOME=/data/huggingface FSD_HOST=0.0.0.0 FSD_ACCESS=password
VOLUME /data
EXPOSE 7860
HEALTHCHECK --interval=30s --timeout=10s --start-period=120s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:7860/health', timeout=9)"]
CMD ["python", "app.py"]
