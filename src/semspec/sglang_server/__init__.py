"""What runs INSIDE an SGLang server, and how the engine asks it for hidden states.

SGLang imports this package (`SGLANG_EXTERNAL_MODEL_PACKAGE=semspec.sglang_server`, docs/engines.md) in an environment
of its own that has nothing else of SemanticSpec, so nothing else of it may be imported here.
"""
