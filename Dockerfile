# The application on port 7860; mount a volume at /data to keep what it learns.
FROM python:3.12-slim

RUN useradd --create-home --uid 1000 user && install --directory --owner=user /data
USER user
WORKDIR /home/user/app

COPY --chown=user requirements.txt .
RUN python -m venv /home/user/venv && /home/user/venv/bin/pip install --no-cache-dir -r requirements.txt
COPY --chown=user . .

# Who reaches port 7860 is said by `docker run -p`; beyond this machine, set FSD_ACCESS=password and FSD_UNPROTECTED=false.
ENV PATH=/home/user/venv/bin:$PATH FSD_HOME=/data FSD_HOST=0.0.0.0 FSD_UNPROTECTED=true
VOLUME /data
EXPOSE 7860
CMD ["python", "app.py"]
