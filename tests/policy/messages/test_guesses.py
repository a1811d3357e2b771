"""Lines of writers who guess from LiteLLM, nginx, YAML, TOML, HCL and Python: what is said mends them.

Each line is checked as it stands. All fixes together give a policy without errors that says what the line meant, and
each help shows the text that its fix writes.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from hivemind_trio.policy import Checked, Diagnostic, MemoryFiles, Severity, check
from hivemind_trio.policy.fixer import fix

ANTHROPIC: Final = "provider anthropic { key env(K) }\n"

GUESSES: Final = (
    ('resource "provider" "anthropic" { key env(K) }\n', "provider anthropic { key env(K) }\n"),
    ("provider anthropic { key var.anthropic_key }\n", "provider anthropic { key env(ANTHROPIC_KEY) }\n"),
    ("provider anthropic { concurrency { min 2; max 8 } }\n", "provider anthropic { concurrency 2..8 }\n"),
    ("provider anthropic { concurrency: {min: 2, max: 8} }\n", "provider anthropic { concurrency 2..8 }\n"),
    ("provider anthropic { concurrency { max 8 } }\n", "provider anthropic { concurrency 8 }\n"),
    ('agent x if header.x-role == "a" { }\n', 'agent x when header.x-role == "a" { }\n'),
    ('agent x if header.x-role = "a"\n', 'agent x when header.x-role == "a"\n'),
    ('store sqlite "x.db"\n', 'store sqlite { path "x.db" }\n'),
    (
        'lane batch { }\ntest "t" { given { agent unknown }; expect lane batch }\n',
        'lane batch { }\ntest "t" { given { agent unknown }; expect lane == batch }\n',
    ),
    (
        'lane batch { }\ntest "t" { given { agent unknown }; expect lane batch and priority 3 }\n',
        'lane batch { }\ntest "t" { given { agent unknown }; expect lane == batch and priority == 3 }\n',
    ),
    (
        "provider anthropic { key env(K); timeout connect 5s, total 30s }\n",
        "provider anthropic { key env(K); timeout connect 5s total 30s }\n",
    ),
    (
        "provider anthropic {\n key env(K)\n timeout connect 5s,\n         total 30s\n}\n",
        "provider anthropic {\n key env(K)\n timeout connect 5s total 30s\n}\n",
    ),
    (
        "provider anthropic {\n key env(K)\n timeout connect 5s\n total 30s\n}\n",
        "provider anthropic {\n key env(K)\n timeout connect 5s total 30s\n}\n",
    ),
    ("retry default { backoff 1..20s }\n", "retry default { backoff 1s..20s }\n"),
    ("server { metrics on }\n", 'server { metrics "127.0.0.1:9464" }\n'),
    ("budget b { cost $5/day; deny }\n", "budget b { cost $5/day; at 100% { deny } }\n"),
    ('budget b { cost $5/day; deny "no" }\n', 'budget b { cost $5/day; at 100% { deny "no" } }\n'),
    ("budget b { cost $5/day; hold }\n", "budget b { cost $5/day; at 100% { hold } }\n"),
    ("provider anthropic { limits { requests: 50/min } }\n", "provider anthropic { limits { requests 50/min } }\n"),
    ("provider anthropic { requests: 50/min }\n", "provider anthropic { limits { requests 50/min } }\n"),
    ("provider anthropic { key os.environ/KEY }\n", "provider anthropic { key env(KEY) }\n"),
    ('provider anthropic { key "os.environ/KEY" }\n', "provider anthropic { key env(KEY) }\n"),
    ('provider anthropic { key os.environ["KEY"] }\n', "provider anthropic { key env(KEY) }\n"),
    (
        "provider anthropic { key os.environ/ANTHROPIC_API_KEY; concurrency 3 }\n",
        "provider anthropic { key env(ANTHROPIC_API_KEY); concurrency 3 }\n",
    ),
    ("rule r { deny no opus today }\n", 'rule r { deny "no opus today" }\n'),
    ("rule r { deny CI may not use Opus }\n", 'rule r { deny "CI may not use Opus" }\n'),
    ("provider anthropic { serves claude-opus-4 }\n", 'provider anthropic { serves "claude-opus-4" }\n'),
    ("provider anthropic { base api.anthropic.com }\n", 'provider anthropic { base "https://api.anthropic.com" }\n'),
    ("server { timezone Europe/Paris }\n", 'server { timezone "Europe/Paris" }\n'),
    ("server { timezone UTC }\n", 'server { timezone "UTC" }\n'),
    ("retry default { on 5xx }\n", "retry default { on 500..599 }\n"),
    ("retry default { on [5xx] }\n", "retry default { on [500..599] }\n"),
    ("retry default { on [429 529] }\n", "retry default { on [429 , 529] }\n"),
    ("retry default { on [429, 5xx] }\n", "retry default { on [429, 500..599] }\n"),
    ("retry default { on 429 529 }\n", "retry default { on [429, 529] }\n"),
    ("retry default { on 429,529 }\n", "retry default { on [429,529] }\n"),
    ("retry default { on [5xx, reset] }\n", "retry default { on [500..599, reset] }\n"),
    ('retry default { on ["5xx"] }\n', "retry default { on [500..599] }\n"),
    ("provider anthropic { limits { requests 0.5/s } }\n", "provider anthropic { limits { requests 30/min } }\n"),
    ("provider anthropic { limits { requests 1.5/min } }\n", "provider anthropic { limits { requests 90/hour } }\n"),
    ("provider anthropic { concurrency unlimited }\n", "provider anthropic { }\n"),
    ("provider anthropic { concurrency none }\n", "provider anthropic { }\n"),
    ("provider anthropic { concurrency auto }\n", "provider anthropic { }\n"),
    ("provider anthropic { concurrency adaptive }\n", "provider anthropic { }\n"),
    ("provider anthropic { concurrency inf }\n", "provider anthropic { }\n"),
    ("provider anthropic { concurrency 0 }\n", "provider anthropic { concurrency 1 }\n"),
    ("agent ci { concurrency unlimited }\n", "agent ci { }\n"),
    ("lane l { queue unlimited }\nrule r { lane l }\n", "lane l { }\nrule r { lane l }\n"),
    ("lane l { max none }\nrule r { lane l }\n", "lane l { }\nrule r { lane l }\n"),
    ("server { metrics yes }\n", 'server { metrics "127.0.0.1:9464" }\n'),
    ("server { admin false }\n", "server { admin off }\n"),
    ("server { admin no }\n", "server { admin off }\n"),
    ("store sqlite { journal on }\n", "store sqlite { }\n"),
    ("store sqlite { journal false }\n", "store sqlite { journal off }\n"),
    ("store sqlite { journal no }\n", "store sqlite { journal off }\n"),
    ("rule r when stream == yes { priority 1 }\n", "rule r when stream { priority 1 }\n"),
    ("rule r when stream == on { priority 1 }\n", "rule r when stream { priority 1 }\n"),
    ("rule r when stream == True { priority 1 }\n", "rule r when stream { priority 1 }\n"),
    ("rule r when tools is true { priority 1 }\n", "rule r when tools { priority 1 }\n"),
    ("provider anthropic { headers true }\n", "provider anthropic { headers trust }\n"),
    ("server { unknown-agent no }\n", "server { unknown-agent deny }\n"),
    ("server { unknown-agent false }\n", "server { unknown-agent deny }\n"),
    (
        "provider anthropic { timeout connect 30 seconds total 1 minute }\n",
        "provider anthropic { timeout connect 30s total 1m }\n",
    ),
    ("provider anthropic { timeout total 1 minute }\n", "provider anthropic { timeout total 1m }\n"),
    ("lane l { deadline 1 minute }\nrule r { lane l }\n", "lane l { deadline 1m }\nrule r { lane l }\n"),
    ("server { drain 1m30 }\n", "server { drain 1m30s }\n"),
    ("budget b { cost 100/month }\n", "budget b { cost $100/month }\n"),
    ("budget b { cost 100$/month }\n", "budget b { cost $100/month }\n"),
    ("budget b { cost $100/mo }\n", "budget b { cost $100/month }\n"),
    ("budget b { cost $100 per month }\n", "budget b { cost $100/month }\n"),
    ("budget b { cost 100 USD/month }\n", "budget b { cost $100/month }\n"),
    ('budget b { cost "$100/month" }\n', "budget b { cost $100/month }\n"),
    ("budget b { $100/month }\n", "budget b { cost $100/month }\n"),
    ("budget b $100/month\n", "budget b { cost $100/month }\n"),
    (
        'provider anthropic { api_base "https://x.example.com"; api_key os.environ/K }\n',
        'provider anthropic { base "https://x.example.com"; key env(K) }\n',
    ),
    ("provider anthropic { rpm: 50 }\n", "provider anthropic { limits { requests 50/min } }\n"),
    (
        "provider anthropic { rpm: 50, tpm: 100000 }\n",
        "provider anthropic { limits { requests 50/min; tokens 100000/min } }\n",
    ),
    (
        "provider anthropic { rpm 50; tpm 100k }\n",
        "provider anthropic { limits { requests 50/min; tokens 100k/min } }\n",
    ),
    ("agent ci { rpm 50; tpm 10k }\n", "agent ci { limits { requests 50/min; tokens 10k/min } }\n"),
    ("budget b { rpm 50 }\n", "budget b { requests 50/min }\n"),
    ("lane batch weight 1\nrule r { lane batch }\n", "lane batch { weight 1 }\nrule r { lane batch }\n"),
    (
        "lane batch weight 1 queue 20\nrule r { lane batch }\n",
        "lane batch { weight 1; queue 20 }\nrule r { lane batch }\n",
    ),
    ('server "127.0.0.1:9000"\n', 'server { listen "127.0.0.1:9000" }\n'),
    ('server { listen "127.0.0.1:9000", admin off }\n', 'server { listen "127.0.0.1:9000"; admin off }\n'),
    ('store redis "redis://localhost:6379"\n', 'store redis { url "redis://localhost:6379" }\n'),
    ("agent ci env(CI_TOKEN)\n", "agent ci { token env(CI_TOKEN) }\n"),
    ("agent ci token=env(CI_TOKEN)\n", "agent ci { token env(CI_TOKEN) }\n"),
    ("provider openai env(OPENAI_API_KEY)\n", "provider openai { key env(OPENAI_API_KEY) }\n"),
    (
        'provider lab "https://llm.example.com/v1" { api openai }\n',
        'provider lab { base "https://llm.example.com/v1"; api openai }\n',
    ),
    ("server { listen 8787 ssl; }\n", 'server { listen "127.0.0.1:8787" }\n'),
    (
        "server { listen 8787; server_name llm.example.com; }\n",
        'server { listen "127.0.0.1:8787"; hosts ["llm.example.com"]; }\n',
    ),
    ("provider = anthropic\n", "provider anthropic\n"),
    ("provider: anthropic\n", "provider anthropic\n"),
    ("providers { anthropic { key env(K) } }\n", "provider anthropic { key env(K) }\n"),
    ("anthropic { key env(K) }\n", "provider anthropic { key env(K) }\n"),
    (
        'rule r when agent == "ci" { priority 1 }\nagent ci { }\n',
        "rule r when agent == ci { priority 1 }\nagent ci { }\n",
    ),
    ("agent ci { team product }\n", "agent ci { team product }\n\nteam product { }\n"),
    ('rule r when model startswith "claude" { priority 1 }\n', 'rule r when model ~ "claude*" { priority 1 }\n'),
    ('rule r when model.startswith("claude") { priority 1 }\n', 'rule r when model ~ "claude*" { priority 1 }\n'),
    ('rule r when "opus" in model { priority 1 }\n', 'rule r when model ~ "*opus*" { priority 1 }\n'),
    ("rule r when tokens > 5k { priority 1 }\n", "rule r when tokens.in > 5k { priority 1 }\n"),
    ("rule r when input_tokens > 5k { priority 1 }\n", "rule r when tokens.in > 5k { priority 1 }\n"),
    ("rule r when header.X-Role == review { priority 1 }\n", 'rule r when header.X-Role == "review" { priority 1 }\n'),
    (
        'rule r when headers.x-role == "review" { priority 1 }\n',
        'rule r when header.x-role == "review" { priority 1 }\n',
    ),
    ("rule r when time > 18 { priority 1 }\n", "rule r when time > 18:00 { priority 1 }\n"),
    ("rule r when time in 9am..5pm { priority 1 }\n", "rule r when time in 09:00..17:00 { priority 1 }\n"),
    ("rule r when weekday in [mon, tue] { priority 1 }\n", "rule r when weekday in [1, 2] { priority 1 }\n"),
    ('rule r when weekday == "monday" { priority 1 }\n', "rule r when weekday == 1 { priority 1 }\n"),
    ("rule r when weekend { priority 1 }\n", "rule r when weekday in 6..7 { priority 1 }\n"),
    ("rule r { set priority 5 }\n", "rule r { priority 5 }\n"),
    ("rule r { priority = 5 }\n", "rule r { priority 5 }\n"),
    ("rule r { priority high }\n", "rule r { priority 75 }\n"),
    ("rule r { action deny }\n", "rule r { deny }\n"),
    ("rule r { deny() }\n", "rule r { deny }\n"),
    ("rule r { return deny }\n", "rule r { deny }\n"),
    ('rule r { deny: "no" }\n', 'rule r { deny "no" }\n'),
    ("rule r { deny = true }\n", "rule r { deny }\n"),
    ('rule "big calls" when tokens.in > 5k { priority 5 }\n', "rule big-calls when tokens.in > 5k { priority 5 }\n"),
    ("rule big calls when tokens.in > 5k { priority 5 }\n", "rule big-calls when tokens.in > 5k { priority 5 }\n"),
    (
        "rule r when agent == ci or cd { priority 1 }\nagent ci { }\nagent cd { }\n",
        "rule r when agent in [ci, cd] { priority 1 }\nagent ci { }\nagent cd { }\n",
    ),
    (
        "rule r when agent == ci || agent == cd: { priority 1 }\nagent ci { }\nagent cd { }\n",
        "rule r when agent == ci or agent == cd { priority 1 }\nagent ci { }\nagent cd { }\n",
    ),
    (
        "rule r when agent in (ci, cd) { priority 1 }\nagent ci { }\nagent cd { }\n",
        "rule r when agent in [ci, cd] { priority 1 }\nagent ci { }\nagent cd { }\n",
    ),
    ("lane l { timeout 30s }\nrule r { lane l }\n", "lane l { deadline 30s }\nrule r { lane l }\n"),
    ("lane l { priority low }\nrule r { lane l }\n", "lane l { priority 0 }\nrule r { lane l }\n"),
    ("lane l { max-wait 30s }\nrule r { lane l }\n", "lane l { deadline 30s }\nrule r { lane l }\n"),
    ("lane l { concurrency 4 }\nrule r { lane l }\n", "lane l { max 4 }\nrule r { lane l }\n"),
    ("agent ci { max 4 }\n", "agent ci { concurrency 4 }\n"),
    ("agent ci { budget $5/day }\n", "agent ci { }\n\nbudget ci when agent == ci { cost $5/day }\n"),
    (
        'agent ci { model "claude-haiku-4-5" }\n',
        'agent ci { }\n\nrule ci-model when agent == ci { model "claude-haiku-4-5" }\n',
    ),
    (
        'agent ci { allow ["claude-haiku-*"] }\n',
        'agent ci { }\n\nrule ci-models when agent == ci and not model ~ ["claude-haiku-*"] { deny }\n',
    ),
    ("agent ci { key env(X) }\n", "agent ci { token env(X) }\n"),
    ('agent "ci bot" { }\n', "agent ci-bot { }\n"),
    ("budget b { limit $5/day }\n", "budget b { cost $5/day }\n"),
    ("budget b { daily $5 }\n", "budget b { cost $5/day }\n"),
    ("budget b { $5/day }\n", "budget b { cost $5/day }\n"),
    ("budget b for ci { cost $5/day }\nagent ci { }\n", "budget b when agent == ci { cost $5/day }\nagent ci { }\n"),
    ("budget b agent ci { cost $5/day }\nagent ci { }\n", "budget b when agent == ci { cost $5/day }\nagent ci { }\n"),
    ("budget b { cost $5/day; agent ci }\nagent ci { }\n", "budget b when agent == ci { cost $5/day }\nagent ci { }\n"),
    ("budget b { cost $5/day; at 80 { warn } }\n", "budget b { cost $5/day; at 80% { warn } }\n"),
    ("budget b { cost $5/day; at 80%: warn }\n", "budget b { cost $5/day; at 80% { warn } }\n"),
    ("budget b { cost $5/day; warn 80% }\n", "budget b { cost $5/day; at 80% { warn } }\n"),
    ("budget b { cost $5/day; warn at 80% }\n", "budget b { cost $5/day; at 80% { warn } }\n"),
    ("budget b { cost $5/day reset monthly }\n", "budget b { cost $5/day }\n"),
    ("budget b { tokens 1m/day }\n", "budget b { tokens 1M/day }\n"),
    ("budget b { tokens 1,000,000/day }\n", "budget b { tokens 1_000_000/day }\n"),
    ("budget b { tokens 1e6/day }\n", "budget b { tokens 1000000/day }\n"),
    ("budget b { tokens 1 million/day }\n", "budget b { tokens 1M/day }\n"),
    (
        "provider anthropic { limits { requests 50 per minute } }\n",
        "provider anthropic { limits { requests 50/min } }\n",
    ),
    ("provider anthropic { limits { requests 50/minute } }\n", "provider anthropic { limits { requests 50/min } }\n"),
    ("provider anthropic { limits { requests 50rpm } }\n", "provider anthropic { limits { requests 50/min } }\n"),
    ("provider anthropic { limits { requests 50r/m } }\n", "provider anthropic { limits { requests 50/min } }\n"),
    ("provider anthropic { limits { tokens 450K/min } }\n", "provider anthropic { limits { tokens 450k/min } }\n"),
    (
        'provider anthropic { limits "claude-*" requests 50/min }\n',
        'provider anthropic { limits "claude-*" { requests 50/min } }\n',
    ),
    ("provider anthropic { limits requests 50/min }\n", "provider anthropic { limits { requests 50/min } }\n"),
    (
        "provider anthropic { limits claude-opus-4 { requests 50/min } }\n",
        'provider anthropic { limits "claude-opus-4" { requests 50/min } }\n',
    ),
    ("provider anthropic { timeout 30s }\n", "provider anthropic { timeout total 30s }\n"),
    ("provider anthropic { retries 3 }\n", "provider anthropic { }\n\nretry default { attempts 4 }\n"),
    ("provider anthropic { retry 3 }\n", "provider anthropic { }\n\nretry default { attempts 3 }\n"),
    ("provider anthropic { retry { attempts 3 } }\n", "provider anthropic { }\n\nretry default { attempts 3 }\n"),
    ("provider anthropic { retry off }\n", "provider anthropic { retry off }\n\nretry off { attempts 1 }\n"),
    ("retry default { attempts 3 times }\n", "retry default { attempts 3 }\n"),
    ("retry default { max 3 }\n", "retry default { attempts 3 }\n"),
    ("retry default { backoff exponential }\n", "retry default { backoff 500ms..5s }\n"),
    ("retry default { backoff 500ms }\n", "retry default { backoff 500ms..500ms }\n"),
    ("retry default { backoff 500ms to 20s }\n", "retry default { backoff 500ms..20s }\n"),
    ("retry default { backoff 500ms 20s }\n", "retry default { backoff 500ms..20s }\n"),
    ("retry default { backoff 500ms..20s jitter true }\n", "retry default { backoff 500ms..20s jitter full }\n"),
    ("retry default { on 500-599 }\n", "retry default { on 500..599 }\n"),
    ("retry default { on [500-504] }\n", "retry default { on [500..504] }\n"),
    ("retry default { on [timeout, ratelimit] }\n", "retry default { on [timeout, 429] }\n"),
    ("retry default { on all }\n", "retry default { on [429, 500..504, 529, connect, reset, first-byte] }\n"),
    ("provider anthropic { concurrency 4-8 }\n", "provider anthropic { concurrency 4..8 }\n"),
    ("provider anthropic { concurrency max 8 }\n", "provider anthropic { concurrency 8 }\n"),
    ("provider anthropic { concurrency min 2 max 8 }\n", "provider anthropic { concurrency 2..8 }\n"),
    ('provider anthropic { concurrency "8" }\n', "provider anthropic { concurrency 8 }\n"),
    ('provider anthropic { models ["claude-*"] }\n', 'provider anthropic { serves ["claude-*"] }\n'),
    ('provider anthropic { serves "claude-*" "o3" }\n', 'provider anthropic { serves ["claude-*", "o3"] }\n'),
    (
        'x = ["claude-*"]\nrule r when model ~ x { priority 1 }\n',
        'let x = ["claude-*"]\nrule r when model ~ x { priority 1 }\n',
    ),
    ("version 1\n", "hmp 1\n"),
    ('hmp "1"\n', "hmp 1\n"),
    (
        'test "t" { given agent ci; expect denied }\nagent ci { }\n',
        'test "t" { given { agent ci }; expect denied }\nagent ci { }\n',
    ),
    ('test "t" { given { agent = unknown }; expect deny }\n', 'test "t" { given { agent unknown }; expect denied }\n'),
    (
        'test "t" { given { model claude }; expect admitted }\n',
        'test "t" { given { model "claude" }; expect admitted }\n',
    ),
    (
        'test "t" { given { model "claude"; tokens 5k }; expect admitted }\n',
        'test "t" { given { model "claude"; tokens.in 5k }; expect admitted }\n',
    ),
    ('test "t" { given { }; assert admitted }\n', 'test "t" { given { }; expect admitted }\n'),
    ('server { host "0.0.0.0" }\n', 'server { listen "0.0.0.0:8787" }\n'),
    ("server { port 9000 }\n", 'server { listen "127.0.0.1:9000" }\n'),
    ("server { workers 4 processes }\n", "server { workers 4 }\n"),
    ("server { max-body 32M }\n", "server { max-body 32MB }\n"),
    ("agent ci { token $CI_TOKEN }\n", "agent ci { token env(CI_TOKEN) }\n"),
    ('agent ci { token ENV["CI_TOKEN"] }\n', "agent ci { token env(CI_TOKEN) }\n"),
    ('agent ci { token getenv("CI_TOKEN") }\n', "agent ci { token env(CI_TOKEN) }\n"),
    ("agent ci { token %CI_TOKEN% }\n", "agent ci { token env(CI_TOKEN) }\n"),
    ("agent ci { token {{ env.CI_TOKEN }} }\n", "agent ci { token env(CI_TOKEN) }\n"),
    ("agent ci { token secret(CI_TOKEN) }\n", "agent ci { token env(CI_TOKEN) }\n"),
    ("agent ci { token <CI_TOKEN> }\n", "agent ci { token env(CI_TOKEN) }\n"),
    ("lane l { weight 0 }\nrule r { lane l }\n", "lane l { weight 1 }\nrule r { lane l }\n"),
    ("lane l { reserve 2 slots }\nrule r { lane l }\n", "lane l { reserve 2 }\nrule r { lane l }\n"),
    ("lane l { aging 1 per 30s }\nrule r { lane l }\n", "lane l { aging 1 every 30s }\nrule r { lane l }\n"),
    (
        'let x := ["a*"]\nrule r when model ~ x { priority 1 }\n',
        'let x = ["a*"]\nrule r when model ~ x { priority 1 }\n',
    ),
    (
        'const x = ["a*"]\nrule r when model ~ x { priority 1 }\n',
        'let x = ["a*"]\nrule r when model ~ x { priority 1 }\n',
    ),
    ("lane l { weight 1.5 }\nrule r { lane l }\n", "lane l { weight 2 }\nrule r { lane l }\n"),
    ("lane l { weight 0.2 }\nrule r { lane l }\n", "lane l { weight 1 }\nrule r { lane l }\n"),
    ("agent ci { concurrency 2.4 }\n", "agent ci { concurrency 2 }\n"),
    ("server { drain 1:30 }\n", "server { drain 1m30s }\n"),
    ("server { drain 0:45 }\n", "server { drain 45s }\n"),
    ("lane l { deadline 02:00 }\nrule r { lane l }\n", "lane l { deadline 2m }\nrule r { lane l }\n"),
    ("lane l { aging 1/30s }\nrule r { lane l }\n", "lane l { aging 1 every 30s }\nrule r { lane l }\n"),
    ("lane l { aging 2 / min }\nrule r { lane l }\n", "lane l { aging 2 every 1m }\nrule r { lane l }\n"),
    ('variable "api_key" {}\n', ""),
    ("provider lab { api openai; base var.lab_url }\n", "provider lab { api openai; base env(LAB_URL) }\n"),
    ('variable "api_key" { type = string }\n', ""),
    ('variable "api_key" {\n  type = string\n  sensitive = true\n}\n', ""),
    (
        'variable "n" {\n  type    = number\n  default = 5\n}\nagent ci { concurrency var.n }\n',
        "let n = 5\nagent ci { concurrency n }\n",
    ),
    (
        'locals { cheap = ["a*"] }\nrule r when model ~ local.cheap { priority 1 }\n',
        'let cheap = ["a*"]\nrule r when model ~ cheap { priority 1 }\n',
    ),
    (
        'locals {\n  cheap = [\n    "a*",\n  ]\n  big = 5k  # tokens\n}\n'
        "rule r when model ~ local.cheap and tokens.in > local.big { priority 1 }\n",
        'let cheap = [\n    "a*",\n  ]\nlet big = 5k\nrule r when model ~ cheap and tokens.in > big { priority 1 }\n',
    ),
    (
        "limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;\n"
        "agent ci { limit_req zone=one burst=5 nodelay; }\n",
        "agent ci { limits { requests 10/s }; }\n",
    ),
    (
        "agent ci {\n  limit_req zone=one burst=5;\n  concurrency 4\n}\n",
        "agent ci {\n  limits { requests 50/min };\n  concurrency 4\n}\n",
    ),
    (
        "limit_conn_zone $binary_remote_addr zone=addr:10m;\nagent ci { limit_conn addr 10; }\n",
        "agent ci { concurrency 10; }\n",
    ),
    ("lane l { limit_conn addr 10; }\nrule r { lane l }\n", "lane l { max 10; }\nrule r { lane l }\n"),
)


def checked(text: str) -> Checked:
    return check("team.hmp", MemoryFiles({"team.hmp": text}))


def errors(policy: Checked) -> list[Diagnostic]:
    return [one for one in policy.diagnostics if one.severity is Severity.ERROR]


def before(text: str) -> str:
    """Return the provider that the line needs, if it declares none."""
    return "" if re.search(r"anthropic|provider openai", text) else ANTHROPIC


@pytest.mark.parametrize(("text", "after"), GUESSES, ids=[one.strip().replace("\n", " / ") for one, _ in GUESSES])
def test_the_fixes_of_a_guess_give_what_was_meant(text: str, after: str) -> None:
    pre = before(text)
    files = MemoryFiles({"team.hmp": pre + text})

    fixed = fix(check("team.hmp", files), files, unsafe=True)

    assert fixed.texts["team.hmp"] == pre + after
    assert errors(fixed.checked) == []


@pytest.mark.parametrize("text", [text for text, _ in GUESSES], ids=lambda text: text.strip().replace("\n", " / "))
def test_the_help_of_a_guess_shows_what_its_fix_writes(text: str) -> None:
    for found in errors(checked(before(text) + text)):
        if found.fix is None:
            continue
        for edit in found.fix.edits:
            words = edit.text.strip(" ;\n").partition("\n")[0]
            assert words in found.help or not words, (found.help, words)


SAID: Final = {
    "rpm at the top": ("rpm 50\n", "provider NAME { limits { requests 50/min } }"),
    "a list of models": ('model_list ["a"]\n', "provider openai { key env(OPENAI_API_KEY) }"),
    "an API": ("provider gateway\n", '{ api anthropic; base "https://llm.internal.example" }'),
    "a condition in a block": ("budget b { cost $5/day; when stream }\n", "when ... { ... }"),
    "a zone of nginx": (
        "limit_req_zone $server_name zone=one:10m rate=30r/m;\n",
        "limits { requests 30/min }",
    ),
    "a zone of nginx in a lane": (
        "limit_req_zone $x zone=one:1m rate=10r/s;\nlane l { limit_req zone=one; }\n",
        "limits { requests 10/s }",
    ),
    "two agents": ("agent ci, cd { }\n", "agent ci { ... }"),
    "a budget of an agent": ("budget b { cost $5/day }\nagent ci { budget b }\n", "budget b when agent == ci { ... }"),
}


@pytest.mark.parametrize(("text", "words"), SAID.values(), ids=SAID)
def test_a_guess_that_no_edit_mends_says_what_to_write(text: str, words: str) -> None:
    assert any(f"`{words}`" in found.help for found in errors(checked(ANTHROPIC + text)))


@pytest.mark.parametrize("word", ["tls", "ssl_certificate", "cert", "log_level", "access_log"])
def test_what_is_left_to_other_programs_is_said_to_be(word: str) -> None:
    (found,) = errors(checked(f'{ANTHROPIC}server {{ {word} "x" }}\n'))

    assert "TLS proxy" in found.help or "standard error" in found.help


# ---- whole files of another format ----

LITELLM: Final = """
# my proxy
model_list:
  - model_name: gpt-4o
    litellm_params:
      model: openai/gpt-4o
      api_key: os.environ/OPENAI_API_KEY
      rpm: 50
  - model_name: claude
    litellm_params:
      model: anthropic/claude-opus-4-1
      api_key: os.environ/ANTHROPIC_API_KEY
      tpm: 80000
  - model_name: own
    litellm_params:
      model: hosted/qwen
      api_base: http://127.0.0.1:8000/v1
