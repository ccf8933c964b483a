"""Chat templates render as transformers renders them, in a sandbox."""

from __future__ import annotations

import pytest

from mini_engine.models.chat_template import render

TURNS = [
    {"role": "user", "content": "One"},
    {"role": "assistant", "content": "Two"},
    {"role": "user", "content": "Trois €"},
]
TEMPLATES = {
    "llama 2": """{% if messages[0]['role'] == 'system' %}
    {% set messages = messages[1:] %}
{% endif %}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('roles must alternate') }}
    {% endif %}
    {% if message['role'] == 'user' %}
{{ bos_token + '[INST] ' + message['content'].strip() + ' [/INST]' }}
    {% else %}
{{ ' ' + message['content'] + eos_token }}
    {% endif %}
{% endfor %}""",
    "json": "{{ messages | tojson }} {{ messages[0] | tojson(indent=2) }}",
    "loop controls": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "generation prompt": "{{ messages[-1].content }}{% if add_generation_prompt %}\n<assistant>{% endif %}",
    "date": "{{ strftime_now('%Y') }}",
}


@pytest.mark.parametrize("add_generation_prompt", [False, True])
@pytest.mark.parametrize("name", TEMPLATES)
def test_equal_to_transformers(name, add_generation_prompt):
    from transformers.utils.chat_template_utils import render_jinja_template

    variables = {"add_generation_prompt": add_generation_prompt, "bos_token": "<s>", "eos_token": "</s>"}
    theirs, _ = render_jinja_template([TURNS], chat_template=TEMPLATES[name], **variables)
    assert render(TEMPLATES[name], TURNS, **variables) == theirs[0]


def test_messages_the_template_refuses():
    with pytest.raises(ValueError, match="roles must alternate"):
        render(TEMPLATES["llama 2"], TURNS[1:], add_generation_prompt=True, bos_token="", eos_token="")


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}",  # never closed
        "{{ messages[0].content.nothing.there }}",
        "{{ 1 + 'one' }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",  # out of the sandbox
        "{% set _ = messages.append(1) %}",  # changes the caller's list
    ],
)
def test_broken_and_hostile_templates(template):
    messages = list(TURNS)
    with pytest.raises(ValueError, match="chat template"):
        render(template, messages, add_generation_prompt=False)
    assert messages == TURNS
