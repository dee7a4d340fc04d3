#!/usr/bin/env python3
"""Makes vectors.json with Jinja2, set up as transformers sets it up for chat
templates:

    pip install jinja2==3.1.6
    python make.py

The templates are our own: families, snippets that the families' templates are
made of, and in constructs.txt everything else, with a line ---- between two. A
case has a template, messages, special tokens, whether the answer is to be begun,
and the text, or the error that the template raises, or another error. Cases with
tools, calls and other values are in families.py.
"""
import datetime, json
from pathlib import Path
import jinja2, jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
import families

NOW = datetime.datetime(2026, 3, 5, 7, 8, 9, 123456)

class Generation(jinja2.ext.Extension):
    """{% generation %} marks what the model wrote; it renders its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()

def fail(message):
    raise jinja2.exceptions.TemplateError(message)

def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=fail, strftime_now=lambda form: NOW.strftime(form))
    return env

FAMILIES = {
"llama2": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles have to alternate: user, assistant, user, ...') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
"llama3": """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}""",
"llama3.1": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- the system message goes first; a comment -#}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Knowledge until: December 2023\\n" }}
{{- "Today: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One call at a time!") }}
        {%- endif %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
""",
"mistral": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- roles alternate, but for tools -#}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message roles must alternate user/assistant") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are known, with an initial system message!") }}
    {%- endif %}
{%- endfor %}
""",
"qwen2": """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
"qwen2.5": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {{- tool_call.arguments | tojson }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
"qwen3": """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
            {%- endif %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}""",
"phi3": """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{% generation %}{{message['content'] + '<|end|>\n'}}{% endgeneration %}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}""",
"phi3.old": """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') %}{{'<|user|>' + '\n' + message['content'] + '<|end|>' + '\n' + '<|assistant|>' + '\n'}}{% elif (message['role'] == 'assistant') %}{{message['content'] + '<|end|>' + '\n'}}{% endif %}{% endfor %}""",
"chatml": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}
{% for message in messages %}
    {% if message.role not in ['user', 'assistant', 'system'] %}
        {{ raise_exception('Role ' ~ message.role ~ ' is unknown; message ' ~ loop.index ~ ' of ' ~ loop.length) }}
    {% endif %}
