"""Chat templates: the Jinja program, stored with a model, that turns messages into the text the model was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


def render(
    template: str, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool, **variables: Any
) -> str:
    """The text of a conversation. The template comes from a stranger, so it runs in Jinja's sandbox.

    The environment is transformers': trimmed blocks, loop controls, `raise_exception`, `strftime_now`, `tojson`.
    ValueError when the template is broken or refuses the messages.
    """
    import jinja2
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda form: datetime.now().strftime(form),
    }
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        return environment.from_string(template).render(
            messages=messages, add_generation_prompt=add_generation_prompt, **variables
        )
    except (jinja2.TemplateError, TypeError) as error:
        raise ValueError(f"the model's chat template cannot be applied to these messages: {error}") from error