litellm_settings:
  num_retries: 3
"""
JSON: Final = """{
  "model_list": [
    {"model_name": "a", "litellm_params": {"model": "openai/gpt-4o", "api_key": "os.environ/KEY_A"}},
    {"model_name": "a", "litellm_params": {"model": "openai/gpt-4o", "api_key": "os.environ/KEY_B"}}
  ]
}
"""
OTHERS: Final = {
    "LiteLLM": (LITELLM, "a configuration of LiteLLM", ["openai", "anthropic", "hosted"]),
    "LiteLLM in JSON": (JSON, "a configuration of LiteLLM", ["openai"]),
    "YAML": ("---\nproviders:\n  anthropic:\n    concurrency: 8\n", "YAML", ["anthropic"]),
    "YAML without its mark": ("proxy:\n  port: 8787\n  keys: [a]\n", "YAML", ["anthropic"]),
    "TOML": ('[provider.anthropic]\nkey = "x"\n', "TOML", ["anthropic"]),
    "JSON": ('{"providers": {"anthropic": {"concurrency": 8}}}\n', "JSON", ["anthropic"]),
}


@pytest.mark.parametrize(("text", "name", "providers"), OTHERS.values(), ids=OTHERS)
def test_a_file_of_another_format_is_one_error_that_has_a_policy(text: str, name: str, providers: list[str]) -> None:
    (found,) = checked(text).diagnostics

    policy = checked(found.help.split("`")[1] + "\n")
    assert (found.code, found.message) == ("HM012", f"this is {name}, not a policy")
    assert found.fix is None  # it would overwrite the file
    assert errors(policy) == []
    assert policy.program is not None
    assert list(policy.program.providers) == providers


def test_limits_keys_and_retries_of_litellm_are_in_the_policy() -> None:
    (of_yaml,), (of_json,) = checked(LITELLM).diagnostics, checked(JSON).diagnostics

    assert 'limits "gpt-4o" { requests 50/min }' in of_yaml.help
    assert 'limits "claude-opus-4-1" { tokens 80000/min }' in of_yaml.help
    assert "retry default { attempts 4 }" in of_yaml.help
    assert "account key-1 { key env(KEY_A) }; account key-2 { key env(KEY_B) }" in of_json.help


@pytest.mark.parametrize(
    "text",
    [
        "lane default:\n  weight 2\n",
        "server:\n  drain 5s\n",
        "# a comment: with a colon\nprovider anthropic { }\n",
        'provider anthropic { serves ["a"] }\n- model: x\n',
        "provider: anthropic\n",
    ],
)
def test_slips_of_a_policy_make_no_other_format_of_it(text: str) -> None:
    assert "HM012" not in [one.code for one in checked(text).diagnostics]
