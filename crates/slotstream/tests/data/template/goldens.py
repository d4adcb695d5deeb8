"""Writes goldens.json: what transformers' Jinja environment makes of templates.

    python3 goldens.py > goldens.json      (needs jinja2; made with 3.1.6)

The environment is that of transformers' chat templates: a sandbox with trim_blocks,
lstrip_blocks, loop controls, and a tojson that is json.dumps without ASCII escapes.
"""

import datetime
import json
import pathlib
import sys

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


ENV = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
)
ENV.filters["tojson"] = tojson
ENV.globals["raise_exception"] = raise_exception
ENV.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)

VALUES = {
    "n": 3, "big": 12345678901234567890, "minus": -7, "yes": True, "no": False, "nil": None,
    "floats": [0.0, -0.0, 1.0, 0.1, 1e15, 1e16, 1.5e300, 1e-4, 1e-5, 1.25e-7, 123456.789, 5e-324],
    "text": "  Grüße,\tWelt 👩‍👩‍👧\n", "quote": 'a"b\\c/\b\f\r\x01\x1f\x7f\u2028<&>\'é𝄞',
    "list": [1, "zwei", [3.5, None, True], {"k": "v"}], "empty": [], "none_map": {},
    "map": {"zeta": 1, "alpha": {"x": [1, 2]}, "items": "not a method", "café": "ü"},
    "words": ["b", "a", "c"], "odd": "\x1c\x1f a b \u3000\u00a0\x1d",
    "people": [{"name": "Ada", "age": 36}, {"name": "Bo", "age": 7}, {"name": "Cy"}],
}

