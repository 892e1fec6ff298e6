"""An engine of vLLM that a test drives: reads a JSON object a line, and answers one a line.

Runs in the environment where vLLM is installed, not in the tests' own. ``python vllm_driver.py CONFIG`` starts
``vllm.LLM`` with the arguments in CONFIG, in this process. ``{"call": method, "args": […]}`` calls a worker's method.
``{"generate": [[ids], …], "sampling": {…}, "apart": true}`` writes texts, with ``apart`` one after the other, each with
what the plug-in counted.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what vLLM prints is no answer

    from vllm import LLM, SamplingParams

    engine = LLM(**json.loads(sys.argv[1]))
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: Any = answered(engine, SamplingParams, request)
        except Exception as error:  # the test reads it
            answer = {"error": str(error), "type": type(error).__name__}
        print(json.dumps(answer), file=answers)


def answered(engine: Any, sampling_params: Any, request: dict[str, Any]) -> Any:
    if "call" in request:
        return engine.collective_rpc(request["call"], args=tuple(request.get("args", ())))[0]
    prompts = [{"prompt_token_ids": ids} for ids in request["generate"]]
    sampling = request.get("sampling", {})
    several = [sampling_params(**sampling | {"seed": i}) for i in range(len(prompts))]
    if not request.get("apart"):
        return [written(output) for output in engine.generate(prompts, several, use_tqdm=False)]
    texts = []
    for prompt, chosen in zip(prompts, several, strict=True):
        before = engine.collective_rpc("fsd_lab_counts")[0]
        (output,) = engine.generate([prompt], [chosen], use_tqdm=False)
        after = engine.collective_rpc("fsd_lab_counts")[0]
        texts.append(written(output) | {name: after[name] - before[name] for name in after})
    return texts


def written(output: Any) -> dict[str, Any]:
    (text,) = output.outputs
    return {"tokens": list(text.token_ids), "text": text.text, "stop": text.finish_reason}


if __name__ == "__main__":
    main()