<|im_start|>{{ message.role }}
{{ message.content | default('', true) }}<|im_end|>
{% endfor %}
{% if add_generation_prompt -%}
<|im_start|>assistant
{% endif %}
""",
"macro": """{%- macro block(role, text, end='<end>') -%}
<{{ role|upper }}>{{ text }}{{ end }}
{%- endmacro -%}
{%- macro all(list) -%}
    {%- for m in list -%}
        {{ block(m.role, m.content) if m.role != 'assistant' else block(m.role, m.content, end='</a>' + eos_token) }}
        {%- if not loop.last %}{{ '\\n' }}{% endif -%}
    {%- endfor -%}
{%- endmacro -%}
{{ all(messages) }}""",
}

# Constructs one by one; the messages are of little account.
SNIPPETS = [
    "plain text\n", "a\n\n", "{{ 'x' }}\n", "{{ 'x' }}\ny\n", "{% if true %}\na\n{% endif %}\nb", "  {% if true %}  a\n  {% endif %}  b", "text {% if true %} a {% endif %} b", "x\n  {% if true %}\n  y\n  {%- endif %}\n z",
    "a {%- if true -%} b {%- endif -%} c", "a  {{- 'b' -}}  c", "a {#- c -#} b", "a\n  {# c #}\nb", "a\n  {#- c #}\n  b", "a {# c #} b", "{%- if true %}\n\n\nx{%- endif %}\n\n", "{% if true -%}\n\n  x\n{%- endif -%}\n", "a\n\t{% set x = 1 %}\nb{{ x }}",
    "  {%+ if true %}x{% endif %}", "{% if true +%}\nx{% endif %}", "{% raw %}{{ x }}{% endraw %}", "{{ '{{' }}{{ '%}' }}", "a{% set x %}b{{ 1 }}{% endset %}[{{ x }}]", "x\r\n{% if true %}\r\ny\r\n{% endif %}",
    "{{ messages|length }} {{ messages|first|attr('role') }} {{ messages[-1].role }} {{ messages[-1]['content'] }}", "{{ messages[0].role[0] }}{{ messages[0].role[1:] }}{{ messages[0].role[-2:] }}{{ messages[0].role[:-1] }}{{ 'añb'[::-1] }}{{ 'añ€'[1:] }}",
    "{{ messages[5:]|length }}{{ messages[:9]|length }}{{ messages[-9:]|length }}{{ messages[1:1]|length }}{{ messages[::2]|length }}", "{{ 'abc'[5:] }}|{{ 'abc'[-9:2] }}|{{ 'abc'[2:1] }}|",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}", "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.last }}{{ m.content }}{% else %}none{% endfor %}",
    "{% for m in [] %}x{% else %}none{% endfor %}", "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}", "{% for m in messages %}{% if m.role == 'assistant' %}{% continue %}{% endif %}{{ m.role }},{% endfor %}",
    "{% for m in messages %}{% for c in 'ab' %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }};{% endfor %}", "{% for k, v in {'x': 1, 'a': [2]}.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in messages[0] %}{{ k }},{% endfor %}", "{% for k, v in messages[0].items() %}{{ k }}:{{ v }},{% endfor %}", "{% for k, v in messages[0]|dictsort %}{{ k }}:{{ v }},{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}>{{ loop.nextitem.role if loop.nextitem is defined else '-' }} {% endfor %}", "{% for m in messages %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %}{% for x in range(5, 1, -2) %}{{ x }}{% endfor %}{{ range(4)|list }}", "{% for m in messages|reverse %}{{ m.role }} {% endfor %}{{ 'abc'|reverse }}",
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = i + 5 %}{{ x }}{% endfor %}{{ x }}", "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "{% set ns = namespace(a=1, b='x') %}{% for i in [1, 2, 3] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace(found=false) %}{% for m in messages %}{% if m.role == 'assistant' %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}",
    "{{ x is defined }}{{ x is undefined }}{{ none is defined }}{{ messages is defined }}{{ messages[0].tool_calls is defined }}{{ messages[0]['content'] is defined }}{{ messages[0].content is not defined }}", "{{ none is none }}{{ x is none }}{{ false is none }}{{ messages[0].content is none }}", "{{ none }}|{{ x }}|{{ true }}|{{ false }}|{{ True }}|{{ None }}",
    "{{ x | default('d') }}{{ '' | default('d') }}{{ '' | default('d', true) }}{{ none | default('d') }}{{ none | default('d', true) }}{{ x|d('e') }}{{ messages[0].name|default('n', boolean=true) }}", "{{ 'a' if x else 'b' }}{{ 'a' if x is defined }}|{{ 'a' if messages }}", "{{ x or 'y' }}{{ '' or 'z' }}{{ 'a' and 'b' }}{{ not x }}{{ not messages }}{{ 1 and 0 }}",
    "{{ 1 + 2 }} {{ 3 - 5 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 7 % 3 }} {{ 1.5 + 1 }} {{ 2 * 3.0 }} {{ 'ab' * 2 }} {{ 1e3 }} {{ 10 - 2 - 3 }} {{ 2 + 3 * 4 }} {{ -3 + 1 }}", "{{ 'a' + 'b' }}{{ 'a' ~ 1 ~ none ~ true }}{{ [1] + [2, 'x'] }}", "{{ 1 == 1.0 }}{{ 'a' == 'a' }}{{ 1 < 2 < 3 }}{{ 3 >= 4 }}{{ 'a' < 'b' }}{{ [1] == [1] }}{{ {'a': 1} == {'a': 1} }}{{ none == none }}{{ messages[0] == messages[0] }}{{ messages[0] == messages[-1] }}{{ 1 != 2 }}",
    "{{ 'a' in 'cat' }}{{ 'x' not in 'cat' }}{{ 'user' in ['user', 'b'] }}{{ 'role' in messages[0] }}{{ 'tools' in messages[0] }}{{ 1 in [1, 2] }}{{ not 'a' in 'b' }}{{ 'content' in messages[0] and messages[0].content != '' }}", "{{ [1, 'a', none, true, 1.5] }} {{ {'a': 1, 'b': 'c'} }}", "{{ 'a\\nb\\t\\\\c\\u00e9\\x41\\'' }}{{ \"d'e\" }}",
    "{{ '  a b '.strip() }}|{{ '  a'.lstrip() }}|{{ 'a  '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abc'.upper() }}|{{ 'aBC'.lower() }}|{{ 'abc'.capitalize() }}|{{ 'hello world'.title() }}|{{ 'a,b,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a,b,c'.split(',', 1) }}|{{ 'abc'.replace('b', 'x') }}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'c')) }}|{{ 'abc'.find('c') }}|{{ ','.join(['a', 'b']) }}|{{ 'a\\nb'.splitlines() }}|{{ '12'.isdigit() }}|{{ 'a-b'.rsplit('-')[1] }}|{{ 'abcabc'.count('bc') }}|{{ 'x{}y'.format(1) }}|{{ 'abc'.removeprefix('a') }}",
    "{{ ' a '|trim }}|{{ 'xax'|trim('x') }}|{{ 'abc'|upper }}|{{ 'aBc'|lower }}|{{ 'abc'|capitalize }}|{{ 'a b'|title }}|{{ 'abc'|length }}|{{ 'añ'|length }}|{{ 'abc'|replace('b', 'x') }}|{{ ['a', 'b']|join(', ') }}|{{ [3, 1, 2]|sort }}|{{ [1, 2]|sum }}|{{ [1, 2]|first }}{{ [1, 2]|last }}|{{ '5'|int + 1 }}|{{ 'x'|int(7) }}|{{ 2.7|int }}|{{ '1.5'|float }}|{{ 1|string + 'a' }}|{{ 'abc'|list }}|{{ [1, 1, 2]|unique|list }}|{{ -3|abs }}|{{ 2.567|round(1) }}|{{ [1, 2]|max }}|{{ 'a b c'|wordcount }}|{{ '<a>'|e }}|{{ '<a>'|safe }}",
    "{{ messages|map(attribute='role')|join(',') }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ messages|rejectattr('role', 'eq', 'user')|map(attribute='role')|list }} {{ [0, 1, '', 'a']|select|list }} {{ ['a', 'b']|map('upper')|list }} {{ messages|groupby('role')|length }} {{ messages|selectattr('content')|list|length }}", "{{ 'a\\nb'|indent(2) }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\nb'|indent(width=4, first=true) }}", "{{ '%s is %d'|format('x', 3) }}", "{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 2) }}{{ messages[0].get('name', 'nobody') }}{{ {'b': 1, 'a': 2}.keys()|list }}{{ {'b': 1}.values()|list }}", "{{ dict(a=1) }}{% for k, v in {'b': 1, 'a': 2}|items %}{{ k }}{{ v }}{% endfor %}",
    "{{ messages[0].content is string }}{{ 1 is string }}{{ 1 is number }}{{ 1.5 is float }}{{ 1 is integer }}{{ messages is sequence }}{{ messages is iterable }}{{ 'a' is iterable }}{{ messages[0] is mapping }}{{ messages is mapping }}{{ true is boolean }}{{ 4 is even }}{{ 3 is odd }}{{ 6 is divisibleby 3 }}{{ 1 is eq 1 }}{{ 'a' is in 'abc' }}{{ true is true }}{{ false is false }}{{ 0 is false }}{{ range is callable }}{{ 'A' is upper }}{{ x is none }}{{ 3 is sameas 3 }}",
    "{{ messages | tojson }}", "{{ messages[0] | tojson(indent=2) }}", "{{ {'b': [1, 2.5, none, true, 'é\"\\n\\u2028<>&\\''], 'a': {}, 'c': []} | tojson }}", "{{ {'b': [1, 2.0, {'x': none}], 'a': {}, 'c': []} | tojson(indent=4) }}", "{{ 'é<>&\\'\\u0007\\u007f' | tojson }} {{ 'é😀' | tojson(ensure_ascii=true) }} {{ 1 | tojson }} {{ 1.0 | tojson }} {{ 1e20 | tojson }} {{ 1e16 | tojson }} {{ 123456789.125 | tojson }} {{ 0.00001 | tojson }} {{ none | tojson }} {{ true | tojson }} {{ 1e15 | tojson }}", "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }} {{ [1, {'a': 2}] | tojson(separators=(',', ':')) }} {{ {1: 2, none: 3, false: 4, 1.5: 5}|tojson }} {{ (1, 2)|tojson }}",
    "{{ strftime_now('[%z%Z%%Z%%%z]') }}", "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }} {{ strftime_now('%A %a %B %j %H:%M:%S %I %p %y %% %f %U %W %u %w %V %G %D %F %T %R %e %C %h %n%t|') }} {{ strftime_now('') }} {{ strftime_now('Today, é') }} {{ strftime_now('%c|%x|%X|%r|%k|%l|%-d|%s')[:24] }}",
    "{{ raise_exception('No!') }}", "{% if messages[0].role != 'system' %}{{ raise_exception('first ' + messages[0].role) }}{% endif %}ok", "{% macro f(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, c='y') }}{{ f(b=3, a=4) }}{{ f('q', 'r', 's') }}", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}x{% endcall %}", "{% macro f(x) %}{{ bos_token }}{{ x }}{{ messages|length }}{% endmacro %}{{ f(1)|trim }}",
    "{% generation %}a{{ messages[0].content }}{% endgeneration %}b", "{% for m in messages %}\n{% generation %}\n{{ m.role }}\n{% endgeneration %}\n{% endfor %}", "{% filter upper %}abc{{ messages[0].role }}{% endfilter %}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}", "{% if messages|length > 1 and messages[1].role == 'assistant' %}y{% elif messages %}z{% else %}n{% endif %}", "{% if not messages[0].content.strip() %}empty{% else %}{{ messages[0].content.strip()|length }}{% endif %}", "{{ bos_token }}{{ eos_token }}{{ unk_token is defined }}{{ pad_token is defined }}{{ add_generation_prompt }}{{ tools is none }}{{ tools is defined }}{{ documents }}", "{{ '' if not add_generation_prompt else 'go' }}",
    "{{ (messages[0].content or '').strip()[:2] }}{{ ('a' ~ (1 if x else 2)) }}{{ [1 if x else 3, 'q'][0] }}{{ ('a', 'b')[1] }}{{ {'k': 'v' if messages else 'w'}.k }}{{ ('x' if x else 'y' if messages else 'z') + '!' }}", "{{ 'a' 'b' \"c\" + 'd' }}", "{{ 'if'}}{{ ('else') }}{{ (' if a else b ') }}{{ messages[-1 if messages else 0].role }}",
    "{ {{ 'x' }}{% if true %}{ {%- endif %}{ {{- 'y' }}", "{ {%- if true -%}} x { {%- endif %}{#c#}{", "a{ {#- c -#} {b", "{% if x is none or none is none and not none %}n{% endif %}{{ {'none': none}.none is none }}{{ none|default('d') is none }}{{ [none, 'none'] }}", "{{ {'a': {'b': {}}} }}{{ '}}' }}{% set s = '%}' %}{{ s }}{# {{ #}", "a\r\nb\rc\n\n", "\n{% if true %}\n\n  x  \n  {% endif %}\n\n y {% raw %} {{ 'a' }}\\n\"q\" {% endraw %}\nz{%- raw -%} \n r {%- endraw -%} \nz\n  {% raw %}\nq\n  {% endraw %}\nw", "{%- for m in messages -%}\n{{- m.role -}}\n{%- endfor -%}\nend", "{%if true%}a{%endif%}{{x}}{%-if true-%}b{%-endif-%}", "{% set x %}\n  a\n{% endset %}[{{ x }}]", "{#- a -#}\n{#b#}\n  {#+ c +#}\nx\n  {%+ if true +%}\n y{% endif %}", "{{ messages[0].content.replace('i', '1').replace('H', 'h', 1).find('1') }}{{ 'aXbX'.rfind('X') }}{{ 'a b'.split(' ', 1)[1:] }}{{ 'é-'.find('-') }}", "{{ [1, 2, 3]|reverse|list }}{{ 'aé'|reverse }}{% for m in messages|reverse %}{{ loop.index }}{{ m.role }}{% endfor %}",
    "{{ 'a\\\\' ~ \"\\\\\" }}{{ messages[0].content|replace(\"\\\\\", '\\\\\\\\')|replace('\\'', \"\\\\'\") }}",
    "{% set d = {'user': 'U', 'assistant': 'A'} %}{% for m in messages %}{{ d[m.role] }}{{ d.get(m.role, '?') }}{% endfor %}", "{% set l = ['a'] %}{% set l = l + ['b'] %}{{ l }}{{ l[0] }}{{ l.0 }}{{ l|length }}", "{% set m = messages[0] %}{{ m['con' + 'tent'] }}{{ m[('role')] }}", "{{ messages[0].content | trim | upper | replace('A', '4') }}", "{{ (messages[0].content + ' x').split(' ')[-1] }}{{ messages[0]['content'][:3] }}", "{{ 'a'\n  'b' }}", "{{ ('a' if messages[0].role == 'user' else 'b') + 'c' }}", "{{ messages[0].content.split('\\n')|length }}", "{{- '\\n' -}}\n x", "{{ 1 if true }}{{ 2 if false }}", "{% set content = messages[0].content if messages[0].content is string else '' %}{{ content }}", "{{ loop is defined }}", "{{ cycler is defined }}{{ joiner is defined }}{{ namespace is defined }}",
    "{{ 'añb'[1] }}", "{% for m in messages %}{% for c in 'ab' %}{{ loop.depth }}{% endfor %}{% endfor %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 5 }}",
    "{{ true == 1 }}", "{{ (1, 2) }}", "{{ [\"it's\"] }}", "{{ lipsum is defined }}", "{% for c in 'é' %}{{ loop.length }}{% endfor %}", "{{ not 1 }}", "{{ {true: 1, 1: 2}|length }}",
]

FAMILIES["gpt-oss"] = Path(__file__).with_name("harmony.jinja").read_text()
FAMILIES.update(families.TEMPLATES)

# What gpt-oss's template sees beside messages with a role and content.
CALL = {"function": {"name": "weather", "arguments": {"city": "Köln", "days": [1, 2.5], "unit": None}}}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters": {"type": "object", "required": ["city"], "properties": {
    "city": {"type": "string", "description": "The place"}, "unit": {"type": "string", "enum": ["C", "F"], "default": "C", "nullable": True}, "days": {"type": "array", "items": {"type": "number"}, "nullable": True},
    "spots": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "boolean"}}, "required": ["x"]}}, "any": {"type": "array"},
    "kind": {"oneOf": [{"type": "string", "description": "a name"}, {"type": "number", "default": 3}], "default": "x"}, "both": {"type": ["string", "integer"]}, "one": {"type": ["integer"]}, "free": {}, "deep": {"type": "object"}}}}}
NOW_TOOL = {"type": "function", "function": {"name": "now", "description": "Tells the time."}}
HARMONY = [
    {"messages": [{"role": "user", "content": "Hi"}], "tools": [WEATHER, NOW_TOOL]},
    {"messages": [{"role": "developer", "content": "Be terse."}, {"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "", "thinking": "I ask.", "tool_calls": [CALL]}, {"role": "tool", "content": "{\"t\": 3}"}], "tools": [WEATHER]},
    {"messages": [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}, {"role": "tool", "content": "<3°>"}, {"role": "assistant", "content": "Cold.", "thinking": "3 is cold."}, {"role": "user", "content": "So?"}], "tools": [WEATHER]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thinking": "c"}], "reasoning_effort": "high", "identity": "You are one.", "builtin_tools": ["python"]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thinking": "c", "tool_calls": [CALL]}]},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<|channel|>final<|message|>b"}]},
    {"messages": [{"role": "tool", "content": "a"}]},
]

def literal(value):
    """A value as an expression of Jinja2."""
    return json.dumps(value, ensure_ascii=False).replace("null", "none")

CONSTRUCTS = Path(__file__).with_name("constructs.txt").read_text().split("\n----\n")

CONVERSATIONS = {
    "one": [("user", "Hi")],
    "long": [("system", "  Be terse.\n"), ("user", "What is 2 + 2?"), ("assistant", " 4. \n"), ("user", "Naïve “quotes” & <b>'it\"s'</b>\n\n{{ x }} {% if %} 👩‍👧 </think>")],
    "think": [("user", "a"), ("assistant", "<think>\n\nhm\n</think>\n\nb\n"), ("user", "c"), ("assistant", "<think>x</think>y")],
    "odd": [("assistant", "first"), ("user", ""), ("tool", "t"), ("critic", "q")],
}

def render(template, messages, tokens, go, variables={}):
    try:
        compiled = environment().from_string(template)
        values = {"tools": None, "documents": None, **variables}
        return {"text": compiled.render(messages=messages, add_generation_prompt=go, **values, **tokens)}
    except jinja2.exceptions.TemplateError as e:
        return {"raises" if type(e) is jinja2.exceptions.TemplateError else "fails": str(e)}
    except Exception as e:
        return {"fails": f"{type(e).__name__}: {e}"}

def main():
    tokens, cases = {"bos_token": "<s>", "eos_token": "</s>"}, []
    jobs = [(name, t, c, go) for name, t in FAMILIES.items() for c in CONVERSATIONS for go in (True, False)]
    jobs += [(t, t, c, True) for t in SNIPPETS for c in ("one", "long")]
    jobs += [(t, t, "one", True) for t in CONSTRUCTS]
    for variables in HARMONY:
        t = "".join("{%%- set %s = %s %%}" % (name, literal(value)) for name, value in variables.items()) + FAMILIES["gpt-oss"]
        jobs += [(t, t, "one", go) for go in (True, False)]
    for name, template, conversation, go in jobs:
        messages = [{"role": r, "content": c} for r, c in CONVERSATIONS[conversation]]
        cases.append({"template": name, "conversation": conversation, "add_generation_prompt": go, **render(template, messages, tokens, go)})
    conversations = {k: [{"role": r, "content": c} for r, c in v] for k, v in CONVERSATIONS.items()}
    out = {"now": NOW.isoformat(), "tokens": tokens, "conversations": conversations, "families": FAMILIES, "cases": cases,
           "dialogues": families.DIALOGUES, "values": families.VALUES, "family_cases": list(families.family_cases(render, tokens))}
    (Path(__file__).parent / "vectors.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")

if __name__ == "__main__":
    main()