# Each renders with VALUES.
SNIPPETS = [
    # json
    "{{ list | tojson }}", "{{ map | tojson }}", "{{ floats | tojson }}", "{{ quote | tojson }}",
    "{{ quote | tojson(ensure_ascii=True) }}", "{{ map | tojson(indent=2) }}",
    "{{ list | tojson(indent=4) }}", "{{ map | tojson(sort_keys=True) }}",
    "{{ list | tojson(separators=(',', ':')) }}", "{{ map | tojson(indent=1, separators=(',', ' = ')) }}",
    "{{ empty | tojson }}{{ none_map | tojson }}{{ empty | tojson(indent=2) }}{{ none_map | tojson(indent=2) }}",
    "{{ big | tojson }} {{ minus | tojson }} {{ yes | tojson }} {{ nil | tojson }} {{ text | tojson }}",
    "{{ {'a': 1, 'b': [1, (2, 3)]} | tojson }}", "{{ {1: 2, none: 3, true: 4} | tojson }}",
    "{{ '<b>&' | tojson }}{{ '<b>&' }}", "{{ map | tojson(indent='\\t') }}",
    # whitespace control
    "a\n  {% if yes %}\n  b\n  {% endif %}\nc\n", "a {%- if yes -%} b {%- endif %} c\n\n",
    "{% for w in words %}\n  - {{ w }}\n{% endfor %}\n", "  {# note #}\nx\n", "  {%+ if yes %}y{% endif %}\n",
    "{% if yes +%}\nz{% endif %}", "\n\nlead", "{% raw %}{{ n }}{% endraw %}",
    # printing
    "{{ n }} {{ yes }} {{ no }} {{ nil }} {{ missing }} {{ big }} {{ minus }} {{ 0.5 }} {{ 1.0 }}",
    "{{ list }} {{ words }} {{ map }}", "{{ yes | string }} {{ nil | string }} {{ 3 | string + 'x' }}",
    "{% for f in floats %}{{ f }} {{ f | string }};{% endfor %}{{ 1e22 }} {{ 1.5 + 1 }}",
    # python strings
    "[{{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ text | trim }}]",
    "[{{ odd.strip() }}|{{ odd | trim }}|{{ 'xxaxx'.strip('x') }}|{{ 'xyaxy'.rstrip('yx') }}|{{ '--a--' | trim('-') }}]",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }}",
    "{{ 'pre-x'.removeprefix('pre-') }} {{ 'x.py'.removesuffix('.py') }} {{ 'a=b=c'.partition('=')[2] }} {{ 'a=b=c'.rpartition('=')[0] }}{{ 'ab'.partition('=')[0] }}",
    "{{ 'Abc'.upper() }}{{ 'Abc'.lower() }}{{ 'abc def'.title() }}{{ 'abc'.capitalize() }}",
    "{{ 'abcabc'.replace('b', 'X') }} {{ 'abcabc'.replace('b', 'X', 1) }} {{ 'abcabc'.count('b') }} {{ 'abc'.find('c') }} {{ 'abc'.find('z') }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith('bc') }} {{ '12'.isdigit() }}",
    "{{ '-'.join(words) }} {{ '{}={}'.format('a', 1) }} {{ '%s-%d' | format('x', 5) }}",
    "{{ 'ab' * 3 }} {{ '-' * n }} {{ [0] * 2 }} {{ 'a' ~ 1 ~ nil }} {{ 'a' + 'b' }} {{ [1] + [2] }}",
    "{{ 'abc'[0] }}{{ 'abc'[-1] }}{{ 'abcdef'[1:4] }}{{ 'abcdef'[::-1] }}{{ 'abcdef'[::2] }}{{ 'äöü'[1:] }}",
    "{{ words[::-1] }} {{ words[1:] }} {{ words[:-1] }} {{ words[-2:] }} {{ words[5:] }}",
    "{{ 'a\\nb\\r\\nc'.splitlines() }} {{ text | length }} {{ 'é' | length }}",
    # maps
    "{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in map | items %}{{ k }};{% endfor %}",
    "{% for k in map %}{{ k }};{% endfor %}{{ map.keys() | list }} {{ map.values() | list | length }}",
    "{{ map.get('zeta') }} {{ map.get('no') }} {{ map.get('no', 5) }} {{ map['alpha'].x[1] }} {{ map['items'] }}",
    "{{ 'zeta' in map }} {{ 'x' in map }} {{ 'a' in 'cat' }} {{ 1 in list }} {{ 'b' not in words }}",
    "{% for k, v in map | dictsort %}{{ k }};{% endfor %}", "{{ (map | items | list)[0][0] }}",
    # tests
    "{% for v in [n, 1.5, yes, nil, text, list, map, missing] %}{{ v is string }}{{ v is mapping }}{{ v is sequence }}{{ v is iterable }}{{ v is number }}{{ v is boolean }}{{ v is none }}{{ v is defined }}{{ v is integer }}{{ v is float }};{% endfor %}",
    "{{ yes is true }} {{ no is false }} {{ n is true }} {{ 4 is even }} {{ n is odd }} {{ 6 is divisibleby 3 }} {{ nil is not none }} {{ missing is undefined }} {{ words is not mapping }}",
    "{{ n == 3 }} {{ n != 3 }} {{ n > 2 and n < 4 }} {{ not n }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ yes == 1 }} {{ nil == none }} {{ 2 <= 3 }}",
    "{{ 'x' if missing else 'y' }} {{ 'x' if no }} {{ missing or 'z' }} {{ nil or 0 or 'w' }} {{ yes and 'v' }} {{ empty or 'e' }}",
    # statements
    "{% set ns = namespace(total=0, seen=[]) %}{% for v in [1, 2, 3] %}{% set ns.total = ns.total + v %}{% set ns.seen = ns.seen + [v] %}{% endfor %}{{ ns.total }} {{ ns.seen }}",
    "{% for v in range(10) %}{% if v == 2 %}{% continue %}{% endif %}{% if v > 4 %}{% break %}{% endif %}{{ v }}{% endfor %}",
    "{% for v in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }};{% else %}none{% endfor %}{% for v in empty %}x{% else %}none{% endfor %}",
    "{% macro m(a, b='d') %}<{{ a }}{{ b }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}",
    "{% set x %}block {{ n }}{% endset %}[{{ x }}]{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% filter upper %}abc{{ n }}{% endfilter %}{% with q = 5 %}{{ q }}{% endwith %}",
    "{% for p in people if p.age is defined %}{{ p.name }}{% endfor %} {% for row in words recursive %}{{ row }}{% endfor %}",
    "{% if n == 1 %}a{% elif n == 3 %}b{% else %}c{% endif %}", "{% set n = 9 %}{{ n }}{% if yes %}{% set n = 8 %}{% endif %}{{ n }}",
    "{% for i in [1, 2] %}{% set n = i %}{% endfor %}{{ n }}",
    # filters
    "{{ words | join(', ') }} {{ words | sort | join }} {{ words | first }} {{ words | last }} {{ words | reverse | list }}",
    "{{ people | map(attribute='name') | list }} {{ people | selectattr('age', 'defined') | list | length }} {{ people | selectattr('name', 'equalto', 'Bo') | map(attribute='age') | first }}",
    "{{ people | rejectattr('age') | list | length }} {{ [1, 2, 3] | sum }} {{ [3, 1] | max }} {{ [1, 1, 2] | unique | list }} {{ words | length }} {{ words | count }}",
    "{{ missing | default('d') }} {{ '' | default('e', true) }} {{ nil | default('f') }} {{ '5' | int + 1 }} {{ '2.5' | float }} {{ 2.567 | round(1) }} {{ -3 | abs }}",
    "{{ 'a b' | replace(' ', '_') }} {{ 'abc' | upper }} {{ 'ab' | list }} {{ 'a\\nb' | indent(2) }} {{ map | length }}",
    "{{ 7 // 2 }} {{ 7 % 4 }} {{ 2 ** 5 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ -7 // 2 }} {{ 1 + 2 * 3 }}",
    "{{ (1, 2)[1] }} {{ ('a', 'b') | join }} {{ dict(a=1).a }} {{ {'a': {'b': 2}}.a.b }} {{ [1, [2]][1][0] }}",
]

USER = {"role": "user", "content": "Weather in Zürich?"}
CALL = {
    "role": "assistant", "content": "", "reasoning_content": "Ask.\n",
    "tool_calls": [
        {"type": "function", "function": {"name": "weather", "arguments": {
            "city": "Zürich \"HB\"", "days": 2, "exact": True, "at": None, "near": {"lat": 47.4, "tags": ["a", "ü"]}, "scale": 1e-7}}},
        {"name": "clock", "arguments": {}},
    ],
}
TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "Says \"now\" <b>é</b>", "parameters": {
        "type": "object", "properties": {"items": {"type": "array", "items": {"type": "string"}}}, "required": []}}}]
HISTORY = [
    {"role": "system", "content": "  Be kind.\n"}, USER, CALL,
    {"role": "tool", "content": "sunny"}, {"role": "tool", "content": [{"type": "text", "text": "12:00"}]},
    {"role": "assistant", "content": "<think>\nGood.\n</think>\n\nSunny."},
    {"role": "user", "content": "<result>x</result>"},
    {"role": "assistant", "content": "Again."},
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " and "}, {"image": "b.png"}]},
]
# Each renders agent.jinja.
CHATS = [
    {"messages": [USER]}, {"messages": [USER], "enable_thinking": False},
    {"messages": [USER], "add_generation_prompt": False},
    {"messages": [{"role": "system", "content": None}, USER]}, {"messages": [{"role": "system"}, USER]},
    {"messages": HISTORY}, {"messages": HISTORY, "tools": TOOLS},
    {"messages": HISTORY[:7], "preserve_thinking": True, "reasoning_effort": "low"},
    {"messages": HISTORY[:5], "tools": TOOLS, "enable_thinking": True},
    {"messages": []}, {"messages": [USER, HISTORY[0]]}, {"messages": [HISTORY[6]]},
    {"messages": [USER], "reasoning_effort": "extreme"}, {"messages": [{"role": "poet", "content": "x"}, USER]},
    {"messages": [{"role": "user", "content": [{"sound": 1.0, "ü": "é"}]}]},
    {"messages": [{"role": "user", "content": 5}]},
    {"messages": [{"role": "system", "content": [{"type": "image"}]}, USER]},
]


def main():
    snippets = [{"template": s, "rendered": ENV.from_string(s).render(**VALUES)} for s in SNIPPETS]
    agent = ENV.from_string(pathlib.Path(__file__).with_name("agent.jinja").read_text())
    chats = []
    for chat in CHATS:
        result = dict(chat)
        try:
            result["rendered"] = agent.render(
                **{"tools": None, "documents": None, "add_generation_prompt": True, **chat}
            )
        except jinja2.exceptions.TemplateError as error:
            result["refused"] = str(error)
        chats.append(result)
    golden = {"values": VALUES, "snippets": snippets, "chats": chats}
    json.dump(golden, sys.stdout, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main()
